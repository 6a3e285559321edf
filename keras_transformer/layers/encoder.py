"""The encoder and its layer, and what the decoder shares with them."""

import keras

from keras_transformer.layers.multi_head_attention import MultiHeadAttention
from keras_transformer.layers.position_wise import FeedForward, LayerNormalization, Residual


def split_mask(mask):
    """Sort a mask by its rank into (token mask [B, S] or None, attention mask [B, T, S] or None)."""
    if mask is None or isinstance(mask, dict | list):  # Keras fills in nested Nones for a projected memory
        return None, None
    if len(mask.shape) not in (2, 3):
        raise ValueError(f"A mask must be [B, S] or [B, T, S]. Received: shape {mask.shape}")
    return (mask, None) if len(mask.shape) == 2 else (None, mask)


class SequenceLayer(keras.layers.Layer):
    """Base of layers from vectors [B, T, D] to such vectors, which pass the mask of the tokens on."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_mask(self, inputs, previous_mask):
        return split_mask(previous_mask)[0]

    def compute_output_shape(self, inputs_shape):
        return inputs_shape


class TransformerLayer(SequenceLayer):
    """Base of `EncoderLayer` and `DecoderLayer`; not a layer by itself.

    Args:
        num_heads: number of attention heads, h in the paper (8 in its base model).
        feed_forward_dim: hidden width of the feed-forward network, d_ff (2048 in the base model).
        key_dim: width of queries and keys per head, d_k. Defaults to d_model / `num_heads`.
        value_dim: width of values per head, d_v. Defaults to `key_dim`.
        activation: of the feed-forward network, any Keras activation. Defaults to `"relu"`.
        dropout: on the output of every sub-layer. Defaults to 0.1, the base model.
        attention_dropout: on the attention weights. Defaults to 0, as in the paper.
        activation_dropout: on the hidden units of the feed-forward network. Defaults to 0, as in the paper.
        norm_first: `False` (default) is the paper's post-norm, `True` pre-norm; see `Residual`.
        use_attention_bias: whether the attention projections add a bias. Defaults to `False`, as in the paper.
        layer_norm_epsilon: added to the variance in every norm. Defaults to 1e-6; see `Residual`.
    """

    def __init__(
        self,
        num_heads,
        feed_forward_dim,
        key_dim=None,
        value_dim=None,
        activation="relu",
        dropout=0.1,
        attention_dropout=0.0,
        activation_dropout=0.0,
        norm_first=False,
        use_attention_bias=False,
        layer_norm_epsilon=1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.feed_forward_dim = feed_forward_dim
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        self.norm_first = norm_first
        self.use_attention_bias = use_attention_bias
        self.layer_norm_epsilon = layer_norm_epsilon

    def _build_attention(self, name, inputs_shape, value_shape):
        """Make an attention and the residual connection around it, by name."""
        attention = MultiHeadAttention(
            self.num_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            dropout=self.attention_dropout,
            use_bias=self.use_attention_bias,
            dtype=self.dtype_policy,
            name=name,
        )
        attention.build(inputs_shape, value_shape)
        setattr(self, name, attention)
        self._build_residual(name, inputs_shape)

    def _build_feed_forward(self, inputs_shape):
        """Make the feed-forward network and the residual connection around it."""
        self.feed_forward = FeedForward(
            self.feed_forward_dim,
            activation=self.activation,
            dropout=self.activation_dropout,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.feed_forward.build(inputs_shape)
        self._build_residual("feed_forward", inputs_shape)

    def _build_residual(self, name, inputs_shape):
        residual = Residual(
            dropout=self.dropout,
            norm_first=self.norm_first,
            layer_norm_epsilon=self.layer_norm_epsilon,
            dtype=self.dtype_policy,
            name=f"{name}_residual",
        )
        residual.build(inputs_shape)
        setattr(self, f"{name}_residual", residual)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "feed_forward_dim": self.feed_forward_dim,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation_dropout": self.activation_dropout,
            "norm_first": self.norm_first,
            "use_attention_bias": self.use_attention_bias,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }


class Stack(SequenceLayer):
    """Base of `Encoder` and `Decoder`: copies of one layer, one above the other, and pre-norm's final norm.

    Args:
        layer: an unbuilt layer; the stack makes its own copies from its configuration.
        num_layers: number of copies, N in the paper (6 in its base model).

    Raises:
        ValueError: if `num_layers` is not positive, or `layer` is of another kind.
    """

    def __init__(self, layer, num_layers, **kwargs):
        super().__init__(**kwargs)
        if not isinstance(layer, TransformerLayer):
            raise ValueError(f"`layer` must be an `EncoderLayer` or a `DecoderLayer`. Received: {layer!r}")
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be positive. Received: num_layers={num_layers}")
        self.num_layers = num_layers
        self.layer_config = keras.saving.serialize_keras_object(layer)
        self.norm_first = layer.norm_first
        self.layer_norm_epsilon = layer.layer_norm_epsilon
        self.layers = [
            type(layer).from_config({**layer.get_config(), "name": f"layer_{index}", "dtype": self.dtype_policy})
            for index in range(num_layers)
        ]
        for index, layer in enumerate(self.layers):
            setattr(self, f"layer_{index}", layer)  # TensorFlow's checkpoints do not look into Keras's lists

    def build(self, inputs_shape, *memory_shape):
        for layer in self.layers:
            layer.build(inputs_shape, *memory_shape)
        if self.norm_first:
            self.final_norm = LayerNormalization(
                epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="final_norm"
            )
            self.final_norm.build(inputs_shape)

    def get_config(self):
        return {**super().get_config(), "layer": self.layer_config, "num_layers": self.num_layers}

    @classmethod
    def from_config(cls, config):
        config = dict(config)  # the caller's own stays whole
        return cls(keras.saving.deserialize_keras_object(config.pop("layer")), **config)


@keras.saving.register_keras_serializable("keras_transformer")
class EncoderLayer(TransformerLayer):
    """Self-attention, then a feed-forward network, each in a residual connection (paper, section 3.1).

    The constructor is that of `TransformerLayer`: `num_heads`, `feed_forward_dim`, and the rest by keyword.

    Shapes: B batch, S positions, D width (d_model).

    Call arguments:
        inputs: tensor [B, S, D].
        mask: what may be attended to, True = may: real tokens [B, S], or for each query [B, S, S]. Keras fills it in
            when `inputs` carries an implicit mask; an explicit argument wins.
        use_causal_mask: whether each position sees none that comes after it, as in a model without an encoder.
            Defaults to `False`.
        training: whether to drop.

    Returns:
        A tensor [B, S, D].

    Raises:
        ValueError: on a bad size; D must be divisible by `num_heads` unless `key_dim` is given.
    """

    def build(self, inputs_shape):
        self._build_attention("self_attention", inputs_shape, inputs_shape)
        self._build_feed_forward(inputs_shape)

    def call(self, inputs, mask=None, use_causal_mask=False, training=None):
        token_mask, attention_mask = split_mask(mask)

        def attend(x):
            return self.self_attention(
                x,
                x,
                value_mask=token_mask,
                attention_mask=attention_mask,
                use_causal_mask=use_causal_mask,
                training=training,
            )

        def feed_forward(x):
            return self.feed_forward(x, training=training)

        outputs = self.self_attention_residual(inputs, sublayer=attend, training=training)
        return self.feed_forward_residual(outputs, sublayer=feed_forward, training=training)


@keras.saving.register_keras_serializable("keras_transformer")
class Encoder(Stack):
    """A stack of `num_layers` encoder layers (paper, section 3.1).

    Args:
        layer: an unbuilt `EncoderLayer`, the pattern of them all. A pre-norm stack ends in one more norm, a post-norm
            stack does not.
        num_layers: number of layers, N in the paper (6 in its base model).

    Call arguments:
        inputs: tensor [B, S, D], embedded tokens.
        mask, use_causal_mask: as for `EncoderLayer`.
        training: whether to drop.

    Returns:
        A tensor [B, S, D]: the memory that a decoder attends to.
    """

    def build(self, inputs_shape):
        super().build(inputs_shape)

    def call(self, inputs, mask=None, use_causal_mask=False, training=None):
        outputs = inputs
        for layer in self.layers:
            outputs = layer(outputs, mask=mask, use_causal_mask=use_causal_mask, training=training)
        return self.final_norm(outputs) if self.norm_first else outputs
