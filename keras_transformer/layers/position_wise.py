"""All of a layer but attention: what acts on each position by itself."""

import keras
from keras import ops


def as_rows(x):
    """Flatten [..., D] to [rows, D], so that a dense layer is a single matrix product.

    On three-dimensional input `keras.layers.Dense` computes and transposes shapes around the product; in
    step-by-step decoding, where the products are small, that takes longer than the product.
    """
    return ops.reshape(x, (-1, x.shape[-1]))


def _replica_id():
    """Number of the running replica under `tf.distribute`, 0 everywhere else."""
    if keras.backend.backend() != "tensorflow":
        return 0
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return 0 if context is None else context.replica_id_in_sync_group


class ReplicaSeedGenerator(keras.random.SeedGenerator):
    """A Keras seed generator that gives each replica a stream of its own.

    Keras mirrors the seed state, so every replica would draw the same numbers. On replica 0, and without a
    strategy, the seeds are exactly Keras's.
    """

    def next(self, ordered=True):
        seed = super().next(ordered=ordered)
        # Keras counts draws in the second word; an odd multiplier spreads the replicas over the first.
        stream = ops.cast(_replica_id(), seed.dtype) * ops.cast(0x9E3779B1, seed.dtype)
        return seed + ops.stack([stream, ops.zeros_like(stream)])


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Layer):
    """Zero a share of the inputs while training and scale the rest by 1 / (1 - rate).

    It is `keras.layers.Dropout` but for one thing: under `tf.distribute` every replica draws its own mask, where
    Keras's layer draws the same one everywhere.

    Args:
        rate: share of the entries to drop, 0 <= rate < 1.
        seed: integer that makes the masks reproducible. Defaults to Keras's global seed.

    Call arguments:
        inputs: tensor of any shape.
        training: whether to drop. Defaults to the mode Keras is in.

    Returns:
        A tensor shaped like `inputs`.

    Raises:
        ValueError: if `rate` is not in [0, 1).
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must be in [0, 1). Received: rate={rate}")
        self.rate = rate
        self.seed = seed
        self.supports_masking = True
        if rate > 0:
            self.seed_generator = ReplicaSeedGenerator(seed)
        self.built = True  # it has no weights to make

    def call(self, inputs, training=False):
        if training and self.rate > 0:
            return keras.random.dropout(inputs, self.rate, seed=self.seed_generator)
        return inputs

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


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


@keras.saving.register_keras_serializable("keras_transformer")
class Residual(keras.layers.Layer):
    """Run a sub-layer, drop, add its input, normalise (paper, section 5.4 for the dropout).

    - post-norm (`norm_first=False`, the paper): `LayerNorm(x + Dropout(sublayer(x)))`
    - pre-norm (`norm_first=True`): `x + Dropout(sublayer(LayerNorm(x)))`; the stack then ends in a norm of its own

    The sub-layer is a layer, given once and for all, which is trained and saved with the connection; or a function,
    given with every call, by a layer that owns what the function uses. (Keras does not see the weights of a layer that
    is part of a call.)

    Args:
        sublayer: a layer from a tensor [..., D] to one of the same shape. Defaults to `None`: a function comes with the
            call.
        dropout: share of the sub-layer's outputs dropped while training. Defaults to 0.1, the paper's base model.
        norm_first: whether to normalise before the sub-layer. Defaults to `False`.
        layer_norm_epsilon: added to the variance. Defaults to 1e-6, as in the authors' tensor2tensor; the paper does
            not say.

    Call arguments:
        inputs: tensor [..., D].
        sublayer: function from a tensor [..., D] to a tensor of the same shape, or to a tuple that starts with one;
            where the constructor got none, and only inside of a layer.
        training: whether to drop.

    Returns:
        A tensor shaped like `inputs`; if `sublayer` returned a tuple, a tuple with the rest of it passed on unchanged.

    Raises:
        ValueError: if there is no sub-layer, or there are two, or one in a call would be neither trained nor saved: a
            layer, or anything in a functional model.
    """

    def __init__(self, dropout=0.1, norm_first=False, layer_norm_epsilon=1e-6, sublayer=None, **kwargs):
        super().__init__(**kwargs)
        self.sublayer = sublayer
        self.dropout = dropout
        self.norm_first = norm_first
        self.layer_norm_epsilon = layer_norm_epsilon
        self.supports_masking = True

    def build(self, inputs_shape):
        self.norm = LayerNormalization(epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="norm")
        self.norm.build(inputs_shape)
        self.output_dropout = Dropout(self.dropout, dtype=self.dtype_policy, name="output_dropout")
        if self.sublayer is not None and not self.sublayer.built:
            self.sublayer.build(inputs_shape)

    def __call__(self, inputs, sublayer=None, training=None, **kwargs):
        if (sublayer is None) == (self.sublayer is None):
            raise ValueError(
                "`sublayer` must be given either to the constructor or with the call. Received: "
                f"{self.sublayer!r} and {sublayer!r}"
            )
        if isinstance(sublayer, keras.layers.Layer) or (sublayer is not None and keras.backend.is_keras_tensor(inputs)):
            raise ValueError(
                "`sublayer` must be given to the constructor of `Residual`: in a call, its weights would be neither "
                f"trained nor saved. Received: {sublayer!r}"
            )
        return super().__call__(inputs, sublayer=sublayer, training=training, **kwargs)

    def call(self, inputs, sublayer=None, training=None):
        x = self.norm(inputs) if self.norm_first else inputs
        outputs = self.sublayer(x) if sublayer is None else sublayer(x)
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
            "sublayer": self.sublayer and _template(self.sublayer),
        }

    @classmethod
    def from_config(cls, config):
        sublayer = config.get("sublayer")
        return cls(**{**config, "sublayer": sublayer and keras.saving.deserialize_keras_object(sublayer)})


def _template(layer):
    """The configuration of a layer that is to be built with the layer around it."""
    return {**keras.saving.serialize_keras_object(layer), "build_config": None}
