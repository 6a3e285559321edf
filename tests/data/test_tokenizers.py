"""The tokenizer against the sentencepiece library itself, its table of normalisations, and hostile text."""

import itertools
import random
import re

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.data import tokenizers as tokenizers_module
from keras_transformer.data.tokenizers import NORMALIZATIONS, Tokenizer
from keras_transformer.vocabulary import END_ID, PAD_ID, START_ID, UNKNOWN_ID

WORDS = [
    "the",
    "a",
    "small",
    "big",
    "dog",
    "cat",
    "house",
    "tree",
    "runs",
    "sleeps",
    "eats",
    "under",
    "near",
    "quickly",
]


def english(num_lines, seed=0):
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(3, 12))).capitalize() + "." for _ in range(num_lines)]


@pytest.fixture(scope="module")
def tokenizers():
    return {name: Tokenizer.train(english(1000), vocabulary_size=320, normalization=name) for name in NORMALIZATIONS}


@pytest.fixture(scope="module")
def tokenizer(tokenizers):
    return tokenizers["whitespace"]


def round_trip(tokenizer, text):
    """Through Python and through the graph, which must agree."""
    ids = tokenizer.encode([text])[0]
    assert tokenizer.tokenize([text]).to_list() == [ids]
    decoded = tokenizer.decode(ids)
    assert tokenizer.detokenize(tf.ragged.constant([ids], dtype=tf.int32)).numpy()[0].decode("utf-8") == decoded
    return decoded


def random_text(generator):
    """Text that breaks tokenizers: all planes, controls, marks of direction, joiners, blanks, sentencepiece's own."""
    kinds = [
        lambda: chr(generator.choice([generator.randrange(0xD800), generator.randrange(0xE000, 0x110000)])),
        lambda: chr(generator.randrange(0x100)),
        lambda: generator.choice(
            "\0\x01\x7f\t\n\r\x0b\x0c\x1c\x85\u2028\u2029\u3000\u00a0\u200b\u200d\u202e\u2066\ufeff\ufffe\uffff"
        ),
        lambda: generator.choice(
            ["▁", "▅", "<s>", "</s>", "<pad>", "<unk>", "<0x41>", "⁇", "\u0301", "ﬁ", "ǆ", "가", "각"]
        ),
        lambda: generator.choice(["🙂", "👩‍👩‍👧", "🇩🇪", "مرحبا", "שלום", "東京", "ไทย", "नमस्ते"]),
        lambda: generator.choice([*WORDS, " ", "  ", "."]),
    ]
    return "".join(generator.choice(kinds)() for _ in range(generator.randint(0, 20)))


def test_special_ids_and_sizes(tokenizer):
    assert (PAD_ID, UNKNOWN_ID, START_ID, END_ID) == (0, 1, 2, 3)
    assert tokenizer.vocabulary_size == 320
    ids = tokenizer.encode(english(200, seed=1))
    assert min(map(min, ids)) > END_ID
    assert max(map(max, ids)) < 320


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_rule_is_recorded(tokenizers, normalization):
    assert tokenizers[normalization].normalization == normalization


# The table in the documentation. None: unchanged.
TABLE = {
    #            whitespace, nfkc, nmt_nfkc
    "a  b": ("a b", "a b", "a b"),
    "a\nb": ("a b", None, "a b"),
    " a ": ("a", "a", "a"),
    "\t": ("", None, ""),
    "a\u3000b": ("a b", "a b", "a b"),
    "a\u00a0b": ("a b", "a b", "a b"),
    "a\u0085b": ("a b", None, None),
    "a\u2028b": ("a b", None, "a b"),
    "a\u200bb": (None, None, "a b"),
    "…": (None, "...", "..."),
    "２": (None, "2", "2"),
    "‼": (None, "!!", "!!"),
    "ŉ": (None, "ʼn", "ʼn"),
    "\ufe30": (None, "..", ".."),
    "a▁b": ("a b", "a b", "a b"),
}


@pytest.mark.parametrize("text", TABLE)
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_documented_table(tokenizers, normalization, text):
    if normalization == "identity":
        expected = text.replace("▁", " ")
    else:
        expected = TABLE[text][NORMALIZATIONS.index(normalization)]
    assert round_trip(tokenizers[normalization], text) == (text if expected is None else expected)


