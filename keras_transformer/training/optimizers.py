"""Adam with an update of one pass."""

import keras
from keras import ops

from keras_transformer.keras_internals import adam_moments


@keras.saving.register_keras_serializable("keras_transformer")
class Adam(keras.optimizers.Adam):
    """`keras.optimizers.Adam`, its update done by one kernel of TensorFlow for each weight.

    Arguments, defaults, state and formula are Keras's; results differ by rounding. Keras writes the update as a dozen
    operations, each with a pass over arrays of the size of the weight; in large models the time of these passes adds
    up to that of many products. With `amsgrad`, and on other backends than TensorFlow, it is Keras's own update.

    Gradients of embeddings count as dense: the moments of rows that a batch does not use decay too, as in Keras.

    Reference:
        [Kingma & Ba, 2015](https://arxiv.org/abs/1412.6980); the form before section 2.1, whose epsilon stands beside
        the uncorrected second moment.
    """

    def update_step(self, gradient, variable, learning_rate):
        if self.amsgrad or keras.backend.backend() != "tensorflow":
            return super().update_step(gradient, variable, learning_rate)
        import tensorflow as tf

        handles = [
            (tensor.value if isinstance(tensor, keras.Variable) else tensor).handle
            for tensor in (variable, *adam_moments(self, variable))
        ]
        dtype = keras.backend.standardize_dtype(variable.dtype)
        learning_rate, beta_1, beta_2, epsilon, step = (
            ops.cast(number, dtype)
            for number in (learning_rate, self.beta_1, self.beta_2, self.epsilon, self.iterations + 1)
        )
        tf.raw_ops.ResourceApplyAdam(
            **dict(zip(("var", "m", "v"), handles, strict=True)),
            beta1_power=ops.power(beta_1, step),
            beta2_power=ops.power(beta_2, step),
            lr=learning_rate,
            beta1=beta_1,
            beta2=beta_2,
            epsilon=epsilon,
            grad=tf.convert_to_tensor(tf.cast(gradient, dtype)),
        )
