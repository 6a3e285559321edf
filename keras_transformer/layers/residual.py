"""The residual connection around every sub-layer, and the only switch between post-norm and pre-norm."""

import keras

from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.layer_normalization import LayerNormalization


@keras.saving.register_keras_serializable("keras_transformer")
class Residual(keras.layers.Layer):
    """Run a sub-layer, drop, add its input, normalise (paper, section 5.4 for the dropout).

    - post-norm (`norm_first=False`, the paper): `LayerNorm(x + Dropout(sublayer(x)))`
    - pre-norm (`norm_first=True`): `x + Dropout(sublayer(LayerNorm(x)))`; the stack then ends in a norm of its own

    Args:
        dropout: share of the sub-layer's outputs dropped while training. Defaults to 0.1, the paper's base model.
        norm_first: whether to normalise before the sub-layer. Defaults to `False`.
        layer_norm_epsilon: added to the variance. Defaults to 1e-6, as in the authors' tensor2tensor; the paper does
            not say.

    Call arguments:
        inputs: tensor [..., D].
        sublayer: function from a tensor [..., D] to a tensor of the same shape, or to a tuple that starts with one.
        training: whether to drop.

    Returns:
        A tensor shaped like `inputs`; if `sublayer` returned a tuple, a tuple with the rest of it passed on unchanged.
    """

    def __init__(self, dropout=0.1, norm_first=False, layer_norm_epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.dropout = dropout
        self.norm_first = norm_first
        self.layer_norm_epsilon = layer_norm_epsilon
        self.supports_masking = True

    def build(self, inputs_shape):
        self.norm = LayerNormalization(epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="norm")
        self.norm.build(inputs_shape)
        self.output_dropout = Dropout(self.dropout, dtype=self.dtype_policy, name="output_dropout")

    def call(self, inputs, sublayer, training=None):
        outputs = sublayer(self.norm(inputs) if self.norm_first else inputs)
        outputs, *extras = outputs if isinstance(outputs, tuple) else (outputs,)
        outputs = inputs + self.output_dropout(outputs, training=training)
        if not self.norm_first:
            outputs = self.norm(outputs)
        return (outputs, *extras) if extras else outputs

    def get_config(self):
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "norm_first": self.norm_first,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }
