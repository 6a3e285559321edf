"""Dropout whose masks differ between the replicas of a distribution strategy."""

import keras


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
        stream = keras.ops.cast(_replica_id(), seed.dtype) * keras.ops.cast(0x9E3779B1, seed.dtype)
        return seed + keras.ops.stack([stream, keras.ops.zeros_like(stream)])


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