def test_whitespace_rule_is_split_and_join(tokenizer):
    """Every code point: white space becomes a space, everything else stays."""
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000 or (0x3400 < code < 0xD000 and code % 97) or (code > 0x10000 and code % 997):
            continue
        text = f"a{chr(code)}b"
        expected = "a b" if chr(code).isspace() or chr(code) == "▁" else text
        assert tokenizer.decode(tokenizer.encode([text])[0]) == expected, hex(code)


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=40))
def test_round_trip_of_any_text(tokenizers, text):
    assert round_trip(tokenizers["whitespace"], text) == " ".join(re.sub("▁", " ", text).split())
    assert round_trip(tokenizers["identity"], text) == text.replace("▁", " ")


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_graph_gives_the_ids_and_the_text_of_sentencepiece(tokenizers, normalization):
    generator = random.Random(1)
    texts = [random_text(generator) for _ in range(1500)] + english(200, seed=2)
    tokenizer = tokenizers[normalization]
    oracle = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    expected = [oracle.encode(text) for text in texts]
    assert UNKNOWN_ID not in {token for ids in expected for token in ids}
    assert tokenizer.encode(texts) == expected
    ragged = tokenizer.tokenize(texts)
    assert ragged.dtype == tf.int32
    assert ragged.to_list() == expected
    assert [text.decode("utf-8") for text in tokenizer.detokenize(ragged).numpy()] == [
        oracle.decode(ids) for ids in expected
    ]


def test_other_scripts_without_unknown_or_byte_marks(tokenizer):
    text = "東京🙂 مرحبا"
    assert round_trip(tokenizer, text) == text


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.binary(max_size=30), min_size=1, max_size=6))
def test_any_bytes_in_and_valid_utf8_out(tokenizer, texts):
    ids = tokenizer.tokenize(texts)
    assert ids.shape[0] == len(texts)
    # ICU and Python agree on what is invalid, and on what is kept, not on the number of replacement marks.
    decoded = [text.decode("utf-8") for text in tokenizer.detokenize(ids).numpy()]
    for text, result in zip(texts, decoded, strict=True):
        expected = " ".join(re.sub("▁", " ", text.decode("utf-8", "replace")).split())
        assert re.sub("\ufffd+", "\ufffd", result) == re.sub("\ufffd+", "\ufffd", expected)


@pytest.mark.parametrize("text", [b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xe2\x80", b"a\xff\0b"])
def test_bytes_that_are_not_utf8_become_replacement_marks(tokenizer, text):
    decoded = tokenizer.detokenize(tokenizer.tokenize([text])).numpy()[0].decode("utf-8")
    assert "\ufffd" in decoded
    assert decoded.replace("\ufffd", "") == text.decode("utf-8", "ignore")


def test_lone_surrogates_in_python_strings(tokenizer):
    assert tokenizer.decode(tokenizer.encode(["a\ud800b"])[0]) == "a\ufffdb"


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 330), max_size=12), min_size=1, max_size=5)
)
def test_any_ids_give_as_many_valid_texts(tokenizers, rows):
    width = max(map(len, rows))
    padded = np.zeros([len(rows), width], np.int32)
    for row, ids in enumerate(rows):
        padded[row, : len(ids)] = ids
    for tokenizer in tokenizers.values():
        texts = [text.decode("utf-8") for text in tokenizer.detokenize(padded).numpy()]
        assert texts == [tokenizer.decode(row) for row in rows] == [tokenizer.decode(row) for row in padded]
        assert not any("<0x" in text or "⁇" in text for text in texts)


def test_special_ids_between_bytes_are_as_if_not_there(tokenizers):
    e_acute = [4 + byte for byte in "é".encode()]
    for tokenizer in tokenizers.values():
        for special in (PAD_ID, START_ID, END_ID):
            rows = [[e_acute[0], special, e_acute[1]], [special, *e_acute], [*e_acute, special], [special] * 3]
            texts = [text.decode("utf-8") for text in tokenizer.detokenize(rows[:2]).numpy()]
            assert [tokenizer.decode(row) for row in rows] == [*texts, "é", ""] == ["é", "é", "é", ""]


def test_spaces_at_the_start_in_every_spelling(tokenizers):
    for tokenizer in tokenizers.values():
        (word,) = tokenizer.encode(["dog"])
        byte_pieces = [4 + ord(" "), 4 + ord("A")]
        ids = [PAD_ID, UNKNOWN_ID, START_ID, END_ID, *byte_pieces, word[0], *tokenizer.encode(["  a"])[0]]
        rows = [list(row) for length in range(4) for row in itertools.product(dict.fromkeys(ids), repeat=length)]
        texts = [text.decode("utf-8") for text in tokenizer.detokenize(tf.ragged.constant(rows, tf.int32)).numpy()]
        assert texts == [tokenizer.decode(row) for row in rows]


