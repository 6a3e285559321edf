"""Batches of sequences as the rows of one matrix."""

from keras import ops


def as_rows(x):
    """Flatten [..., D] to [rows, D], so that a dense layer is a single matrix product.

    On three-dimensional input `keras.layers.Dense` computes and transposes shapes around the product; in
    step-by-step decoding, where the products are small, that takes longer than the product.
    """
    return ops.reshape(x, (-1, x.shape[-1]))
