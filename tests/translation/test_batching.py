"""Batches in blocks: the same results as at once, in bounded blocks."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.translation.batching import run_in_blocks

OUTPUTS = {
    "sum": tf.TensorSpec([None], tf.int32),
    "pair": tf.TensorSpec([None, 2], tf.bool),
    "copy": tf.TensorSpec([None, None], tf.int32),
    "outer": tf.TensorSpec([None, None, None], tf.float32),
    "text": tf.TensorSpec([None, None], tf.string),
}


def everything(ids, weight):
    """Outputs of all kinds from ragged ids [B, (T)] and a weight a row."""
    dense = ids.to_tensor()
    total = tf.reduce_sum(dense, axis=1) * weight
    return {
        "sum": total,
        "pair": tf.stack([total > 3, total < 9], axis=1),
        "copy": dense,
        "outer": tf.cast(dense[:, :, None] * dense[:, None, :], tf.float32),
        "text": tf.strings.as_string(dense),
    }


def run(rows, weights, max_tokens, max_rows):
    """The outputs, and the shapes of the blocks that were computed."""
    shapes = []

    def recorded(ids, weight):
        shapes.append((int(ids.nrows()), int(ids.bounding_shape()[1])))
        return everything(ids, weight)

    ids = tf.ragged.constant(rows, tf.int32, ragged_rank=1)
    inputs = {"ids": ids, "weight": tf.constant(weights, tf.int32)}
    lengths = ids.row_lengths()
    outputs = run_in_blocks(recorded, inputs, lengths, OUTPUTS, max_tokens=max_tokens, max_rows=max_rows)
    in_graph = tf.function(
        lambda: run_in_blocks(everything, inputs, lengths, OUTPUTS, max_tokens=max_tokens, max_rows=max_rows)
    )()
    for name, specification in OUTPUTS.items():
        assert specification.is_compatible_with(outputs[name])
        np.testing.assert_array_equal(in_graph[name], outputs[name])
    return {name: values.numpy() for name, values in outputs.items()}, shapes


@pytest.mark.parametrize(("max_tokens", "max_rows"), [(1, 100), (10, 100), (10, 2), (10_000, 1), (10_000, 100)])
def test_results_are_those_of_the_whole_batch(max_tokens, max_rows):
    generator = np.random.default_rng(1)
    rows = [generator.integers(1, 9, size=size).tolist() for size in generator.integers(0, 8, size=25)]
    weights = generator.integers(1, 5, size=25)
    found, shapes = run(rows, weights, max_tokens, max_rows)
    expected = everything(tf.ragged.constant(rows, tf.int32, ragged_rank=1), tf.constant(weights, tf.int32))
    np.testing.assert_array_equal(found["sum"], expected["sum"])
    np.testing.assert_array_equal(found["pair"], expected["pair"])
    np.testing.assert_array_equal(found["copy"], expected["copy"])
    np.testing.assert_array_equal(found["outer"], expected["outer"])
    for row, ids in enumerate(rows):  # what fills a row up differs: "" between blocks, "0" within one
        assert [text for text in found["text"][row] if text not in (b"", b"0")] == [str(x).encode() for x in ids]
    assert sum(count for count, _ in shapes) == 25
    assert all(count == 1 or (count <= max_rows and count * width <= max_tokens) for count, width in shapes)
    assert [width for _, width in shapes] == sorted((width for _, width in shapes), reverse=True)
    if max_tokens == 10_000:
        assert len(shapes) == (25 if max_rows == 1 else 1)


def test_no_rows_and_empty_rows():
    found, shapes = run([], [], 10, 10)
    assert shapes == []
    assert {name: values.shape for name, values in found.items()} == {
        "sum": (0,),
        "pair": (0, 2),
        "copy": (0, 0),
        "outer": (0, 0, 0),
        "text": (0, 0),
    }
    found, shapes = run([[], []], [1, 1], 10, 10)
    assert shapes == [(2, 0)]
    assert found["copy"].shape == (2, 0)
