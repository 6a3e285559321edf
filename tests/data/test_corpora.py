"""Corpora are compared with a plain reading of the same bytes, rule by rule."""

import bz2
import gzip
import itertools
import lzma

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.data import corpora
from keras_transformer.data.corpora import (
    BOTH_EMPTY,
    INVALID_UTF8,
    LONG_LINE,
    ONE_EMPTY,
    HeldOut,
    ParallelFiles,
    TfdsPairs,
)


@pytest.fixture
def write(tmp_path):
    names = itertools.count()

    def write_pair(source: bytes, target: bytes):
        paths = [tmp_path / f"{next(names)}.{side}" for side in ("source", "target")]
        for path, content in zip(paths, (source, target), strict=True):
            path.write_bytes(content)
        return paths

    return write_pair


def test_lines_are_paired_and_can_be_read_again(write):
    corpus = ParallelFiles(*write(b"a\nb\n", b"x\ny"))
    assert list(corpus) == list(corpus) == [("a", "x"), ("b", "y")]
    assert corpus.num_rows == corpus.report.num_rows == corpus.report.num_pairs == 2
    assert not corpus.report.counts


def test_two_readers_at_once_do_not_disturb_each_other(write):
    corpus = ParallelFiles(*write(b"a\nb\nc\n", b"x\ny\nz\n"))
    assert list(zip(corpus, corpus, strict=True)) == [(pair, pair) for pair in corpus]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [b"", b"end"])
def test_only_a_line_feed_ends_a_line(write, ending, last):
    marks = "a\u0085b", "c\u2028d\u2029", "e\x0bf\x0cg\x1ch", "i\rj", "k\u00a0"
    source = ending.join(mark.encode() for mark in marks) + ending + (last and b"Z")
    target = ending.join(b"%d" % number for number in range(len(marks))) + ending + (last and b"end")
    pairs = list(ParallelFiles(*write(source, target)))
    expected = [(mark, str(number)) for number, mark in enumerate(marks)]
    assert pairs == expected + ([("Z", "end")] if last else [])


def test_byte_order_mark_is_removed_at_the_start_of_a_file_only(write):
    assert list(ParallelFiles(*write(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", b"x\ny\n"))) == [("a", "x"), ("\ufeffb", "y")]


def test_gzip_is_told_by_its_content(write, tmp_path):
    source, target = write(gzip.compress(b"\xef\xbb\xbfa\nb\n"), b"x\ny\n")
    assert list(ParallelFiles(source, target)) == [("a", "x"), ("b", "y")]
    plain = target.rename(tmp_path / "plain.gz")
    assert list(ParallelFiles(source, plain)) == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:20] + b"\0" * 9 + data[29:]])
def test_broken_gzip_is_an_error_at_once(write, damage):
    data = damage(gzip.compress(bytes(range(1, 255)) * 3 + b"\n"))
    with pytest.raises(ValueError, match=r"source must be a whole gzip file.*0\.source"):
        ParallelFiles(*write(data, b"x\n"))


def test_missing_file_names_the_argument(write, tmp_path):
    source, target = write(b"a\n", b"x\n")
    with pytest.raises(FileNotFoundError, match=r"source must be .*nowhere"):
        ParallelFiles(tmp_path / "nowhere", target)
    with pytest.raises(FileNotFoundError, match=r"target must be .*nowhere"):
        ParallelFiles(source, tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="source"):
        ParallelFiles(tmp_path, target)


def test_misaligned_files_give_both_counts_and_both_names(write):
    source, target = write(b"a\nb\nc", b"x\ny\n")
    with pytest.raises(ValueError, match="same number of lines") as error:
        ParallelFiles(source, target)
    for part in ("3 lines", "2 lines", str(source), str(target)):
        assert part in str(error.value)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_empty_corpus_is_an_error(write, content):
    with pytest.raises(ValueError, match="must hold text"):
        ParallelFiles(*write(content, content))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_an_error(write, encoding):
    with pytest.raises(ValueError, match=r"target must be UTF-8 text.*UTF-16"):
        ParallelFiles(*write(b"a\n", "\ufeffx\n".encode(encoding)))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("a\n".encode("utf-32"), "UTF-32"),
        (lzma.compress(b"a\n"), "compressed with xz"),
        (bz2.compress(b"a\n"), "compressed with bzip2"),
        (b"\x28\xb5\x2f\xfd rest", "compressed with zstd"),
        (b"PK\x03\x04 rest", "a zip archive"),
        (gzip.compress(gzip.compress(b"a\n")), "compressed with gzip"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_formats_are_refused_by_name(write, content, kind):
    with pytest.raises(ValueError, match=rf"source must be UTF-8 text\. Received: .*, which is {kind}"):
        ParallelFiles(*write(content, b"x\n"))


SOURCE_ROWS = b"a\n\n \t\nd\n\xff\nf\xc0\x80\n\xed\xa0\x80\n" + "\u3000\n".encode() + b"i\n"
TARGET_ROWS = b"1\n\n3\n\n5\n6\n7\n\t\n9\n"


def test_rows_with_trouble_are_dropped_and_counted_in_training(write):
    corpus = ParallelFiles(*write(SOURCE_ROWS, TARGET_ROWS))
    for _ in range(2):  # a second reading starts the counts anew
        assert list(corpus) == [("a", "1"), ("i", "9")]
        assert corpus.report.counts == {BOTH_EMPTY: 2, ONE_EMPTY: 2, INVALID_UTF8: 3}
        assert corpus.report.rows == {BOTH_EMPTY: [2, 8], ONE_EMPTY: [3, 4], INVALID_UTF8: [5, 6, 7]}
    text = str(corpus.report)
    assert "2 pairs of 9 rows" in text
    assert "dropped 3: invalid UTF-8 (row 5, 6, 7)" in text


def test_no_row_is_dropped_when_all_are_kept(write):
    corpus = ParallelFiles(*write(SOURCE_ROWS, TARGET_ROWS), keep_all=True)
    sources, targets = zip(*corpus, strict=True)
    assert sources == ("a", "", " \t", "d", "\ufffd", "f\ufffd\ufffd", "\ufffd\ufffd\ufffd", "\u3000", "i")
    assert targets == ("1", "", "3", "", "5", "6", "7", "\t", "9")
    assert corpus.report.counts == {BOTH_EMPTY: 2, ONE_EMPTY: 2, INVALID_UTF8: 3}
    assert "kept 3: invalid UTF-8" in str(corpus.report)


def test_report_keeps_only_the_first_rows(write):
    corpus = ParallelFiles(*write(b"\n" * 50 + b"a\n", b"x\n" * 51))
    assert list(corpus) == [("a", "x")]
    assert corpus.report.counts == {ONE_EMPTY: 50}
    assert "(row 1, 2, 3, 4, 5, ...)" in str(corpus.report)


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("excess", [-2, -1, 0, 1, 2, 5000])
def test_endless_lines_are_counted_and_bounded(write, monkeypatch, ending, excess):
    monkeypatch.setattr(corpora, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(corpora, "_BLOCK_BYTES", 64)
    long = b"x" * (1000 + excess)
    paths = write(b"a\n" + long + ending, b"1\n2\n")
    corpus = ParallelFiles(*paths)
    assert list(corpus) == [("a", "1")] + ([(long.decode(), "2")] if excess <= 0 else [])
    assert corpus.report.rows == ({LONG_LINE: [2]} if excess > 0 else {})
    kept = ParallelFiles(*paths, keep_all=True)
    assert list(kept) == [("a", "1"), (long[:1000].decode(), "2")]
    # The line after it is still the next one.
    assert list(ParallelFiles(*write(long + (ending or b"\n") + b"b\n", b"1\n2\n")))[-1] == ("b", "2")


def test_cutting_an_endless_line_in_a_character_is_not_invalid_text(write, monkeypatch):
    monkeypatch.setattr(corpora, "MAX_LINE_BYTES", 5)
    corpus = ParallelFiles(*write("äöüß\n".encode(), b"1\n"), keep_all=True)
    assert list(corpus) == [("äö\ufffd", "1")]
    assert corpus.report.counts == {LONG_LINE: 1}


hostile_line = st.one_of(
    st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")),
    st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass").replace(b"\n", b"")),
    st.sampled_from([b"", b" ", b"\r", b"\xc0\xaf", b"\xed\xb0\x80", b"\0", "🙂\u202e".encode(), "\u2028".encode()]),
)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(st.tuples(hostile_line, hostile_line), min_size=1, max_size=8), compress=st.booleans())
def test_any_bytes_keep_their_rows(tmp_path_factory, rows, compress):
    """Against Python's own splitting and decoding, for any bytes."""
    directory = tmp_path_factory.mktemp("rows")
    paths = []
    # A first plain row, because a mark at the start of a file means something.
    for index, side in enumerate(zip((b"first", b"first"), *rows, strict=True)):
        content = b"\n".join(side) + b"\n"
        paths.append(directory / str(index))
        paths[-1].write_bytes(gzip.compress(content, 1) if compress else content)
    rows = [(b"first", b"first"), *rows]
    expected = [tuple(text.removesuffix(b"\r").decode("utf-8", "replace") for text in row) for row in rows]
    kept = ParallelFiles(*paths, keep_all=True)
    assert list(kept) == expected
    trained = ParallelFiles(*paths)
    good = list(trained)
    assert good == [
        pair
        for pair, row in zip(expected, rows, strict=True)
        if all(map(is_utf8, row)) and all(text.strip() for text in pair)
    ]
    assert len(good) + sum(trained.report.counts.values()) == len(expected) == trained.report.num_rows
    assert kept.report.counts == trained.report.counts


def is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@pytest.fixture(scope="module")
def tfds_folder(tmp_path_factory):
    import tensorflow_datasets as tfds

    def rows(*pairs):
        return [{"de": german, "en": english} for german, english in pairs]

    folder = tmp_path_factory.mktemp("tfds")
    tfds.dataset_builders.store_as_tfds_dataset(
        name="wmt14_translate",
        config="de-en",
        version="1.0.0",
        data_dir=folder,
        features=tfds.features.Translation(languages=("de", "en")),
        split_datasets={
            "train": enumerate(rows(("eins", "one"), ("", "two"), ("drei", "three"))),
            "test": enumerate(rows(("vier", "four"), ("fünf\u2028", ""))),
        },
        disable_shuffling=True,
    )
    return folder


def wmt14(folder, split="train", source_language="en", target_language="de", **options):
    return TfdsPairs(
        "wmt14_translate/de-en",
        split,
        source_language=source_language,
        target_language=target_language,
        data_dir=folder,
        **options,
    )


def test_tfds_pairs_are_read_filtered_and_read_again(tfds_folder):
    corpus = wmt14(tfds_folder)
    assert corpus.num_rows == 3
    assert list(corpus) == list(corpus) == [("one", "eins"), ("three", "drei")]
    assert corpus.report.rows == {ONE_EMPTY: [2]}
    assert list(wmt14(tfds_folder, "test", "de", "en", keep_all=True)) == [("vier", "four"), ("fünf\u2028", "")]
    assert list(wmt14(tfds_folder, "train[2:]")) == [("three", "drei")]


def test_tfds_errors_name_the_argument(tfds_folder, tmp_path):
    with pytest.raises(ValueError, match=r"target_language must be one of de, en .*'fr'"):
        wmt14(tfds_folder, target_language="fr")
    with pytest.raises(ValueError, match=r"source_language must be one of de, en .*'xx'"):
        wmt14(tfds_folder, source_language="xx")
    with pytest.raises(ValueError, match="must differ"):
        wmt14(tfds_folder, source_language="de")
    with pytest.raises(ValueError, match=r"split must be one of .*'dev'"):
        wmt14(tfds_folder, "dev")
    with pytest.raises(FileNotFoundError, match="download=True"):
        wmt14(tmp_path)
    for name in ("no_such_data_set", "wmt14_translate/xx-yy", "mnist"):
        with pytest.raises(ValueError, match=rf"name must be a data set .*'{name}'"):
            TfdsPairs(name, "train", source_language="en", target_language="de", data_dir=tmp_path)


@pytest.mark.parametrize(("num_rows", "share"), [(4_000, 1 / 20), (40_000, 1 / 40)])
def test_held_out_splits_are_disjoint_by_source_and_complete(tmp_path, num_rows, share):
    # Every tenth source occurs again with another translation: both must land in the same split.
    rows = [(f"source {i - i % 10 if i % 10 == 1 else i}", f"target {i}") for i in range(num_rows)]
    for side, name in enumerate(("source", "target")):
        (tmp_path / name).write_text("".join(row[side] + "\n" for row in rows), "utf-8")
    whole = ParallelFiles(tmp_path / "source", tmp_path / "target")
    splits = {split: list(HeldOut(whole, split)) for split in ("train", "dev", "test")}
    assert sorted(pair for pairs in splits.values() for pair in pairs) == sorted(rows)
    sources = {split: {source for source, _ in pairs} for split, pairs in splits.items()}
    assert not sources["train"] & sources["test"]
    assert not sources["train"] & sources["dev"]
    assert not sources["dev"] & sources["test"]
    for split in ("dev", "test"):
        assert 0.8 * share < len(splits[split]) / num_rows < 1.2 * share
    assert HeldOut(whole, "dev").report is whole.report


def test_an_unknown_split_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"split must be .* Received: .valid."):
        HeldOut(None, "valid")
