"""Layer normalisation with its gradient in closed form."""

import keras
from keras import ops

from keras_transformer.layers.rows import as_rows


@keras.saving.register_keras_serializable("keras_transformer")
class LayerNormalization(keras.layers.Layer):
    """Normalise each vector to mean 0 and variance 1, then scale and shift it.

    `gamma * (x - mean(x)) / sqrt(variance(x) + epsilon) + beta`, over the last axis. It is
    `keras.layers.LayerNormalization` with the same weights; left to automatic differentiation, the gradient of that
    layer takes twice as many passes over the vectors. Computed in float32 whatever the dtype of the layer. The closed
    form serves training alone: called otherwise, the layer is plain operations, which a graph can export and
    differentiate again. Second derivatives through it in training are not supported.

    Args:
        epsilon: added to the variance. Defaults to 1e-6, as in the authors' tensor2tensor; the paper does not say.

    Call arguments:
        inputs: tensor [..., D]; D is taken from the first input.
        training: whether the gradient is taken in closed form; outputs are the same.

    Returns:
        A tensor shaped like `inputs`.

    Reference:
        [Ba et al., 2016](https://arxiv.org/abs/1607.06450)
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.supports_masking = True
        self.autocast = False  # neither inputs nor weights are rounded before

    def build(self, inputs_shape):
        self.gamma, self.beta = (
            self.add_weight(name=name, shape=inputs_shape[-1:], initializer=initializer, autocast=False)
            for name, initializer in (("gamma", "ones"), ("beta", "zeros"))
        )

    def call(self, inputs, training=False):
        rows, gamma, beta = (ops.cast(x, "float32") for x in (as_rows(inputs), self.gamma, self.beta))
        if training:
            outputs = ops.custom_gradient(self._normalize)(rows, gamma, beta)
        else:
            outputs, _ = self._normalize(rows, gamma, beta)
        return ops.reshape(ops.cast(outputs, self.compute_dtype), (-1, *ops.shape(inputs)[1:]))

    def _normalize(self, rows, gamma, beta):
        """The normalised rows [N, D] and their gradient as a function; all in float32."""
        centered = rows - ops.mean(rows, axis=-1, keepdims=True)
        scale = ops.rsqrt(ops.mean(ops.square(centered), axis=-1, keepdims=True) + self.epsilon)  # [N, 1]
        normalized = centered * scale

        def gradient(*args, upstream=None):
            if upstream is None:  # TensorFlow and JAX pass it by position, torch by name
                (upstream,) = args
            product = upstream * normalized
            scaled = upstream * gamma
            # What the mean and the variance take away: the parts along (1, ..., 1) and along the normalised vector.
            mean = ops.mean(scaled, axis=-1, keepdims=True)
            projection = ops.mean(product * gamma, axis=-1, keepdims=True)
            return (
                (scaled - mean - normalized * projection) * scale,
                ops.sum(product, axis=0),
                ops.sum(upstream, axis=0),
            )

        return normalized * gamma + beta, gradient

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
