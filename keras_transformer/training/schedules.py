"""The paper's learning-rate schedule."""

import math
import operator

import keras
from keras import ops


def _positive_integer(name, value):
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    return number


def _positive_number(name, value):
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"`{name}` must be a positive number. Received: {name}={value!r}")
    return number


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
        self.d_model = _positive_integer("d_model", d_model)
        self.warmup_steps = _positive_integer("warmup_steps", warmup_steps)
        self.scale = _positive_number("scale", scale)

    @classmethod
    def from_peak(cls, peak_learning_rate, warmup_steps=4000):
        """The same curve with a given highest rate, instead of one that follows from the width of the model."""
        warmup_steps = _positive_integer("warmup_steps", warmup_steps)
        peak = _positive_number("peak_learning_rate", peak_learning_rate)
        return cls(d_model=1, warmup_steps=warmup_steps, scale=peak * math.sqrt(warmup_steps))

    @property
    def peak_learning_rate(self):
        """The highest rate, reached after `warmup_steps` steps."""
        return self.scale * (self.d_model * self.warmup_steps) ** -0.5

    def __call__(self, step):
        n = ops.cast(ops.convert_to_tensor(step), "float32") + 1.0
        return self.scale * self.d_model**-0.5 * ops.minimum(ops.rsqrt(n), n * self.warmup_steps**-1.5)

    def get_config(self):
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "scale": self.scale}
