"""From text to text: the model, the tokenizer and the search together."""

import os
import shutil
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.data.tokenizers import END_ID, PAD_ID, START_ID, Tokenizer
from keras_transformer.decoding import greedy_search

MODEL_FILE = "model.keras"
TOKENIZER_FILE = "tokenizer.model"

# Bounds on one batch of `translate`: padded source positions (memory) and rows (no gain beyond, on two cores).
_MAX_BATCH_TOKENS = 4096
_MAX_BATCH_ROWS = 128


class Translator:
    """Translate text with a trained `Transformer`; this object is also what gets exported.

    Training-time BLEU, `translate` and the served graph run the same function, so they cannot disagree. A sentence's
    translation does not depend on what it is translated together with. Text may be anything: bytes that are not valid
    UTF-8 become U+FFFD, white space of any kind counts as a blank, and a blank sentence translates to "".

    Args:
        model: a `Transformer`, or any model with its `encode`, `start_decoding` and `decode_step`.
        tokenizer: the `Tokenizer` the model was trained with. Build it after any call of
            `keras.utils.set_random_seed`, which destroys tokenizers that are already in the graph.
        max_extra_tokens: a translation has at most as many tokens as the source has and this many more, the end mark
            not counted. Defaults to 50 (paper, section 6.1).

    Raises:
        ValueError: if the model's vocabulary does not fit the tokenizer's, or `max_extra_tokens` is negative.
    """

    def __init__(self, model, tokenizer, *, max_extra_tokens=50):
        vocabulary_size = model.output_shape[-1]
        if vocabulary_size < tokenizer.vocabulary_size:
            raise ValueError(
                "`model` must have an output for every piece of `tokenizer`. "
                f"Received: {vocabulary_size} outputs, {tokenizer.vocabulary_size} pieces"
            )
        if max_extra_tokens < 0:
            raise ValueError(f"`max_extra_tokens` must not be negative. Received: {max_extra_tokens}")
        self.model = model
        self.tokenizer = tokenizer
        self.max_extra_tokens = max_extra_tokens
        self._graph = tf.function(
            self.translate_tensor, input_signature=[tf.TensorSpec([None], tf.string, name="text")]
        )

    def translate(self, sentences):
        """Translate sentences.

        Args:
            sentences: list of strings, in any order and of any length.

        Returns:
            List of as many strings, in the same order.

        Raises:
            TypeError: if `sentences` is a single string.
            ValueError: if a sentence is longer than the model's learned positions.
        """
        return [translation for translation, _ in self.translate_with_scores(sentences)]

    def translate_with_scores(self, sentences):
        """As `translate`, but each translation comes with its score, the sum of its tokens' log-probabilities."""
        if isinstance(sentences, (str, bytes)):
            raise TypeError(f"`sentences` must be a list of strings. Received: {sentences!r}")
        sentences = list(sentences)
        lengths = np.array([len(ids) + 1 for ids in self.tokenizer.encode(sentences)], dtype="int64")
        limit = self.model.max_length
        if limit is not None and lengths.size and lengths.max() > limit:
            raise ValueError(
                f"A sentence must fit the model's {limit} learned positions, end mark included. "
                f"Received: {lengths.max()} tokens in sentence {lengths.argmax() + 1}"
            )
        results = [None] * len(sentences)
        for rows in _batches_by_length(lengths):
            outputs = self._graph(tf.constant([sentences[row] for row in rows], tf.string))
            for row, translation, score in zip(
                rows, outputs["translation"].numpy(), outputs["score"].numpy(), strict=True
            ):
                results[row] = (translation.decode("utf-8"), float(score))
        return results

    @tf.autograph.experimental.do_not_convert
    def translate_tensor(self, text):
        """Translate a batch in the graph.

        Args:
            text: string tensor [B].

        Returns:
            Mapping with `"translation"`, string [B], valid UTF-8, and `"score"`, float32 [B].
        """
        source = self.tokenizer.tokenize(text)  # [B, (S)]
        limit = self.model.max_length
        if limit is not None:
            source = source[:, : limit - 1]
        num_tokens = tf.cast(source.row_lengths(), tf.int32)  # [B]
        end_marks = tf.fill([source.nrows(), 1], END_ID)
        source_ids = tf.concat([source, end_marks], axis=1).to_tensor(PAD_ID)  # [B, S + 1]

        max_lengths = num_tokens + self.max_extra_tokens + 1
        if limit is not None:
            max_lengths = tf.minimum(max_lengths, limit)
        max_lengths = tf.where(num_tokens > 0, max_lengths, 0)
        result = self.search(source_ids, max_lengths)
        return {"translation": self.tokenizer.detokenize(result.ids), "score": result.scores}

    def search(self, source_ids, max_lengths):
        """Decode a batch of source ids.

        Args:
            source_ids: int32 [B, S], each row ended by the end id, then padding.
            max_lengths: int32 [B], the most target tokens of each row, the end id counted.

        Returns:
            A `decoding.SearchResult`.
        """
        memory, memory_mask = self.model.encode(source_ids)
        max_length = tf.reduce_max(tf.concat([[0], max_lengths], 0))
        projected_memory, cache = self.model.start_decoding(memory, max_length)

        def next_logits(ids, cache, index):
            logits, cache = self.model.decode_step(ids, projected_memory, memory_mask, cache, index)
            return logits[:, 0], cache

        return greedy_search(next_logits, cache, max_lengths, start_id=START_ID, end_id=END_ID, padding_id=PAD_ID)

    def save(self, directory):
        """Write the model and the tokenizer into `directory`, which `load` reads; existing files are replaced."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        temporary = directory / f"writing-{MODEL_FILE}"
        self.model.save(temporary)
        os.replace(temporary, directory / MODEL_FILE)
        self.tokenizer.save(directory / TOKENIZER_FILE)

    @classmethod
    def load(cls, directory, **arguments):
        """Read a translator that `save`, or a recipe, has written.

        Args:
            directory: folder with `model.keras` and `tokenizer.model`.
            arguments: passed to the constructor.

        Raises:
            FileNotFoundError: if one of the two files is not there.
        """
        directory = Path(directory)
        for name in (MODEL_FILE, TOKENIZER_FILE):
            if not (directory / name).is_file():
                raise FileNotFoundError(f"`directory` must hold {name}. Received: {directory}")
        model = keras.saving.load_model(directory / MODEL_FILE, compile=False)
        return cls(model, Tokenizer.load(directory / TOKENIZER_FILE), **arguments)

    def export(self, path):
        """Write a TensorFlow SavedModel that translates strings by itself, tokenizer inside.

        Its signature `serving_default` takes `text`, string [B], and returns `translation`, string [B], and `score`,
        float32 [B] (the sum of the tokens' log-probabilities). A process that imports tensorflow and tensorflow_text
        can load it, as can TensorFlow Serving, whose loader wants a version number as the last part of `path`.

        Args:
            path: the folder to make. It appears whole or not at all.

        Raises:
            FileExistsError: if `path` exists.
        """
        path = Path(path)
        if path.exists():
            raise FileExistsError(f"`path` must not exist yet. Received: {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        archive = keras.export.ExportArchive()
        # The model stays untracked on purpose: tracking it would store every weight twice.
        archive.track(self.tokenizer.graph_tokenizer)
        archive.add_endpoint(
            "serving_default",
            self.translate_tensor,
            input_signature=[tf.TensorSpec([None], tf.string, name="text")],
        )
        temporary = Path(tempfile.mkdtemp(prefix=f"writing-{path.name}-", dir=path.parent))
        try:
            archive.write_out(temporary, verbose=False)
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _batches_by_length(lengths):
    """Cut rows, longest first, into batches within the bounds on padded positions and on rows."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        num_rows = max(1, min(_MAX_BATCH_ROWS, _MAX_BATCH_TOKENS // int(lengths[order[start]])))
        yield order[start : start + num_rows]
        start += num_rows
