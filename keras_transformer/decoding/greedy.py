"""Greedy search in the TensorFlow graph."""

from typing import NamedTuple

import tensorflow as tf


class SearchResult(NamedTuple):
    """What a search returns; B rows, L the longest limit among them."""

    ids: tf.Tensor  # int32 [B, L]: the tokens, the end id last if it was reached, then padding
    lengths: tf.Tensor  # int32 [B]: number of tokens, the end id counted
    scores: tf.Tensor  # float32 [B]: sum of the tokens' log-probabilities, the end id's included
    finished: tf.Tensor  # bool [B]: whether the end id was reached within the limit


class _State(NamedTuple):
    index: tf.Tensor  # int32 []: number of steps taken
    ids: tf.Tensor  # int32 [B, L]
    last_ids: tf.Tensor  # int32 [B]: what the next step reads
    lengths: tf.Tensor  # int32 [B]
    scores: tf.Tensor  # float32 [B]
    finished: tf.Tensor  # bool [B]
    cache: object  # nested tensors that belong to the next-token function


def greedy_search(next_logits, cache, max_lengths, *, start_id, end_id, padding_id=0):
    """Take the most probable token at every step, until each row has ended.

    A row depends on nothing but itself: it stops at its own end id or its own limit, and the loop stops with the last
    row. Padding and start ids are never chosen.

    Shapes: B rows, V vocabulary.

    Args:
        next_logits: function `(ids, cache, index) -> (logits, cache)`: from the ids [B, 1] at position `index` and the
            cache of the positions before, the float32 logits [B, V] of the next token and the new cache.
        cache: what `next_logits` needs at index 0; a nested structure of tensors of fixed shape. It is only ever read
            at positions below the greatest of `max_lengths`.
        max_lengths: int32 [B], the most tokens of each row, the end id counted; a row of 0 stays empty.
        start_id: the id read at index 0.
        end_id: the id that ends a row.
        padding_id: the id that fills ended rows. Defaults to 0.

    Returns:
        A `SearchResult`.
    """
    batch_size = tf.shape(max_lengths)[0]
    max_length = tf.reduce_max(tf.concat([[0], max_lengths], 0))

    def step(*state):
        state = _State(*state)
        logits, cache = next_logits(state.last_ids[:, None], state.cache, state.index)  # [B, V]
        vocabulary = tf.range(tf.shape(logits)[1])
        allowed = (vocabulary != padding_id) & (vocabulary != start_id)  # [V]
        chosen = tf.argmax(tf.where(allowed, logits, logits.dtype.min), axis=1, output_type=tf.int32)  # [B]
        log_probabilities = -tf.nn.sparse_softmax_cross_entropy_with_logits(chosen, logits)  # [B]

        active = ~state.finished & (state.index < max_lengths)  # [B]
        chosen = tf.where(active, chosen, padding_id)
        here = tf.range(max_length) == state.index  # [L]
        return _State(
            index=state.index + 1,
            ids=tf.where(here, chosen[:, None], state.ids),
            last_ids=chosen,
            lengths=state.lengths + tf.cast(active, tf.int32),
            scores=state.scores + tf.where(active, log_probabilities, 0.0),
            finished=state.finished | (chosen == end_id),
            cache=cache,
        )

    def unsettled(*state):
        state = _State(*state)
        return tf.reduce_any(~state.finished & (state.index < max_lengths))

    start = _State(
        index=tf.constant(0),
        ids=tf.fill([batch_size, max_length], padding_id),
        last_ids=tf.fill([batch_size], start_id),
        lengths=tf.zeros([batch_size], tf.int32),
        scores=tf.zeros([batch_size], tf.float32),
        finished=tf.zeros([batch_size], tf.bool),
        cache=cache,
    )
    end = _State(*tf.while_loop(unsettled, step, start))
    return SearchResult(end.ids, end.lengths, end.scores, end.finished)
