"""Sentences of unequal lengths, cut into batches of bounded size and padded."""

import numpy as np

from keras_transformer.vocabulary import END_ID, PAD_ID

# Bounds on a batch, both for the sake of memory: padded source positions, hypotheses.
MAX_BATCH_TOKENS = 8192
MAX_BATCH_HYPOTHESES = 512
# The same for a pass over given targets, whose logits are all there at once.
MAX_SCORED_TOKENS = 2048

# The multiple that sources are padded to. Few distinct shapes matter: TensorFlow prepares, and keeps, a kernel for
# each.
SOURCE_MULTIPLE = 8


def padded(rows, multiple, blank_rows=0):
    """Rows of ids as an int32 matrix, its width a multiple of `multiple`, with blank rows (a lone end mark) below."""
    rows = [*rows, *[[END_ID]] * blank_rows]
    width = -(-max(map(len, rows), default=0) // multiple) * multiple
    matrix = np.full([len(rows), width], PAD_ID, "int32")
    for row, ids in enumerate(rows):
        matrix[row, : len(ids)] = ids
    return matrix


def batches_by_length(lengths, max_tokens, max_rows=None):
    """Cut rows, longest first, into batches of so many padded positions and rows at most."""
    lengths = np.asarray(lengths, "int64")
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        num_rows = max(1, min(max_rows or len(order), max_tokens // max(1, int(lengths[order[start]]))))
        yield order[start : start + num_rows]
        start += num_rows


def run_by_length(run, lengths, max_tokens, max_rows=None, on_progress=None):
    """Run a function over rows in batches of similar length, and put its results into the order of the rows.

    Args:
        run: function from the numbers of a batch's rows to an iterable with a result for each.
        lengths: positions that each row takes.
        max_tokens, max_rows: as for `batches_by_length`.
        on_progress: called with the number of rows done, after each batch.

    Returns:
        List with the result of each row.
    """
    results, num_done = [None] * len(lengths), 0
    for rows in batches_by_length(lengths, max_tokens, max_rows):
        for row, result in zip(rows, run(rows), strict=True):
            results[row] = result
        num_done += len(rows)
        if on_progress is not None:
            on_progress(num_done)
    return results
