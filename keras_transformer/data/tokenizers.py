"""Text to token ids and back: SentencePiece BPE, the same ids in Python and inside a TensorFlow graph."""

import hashlib
import io
import os
import random
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.files import replaced
from keras_transformer.vocabulary import END_ID, PAD_ID, START_ID, UNKNOWN_ID

# Decoding leaves them out before it looks at the pieces, so that the bytes around one join.
_SILENT_IDS = (PAD_ID, START_ID, END_ID)

NORMALIZATIONS = ("whitespace", "nfkc", "nmt_nfkc", "identity")

# Everything that Unicode calls white space, the four ASCII separators (str.isspace), and U+2581, the mark with which
# SentencePiece itself writes a space: it could not be told from one when decoding.
_BLANKS = "".join(character for character in map(chr, range(0x3001)) if character.isspace()) + "\u2581"
_SURROGATES = re.compile("[\ud800-\udfff]")
# SentencePiece's trainer leaves out whole lines that hold one of these. They need no piece of their own: as text
# to be encoded they are spelled in byte pieces.
_TRAINER_SKIPS = re.compile("[\0\n\u2585]")
_NUM_BYTE_AND_SPECIAL_PIECES = 256 + 4
# Characters of one piece of a long line; at most 4 bytes each, so below the trainer's default limit of 4192 bytes.
_TRAINING_LINE_CHARACTERS = 1000


