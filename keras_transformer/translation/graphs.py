"""Functions as TensorFlow graphs, called from Python with rows of any number and length."""

import itertools

import numpy as np
import tensorflow as tf


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
