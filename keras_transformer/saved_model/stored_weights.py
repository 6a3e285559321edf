"""The weights of an export, stored in full or in fewer bytes."""

import os

import keras
import numpy as np
import tensorflow as tf

STORAGES = ("float32", "float16", "int8")
_LARGEST = {"float16": 65504.0}  # a greater number would become infinite


class StoredWeights:
    """A copy of a model's weights in a form for storage, and a way to run the model with them.

    What is stored is computed back into the model's own type at the beginning of each call, outside of the loops.
    Only matrices, nearly all of the bytes, are stored in fewer bits; vectors (biases and norms) stay as they are. With
    `"int8"`, each matrix is stored as `round(weights / scale)` with a scale for each output: a column of a kernel, a
    row of an embedding, which in the logits is an output too.

    Args:
        model: a `Transformer`, or anything with `variables`.
        storage: `"float32"`, which stores the weights as they are, `"float16"` (half the bytes) or `"int8"` (a
            quarter).

    Raises:
        ValueError: if there is no such storage, or a weight is too large for it or not finite.
    """

    def __init__(self, model, storage="float32"):
        if storage not in STORAGES:
            raise ValueError(f"`weights` must be one of {', '.join(STORAGES)}. Received: {storage!r}")
        # Without the states of random numbers, which nothing here draws.
        self._variables = [variable for variable in model.variables if variable.dtype.startswith(("float", "bfloat"))]
        self.parts = [_store(variable, storage) for variable in self._variables]  # what a SavedModel must track

    def scope(self):
        """Return a context in which the model computes with the stored weights; open it within the traced function."""
        pairs = [(variable, _restore(parts)) for variable, parts in zip(self._variables, self.parts, strict=True)]
        return keras.StatelessScope(state_mapping=pairs)

    def load(self, path):
        """Read the weights of an export, stored in the same way, into the parts and computed back into the model.

        Raises:
            ValueError: if the export lacks them, or holds others.
        """
        variables = os.path.join(path, tf.saved_model.VARIABLES_DIRECTORY, tf.saved_model.VARIABLES_FILENAME)
        try:
            tf.train.Checkpoint(weights=self.parts).read(variables).assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise ValueError(f"{path} does not hold the weights of the model: {error}") from error
        for variable, parts in zip(self._variables, self.parts, strict=True):
            variable.assign(_restore(parts))


def _store(variable, storage):
    """Return the variables that a weight is stored in: one, or whole numbers and their scale."""
    if storage == "float32" or len(variable.shape) < 2:
        return [variable.value]
    values = keras.ops.convert_to_numpy(variable)
    largest = np.abs(values).max(initial=0.0)
    if not largest <= _LARGEST.get(storage, np.finfo("float32").max):
        raise ValueError(
            f"Weights must be finite and within {storage} to be stored so. Received: {largest} in {variable.path}"
        )
    if storage == "float16":
        return [tf.Variable(values.astype("float16"), trainable=False)]
    axis = 0 if variable.path.endswith("kernel") else -1
    scale = np.maximum(np.abs(values).max(axis=axis, keepdims=True), np.finfo("float32").tiny) / 127
    whole = np.round(values / scale).astype("int8")
    return [tf.Variable(whole, trainable=False), tf.Variable(scale.astype("float32"), trainable=False)]


def _restore(parts):
    value, *scale = map(tf.convert_to_tensor, parts)
    if scale:
        return tf.cast(value, scale[0].dtype) * scale[0]
    return tf.cast(value, tf.float32) if value.dtype == tf.float16 else value
