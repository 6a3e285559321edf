"""The position-wise feed-forward network."""

import keras
from keras import ops

from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.rows import as_rows


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(keras.layers.Layer):
    """Two linear maps with a non-linearity between, the same at every position (paper, section 3.3).

    `FFN(x) = activation(x W1 + b1) W2 + b2`

    Args:
        hidden_dim: width between the two maps, d_ff in the paper (2048 in its base model).
        activation: name of a Keras activation or a callable. Defaults to `"relu"`, as in the paper.
        dropout: share of the hidden units dropped while training. Defaults to 0, as in the paper.
        kernel_initializer: initializer of both kernels. Defaults to `"glorot_uniform"`.

    Call arguments:
        inputs: tensor [..., D]; D is taken from the first input.
        training: whether to drop hidden units.

    Returns:
        A tensor shaped like `inputs`.

    Raises:
        ValueError: if `hidden_dim` is not positive.
    """

    def __init__(self, hidden_dim, activation="relu", dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        if hidden_dim < 1:
            raise ValueError(f"`hidden_dim` must be positive. Received: hidden_dim={hidden_dim}")
        self.hidden_dim = hidden_dim
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

    def build(self, inputs_shape):
        self.hidden_dense = keras.layers.Dense(
            self.hidden_dim,
            activation=self.activation,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="hidden",
        )
        self.hidden_dense.build(inputs_shape)
        self.hidden_dropout = Dropout(self.dropout, dtype=self.dtype_policy, name="hidden_dropout")
        self.output_dense = keras.layers.Dense(
            inputs_shape[-1],
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="output",
        )
        self.output_dense.build((*inputs_shape[:-1], self.hidden_dim))

    def call(self, inputs, training=None):
        hidden = self.hidden_dropout(self.hidden_dense(as_rows(inputs)), training=training)  # [rows, hidden_dim]
        return ops.reshape(self.output_dense(hidden), (-1, *ops.shape(inputs)[1:]))

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
