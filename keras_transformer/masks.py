"""Boolean attention masks, True = may attend, as pure functions of ids and lengths.

The one convention of the package: every mask is boolean and True marks a position that may be attended to.
"""

from keras import ops


def padding_mask(ids, padding_id=0):
    """Mark the real tokens of a batch of ids.

    Args:
        ids: integer tensor [B, T].
        padding_id: the id that fills rows up to the length of the longest. Defaults to 0, as in the tokenizer.

    Returns:
        Boolean tensor [B, T], True on every id that is not padding.
    """
    return ops.not_equal(ids, padding_id)


def causal_mask(query_length, key_length=None, query_start=0):
    """Let each query attend to keys at its own position and before (paper, section 3.2.3).

    Args:
        query_length: number of query positions T, Python or tensor integer.
        key_length: number of key positions S. Defaults to `query_length`.
        query_start: position of the first query among the keys, 0 except in step-by-step decoding.

    Returns:
        Boolean tensor [1, T, S]; entry [0, i, j] is `j <= query_start + i`.
    """
    key_length = query_length if key_length is None else key_length
    query_positions = ops.arange(query_length, dtype="int32")[:, None] + ops.cast(query_start, "int32")
    return ops.expand_dims(ops.arange(key_length, dtype="int32") <= query_positions, 0)