def test_detokenize_details(tokenizer):
    (dog,) = tokenizer.encode(["dog"])
    rows = [[START_ID, *dog, END_ID], [PAD_ID] * 2 + dog, [PAD_ID, START_ID, END_ID], []]
    ragged = tf.ragged.constant(rows, dtype=tf.int64)
    for ids in (ragged, ragged.to_tensor()):
        assert tokenizer.detokenize(ids).numpy().tolist() == [b"dog", b"dog", b"", b""]
    assert tokenizer.detokenize(tf.zeros([2, 0], tf.int32)).numpy().tolist() == [b"", b""]
    assert tokenizer.detokenize(tf.zeros([0, 3], tf.int32)).shape == [0]
    # Out of range: the nearest id; 64-bit ids do not wrap.
    last = tokenizer.decode([tokenizer.vocabulary_size - 1])
    assert tokenizer.detokenize(tf.constant([[2**40], [-(2**40)]], tf.int64)).numpy().tolist() == [last.encode(), b""]
    # Half a character, and the unknown id, which no text gives.
    first_byte = tokenizer.encode(["é"])[0][-2]
    assert tokenizer.decode([first_byte]) == tokenizer.decode([UNKNOWN_ID]) == "\ufffd"


def test_empty_texts_and_batches(tokenizer):
    assert tokenizer.encode([]) == []
    assert tokenizer.encode(["", " \n"]) == [[], []]
    assert tokenizer.tokenize(["", " \n"]).to_list() == [[], []]
    assert tokenizer.tokenize(tf.constant([], tf.string)).to_list() == []
    assert tokenizer.decode([]) == ""
    with pytest.raises(TypeError, match="list of strings"):
        tokenizer.encode("one string")


def test_inside_a_traced_function(tokenizer):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def there_and_back(text):
        return tokenizer.detokenize(tokenizer.tokenize(text).to_tensor())

    texts = english(3, seed=3)
    assert there_and_back(tf.constant(texts)).numpy().tolist() == [text.encode() for text in texts]


def test_survives_seeds(tokenizer):
    texts = english(3, seed=4)
    expected = tokenizer.encode(texts)
    tokenizer.tokenize(texts)
    for destroy in (lambda: keras.utils.set_random_seed(1), lambda: tf.random.set_seed(1), keras.utils.clear_session):
        destroy()
        assert tokenizer.encode(texts) == expected
        assert tokenizer.tokenize(texts).to_list() == expected
        assert tokenizer.detokenize(tokenizer.tokenize(texts)).numpy().tolist() == [text.encode() for text in texts]
        # Traced after the seed, inside a function.
        destroy()
        assert tf.function(tokenizer.tokenize)(tf.constant(texts)).to_list() == expected


def test_words_are_numbered(tokenizer):
    texts = ["a small word", "", "wordless", "東京 and ü", " two  blanks "]
    rows = [[*ids, END_ID] for ids in tokenizer.encode(texts)]
    ids = tf.ragged.constant(rows).to_tensor(PAD_ID)
    for text, row, words in zip(texts, rows, tokenizer.number_words(ids).numpy(), strict=True):
        assert (words[len(row) - 1 :] == -1).all()  # the end mark and the padding
        words = words[: len(row) - 1]
        pieces = {}
        for token, word in zip(row[:-1], words, strict=True):
            pieces.setdefault(int(word), []).append(token)
        assert [tokenizer.decode(tokens) for tokens in pieces.values()] == text.split()
        assert list(pieces) == list(range(len(text.split())))
    begins, continues = tokenizer.encode(["a"])[0][0], tokenizer.encode(["ü"])[0][-1]
    ids = [[START_ID, continues, continues, begins, PAD_ID, continues]]
    assert tokenizer.number_words(tf.constant(ids)).numpy().tolist() == [[-1, 0, 0, 1, -1, 1]]


def test_save_and_load(tokenizers, tmp_path):
    for name, tokenizer in tokenizers.items():
        path = tmp_path / name
        path.write_bytes(b"something older")
        tokenizer.save(path)
        loaded = Tokenizer.load(str(path))
        assert (loaded.model, loaded.sha256, loaded.normalization) == (tokenizer.model, tokenizer.sha256, name)
        assert loaded.vocabulary_size == 320
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NORMALIZATIONS)  # nothing temporary is left
    assert len({tokenizer.sha256 for tokenizer in tokenizers.values()}) == 4


