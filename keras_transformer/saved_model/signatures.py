"""What an export computes: a function in the graph for each of its signatures."""

import dataclasses

import tensorflow as tf

from keras_transformer.translation.batching import (
    MAX_BATCH_TOKENS,
    MAX_SCORED_TOKENS,
    max_batch_rows,
    run_in_blocks,
)
from keras_transformer.vocabulary import END_ID, PAD_ID, START_ID, UNKNOWN_ID

# Beyond these the length penalty is above 1e20 or below 1e-20 for long translations.
_LARGEST_LENGTH_PENALTY = 10.0


def _rows(dtype, *sizes):
    return tf.TensorSpec([None, *sizes], dtype)


_BEST = {
    "translation": _rows(tf.string),
    "score": _rows(tf.float32),
    "log_probability": _rows(tf.float32),
    "finished": _rows(tf.bool),
}


class Signatures:
    """The signatures of an export, as methods that take and return tensors whose first dimension B are the rows.

    A row's results depend on nothing but the row, but for the width of what is padded. Text may be any bytes; those
    that are not UTF-8 count as U+FFFD, and text in results is always valid UTF-8. Batches of any size are computed in
    blocks, so that memory is bounded. All numbers are finite, because JSON knows no others.

    Args:
        pipeline: a `Pipeline` whose search is a `BeamSearch`.
        num_hypotheses: the most hypotheses N of `n_best`, at most the beam size.
        attention_layer: decoder layer that `alignments` are made from, see `Translator.hypotheses`.
    """

    INPUTS = {
        "serving_default": {"text": _rows(tf.string)},
        "n_best": {"text": _rows(tf.string)},
        "score": {"source": _rows(tf.string), "target": _rows(tf.string)},
        "options": {
            "text": _rows(tf.string),
            "prefix": _rows(tf.string),
            "max_length": _rows(tf.int32),
            "min_length": _rows(tf.int32),
            "length_penalty": _rows(tf.float32),
        },
        "tokens": {"source_ids": _rows(tf.int32, None)},
        "alignments": {"text": _rows(tf.string)},
    }

    def __init__(self, pipeline, num_hypotheses, attention_layer=-2):
        self.pipeline = pipeline
        self.tokenizer = pipeline.tokenizer
        self.num_hypotheses = num_hypotheses
        self.attention_layer = pipeline.attention_layer(attention_layer)

    # === The signatures ===

    def serving_default(self, text):
        """Translate.

        Args:
            text: string [B].

        Returns:
            Mapping with, for the best hypothesis of each row, `"translation"` (string [B]), `"score"` and
            `"log_probability"` (float32 [B]), `"finished"` (boolean [B], false if it was cut at the limit on its
            length), and `"truncated"` (boolean [B], true if the text was too long and was cut).
        """
        sources, truncated = self._tokenize(text)
        return {**self._in_blocks(self._best, {"sources": sources}, _BEST), "truncated": truncated}

    def n_best(self, text):
        """Find several translations of each row, best first.

        Args:
            text: string [B].

        Returns:
            Mapping with `"translations"` (string [B, N]), `"scores"` and `"log_probabilities"` (float32 [B, N]),
            `"finished"` (boolean [B, N]), `"num_translations"` (int32 [B], how many of the N places are filled; the
            others hold "" and the lowest float32) and `"truncated"` (boolean [B]).
        """
        sources, truncated = self._tokenize(text)
        count = self.num_hypotheses

        def search(sources):
            result = self._search(sources, count)
            exists = result.scores > float("-inf")  # [B, N]
            return {
                "translations": self._detokenize(result.ids),
                "scores": _finite(result.scores),
                "log_probabilities": _finite(result.log_probabilities),
                "finished": result.finished,
                "num_translations": tf.reduce_sum(tf.cast(exists, tf.int32), axis=1),
            }

        outputs = {
            "translations": _rows(tf.string, count),
            "scores": _rows(tf.float32, count),
            "log_probabilities": _rows(tf.float32, count),
            "finished": _rows(tf.bool, count),
            "num_translations": _rows(tf.int32),
        }
        return {**self._in_blocks(search, {"sources": sources}, outputs), "truncated": truncated}

    def score(self, source, target):
        """Score given translations by forced decoding.

        Args:
            source, target: string [B].

        Returns:
            Mapping with `"log_probability"` (float32 [B], the sum over the target's tokens, the end mark included),
            `"num_tokens"` (int32 [B], how many these are), `"tokens"` (int32 [B, T], their ids, padded with 0),
            `"token_log_probabilities"` (float32 [B, T], padded with 0) and `"truncated"` (boolean [B], true if source
            or target was too long and was cut).
        """
        sources, source_truncated = self._tokenize(source)
        targets, target_truncated = self._tokenize(target)

        def score(sources, targets):
            target_ids = self.pipeline.padded(targets, end_mark=True)  # [B, T]
            scores = self.pipeline.token_log_probabilities(self.pipeline.padded(sources, end_mark=True), target_ids)
            scores = tf.where(target_ids == PAD_ID, 0.0, _finite(scores))
            width = tf.cast(targets.bounding_shape(axis=1, out_type=tf.int32) + 1, tf.int32)  # without the padding
            return {
                "log_probability": _finite(tf.reduce_sum(scores, axis=1)),
                "num_tokens": tf.cast(targets.row_lengths(), tf.int32) + 1,
                "tokens": target_ids[:, :width],
                "token_log_probabilities": scores[:, :width],
            }

        outputs = {
            "log_probability": _rows(tf.float32),
            "num_tokens": _rows(tf.int32),
            "tokens": _rows(tf.int32, None),
            "token_log_probabilities": _rows(tf.float32, None),
        }
        rows = {"sources": sources, "targets": targets}
        found = self._in_blocks(score, rows, outputs, max_tokens=MAX_SCORED_TOKENS)
        return {**found, "truncated": source_truncated | target_truncated}

    def options(self, text, prefix, max_length, min_length, length_penalty):
        """Translate, with options for each row.

        Args:
            text: string [B].
            prefix: string [B], how the translation must begin; "" for none.
            max_length: int32 [B], the most tokens of the translation, the end mark not counted; it can only lower the
                export's limit. 0 for that limit.
            min_length: int32 [B], the fewest tokens.
            length_penalty: float32 [B], alpha of the beam search's length penalty, cut to -10 to 10.

        Returns:
            As `serving_default`. A prefix that is too long is cut, and makes a row `"truncated"` too.
        """
        sources, source_truncated = self._tokenize(text)
        prefixes, prefix_truncated = self._tokenize(prefix)
        search = self.pipeline.search

        def best(sources, prefixes, max_length, min_length, length_penalty):
            return self._best(
                sources,
                prefix_ids=self.pipeline.padded(prefixes),
                max_target_tokens=max_length,
                min_lengths=min_length,
                length_penalties=length_penalty,
            )

        largest = _LARGEST_LENGTH_PENALTY
        penalty = tf.where(tf.math.is_nan(length_penalty), search.length_penalty, length_penalty)
        rows = {
            "sources": sources,
            "prefixes": prefixes,
            "max_length": max_length,
            "min_length": tf.maximum(min_length, search.min_length),
            "length_penalty": tf.clip_by_value(penalty, -largest, largest),
        }
        return {**self._in_blocks(best, rows, _BEST), "truncated": source_truncated | prefix_truncated}

    def tokens(self, source_ids):
        """Translate from ids to ids; the only signature without a tokenizer.

        Args:
            source_ids: int32 [B, S]. Padding, start and end ids may stand anywhere and count for nothing; an id
                outside of the vocabulary counts as the unknown id.

        Returns:
            Mapping with `"target_ids"` (int32 [B, T], the end id last if the translation is finished, then 0), and
            `"score"`, `"log_probability"`, `"finished"` and `"truncated"` as for `serving_default`.
        """
        size = self.tokenizer.vocabulary_size
        ids = tf.where((source_ids < 0) | (source_ids >= size), UNKNOWN_ID, source_ids)
        is_text = (ids != PAD_ID) & (ids != START_ID) & (ids != END_ID)
        sources, truncated = self._cut(tf.ragged.boolean_mask(ids, is_text))

        def search(sources):
            result = self._search(sources)
            width = tf.reduce_max(tf.pad(result.lengths[:, 0], [[0, 1]]))
            return {"target_ids": result.ids[:, 0, :width], **_numbers_of_best(result)}

        outputs = {**_BEST, "target_ids": _rows(tf.int32, None)}
        del outputs["translation"]
        return {**self._in_blocks(search, {"sources": sources}, outputs), "truncated": truncated}

    def alignments(self, text):
        """Translate, and tell which source word each word of the translation was made from.

        Args:
            text: string [B].

        Returns:
            As `serving_default`, and `"source_words"` (string [B, W]) and `"target_words"` (string [B, U]), padded
            with ""; `"attention"` (float32 [B, U, W]), the weight of each source word for each target word, padded
            with 0; and `"alignment"` (int32 [B, U]), the number, from 0, of the source word that has most of it, -1
            where there is no word.
        """
        sources, truncated = self._tokenize(text)

        def align(sources):
            result = self._search(sources)
            source_ids = self.pipeline.padded(sources, end_mark=True)  # [B, S]
            width = tf.shape(result.ids)[2]
            target_ids = tf.pad(result.ids[:, 0], [[0, 0], [0, tf.maximum(1 - width, 0)]])  # [B, T]: at least one wide
            aligned = self.pipeline.align(source_ids, target_ids, self.attention_layer)
            return {
                "translation": self._detokenize(result.ids)[:, 0],
                **_numbers_of_best(result),
                "source_words": self._words(source_ids, aligned.source_words),
                "target_words": self._words(target_ids, aligned.target_words),
                "attention": aligned.word_attention,
                "alignment": aligned.word_alignment + 1,  # blocks are filled up with 0
            }

        outputs = {
            **_BEST,
            "source_words": _rows(tf.string, None),
            "target_words": _rows(tf.string, None),
            "attention": _rows(tf.float32, None, None),
            "alignment": _rows(tf.int32, None),
        }
        found = self._in_blocks(align, {"sources": sources}, outputs, max_tokens=MAX_SCORED_TOKENS)
        return {**found, "alignment": found["alignment"] - 1, "truncated": truncated}

    # === What they share ===

    def _tokenize(self, text):
        """Ids of each text, ragged, without an end mark, and whether it had to be cut, boolean [B]."""
        return self._cut(self.tokenizer.tokenize(text))

    def _cut(self, ids):
        limit = self.pipeline.max_source_tokens
        return ids[:, :limit], ids.row_lengths() > limit

    def _in_blocks(self, function, rows, outputs, max_tokens=MAX_BATCH_TOKENS):
        lengths = [values.row_lengths() for values in rows.values() if isinstance(values, tf.RaggedTensor)]
        return run_in_blocks(
            function,
            rows,
            tf.reduce_max(tf.stack(lengths), axis=0) + 1,
            outputs,
            max_tokens=max_tokens,
            max_rows=max_batch_rows(self.pipeline.search),
        )

    def _search(self, sources, num_hypotheses=1, **arguments):
        search = dataclasses.replace(self.pipeline.search, num_hypotheses=num_hypotheses)
        return self.pipeline.search_ids(self.pipeline.padded(sources, end_mark=True), search=search, **arguments)

    def _best(self, sources, **arguments):
        result = self._search(sources, **arguments)
        return {"translation": self._detokenize(result.ids)[:, 0], **_numbers_of_best(result)}

    def _detokenize(self, ids):
        """Texts [B, N] of ids [B, N, L]."""
        num_rows, count, length = tf.unstack(tf.shape(ids))
        texts = self.tokenizer.detokenize(tf.reshape(ids, [num_rows * count, length]))
        return tf.reshape(texts, [num_rows, ids.shape[1]])

    def _words(self, ids, words):
        """The words of each row, string [B, W], from its ids and the words' numbers, [B, T]."""
        num_words = tf.reduce_max(tf.pad(words, [[0, 1], [0, 1]], constant_values=-1)) + 1
        num_rows = tf.shape(words)[0]
        places = words + num_words * tf.range(num_rows)[:, None]
        is_text = words >= 0
        pieces = tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(ids, is_text), tf.boolean_mask(places, is_text), nrows=num_words * num_rows
        )
        return tf.reshape(self.tokenizer.detokenize(pieces), [num_rows, num_words])


def _numbers_of_best(result):
    return {
        "score": _finite(result.scores[:, 0]),
        "log_probability": _finite(result.log_probabilities[:, 0]),
        "finished": result.finished[:, 0],
    }


def _finite(scores):
    """Scores without infinities; what is no number, of a model with broken weights, counts as the lowest."""
    return tf.where(tf.math.is_nan(scores), tf.float32.min, tf.maximum(scores, tf.float32.min))
