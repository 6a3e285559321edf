"""Adam, and the schedules of its learning rate: the paper's, and a cosine and a constant with a warm-up to a peak.

Schedules count the updates `n` from 1, where Keras calls a schedule with the updates made before: `step = n - 1`.
"""

import math
import operator

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


def _integer(name, value, least):
    """The value as an integer of at least `least`, 0 or 1."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < least:
        rule = "a positive integer" if least else "an integer that is not negative"
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")
    return number


def _number(name, value, rule, fits):
    """The value as a number that fits a rule."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not fits(number):
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")
    return number


def _positive(name, value):
    return _number(name, value, "a positive number", lambda number: 0 < number < math.inf)


def _update_number(step):
    """Number of the update that is made after `step` updates, counted from 1, in float32."""
    return ops.cast(ops.convert_to_tensor(step), "float32") + 1.0


@keras.saving.register_keras_serializable("keras_transformer")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then decay with the inverse square root of the step.

        learning rate = scale * d_model^-0.5 * min(n^-0.5, n * warmup_steps^-1.5)

    The paper counts its steps `n` from 1, Keras its `optimizer.iterations` from 0: a call with `step` gives the rate of
    `n = step + 1`. So the first update uses the paper's first rate, never 0, and the rate is highest at the call with
    `step = warmup_steps - 1`.

    Args:
        d_model: width of the model, a positive integer.
        warmup_steps: number of steps up to the highest rate. Defaults to 4000 (section 5.3 of the paper).
        scale: factor on the whole schedule. Defaults to 1, as in the paper.

    Call arguments:
        step: how many updates were made before: a Python or numpy number, or a scalar tensor or variable of any
            integer or float dtype.

    Returns:
        The learning rate, a float32 scalar tensor.

    Raises:
        ValueError: for an argument that is not positive.

    Reference:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), equation 3
    """

    def __init__(self, d_model, warmup_steps=4000, scale=1.0):
        super().__init__()
        self.d_model = _integer("d_model", d_model, least=1)
        self.warmup_steps = _integer("warmup_steps", warmup_steps, least=1)
        self.scale = _positive("scale", scale)

    @classmethod
    def from_peak(cls, peak_learning_rate, warmup_steps=4000):
        """The same curve with a given highest rate, instead of one that follows from the width of the model."""
        warmup_steps = _integer("warmup_steps", warmup_steps, least=1)
        peak = _positive("peak_learning_rate", peak_learning_rate)
        return cls(d_model=1, warmup_steps=warmup_steps, scale=peak * math.sqrt(warmup_steps))

    @property
    def peak_learning_rate(self):
        """The highest rate, reached after `warmup_steps` steps."""
        return self.scale * (self.d_model * self.warmup_steps) ** -0.5

    def __call__(self, step):
        n = _update_number(step)
        return self.scale * self.d_model**-0.5 * ops.minimum(ops.rsqrt(n), n * self.warmup_steps**-1.5)

    def get_config(self):
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "scale": self.scale}


@keras.saving.register_keras_serializable("keras_transformer")
class CosineSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a peak, then half a cosine down to a share of it, where the rate stays.

        n <= warmup_steps:  peak_learning_rate * n / warmup_steps
        later:              peak_learning_rate * (f + (1 - f) * (1 + cos(pi * x)) / 2)

    with `f = final_fraction` and `x` growing from 0 at the peak, which is update `max(warmup_steps, 1)`, to 1 at
    update `total_steps`.

    Args:
        peak_learning_rate: the highest rate.
        total_steps: number of the update from which the rate is the lowest, greater than that of the peak.
        warmup_steps: number of updates up to the highest rate. Defaults to 0: the first update has it.
        final_fraction: lowest rate as a share of the highest, in [0, 1]. Defaults to 0, with which the last update of
            a run of `total_steps` changes nothing.

    Call arguments:
        step: how many updates were made before, of any kind that `WarmupSchedule` takes.

    Returns:
        The learning rate, a float32 scalar tensor.

    Raises:
        ValueError: for an argument that breaks these rules.

    Reference:
        - [Loshchilov and Hutter, 2017](https://arxiv.org/abs/1608.03983), equation 5, without restarts
    """

    def __init__(self, peak_learning_rate, total_steps, warmup_steps=0, final_fraction=0.0):
        super().__init__()
        self.peak_learning_rate = _positive("peak_learning_rate", peak_learning_rate)
        self.total_steps = _integer("total_steps", total_steps, least=1)
        self.warmup_steps = _integer("warmup_steps", warmup_steps, least=0)
        if self.total_steps <= max(self.warmup_steps, 1):
            raise ValueError(
                "`total_steps` must be greater than 1 and than `warmup_steps`. "
                f"Received: total_steps={total_steps!r}, warmup_steps={warmup_steps!r}"
            )
        self.final_fraction = _number(
            "final_fraction", final_fraction, "a number in [0, 1]", lambda number: 0 <= number <= 1
        )

    def __call__(self, step):
        n = _update_number(step)
        peak = max(self.warmup_steps, 1)
        progress = ops.clip((n - peak) / (self.total_steps - peak), 0.0, 1.0)
        decay = self.final_fraction + (1.0 - self.final_fraction) * 0.5 * (1.0 + ops.cos(math.pi * progress))
        return self.peak_learning_rate * decay * ops.minimum(n / peak, 1.0)

    def get_config(self):
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "final_fraction": self.final_fraction,
        }


@keras.saving.register_keras_serializable("keras_transformer")
class ConstantSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a rate that then stays: `peak_learning_rate * min(n / warmup_steps, 1)`.

    Args:
        peak_learning_rate: the rate after the warm-up.
        warmup_steps: number of updates up to it. Defaults to 0: the first update has it.

    Call arguments:
        step: how many updates were made before, of any kind that `WarmupSchedule` takes.

    Returns:
        The learning rate, a float32 scalar tensor.

    Raises:
        ValueError: for an argument that breaks these rules.
    """

    def __init__(self, peak_learning_rate, warmup_steps=0):
        super().__init__()
        self.peak_learning_rate = _positive("peak_learning_rate", peak_learning_rate)
        self.warmup_steps = _integer("warmup_steps", warmup_steps, least=0)

    def __call__(self, step):
        return self.peak_learning_rate * ops.minimum(_update_number(step) / max(self.warmup_steps, 1), 1.0)

    def get_config(self):
        return {"peak_learning_rate": self.peak_learning_rate, "warmup_steps": self.warmup_steps}