def test_load_errors(tokenizer, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Tokenizer.load(tmp_path / "nowhere")
    for content in (b"", b"garbage", tokenizer.model[: len(tokenizer.model) // 2]):
        (tmp_path / "broken").write_bytes(content)
        with pytest.raises(ValueError, match=r"broken is no usable tokenizer"):
            Tokenizer.load(tmp_path / "broken")
    with pytest.raises(TypeError, match="model must be the bytes"):
        Tokenizer("model.spm")


def test_models_of_another_kind_are_refused(tmp_path):
    prefix = tmp_path / "other"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(english(100)), model_prefix=prefix, vocab_size=60, model_type="bpe", minloglevel=2
    )
    with pytest.raises(ValueError, match="padding, unknown, start and end ids"):
        Tokenizer.load(f"{prefix}.model")
    options = {"pad_id": PAD_ID, "unk_id": UNKNOWN_ID, "bos_id": START_ID, "eos_id": END_ID}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(english(100)), model_prefix=prefix, vocab_size=60, minloglevel=2, **options
    )
    with pytest.raises(ValueError, match="byte fallback"):
        Tokenizer.load(f"{prefix}.model")


def test_training_is_reproducible_and_holds_no_path():
    models = {Tokenizer.train(english(500), vocabulary_size=320, num_threads=threads).model for threads in (1, 2, 5)}
    assert len(models) == 1
    assert b"tmp" not in models.pop()


def test_training_on_a_sample():
    text = english(2000)
    all_text, sample, other = (
        Tokenizer.train(iter(text), vocabulary_size=320, max_sentences=count, seed=seed)
        for count, seed in ((2000, 0), (200, 0), (200, 1))
    )
    assert all_text.sha256 == Tokenizer.train(text, vocabulary_size=320, seed=1).sha256
    assert sample.sha256 == Tokenizer.train(text, vocabulary_size=320, max_sentences=200).sha256
    assert len({all_text.sha256, sample.sha256, other.sha256}) == 3


def test_sample_is_drawn_evenly():
    draws = [tokenizers_module._sample(map(str, range(1000)), 100, seed) for seed in range(50)]
    assert all(len(set(draw)) == 100 for draw in draws)
    quarters = np.bincount([int(number) // 250 for draw in draws for number in draw], minlength=4)
    np.testing.assert_allclose(quarters, 1250, rtol=0.1)  # three standard deviations


@pytest.mark.parametrize("separator", [" ", "\n", "\0", "\u2585", "\t", "\ud800"])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_no_training_line_is_left_out(separator, normalization):
    """A word that occurs only in lines that sentencepiece would skip gets its piece all the same."""
    long_line = separator.join(["zebra", "quux"] * 3000)
    assert len(long_line.encode("utf-8", "replace")) > 4192
    for lines in ([long_line], [f"zebra{separator}quux"] * 3000):
        tokenizer = Tokenizer.train([*english(50), *lines], vocabulary_size=320, normalization=normalization)
        # Two pieces where the separator stays and the word after it does not begin with a space.
        assert all(len(ids) <= 2 for ids in tokenizer.encode(["zebra", "quux"]))


def test_a_long_line_without_a_space():
    tokenizer = Tokenizer.train(["東京大学" * 5000], vocabulary_size=270, character_coverage=1.0)
    assert len(tokenizer.encode(["東京大学" * 4])[0]) <= 5


def test_vocabulary_too_large_for_the_text():
    with pytest.raises(ValueError, match=r"vocabulary_size must be at most (\d+) .*Received: 5000") as error:
        Tokenizer.train(english(1000), vocabulary_size=5000)
    largest = int(re.search(r"at most (\d+)", str(error.value))[1])
    assert Tokenizer.train(english(1000), vocabulary_size=largest).vocabulary_size == largest
    with pytest.raises(ValueError, match=f"at most {largest}"):
        Tokenizer.train(english(1000), vocabulary_size=largest + 1)


def test_vocabulary_too_small():
    with pytest.raises(ValueError, match=r"vocabulary_size must be at least (\d+) .*Received: 270") as error:
        Tokenizer.train(english(1000), vocabulary_size=270)
    smallest = int(re.search(r"at least (\d+)", str(error.value))[1])
    assert Tokenizer.train(english(1000), vocabulary_size=smallest).vocabulary_size == smallest
    for size in (-1, 0, 100, 260, 2**31):
        with pytest.raises(ValueError, match=f"vocabulary_size must be above 260.*Received: {size}"):
            Tokenizer.train(english(1000), vocabulary_size=size)


def test_other_training_errors():
    for text in ([], [""], [" ", "\n", "\u3000\t"]):
        with pytest.raises(ValueError, match="sentences must hold text"):
            Tokenizer.train(text, vocabulary_size=320)
    with pytest.raises(ValueError, match=r"normalization must be one of whitespace, .*'NFC'"):
        Tokenizer.train(english(10), vocabulary_size=320, normalization="NFC")
    with pytest.raises(ValueError, match="max_sentences"):
        Tokenizer.train(english(10), vocabulary_size=320, max_sentences=0)
    with pytest.raises(ValueError, match="character_coverage"):
        Tokenizer.train(english(10), vocabulary_size=320, character_coverage=1.5)


def test_training_prints_nothing(capfd):
    Tokenizer.train(english(200), vocabulary_size=320)
    assert capfd.readouterr() == ("", "")
