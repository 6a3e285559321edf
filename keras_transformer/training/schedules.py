"""Learning-rate schedules: the paper's, and inverse square root, cosine and constant with a warm-up to a peak.

All count the updates `n` from 1, where Keras calls a schedule with the updates made before: `step = n - 1`.
"""

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


def _non_negative_integer(name, value):
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"`{name}` must be an integer that is not negative. Received: {name}={value!r}")
    return number


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
        n = _update_number(step)
        return self.scale * self.d_model**-0.5 * ops.minimum(ops.rsqrt(n), n * self.warmup_steps**-1.5)

    def get_config(self):
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "scale": self.scale}


@keras.saving.register_keras_serializable("keras_transformer")
class InverseSquareRootSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Warm-up to a peak, then decay with the inverse square root of the step.

        learning rate = peak_learning_rate * warm_up(n) * sqrt(warmup_steps / max(n, warmup_steps))

    where `warm_up(n)` is `min(n / warmup_steps, 1)` for a linear warm-up, which makes the curve that of
    `WarmupSchedule.from_peak`, and 1 for a constant one, which keeps the peak for the first `warmup_steps` updates.

    Args:
        peak_learning_rate: the highest rate.
        warmup_steps: number of updates up to the decay, a positive integer. Defaults to 4000 (section 5.3 of the
            Transformer paper).
        warmup: `"linear"` or `"constant"`. Defaults to `"linear"`.

    Call arguments:
        step: how many updates were made before, of any kind that `WarmupSchedule` takes.

    Returns:
        The learning rate, a float32 scalar tensor.

    Raises:
        ValueError: for an argument that breaks these rules.

    Reference:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), equation 3 (linear)
        - [Raffel et al., 2020](https://arxiv.org/abs/1910.10683), section 3.1.2 (constant)
    """

    def __init__(self, peak_learning_rate, warmup_steps=4000, warmup="linear"):
        super().__init__()
        self.peak_learning_rate = _positive_number("peak_learning_rate", peak_learning_rate)
        self.warmup_steps = _positive_integer("warmup_steps", warmup_steps)
        if warmup not in ("linear", "constant"):
            raise ValueError(f'`warmup` must be "linear" or "constant". Received: warmup={warmup!r}')
        self.warmup = warmup

    def __call__(self, step):
        n = _update_number(step)
        rate = self.peak_learning_rate * ops.sqrt(self.warmup_steps / ops.maximum(n, self.warmup_steps))
        return rate * ops.minimum(n / self.warmup_steps, 1.0) if self.warmup == "linear" else rate

    def get_config(self):
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "warmup_steps": self.warmup_steps,
            "warmup": self.warmup,
        }


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
        self.peak_learning_rate = _positive_number("peak_learning_rate", peak_learning_rate)
        self.total_steps = _positive_integer("total_steps", total_steps)
        self.warmup_steps = _non_negative_integer("warmup_steps", warmup_steps)
        if self.total_steps <= max(self.warmup_steps, 1):
            raise ValueError(
                "`total_steps` must be greater than 1 and than `warmup_steps`. "
                f"Received: total_steps={total_steps!r}, warmup_steps={warmup_steps!r}"
            )
        try:
            self.final_fraction = float(final_fraction)
        except (TypeError, ValueError):
            self.final_fraction = math.nan
        if not 0 <= self.final_fraction <= 1:
            raise ValueError(
                f"`final_fraction` must be a number in [0, 1]. Received: final_fraction={final_fraction!r}"
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
        self.peak_learning_rate = _positive_number("peak_learning_rate", peak_learning_rate)
        self.warmup_steps = _non_negative_integer("warmup_steps", warmup_steps)

    def __call__(self, step):
        return self.peak_learning_rate * ops.minimum(_update_number(step) / max(self.warmup_steps, 1), 1.0)

    def get_config(self):
        return {"peak_learning_rate": self.peak_learning_rate, "warmup_steps": self.warmup_steps}
