"""Passes over the vocabulary, which is where a decoding step spends much of its time on the CPU."""

import tensorflow as tf

# Below this many columns the plain operation is as fast.
_SMALL = 1024
# Columns of a block: so few that the winning blocks are soon searched, so many that blocks are few.
_BLOCK = 64


def top_k(values, k):
    """The k largest of each row, largest first; as `tf.math.top_k`, about four times as fast on wide rows.

    The k largest values of a row lie in the k blocks with the largest maxima, so it is enough to find those blocks
    (a plain maximum, which is fast) and to search within them. Equal values may come in another order, and the
    indices of minus infinities are any.

    Args:
        values: float tensor [..., V] with static V.
        k: number of values, at most V.

    Returns:
        `(values, indices)`, each [..., k].
    """
    num_columns = values.shape[-1]
    if num_columns < _SMALL or k * _BLOCK > num_columns // 2:
        return tf.math.top_k(values, k)
    # At most twice the usual size, so that there are k blocks: `k * _BLOCK` is at most half of the columns.
    block = min(
        (size for size in range(_BLOCK // 4, _BLOCK * 2 + 1) if num_columns % size == 0),
        key=lambda size: abs(size - _BLOCK),
        default=None,
    )
    leading = tf.shape(values)[:-1]
    rows = tf.reshape(values, [-1, num_columns])
    if block is None:
        block = _BLOCK
        rows = tf.pad(rows, [[0, 0], [0, -num_columns % block]], constant_values=float("-inf"))
    blocks = tf.reshape(rows, [-1, rows.shape[-1] // block, block])  # [R, V / block, block]
    _, winners = tf.math.top_k(tf.reduce_max(blocks, axis=2), k)  # [R, k]
    finalists = tf.reshape(tf.gather(blocks, winners, batch_dims=1), [-1, k * block])
    best, places = tf.math.top_k(finalists, k)  # [R, k]
    indices = tf.gather(winners, places // block, batch_dims=1) * block + places % block
    indices = tf.minimum(indices, num_columns - 1)  # what fills up the last block may tie with minus infinity
    shape = tf.concat([leading, [k]], 0)
    best, indices = tf.reshape(best, shape), tf.reshape(indices, shape)
    best.set_shape([*values.shape[:-1], k])
    indices.set_shape([*values.shape[:-1], k])
    return best, indices


def log_normalizer(logits):
    """`log(sum(exp(logits)))` over the last axis.

    The largest probability is exp(largest logit - normaliser) and at least 1 / V, so its logarithm is exact; softmax
    and maximum are the two passes over the vocabulary that the CPU is fastest at.

    Args:
        logits: float tensor [..., V].

    Returns:
        A tensor [...].
    """
    return tf.reduce_max(logits, axis=-1) - tf.math.log(tf.reduce_max(tf.nn.softmax(logits), axis=-1))
