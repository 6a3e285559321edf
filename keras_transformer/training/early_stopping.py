"""Early stopping that survives a resume."""

import math
import warnings

import keras

from keras_transformer.training.progress import steps_made


class EarlyStopping(keras.callbacks.Callback):
    """Ends training when a metric has not improved for some evaluations.

    It does what `keras.callbacks.EarlyStopping` does, and its state can be saved: give it to `Checkpoints` as one of
    its `parts`, and a run that was killed stops at the same epoch as one that was not. The weights of the best epoch
    are those of `best_checkpoints`; `average_checkpoints(..., monitor=..., mode=..., count=1)` restores them.

    An epoch whose logs do not hold the metric does not count, and neither does one with a value that is not finite
    count as an improvement. Before `fit`, look at `stopped`: a run that had already stopped must not train on.

    Args:
        monitor: name of the metric in the logs, such as `"val_bleu"` or `"val_loss"`.
        mode: `"max"` where a higher value is better, `"min"` where a lower one is.
        patience: how many evaluations in a row may bring no improvement; at that many training ends.
        min_delta: least change that counts as an improvement. Defaults to 0: any.

    Attributes:
        best: best value so far, or None.
        best_step: the step at which it was reached, or None.
        wait: number of evaluations since.
        stopped: whether training has been ended.

    Raises:
        ValueError: for an argument that breaks these rules.
    """

    def __init__(self, monitor, *, mode, patience, min_delta=0.0):
        super().__init__()
        if mode not in ("max", "min"):
            raise ValueError(f'`mode` must be "max" or "min". Received: mode={mode!r}')
        if patience < 1:
            raise ValueError(f"`patience` must be a positive number of evaluations. Received: patience={patience!r}")
        if not 0 <= min_delta < math.inf:
            raise ValueError(f"`min_delta` must not be negative. Received: min_delta={min_delta!r}")
        self.monitor = monitor
        self.mode = mode
        self.patience = patience
        self.min_delta = min_delta
        self.best = None
        self.best_step = None
        self.wait = 0
        self.stopped = False
        self._warned = False

    def on_epoch_end(self, epoch, logs=None):
        value = (logs or {}).get(self.monitor)
        if value is None:
            if not self._warned:
                warnings.warn(
                    f"early stopping finds no `{self.monitor}` in the logs of epoch {epoch + 1} and does not count it. "
                    f"There are: {sorted(logs or {})}",
                    stacklevel=2,
                )
            self._warned = True
            return
        value = float(value)
        if self._improves(value):
            self.best, self.best_step, self.wait = value, steps_made(self.model), 0
            return
        self.wait += 1
        if self.wait >= self.patience:
            self.stopped = True
            self.model.stop_training = True

    def _improves(self, value):
        if not math.isfinite(value):
            return False
        if self.best is None:
            return True
        gain = value - self.best if self.mode == "max" else self.best - value
        return gain > self.min_delta

    def get_state(self):
        """What `set_state` takes, as JSON data."""
        return {name: getattr(self, name) for name in ("best", "best_step", "wait", "stopped")}

    def set_state(self, state):
        """Go on from a state that `get_state` returned."""
        for name in ("best", "best_step", "wait", "stopped"):
            setattr(self, name, state[name])
