"""Word alignments from attention, in the TensorFlow graph."""

import tensorflow as tf


def align_words(attention, source_words, target_words):
    """Align each target word with the source word that it attends to most.

    The weights of a source word's pieces are added, those of a target word's pieces averaged. Marks belong to no word
    and count for nothing.

    Shapes: B rows, T and S tokens of target and source, U and W words of the target and the source that has most.

    Args:
        attention: float32 [B, T, S], weights of the source tokens for each target token.
        source_words, target_words: int32 [B, S] and [B, T], the number of the word that each token belongs to, from 0
            in the order of the text; -1 for none.

    Returns:
        `(alignment, weights)`: for each target word the number of its source word, int32 [B, U], -1 where the row has
        no such word, or no source word; and the weights, float32 [B, U, W], 0 there.
    """
    source = _membership(source_words)  # [B, S, W]
    target = _membership(target_words)  # [B, T, U]
    num_tokens = tf.reduce_sum(target, axis=1)  # [B, U]
    weights = tf.matmul(target, tf.matmul(attention, source), transpose_a=True)  # [B, U, W]
    weights = tf.math.divide_no_nan(weights, num_tokens[:, :, None])
    # A column of no word, so that there is a best even if no row has a source word.
    alignment = tf.argmax(tf.pad(weights, [[0, 0], [0, 0], [0, 1]]), axis=2, output_type=tf.int32)
    has_source = tf.reduce_any(source_words >= 0, axis=1)[:, None]  # [B, 1]
    return tf.where((num_tokens > 0) & has_source, alignment, -1), weights


def _membership(words):
    """One-hot: 1 where a token belongs to a word, float32 [B, T, W]."""
    num_words = tf.reduce_max(tf.pad(words, [[0, 1], [0, 1]], constant_values=-1)) + 1
    return tf.one_hot(words, num_words)
