"""Random numbers that are a function of a seed and a place, and of nothing else."""

import tensorflow as tf

# Threefry-2x32 (Salmon et al., table 2): how far to rotate in each round, and the parity that completes the key.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(keys, counters):
    """Threefry-2x32 with 20 rounds, a counter-based generator: the same bits on every device, with XLA or without.

    TensorFlow's stateless operations take one seed a call, and what they draw at a place may depend on the shape, the
    device and the version; here, each element has a key of its own.

    Args:
        keys: pair of uint32 tensors.
        counters: pair of uint32 tensors that broadcast with the keys.

    Returns:
        A pair of uint32 tensors of random bits.

    Reference:
        [Salmon et al., 2011](https://doi.org/10.1145/2063384.2063405)
    """
    schedule = (*keys, tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(*keys), tf.constant(_PARITY, tf.uint32)))
    left, right = (counter + key for counter, key in zip(counters, keys, strict=True))
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            left += right
            rotated = tf.bitwise.bitwise_or(
                tf.bitwise.left_shift(right, tf.constant(distance, tf.uint32)),
                tf.bitwise.right_shift(right, tf.constant(32 - distance, tf.uint32)),
            )
            right = tf.bitwise.bitwise_xor(left, rotated)
        left += schedule[(group + 1) % 3]
        right += schedule[(group + 2) % 3] + tf.constant(group + 1, tf.uint32)
    return left, right


def uniform(seeds, num_columns, num_steps):
    """Uniform random numbers in [0, 1); element (b, n, t) depends on `seeds[b]`, n and t alone.

    Args:
        seeds: int32 [B, 2].
        num_columns: N.
        num_steps: T, a number or a tensor.

    Returns:
        float32 tensor [B, N, T] of multiples of 2 ** -24.
    """
    keys = tf.unstack(tf.bitcast(seeds, tf.uint32)[:, :, None, None], num=2, axis=1)  # each [B, 1, 1]
    counters = [
        tf.cast(tf.range(num_steps), tf.uint32)[None, None],
        tf.cast(tf.range(num_columns), tf.uint32)[None, :, None],
    ]
    bits, _ = threefry(keys, counters)  # [B, N, T]
    return tf.cast(tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32)), tf.float32) * 2.0**-24
