"""Token embedding plus positions, and the same matrix in reverse."""

import keras
import numpy as np
from keras import ops

from keras_transformer.layers.position_wise import Dropout, as_rows
from keras_transformer.masks import padding_mask

POSITIONS = ("sinusoidal", "learned")


def sinusoidal_positions(positions, dim):
    """The paper's fixed position encoding (section 3.5), interleaved: even coordinates sine, odd ones cosine.

    `PE(p, 2i) = sin(p / 10000^(2i / dim))`, `PE(p, 2i + 1) = cos(p / 10000^(2i / dim))`

    Args:
        positions: integer tensor [T].
        dim: width of the encoding; an odd width ends in a sine.

    Returns:
        float32 tensor [T, dim].
    """
    frequencies = 10000.0 ** (-np.arange(0, dim, 2, dtype="float64") / dim)
    angles = ops.cast(positions, "float32")[:, None] * ops.convert_to_tensor(frequencies, "float32")  # [T, ceil(dim/2)]
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [T, ceil(dim/2), 2]
    return ops.reshape(pairs, (-1, 2 * frequencies.size))[:, :dim]


@keras.saving.register_keras_serializable("keras_transformer")
class PositionalEmbedding(keras.layers.Layer):
    """Turn ids into `embedding * sqrt(D) + position`, dropped; in reverse, vectors into logits.

    One matrix [V, D] serves both directions (paper, section 3.4), so a single layer called for the source, for the
    target and in reverse ties all three. Positions are the paper's interleaved sinusoids, computed in float32 for any
    length, or a learned table.

    Args:
        vocabulary_size: number of ids V.
        output_dim: width D of the embedding, d_model in the paper.
        positions: `"sinusoidal"` (default, the paper) or `"learned"` (its Table 3, row E).
        max_length: number of learned positions; required by `"learned"`, refused by `"sinusoidal"`.
        dropout: share of the sums dropped while training. Defaults to 0.1, the paper's base model.
        mask_zero: whether id 0 is padding that Keras's implicit mask hides. Defaults to `True`.

    Call arguments:
        inputs: ids [B, T], integers of any dtype (also float32, Keras's default for inputs); with `reverse=True`,
            vectors [B, T, D].
        start_index: position of the first id, an integer. Defaults to 0; step-by-step decoding passes its step.
        reverse: whether to compute logits. Defaults to `False`.
        training: whether to drop.

    Returns:
        Vectors [B, T, D] in the compute dtype; with `reverse=True`, float32 logits [B, T, V].

    Raises:
        ValueError: if a size is not positive, inputs are no ids [B, T], `positions` is unknown, `max_length` does not
            fit `positions`, or a row is longer than the learned table. A graph made for rows of any length cannot see
            the last of these when it is built; there, TensorFlow fails on a CPU, and who feeds the graph must keep to
            the limit.
    """

    def __init__(
        self,
        vocabulary_size,
        output_dim,
        positions="sinusoidal",
        max_length=None,
        dropout=0.1,
        mask_zero=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, size in (("vocabulary_size", vocabulary_size), ("output_dim", output_dim)):
            if size < 1:
                raise ValueError(f"`{name}` must be positive. Received: {name}={size}")
        if positions not in POSITIONS:
            raise ValueError(f"`positions` must be one of {POSITIONS}. Received: positions={positions!r}")
        if (positions == "learned") != (max_length is not None):
            raise ValueError(
                "`max_length` is the number of learned positions: required by `positions='learned'`, meaningless with "
                f"sinusoids. Received: positions={positions!r}, max_length={max_length}"
            )
        self.vocabulary_size = vocabulary_size
        self.output_dim = output_dim
        self.positions = positions
        self.max_length = max_length
        self.dropout = dropout
        self.mask_zero = mask_zero
        self.autocast = False  # ids that come as floats must not be rounded

    def build(self, inputs_shape=None):
        initializer = keras.initializers.RandomNormal(stddev=self.output_dim**-0.5)
        self.embeddings = self.add_weight(
            name="embeddings", shape=(self.vocabulary_size, self.output_dim), initializer=initializer
        )
        if self.positions == "learned":
            self.position_embeddings = self.add_weight(
                name="position_embeddings",
                shape=(self.max_length, self.output_dim),
                initializer=keras.initializers.RandomNormal(stddev=self.output_dim**-0.5),
            )
        self.sum_dropout = Dropout(self.dropout, dtype=self.dtype_policy, name="sum_dropout")
        self.built = True

    def call(self, inputs, start_index=0, reverse=False, training=None):
        if reverse:
            inputs = ops.cast(inputs, self.compute_dtype)
            logits = ops.matmul(as_rows(inputs), ops.transpose(ops.cast(self.embeddings, inputs.dtype)))  # [rows, V]
            return ops.cast(ops.reshape(logits, (*ops.shape(inputs)[:-1], self.vocabulary_size)), "float32")
        if len(inputs.shape) != 2:
            raise ValueError(f"Ids must be [B, T]. Received: shape {tuple(inputs.shape)}")
        vectors = ops.take(self.embeddings, ops.cast(inputs, "int32"), axis=0)  # [B, T, D]
        vectors = ops.cast(vectors, self.compute_dtype) * ops.cast(self.output_dim**0.5, self.compute_dtype)
        positions = self._position_vectors(inputs.shape[1], ops.shape(inputs)[1], start_index)
        return self.sum_dropout(vectors + ops.cast(positions, self.compute_dtype), training=training)

    def _position_vectors(self, static_length, length, start_index):
        indices = ops.arange(length, dtype="int32") + ops.cast(start_index, "int32")
        if self.positions == "sinusoidal":
            return sinusoidal_positions(indices, self.output_dim)
        if isinstance(start_index, int) and static_length is not None and start_index + static_length > self.max_length:
            raise ValueError(
                f"Rows must fit the learned positions, `max_length`={self.max_length}. "
                f"Received: {static_length} ids from position {start_index}"
            )
        return ops.take(self.position_embeddings, indices, axis=0)

    def compute_mask(self, inputs, previous_mask):
        if len(inputs.shape) == 2:  # ids
            return padding_mask(inputs) if self.mask_zero else None
        return previous_mask

    def compute_output_spec(self, inputs, start_index=0, reverse=False, training=None):
        if reverse:
            return keras.KerasTensor((*inputs.shape[:-1], self.vocabulary_size), dtype="float32")
        return keras.KerasTensor((*inputs.shape, self.output_dim), dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "output_dim": self.output_dim,
            "positions": self.positions,
            "max_length": self.max_length,
            "dropout": self.dropout,
            "mask_zero": self.mask_zero,
        }
