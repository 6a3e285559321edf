"""Rows of unequal lengths in batches of similar length and bounded size: in Python, and within a TensorFlow graph.

In Python, a file of any size is translated batch after batch, with progress, each by a graph that takes any batch. A
server's graph gets what it gets as one batch, and cuts it into blocks by the same rule.
"""

import itertools

import numpy as np
import tensorflow as tf

# Bounds on a batch, both for the sake of memory: padded source positions, hypotheses.
MAX_BATCH_TOKENS = 8192
MAX_BATCH_HYPOTHESES = 512
# The same for a pass over given targets, whose logits are all there at once.
MAX_SCORED_TOKENS = 2048


def max_batch_rows(search):
    """The most rows of a batch for a search over several hypotheses a row."""
    return max(1, MAX_BATCH_HYPOTHESES // search.width)


def run_by_length(run, lengths, max_tokens, max_rows=None, on_progress=None):
    """Run a function over rows in batches of similar length, longest first; results in the order of the rows.

    Args:
        run: function from the numbers of a batch's rows to an iterable with a result for each.
        lengths: positions that each row takes.
        max_tokens: the most rows times positions of the longest of a batch; a longer row has a batch of its own.
        max_rows: the most rows of a batch. Defaults to `None`, no such limit.
        on_progress: called with the number of rows done, after each batch.

    Returns:
        List with the result of each row.
    """
    lengths = np.asarray(lengths, "int64")
    order = np.argsort(-lengths, kind="stable")
    results, start = [None] * len(lengths), 0
    while start < len(order):
        num_rows = max_tokens // max(1, int(lengths[order[start]]))
        rows = order[start : start + max(1, min(num_rows, max_rows or num_rows))]
        for row, result in zip(rows, run(rows), strict=True):
            results[row] = result
        start += len(rows)
        if on_progress is not None:
            on_progress(start)
    return results


def run_in_blocks(function, rows, lengths, outputs, *, max_tokens, max_rows):
    """Do in the graph what `run_by_length` does in Python: all rows of a batch, a block of similar length at a time.

    Args:
        function: takes the `rows` of a block by name and returns a mapping with the `outputs`.
        rows: mapping of dense or ragged tensors, their first dimension the rows.
        lengths: integer tensor [B], the number of positions that each row takes.
        outputs: mapping from the name of each output to its `tf.TensorSpec`, first dimension `None`. A further
            dimension that is `None` may differ between blocks and is filled up with zeros or empty strings.
        max_tokens, max_rows: as for `run_by_length`.

    Returns:
        Mapping with the `outputs` of all rows, in their order.
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


class Graphs(dict):
    """Graphs by key, each traced once."""

    def run(self, key, function, inputs):
        """Run a function as a graph.

        Args:
            key: anything hashable that stands for the function.
            function: takes the inputs by name.
            inputs: mapping of tensors, dense or ragged [B, (T)], whose sizes may differ from call to call.

        Returns:
            What the function returns, as NumPy arrays.
        """
        if key not in self:
            signature = [tf.nest.map_structure(_of_any_size, inputs)]
            self[key] = tf.function(lambda inputs: function(**inputs), input_signature=signature, autograph=False)
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), self[key](inputs))


def ragged(rows):
    """Return rows of ids as a ragged tensor, int32 [B, (T)]."""
    ids = np.fromiter(itertools.chain.from_iterable(rows), "int32")
    return tf.RaggedTensor.from_row_lengths(ids, [len(row) for row in rows], validate=False)


def _of_any_size(tensor):
    if isinstance(tensor, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None, None], tensor.dtype)
    return tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype)