class Tokenizer:
    """Joint SentencePiece BPE tokenizer, in Python and in the graph.

    The special ids are fixed: padding 0, unknown 1, start of sentence 2, end of sentence 3. Start and end are never
    added here: batches and decoding own them. Text that the training text did not hold is spelled in bytes (byte
    fallback), so the unknown id is never produced, whatever the script.

    What happens to the text before it is cut into pieces is a rule chosen at training and recorded in the model:

    | text             | whitespace (default) | nfkc     | nmt_nfkc | identity  |
    |------------------|----------------------|----------|----------|-----------|
    | `"a  b"`         | `"a b"`              | `"a b"`  | `"a b"`  | unchanged |
    | `"a\\nb"`         | `"a b"`              | kept     | `"a b"`  | unchanged |
    | `" a "`          | `"a"`                | `"a"`    | `"a"`    | unchanged |
    | `"\\t"`           | `""`                 | kept     | `""`     | unchanged |
    | U+3000, U+00A0   | space                | space    | space    | unchanged |
    | U+0085           | space                | kept     | kept     | unchanged |
    | U+2028           | space                | kept     | space    | unchanged |
    | U+200B           | kept                 | kept     | space    | unchanged |
    | `"…"` U+2026     | kept                 | `"..."`  | `"..."`  | unchanged |
    | `"２"` U+FF12    | kept                 | `"2"`    | `"2"`    | unchanged |
    | `"‼"` U+203C     | kept                 | `"!!"`   | `"!!"`   | unchanged |
    | `"ŉ"` U+0149     | kept                 | `"ʼn"`   | `"ʼn"`   | unchanged |
    | `"︰"` U+FE30    | kept                 | `".."`   | `".."`   | unchanged |
    | `"▁"` U+2581     | space                | space    | space    | space     |

    "whitespace" turns every Unicode white space into a plain space, joins runs of them, trims both ends and touches
    nothing else. U+2581 is the one character that no rule can keep: SentencePiece writes a space with it.

    `keras.utils.set_random_seed`, `tf.random.set_seed` and `keras.utils.clear_session` destroy the graph side of every
    SentencePiece tokenizer built before (tensorflow/text#570). The Python side is not affected, and the graph side is
    rebuilt by the next call here; a `tf.function` traced earlier, however, keeps the destroyed one and fails. Seed
    first, then trace.

    Args:
        model: bytes of a SentencePiece model whose special ids are the four above, as `train` makes it.

    Raises:
        ValueError: the bytes are no SentencePiece model, its special ids differ, or it has no byte fallback.

    Reference:
        [Kudo and Richardson, 2018](https://arxiv.org/abs/1808.06226)
    """

    def __init__(self, model: bytes):
        if not isinstance(model, bytes):
            raise TypeError(f"model must be the bytes of a SentencePiece model. Received: {type(model).__name__}")
        # Both checks: an empty model makes the library log and carry on, and broken bytes raise RuntimeError.
        processor = sentencepiece.SentencePieceProcessor()
        try:
            if not model:
                raise RuntimeError("no bytes")
            processor.LoadFromSerializedProto(model)
            proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        except Exception as error:
            raise ValueError(f"model must be a SentencePiece model; these {len(model)} bytes are not.") from error
        ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if ids != (PAD_ID, UNKNOWN_ID, START_ID, END_ID):
            raise ValueError(
                f"model must have padding, unknown, start and end ids {(PAD_ID, UNKNOWN_ID, START_ID, END_ID)}. "
                f"Received: {ids}"
            )
        if not proto.trainer_spec.byte_fallback:
            raise ValueError("model must have been trained with byte fallback. Received: one without")
        self.model = model
        self.sha256 = hashlib.sha256(model).hexdigest()
        self.vocabulary_size = processor.GetPieceSize()
        self.normalization = proto.normalizer_spec.name
        self._processor = processor
        self._keeps_blanks = not proto.normalizer_spec.remove_extra_whitespaces
        self._guard = processor.PieceToId("<0x41>")
        self._blank_byte = processor.PieceToId("<0x20>")
        self._graph_tokenizer = None

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        *,
        vocabulary_size: int,
        normalization: str = "whitespace",
        character_coverage: float = 0.9995,
        max_sentences: int = 1_000_000,
        seed: int = 0,
        num_threads: int | None = None,
    ) -> "Tokenizer":
        """Train a tokenizer. The same text and arguments always give the same model, byte for byte.

        Args:
            sentences: text of all languages together; for pairs, `itertools.chain.from_iterable(pairs)`. Lines of any
                length are used (long ones are cut up). Read once.
            vocabulary_size: number of pieces, with the 4 special ids and the 256 bytes.
            normalization: "whitespace", "nfkc", "nmt_nfkc" or "identity", see the class.
            character_coverage: share of the characters of the text that get a piece of their own; the rest is spelled
                in bytes. SentencePiece's own default.
            max_sentences: train on at most this many sentences, drawn evenly from all. Frequent merges do not change
                with more than a million lines, memory and time do.
            seed: of that draw.
            num_threads: defaults to the number of CPUs. Does not change the result.

        Raises:
            ValueError: no text, an unknown `normalization`, or a `vocabulary_size` that the text cannot fill or that
                cannot hold the bytes and the characters of the text.
        """
        if normalization not in NORMALIZATIONS:
            raise ValueError(f"normalization must be one of {', '.join(NORMALIZATIONS)}. Received: {normalization!r}")
        if not _NUM_BYTE_AND_SPECIAL_PIECES < vocabulary_size < 2**31:
            raise ValueError(
                f"vocabulary_size must be above {_NUM_BYTE_AND_SPECIAL_PIECES}, the number of bytes and special ids, "
                f"and below 2**31. Received: {vocabulary_size}"
            )
        if not 0.0 < character_coverage <= 1.0:
            raise ValueError(f"character_coverage must be above 0 and at most 1. Received: {character_coverage}")
        if max_sentences < 1:
            raise ValueError(f"max_sentences must be positive. Received: {max_sentences}")
        lines = [line for line in _sample(sentences, max_sentences, seed) if line.strip(_BLANKS)]
        if not lines:
            raise ValueError("sentences must hold text to train a tokenizer on. Received: no text")
        options = {
            "vocab_size": vocabulary_size,
            "character_coverage": character_coverage,
            "num_threads": num_threads or os.cpu_count() or 1,
        }
        return cls(_canonical_model(_trained_model(lines, normalization, options), normalization))

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Tokenizer":
        """Read the file that `save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not a tokenizer of ours.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"path must be a tokenizer file; there is none at {path}")
        try:
            return cls(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path} is no usable tokenizer: {error}") from error

    def save(self, path: str | os.PathLike) -> None:
        """Write the tokenizer as one SentencePiece model file; readers see the old file or the whole new one."""
        with replaced(path) as temporary:
            temporary.write_bytes(self.model)

    def encode(self, sentences: Sequence[str], *, num_threads: int | None = None) -> list[list[int]]:
        """Ids of each sentence, in Python; no start, no end. Lone surrogates are read as U+FFFD."""
        if isinstance(sentences, str):
            raise TypeError("sentences must be a list of strings. Received: one string")
        return self._processor.Encode(
            [_valid_unicode(sentence) for sentence in sentences], num_threads=num_threads or os.cpu_count() or 1
        )

    def decode(self, ids: Iterable[int]) -> str:
        """Text of one sequence of ids, read as if padding, start and end were not there; broken bytes give U+FFFD."""
        last = self.vocabulary_size - 1
        ids = (min(max(int(token), 0), last) for token in ids)
        return self._processor.Decode([token for token in ids if token not in _SILENT_IDS])

    @property
    def graph_tokenizer(self) -> tf_text.SentencepieceTokenizer:
        """The tensorflow_text tokenizer behind `tokenize` and `detokenize`, made on first use.

        Whatever is saved as a SavedModel must track it.
        """
        with tf.init_scope():
            if self._graph_tokenizer is not None:
                try:
                    self._graph_tokenizer.tokenize([""])
                except tf.errors.NotFoundError:  # its resource was destroyed by a seed, see the class
                    self._graph_tokenizer = None
            if self._graph_tokenizer is None:
                # FastSentencepieceTokenizer gives other ids for BPE models and ignores byte fallback.
                self._graph_tokenizer = tf_text.SentencepieceTokenizer(model=self.model, out_type=tf.int32)
        return self._graph_tokenizer

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Ids of each row of text, in the graph; the same as `encode` gives.

        Args:
            text: strings of shape [B]; bytes that are not UTF-8 are read as U+FFFD.

        Returns:
            Ragged int32 ids of shape [B, (T)]; an empty text gives an empty row.
        """
        return self.graph_tokenizer.tokenize(_valid_utf8(tf.convert_to_tensor(text, tf.string)))

    def number_words(self, ids: tf.Tensor) -> tf.Tensor:
        """The number of the word that each id belongs to, in the graph.

        Args:
            ids: integer ids of the vocabulary, [B, T].

        Returns:
            int32 [B, T], counted from 0 in each row; -1 for padding, start and end. What stands before the first piece
            that begins a word belongs to word 0.
        """
        is_text = np.ones([self.vocabulary_size], bool)
        is_text[list(_SILENT_IDS)] = False
        begins = [self._processor.IdToPiece(token).startswith("\u2581") for token in range(self.vocabulary_size)]
        is_text, begins = tf.gather(is_text, ids), tf.gather(begins, ids)  # [B, T]
        begins |= tf.cumsum(tf.cast(is_text, tf.int32), axis=1) == 1
        words = tf.cumsum(tf.cast(is_text & begins, tf.int32), axis=1) - 1
        return tf.where(is_text, words, -1)

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Text of each row of ids, in the graph; the same as `decode` gives.

        Args:
            ids: integer ids of shape [B, T], padded with 0, or ragged [B, (T)]. Ids outside of the vocabulary are
                clipped to the nearest one in it.

        Returns:
            Strings of shape [B], always valid UTF-8, as if padding, start and end were not there.
        """
        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.RaggedTensor.from_tensor(tf.convert_to_tensor(ids))
        # Clip before the cast: a 64-bit id must not wrap into the vocabulary.
        values = tf.clip_by_value(ids.flat_values, 0, tf.cast(self.vocabulary_size - 1, ids.dtype))
        ids = ids.with_flat_values(tf.cast(values, tf.int32))
        ids = tf.ragged.boolean_mask(ids, (ids == UNKNOWN_ID) | (ids > END_ID))
        if not self._keeps_blanks:
            return _valid_utf8(self.graph_tokenizer.detokenize(ids))
        # The library inside tensorflow_text drops every space at the start of a text, not only the one that stands
        # for the start of a word. So put an "A" before the text, and take it off again with that space, which a
        # first byte piece of a space is not.
        guard = tf.fill([ids.nrows(), 1], self._guard)
        text = _valid_utf8(self.graph_tokenizer.detokenize(tf.concat([guard, ids], axis=1)))
        return tf.where(
            (ids[:, :1] == self._blank_byte).to_tensor(shape=[None, 1])[:, 0],
            tf.strings.substr(text, 1, -1),
            tf.strings.regex_replace(text, "^A ?", "", replace_global=False),
        )


def _valid_utf8(text: tf.Tensor) -> tf.Tensor:
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)


def _valid_unicode(text: str) -> str:
    # A str may hold lone surrogates, which have no UTF-8 form and which SentencePiece refuses.
    return _SURROGATES.sub("\ufffd", text)


def _trained_model(lines: list[str], normalization: str, options: dict) -> bytes:
    """A SentencePiece model of the lines, as the trainer writes it."""
    writer = io.BytesIO()
    with tempfile.TemporaryDirectory() as directory:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(_training_lines(lines)),
                model_writer=writer,
                model_type="bpe",
                byte_fallback=True,
                pad_id=PAD_ID,
                unk_id=UNKNOWN_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                unk_surface="\ufffd",
                minloglevel=2,
                **options,
                **_normalization_options(normalization, Path(directory)),
            )
        except RuntimeError as error:
            raise _vocabulary_error(options["vocab_size"], error) from error
    return writer.getvalue()


def _sample(sentences: Iterable[str], max_sentences: int, seed: int) -> list[str]:
    """At most `max_sentences` of the sentences, each equally likely (reservoir sampling)."""
    generator = random.Random(seed)
    kept = []
    for count, sentence in enumerate(sentences):
        if count < max_sentences:
            kept.append(sentence)
        elif (place := generator.randrange(count + 1)) < max_sentences:
            kept[place] = sentence
    return kept


def _training_lines(lines: Iterable[str]) -> Iterator[str]:
    """Lines that the trainer takes without leaving any out: none too long, no character that it skips lines for."""
    for line in lines:
        line = _TRAINER_SKIPS.sub(" ", _valid_unicode(line))
        while len(line) > _TRAINING_LINE_CHARACTERS:
            cut = line.rfind(" ", 1, _TRAINING_LINE_CHARACTERS)
            cut = cut if cut > 0 else _TRAINING_LINE_CHARACTERS
            yield line[:cut]
            line = line[cut:]
        yield line


def _normalization_options(normalization: str, directory: Path) -> dict:
    if normalization == "whitespace":
        rule = directory / "whitespace.tsv"
        rule.write_text("".join(f"{ord(blank):X}\t20\n" for blank in _BLANKS if blank != " "), encoding="ascii")
        return {"normalization_rule_tsv": str(rule)}
    # Repeated and outer spaces are part of the text under "identity".
    return {"normalization_rule_name": normalization, "remove_extra_whitespaces": normalization != "identity"}


def _canonical_model(model: bytes, normalization: str) -> bytes:
    """Names the rule in the model, and removes what does not change a result: a temporary path, a thread count."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.normalizer_spec.name = normalization
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    proto.trainer_spec.ClearField("num_threads")
    return proto.SerializeToString(deterministic=True)


def _vocabulary_error(vocabulary_size: int, error: RuntimeError) -> Exception:
    """The error to raise for one of SentencePiece's own, which name neither our argument nor the rule."""
    message = str(error)
    if largest := re.search(r"too high.*<= (\d+)", message):
        return ValueError(
            f"vocabulary_size must be at most {largest[1]} for this text, which has no more pieces to merge. "
            f"Received: {vocabulary_size}"
        )
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return ValueError(
            f"vocabulary_size must be at least {smallest[1]} for this text: {_NUM_BYTE_AND_SPECIAL_PIECES} for bytes "
            f"and special ids and one for each common character (a lower character_coverage leaves more to bytes). "
            f"Received: {vocabulary_size}"
        )
    return RuntimeError(f"SentencePiece could not train a tokenizer: {message}")
