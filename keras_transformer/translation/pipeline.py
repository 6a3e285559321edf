"""The one way from rows of ids to rows of ids: padding, search, forced decoding and alignment, in the graph.

`Translator` runs it in Python and `saved_model.signatures` in an export, so that the two cannot disagree. Text becomes
ids, and ids text, in `data.tokenizers`; batches are cut in `translation.batching`.
"""

from typing import NamedTuple

import tensorflow as tf

from keras_transformer.decoding import BeamSearch
from keras_transformer.decoding.constraints import log_normalizer
from keras_transformer.translation.alignment import align_words
from keras_transformer.translation.ensemble import Ensemble
from keras_transformer.vocabulary import END_ID, PAD_ID, START_ID

# Ids are padded to a multiple of this many. Few distinct shapes matter: TensorFlow prepares, and keeps, a kernel for
# each.
_POSITION_MULTIPLE = 8
# Positions that the decoder's cache grows by, for the same reason.
_CACHE_BLOCK = 8


class Alignment(NamedTuple):
    """What a translation was made from; B rows, S and T tokens of source and target, W and U words."""

    attention: tf.Tensor  # float32 [B, T, S], weights of the source tokens for each target token
    source_words: tf.Tensor  # int32 [B, S], the number of the word that each token belongs to; -1 for a mark
    target_words: tf.Tensor  # int32 [B, T]
    word_alignment: tf.Tensor  # int32 [B, U], the source word of each target word; -1 where there is none
    word_attention: tf.Tensor  # float32 [B, U, W]


