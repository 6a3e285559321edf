"""From ids to ids: search, forced decoding and attention, as functions in the graph."""

import tensorflow as tf

from keras_transformer.decoding.top_k import log_normalizer
from keras_transformer.translation.ensemble import Ensemble
from keras_transformer.vocabulary import END_ID, PAD_ID, START_ID

# Positions that the decoder's cache grows by; few distinct shapes, as in padding.py.
_CACHE_BLOCK = 8


class TranslationGraph:
    """What a trained model computes on batches of ids, the same in Python and in an exported graph.

    `Translator` is this and a tokenizer.

    Args:
        model, search, max_extra_tokens, max_target_tokens: as for `Translator`, which has the defaults.

    Raises:
        ValueError: if a limit is out of its range.
    """

    def __init__(self, model, *, search, max_extra_tokens, max_target_tokens):
        if isinstance(model, (list, tuple)):
            model = Ensemble(model) if len(model) > 1 else model[0]
        if max_extra_tokens < 0:
            raise ValueError(f"`max_extra_tokens` must not be negative. Received: {max_extra_tokens}")
        check_limit("max_target_tokens", max_target_tokens)
        self.model = model
        self.search = search
        self.max_extra_tokens = max_extra_tokens
        self.max_target_tokens = self._within_positions(max_target_tokens)

    def _within_positions(self, limit):
        """A limit on tokens, lowered to what learned positions hold beside the start or the end mark."""
        positions = self.model.max_length
        return limit if positions is None else min(limit or positions, positions - 1)

    @tf.autograph.experimental.do_not_convert
    def search_ids(self, source_ids, *, search=None, prefix_ids=None, max_lengths=None, max_length=None, **arguments):
        """Search for the translations of a batch of source ids.

        Args:
            source_ids: int32 [B, S], each row ended by the end id, then padding. A row of the end id alone stays empty.
            search: in place of the translator's own.
            prefix_ids: int32 [B, P], what each translation must begin with, padded.
            max_lengths: int32 [B], the most tokens of each row's translation, its end mark not counted. It can only
                lower the translator's limit, and does where it is positive.
            arguments: further arguments of the search, such as `length_penalties` of a `BeamSearch`, `constraint_ids`
                of a `ConstrainedBeamSearch` and `seeds` of `Sampling`.
            max_length: static number of tokens that no translation exceeds, as XLA needs it. Without it, the cache
                grows as it is filled.

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
        max_lengths = self._max_lengths(source_ids, prefix_ids, max_lengths)
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

    def _max_lengths(self, source_ids, prefix_ids, max_lengths):
        """The most tokens of each row's translation, its end mark counted, int32 [B]."""
        num_tokens = tf.reduce_sum(tf.cast(source_ids != PAD_ID, tf.int32), 1) - 1  # [B]
        most = num_tokens
        if prefix_ids is not None:
            most = tf.maximum(most, tf.reduce_sum(tf.cast(prefix_ids != PAD_ID, tf.int32), 1))
        most += self.max_extra_tokens
        if self.max_target_tokens is not None:
            most = tf.minimum(most, self.max_target_tokens)
        if max_lengths is not None:
            most = tf.where(max_lengths > 0, tf.minimum(most, max_lengths), most)
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

    def attention(self, source_ids, target_ids, layer=-2, head=None):
        """What each token of given targets was made from.

        Args:
            source_ids, target_ids: as for `token_log_probabilities`.
            layer: number of the decoder layer. Defaults to -2; a decoder of one layer has only that.
            head: number of the head; `None` (default) for the mean of all.

        Returns:
            Weights of the source tokens, float32 [B, T, S].

        Raises:
            ValueError: if there is no such layer.
        """
        layer = self.attention_layer(layer)
        inputs = {"source_ids": source_ids, "target_ids": _shifted(target_ids)}
        attention = self.model.cross_attention(inputs, layer)  # [B, H, T, S]
        return tf.reduce_mean(attention, axis=1) if head is None else attention[:, head]


def _shifted(target_ids):
    """What the decoder reads to produce the given ids: the start id, then all but the last."""
    return tf.pad(target_ids, [[0, 0], [1, 0]], constant_values=START_ID)[:, :-1]


def check_limit(name, limit):
    """Raise a `ValueError` for a limit that lets no token through."""
    if limit is not None and limit < 1:
        raise ValueError(f"`{name}` must be positive. Received: {limit}")
