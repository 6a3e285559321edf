"""The encoder and its layer."""

import keras

from keras_transformer.layers.transformer_layer import Stack, TransformerLayer, split_mask


@keras.saving.register_keras_serializable("keras_transformer")
class EncoderLayer(TransformerLayer):
    """Self-attention, then a feed-forward network, each in a residual connection (paper, section 3.1).

    The constructor is that of `TransformerLayer`: `num_heads`, `feed_forward_dim`, and the rest by keyword.

    Shapes: B batch, S positions, D width (d_model).

    Call arguments:
        inputs: tensor [B, S, D].
        mask: what may be attended to, True = may: real tokens [B, S], or for each query [B, S, S]. Keras fills it in
            when `inputs` carries an implicit mask; an explicit argument wins.
        training: whether to drop.

    Returns:
        A tensor [B, S, D].

    Raises:
        ValueError: on a bad size; D must be divisible by `num_heads` unless `key_dim` is given.
    """

    def build(self, inputs_shape):
        self.self_attention = self._attention("self_attention", inputs_shape, inputs_shape)
        self.self_attention_residual = self._residual("self_attention_residual", inputs_shape)
        self.feed_forward = self._feed_forward(inputs_shape)
        self.feed_forward_residual = self._residual("feed_forward_residual", inputs_shape)

    def call(self, inputs, mask=None, training=None):
        token_mask, attention_mask = split_mask(mask)

        def attend(x):
            return self.self_attention(x, x, value_mask=token_mask, attention_mask=attention_mask, training=training)

        def feed_forward(x):
            return self.feed_forward(x, training=training)

        outputs = self.self_attention_residual(inputs, sublayer=attend, training=training)
        return self.feed_forward_residual(outputs, sublayer=feed_forward, training=training)

    def compute_mask(self, inputs, previous_mask):
        return split_mask(previous_mask)[0]

    def compute_output_shape(self, inputs_shape):
        return inputs_shape


@keras.saving.register_keras_serializable("keras_transformer")
class Encoder(Stack):
    """A stack of `num_layers` encoder layers (paper, section 3.1).

    Args:
        layer: an unbuilt `EncoderLayer`, the pattern of them all. A pre-norm stack ends in one more norm, a post-norm
            stack does not.
        num_layers: number of layers, N in the paper (6 in its base model).

    Call arguments:
        inputs: tensor [B, S, D], embedded tokens.
        mask: as for `EncoderLayer`.
        training: whether to drop.

    Returns:
        A tensor [B, S, D]: the memory that a decoder attends to.
    """

    def build(self, inputs_shape):
        for layer in self.layers:
            layer.build(inputs_shape)
        self._build_final_norm(inputs_shape)

    def call(self, inputs, mask=None, training=None):
        outputs = inputs
        for layer in self.layers:
            outputs = layer(outputs, mask=mask, training=training)
        return self.final_norm(outputs) if self.norm_first else outputs

    def compute_mask(self, inputs, previous_mask):
        return split_mask(previous_mask)[0]

    def compute_output_shape(self, inputs_shape):
        return inputs_shape
