"""Parallel text in: pairs of sentences from files or TensorFlow Datasets, with everything that was left out counted.

A corpus can be iterated any number of times and gives `(source, target)` strings one pair at a time; it is never held
in memory. Rows are numbered from 1, as editors number lines.
"""

import dataclasses
import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

# Longest line that is read whole. No sentence is that long; a broken file can be one line of many gigabytes.
MAX_LINE_BYTES = 1_000_000
# Row numbers that a report keeps of each kind.
NUM_REPORTED_ROWS = 5

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
# What files that are no UTF-8 text begin with; of two that fit, the longer one stands first.
_OTHER_FORMATS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    _GZIP_MAGIC: "compressed with gzip",
    b"\xfd7zXZ\x00": "compressed with xz",
    b"BZh": "compressed with bzip2",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"PK\x03\x04": "a zip archive",
}
_BLOCK_BYTES = 1 << 20

BOTH_EMPTY = "both sides empty"
ONE_EMPTY = "one side empty"
INVALID_UTF8 = "invalid UTF-8"
LONG_LINE = f"longer than {MAX_LINE_BYTES} bytes"


@dataclasses.dataclass
class CorpusReport:
    """What reading a corpus met: how many rows, how many given on, and the troubles by kind.

    Attributes:
        name: the corpus, for the reader.
        num_rows: rows read so far.
        num_pairs: pairs given on so far.
        kept: True if rows with trouble are given on all the same (repaired), False if they are dropped.
        counts: number of rows by kind of trouble.
        rows: numbers of the first few rows by kind of trouble, from 1.
    """

    name: str
    num_rows: int = 0
    num_pairs: int = 0
    kept: bool = False
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    rows: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    def add(self, kind: str, row: int) -> None:
        """Count one row with trouble."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        first_rows = self.rows.setdefault(kind, [])
        if len(first_rows) < NUM_REPORTED_ROWS:
            first_rows.append(row)

    def __str__(self):
        lines = [f"{self.name}: {self.num_pairs:,} pairs of {self.num_rows:,} rows"]
        done = "kept" if self.kept else "dropped"
        for kind, count in self.counts.items():
            rows = ", ".join(map(str, self.rows[kind])) + (", ..." if count > len(self.rows[kind]) else "")
            lines.append(f"  {done} {count:,}: {kind} (row {rows})")
        return "\n".join(lines)


class ParallelFiles:
    """Pairs from two text files of the same number of lines, line by line.

    Lines end at a line feed and nowhere else, so U+0085 or U+2028 inside a sentence does not shift the pairs; one
    carriage return before it is removed, and a byte order mark at the start of a file. A file whose content is gzip is
    read as such, whatever its name.

    For training, rows that teach nothing or harm are dropped: a side empty or only white space, bytes that are not
    UTF-8, a line over a megabyte. Each is counted in `report`, with the numbers of the first few rows. With
    `keep_all=True` no row is ever dropped: bytes that are not UTF-8 become U+FFFD and an endless line is cut, both
    counted.

    Args:
        source: path of the source text, UTF-8, plain or gzip.
        target: path of the target text, likewise.
        keep_all: True for development and test sets, whose number of rows must not change. Defaults to `False`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the files differ in their number of lines, hold no line, are UTF-16 or broken gzip. Both files are
            read through once for this when the corpus is made, before any long work.
    """

    def __init__(self, source: str | os.PathLike, target: str | os.PathLike, *, keep_all: bool = False):
        self.source = _existing_file("source", source)
        self.target = _existing_file("target", target)
        self.keep_all = keep_all
        num_source = _count_lines("source", self.source)
        num_target = _count_lines("target", self.target)
        if num_source != num_target:
            raise ValueError(
                "source and target must have the same number of lines, so that line i of one translates line i of the "
                f"other. Received: {num_source:,} lines in {self.source} and {num_target:,} lines in {self.target}"
            )
        if num_source == 0:
            raise ValueError(f"source and target must hold text. Received: no line in {self.source} and {self.target}")
        self.num_rows = num_source
        self.report = self._new_report()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.report = self._new_report()
        with _open(self.source) as source, _open(self.target) as target:
            yield from _pairs(zip(_lines(source), _lines(target), strict=True), self.report)

    def _new_report(self) -> CorpusReport:
        return CorpusReport(f"{self.source} and {self.target}", kept=self.keep_all)


class TfdsPairs:
    """Pairs from a translation data set of [TensorFlow Datasets](https://www.tensorflow.org/datasets).

    Rows are read in the order in which they are stored and filtered and counted as `ParallelFiles` does. The language
    arguments choose the direction, whatever the order in the data set's name.

    Args:
        name: data set and configuration, such as "wmt14_translate/de-en".
        split: split, such as "train", or a part of one, such as "train[:1%]".
        source_language: the feature to read as source, such as "en".
        target_language: the feature to read as target, such as "de".
        data_dir: folder of prepared data sets. Defaults to the one of TensorFlow Datasets.
        keep_all: see `ParallelFiles`. Defaults to `False`.
        download: whether to download and prepare data that are not there. Defaults to `False`, because it takes
            gigabytes and hours for the large sets.

    Raises:
        FileNotFoundError: the data are not prepared and `download` is False.
        ValueError: the data set, the split or a language does not exist, or the split is empty.
    """

    def __init__(
        self,
        name: str,
        split: str,
        *,
        source_language: str,
        target_language: str,
        data_dir: str | os.PathLike | None = None,
        keep_all: bool = False,
        download: bool = False,
    ):
        import tensorflow_datasets as tfds  # half a second that only those who use it should pay

        self.name = name
        self.split = split
        self.source_language = source_language
        self.target_language = target_language
        self.keep_all = keep_all
        data_dir = None if data_dir is None else os.fspath(data_dir)
        try:
            self._builder = tfds.builder(name, data_dir=data_dir)
        except (tfds.core.registered.DatasetNotFoundError, ValueError) as error:
            # The library's own message goes on to list every data set there is.
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"name must be a data set of TensorFlow Datasets. Received: {name!r} ({reason})"
            ) from error
        languages = _languages(self._builder.info.features)
        if len(languages) < 2:
            raise ValueError(f"name must be a data set of texts in two languages. Received: {name!r}")
        for argument, language in (("source_language", source_language), ("target_language", target_language)):
            if language not in languages:
                raise ValueError(
                    f"{argument} must be one of {', '.join(languages)} in {name!r}. Received: {language!r}"
                )
        if source_language == target_language:
            raise ValueError(f"source_language and target_language must differ. Received: {source_language!r} twice")
        if not self._builder.is_prepared():
            if not download:
                raise FileNotFoundError(
                    f"{name!r} is not prepared in {self._builder.data_dir}. Pass download=True to download and prepare "
                    "it there, or data_dir= to read it from another folder."
                )
            self._builder.download_and_prepare()
        try:
            self.num_rows = self._builder.info.splits[split].num_examples
        except (KeyError, ValueError) as error:
            splits = ", ".join(self._builder.info.splits)
            raise ValueError(f"split must be one of {splits}, or a part of one. Received: {split!r}") from error
        if self.num_rows == 0:
            raise ValueError(f"split must hold text. Received: {split!r} of {name!r}, which is empty")
        self.report = self._new_report()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        import tensorflow_datasets as tfds

        self.report = self._new_report()
        # One file after the other: by default several are read in turn.
        read_config = tfds.ReadConfig(interleave_cycle_length=1)
        dataset = self._builder.as_dataset(split=self.split, shuffle_files=False, read_config=read_config)
        rows = ((row[self.source_language], row[self.target_language]) for row in tfds.as_numpy(dataset))
        yield from _pairs(rows, self.report)

    def _new_report(self) -> CorpusReport:
        return CorpusReport(f"{self.name} {self.split}", kept=self.keep_all)


def _pairs(rows: Iterator[tuple[bytes, bytes]], report: CorpusReport) -> Iterator[tuple[str, str]]:
    """Decodes, filters and counts; the one home of these rules."""
    for row, sides in enumerate(rows, start=1):
        report.num_rows = row
        trouble = None
        try:
            if max(map(len, sides)) > MAX_LINE_BYTES:
                trouble = LONG_LINE
                sides = [side[:MAX_LINE_BYTES].decode("utf-8", errors="replace") for side in sides]
            else:
                sides = [side.decode("utf-8") for side in sides]
        except UnicodeDecodeError:
            trouble = INVALID_UTF8
            sides = [side.decode("utf-8", errors="replace") for side in sides]
        source, target = sides
        if trouble is None:
            num_empty = (not source.strip()) + (not target.strip())
            trouble = (None, ONE_EMPTY, BOTH_EMPTY)[num_empty]
        if trouble is not None:
            report.add(trouble, row)
            if not report.kept:
                continue
        report.num_pairs += 1
        yield source, target


class NotTextError(ValueError):
    """What should be UTF-8 text is something else."""


def text_start(argument: str, start: bytes, name: str | os.PathLike) -> bytes:
    """Return the first bytes of a text without a byte order mark.

    Raises:
        NotTextError: if they show that it is no UTF-8 text.
    """
    for magic, kind in _OTHER_FORMATS.items():
        if start.startswith(magic):
            raise NotTextError(f"{argument} must be UTF-8 text. Received: {name}, which is {kind}")
    return start.removeprefix(_BYTE_ORDER_MARK)


def _existing_file(argument: str, path: str | os.PathLike) -> Path:
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{argument} must be a text file; there is no file {path}")
    return path


def _open(path: Path) -> BinaryIO:
    """Open for reading bytes, past a byte order mark; gzip is told by its content, names lie."""
    with open(path, "rb") as file:
        is_gzip = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    raw = gzip.GzipFile(path) if is_gzip else open(path, "rb", buffering=0)  # noqa: SIM115 - the caller closes it
    file = io.BufferedReader(raw, _BLOCK_BYTES)
    if file.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
        file.seek(0)
    return file


def _count_lines(argument: str, path: Path) -> int:
    """Number of lines, where text after the last line feed is a line too."""
    try:
        with _open(path) as file:
            start = text_start(argument, file.read(_BLOCK_BYTES), path)
            count, last = start.count(b"\n"), start[-1:] or b"\n"
            while block := file.read(_BLOCK_BYTES):
                count += block.count(b"\n")
                last = block[-1:]
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{argument} must be a whole gzip file. Received: {path}, which is broken ({error})"
        ) from error
    return count + (last != b"\n")


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines without their end, each at most one byte longer than the limit, so that the reader can tell."""
    while line := file.readline(MAX_LINE_BYTES + 2):
        if line.endswith(b"\n"):
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        elif len(line) > MAX_LINE_BYTES:
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(_BLOCK_BYTES)
            line = line[: MAX_LINE_BYTES + 1]
        elif line.endswith(b"\r"):
            line = line[:-1]
        yield line


def _languages(features) -> list[str]:
    """Names of the text features; a data set of nested or unnamed features is no translation data set."""
    import tensorflow_datasets as tfds

    if not hasattr(features, "keys"):
        return []
    return sorted(name for name in features if isinstance(features[name], tfds.features.Text))


class HeldOut:
    """One split of a corpus that has no development and test sets of its own.

    A pair's split follows from a checksum of its source alone: no source is in two splits, however often it occurs,
    and a pair stays where it is when others are added. Each held-out split takes about 1,000 pairs of a large corpus
    and 5 % of one under 20,000.

    Args:
        pairs: `ParallelFiles`, `TfdsPairs` or any re-iterable with `num_rows` and `report`.
        split: "train", "dev" or "test".

    Raises:
        ValueError: an unknown split.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], split: str):
        if split not in ("train", "dev", "test"):
            raise ValueError(f"split must be 'train', 'dev' or 'test'. Received: {split!r}")
        self._pairs = pairs
        self.split = split
        self._num_classes = max(20, pairs.num_rows // 1000)

    @property
    def report(self) -> CorpusReport:
        """What reading the whole corpus met."""
        return self._pairs.report

    def __iter__(self) -> Iterator[tuple[str, str]]:
        names = {0: "dev", 1: "test"}
        for source, target in self._pairs:
            checksum = zlib.crc32(source.encode("utf-8", errors="surrogatepass"))
            if names.get(checksum % self._num_classes, "train") == self.split:
                yield source, target
