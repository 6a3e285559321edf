"""A batch of any size in a bounded amount of memory: some rows at a time, in the TensorFlow graph."""

import tensorflow as tf


def run_in_blocks(function, rows, lengths, outputs, *, max_tokens, max_rows):
    """Apply a function to all rows of a batch, a block of rows of similar length at a time.

    A server runs whatever it is sent as one batch. Rows are taken longest first, so that short ones are not padded to
    the longest of all. Nothing else is seen of it: results come in the order of the rows.

    Args:
        function: takes the `rows` of a block by name and returns a mapping with the `outputs`.
        rows: mapping of dense or ragged tensors, their first dimension the rows.
        lengths: integer tensor [B], the number of tokens of each row.
        outputs: mapping from the name of each output to its `tf.TensorSpec`, first dimension `None`. A further
            dimension that is `None` may differ between blocks and is filled up with zeros or empty strings.
        max_tokens: the most rows times tokens of the longest of a block; a longer row has a block of its own.
        max_rows: the most rows of a block.

    Returns:
        Mapping with the `outputs` of all rows.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    longest = tf.gather(tf.cast(lengths, tf.int32), order)

    def unfinished(start, results):
        return start < tf.shape(order)[0]

    def body(start, results):
        block = order[start : start + tf.clip_by_value(max_tokens // tf.maximum(longest[start], 1), 1, max_rows)]
        found = function(**{name: tf.gather(values, block) for name, values in rows.items()})
        results = {name: _append(results[name], found[name], shapes[name]) for name in outputs}
        return start + tf.shape(block)[0], results

    nothing = {
        name: tf.zeros([size or 0 for size in specification.shape], specification.dtype)
        for name, specification in outputs.items()
    }
    shapes = {name: specification.shape for name, specification in outputs.items()}
    _, results = tf.while_loop(
        unfinished,
        body,
        (tf.constant(0), nothing),
        shape_invariants=(tf.TensorShape([]), shapes),
        parallel_iterations=1,  # several blocks at once would need the memory of several
    )
    places = tf.math.invert_permutation(order)
    return {name: tf.gather(values, places) for name, values in results.items()}


def _append(rows, more, shape):
    """More rows below the rows, all as wide as the widest where `shape` leaves that open."""
    if None in shape[1:]:
        width = tf.maximum(tf.shape(rows), tf.shape(more))[1:]
        rows, more = (
            tf.pad(
                part, [[0, 0], *([0, missing] for missing in tf.unstack(width - tf.shape(part)[1:], shape.rank - 1))]
            )
            for part in (rows, more)
        )
    return tf.concat([rows, more], axis=0)