class Pipeline:
    """A model, its tokenizer and a search, as functions of ids that can be part of any TensorFlow graph.

    Args:
        model, tokenizer, search, max_extra_tokens, max_target_tokens, max_source_tokens: as for `Translator`.

    Raises:
        ValueError: if the model's vocabulary does not fit the tokenizer's, or a limit is out of its range.
    """

    def __init__(self, model, tokenizer, *, search, max_extra_tokens, max_target_tokens, max_source_tokens):
        if isinstance(model, (list, tuple)):
            model = Ensemble(model) if len(model) > 1 else model[0]
        if max_extra_tokens < 0:
            raise ValueError(f"`max_extra_tokens` must not be negative. Received: {max_extra_tokens}")
        for name, limit in (("max_target_tokens", max_target_tokens), ("max_source_tokens", max_source_tokens)):
            if limit is not None and limit < 1:
                raise ValueError(f"`{name}` must be positive. Received: {limit}")
        vocabulary_size = model.output_shape[-1]
        if vocabulary_size < tokenizer.vocabulary_size:
            raise ValueError(
                "`model` must have an output for every piece of `tokenizer`. "
                f"Received: {vocabulary_size} outputs, {tokenizer.vocabulary_size} pieces"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.search = BeamSearch() if search is None else search
        self.max_extra_tokens = max_extra_tokens
        self.max_target_tokens = self._within_positions(max_target_tokens)
        self.max_source_tokens = self._within_positions(max_source_tokens)

    def _within_positions(self, limit):
        """A limit on tokens, lowered to what learned positions hold beside the start or the end mark."""
        positions = self.model.max_length
        return limit if positions is None else min(limit or positions, positions - 1)

    def padded(self, ids, multiple=_POSITION_MULTIPLE, *, end_mark=False):
        """Rows of ids as a matrix.

        Args:
            ids: ragged int32 [B, (T)].
            multiple: the width of the matrix is a multiple of it, or the number of learned positions.
            end_mark: whether each row gets the end id first. Defaults to `False`.

        Returns:
            int32 [B, T'], padded.
        """
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        ids = tf.pad(ids.to_tensor(PAD_ID), [[0, 0], [0, int(end_mark)]], constant_values=PAD_ID)
        width = tf.shape(ids)[1]
        if end_mark:
            ids = tf.where(tf.range(width) == lengths[:, None], END_ID, ids)
        missing = -width % multiple
        if self.model.max_length is not None:
            missing = tf.clip_by_value(self.model.max_length - width, 0, missing)
        return tf.pad(ids, [[0, 0], [0, missing]], constant_values=PAD_ID)

    @tf.autograph.experimental.do_not_convert
    def search_ids(
        self, source_ids, *, search=None, prefix_ids=None, max_target_tokens=None, max_length=None, **arguments
    ):
        """Search for the translations of a batch of source ids.

        Args:
            source_ids: int32 [B, S], as `padded` makes it, with end marks. A row of the end mark alone stays empty.
            search: in place of the pipeline's own.
            prefix_ids: int32 [B, P], what each translation must begin with, padded.
            max_target_tokens: int32 [B], the most tokens of each row's translation, its end mark not counted. It can
                only lower the pipeline's limit, and does where it is positive.
            max_length: static number of tokens, end mark counted, that no translation exceeds, as XLA needs it. Without
                it, the cache grows as it is filled.
            arguments: further arguments of the search, such as `length_penalties` of a `BeamSearch`, `constraint_ids`
                of a `ConstrainedBeamSearch` and `seeds` of `Sampling`.

        Returns:
            A `decoding.SearchResult`. The hypotheses of an empty row are empty and finished.
        """
        search = self.search if search is None else search
        memory, memory_mask = self.model.encode(source_ids)
        projected_memory, cache = self.model.start_decoding(memory, max_length or 0, search.width)
        cache = {"memory": projected_memory, "mask": memory_mask, "decoder": cache}
        with_attention = search.needs_attention

        def next_logits(ids, cache, index, ancestry):
            logits, decoder_cache, *attention = self.model.decode_step(
                ids, cache["memory"], cache["mask"], cache["decoder"], index, ancestry, with_attention
            )
            return logits, {**cache, "decoder": decoder_cache}, *attention

        def grow(cache):
            more = [[0, 0], [0, 0], [0, _CACHE_BLOCK], [0, 0], [0, 0]]
            return {**cache, "decoder": tf.nest.map_structure(lambda cached: tf.pad(cached, more), cache["decoder"])}

        if max_length is None:
            arguments.update(grow_cache=grow, block_length=_CACHE_BLOCK)
        if with_attention:
            arguments["source_mask"] = memory_mask
        max_lengths = self._max_lengths(source_ids, prefix_ids, max_target_tokens)
        result = search(
            next_logits,
            cache,
            max_lengths,
            start_id=START_ID,
            end_id=END_ID,
            padding_id=PAD_ID,
            prefix_ids=prefix_ids,
            max_length=max_length,
            **arguments,
        )
        # The hypothesis of an empty row is empty, and no limit has cut it.
        is_empty = (max_lengths == 0)[:, None] & (result.scores > float("-inf"))  # [B, N]
        return result._replace(finished=result.finished | is_empty)

    def _max_lengths(self, source_ids, prefix_ids, max_target_tokens):
        """The most tokens of each row's translation, its end mark counted, int32 [B]; 0 for an empty row."""
        num_tokens = tf.reduce_sum(tf.cast(source_ids != PAD_ID, tf.int32), 1) - 1  # [B]
        most = num_tokens
        if prefix_ids is not None:
            most = tf.maximum(most, tf.reduce_sum(tf.cast(prefix_ids != PAD_ID, tf.int32), 1))
        most += self.max_extra_tokens
        if self.max_target_tokens is not None:
            most = tf.minimum(most, self.max_target_tokens)
        if max_target_tokens is not None:
            most = tf.where(max_target_tokens > 0, tf.minimum(most, max_target_tokens), most)
        return tf.where(num_tokens > 0, most + 1, 0)

    def token_log_probabilities(self, source_ids, target_ids):
        """Log-probabilities of given targets, by forced decoding.

        Args:
            source_ids: as for `search_ids`.
            target_ids: int32 [B, T], each row ended by the end id, then padding.

        Returns:
            float32 [B, T]; those of padding mean nothing.
        """
        inputs = {"source_ids": source_ids, "target_ids": _shifted(target_ids)}
        logits = self.model(inputs, training=False)  # [B, T, V]
        chosen = tf.gather(logits, target_ids, batch_dims=2)  # [B, T]
        return chosen - log_normalizer(logits)

    def attention_layer(self, layer):
        """The number of a decoder layer, checked; -2, the default, is the only layer of a decoder of one.

        Raises:
            ValueError: if there is no such layer.
        """
        num_layers = self.model.num_decoder_layers
        if layer == -2 and num_layers == 1:
            return -1
        if not -num_layers <= layer < num_layers:
            raise ValueError(f"`attention_layer` must be one of the {num_layers} decoder layers. Received: {layer}")
        return layer

    def align(self, source_ids, target_ids, layer, head=None):
        """What each token, and each word, of given targets was made from.

        Args:
            source_ids, target_ids: as for `token_log_probabilities`.
            layer: number of the decoder layer, see `attention_layer`.
            head: number of the head; `None` (default) for the mean of all.

        Returns:
            An `Alignment`.
        """
        inputs = {"source_ids": source_ids, "target_ids": _shifted(target_ids)}
        attention = self.model.cross_attention(inputs, layer)  # [B, H, T, S]
        attention = tf.reduce_mean(attention, axis=1) if head is None else attention[:, head]
        words = self.tokenizer.number_words(source_ids), self.tokenizer.number_words(target_ids)
        return Alignment(attention, *words, *align_words(attention, *words))


def _shifted(target_ids):
    """What the decoder reads to produce the given ids: the start id, then all but the last."""
    return tf.pad(target_ids, [[0, 0], [1, 0]], constant_values=START_ID)[:, :-1]
