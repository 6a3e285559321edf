"""Checkpoints that resume to the bit."""

import contextlib
import json
import math
import re
import shutil
import time
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.files import sync, write_text
from keras_transformer.training.checkpoint_records import (
    DESCRIPTION_FILE,
    best_records,
    check_mode,
    path_of,
    read_records,
    regular_records,
    write_list,
    write_record,
)
from keras_transformer.training.progress import steps_made

_FILE_OF_STEP = re.compile(r"ckpt-(\d+)(_temp|\..*)")


def _describe(variables):
    # Names are left out: Keras counts them up within a process ("dense", "dense_1").
    return [[list(variable.shape), keras.backend.standardize_dtype(variable.dtype)] for variable in variables]


class Checkpoints:
    """Saves and restores everything that a training run needs to go on as if it had never stopped.

    A checkpoint holds the weights of the model, its other state (the seeds of dropout among it) and all variables of
    the optimizer, so also the number of updates and the moving average of `use_ema`. Beside it, `ckpt-STEP.json` holds
    the metrics it was saved with, the state of the metrics of an epoch that was under way, and the state of `parts`.

    A checkpoint becomes the latest one only when it is complete and on the disk. A save that is killed or fails, on a
    full disk for example, leaves the ones before. `description.json`, in the same folder, tells a restore into another
    model, or with another `config`, what differs.

    Which checkpoints stay: the newest `max_to_keep`, the best `best_to_keep`, and the very last one. One that was saved
    with `temporary=True` is there to resume from and for nothing else: the next save removes it, and averages pass it
    over, so that a run that was interrupted averages the same checkpoints as one that was not.

    Args:
        directory: folder of the checkpoints. It is made when the first one is saved.
        model: a built `keras.Model`, compiled with the optimizer to save.
        max_to_keep: how many of the newest checkpoints stay. Defaults to 5, which the paper averages for the base
            model (section 6.1).
        best_to_keep: how many of the best checkpoints stay besides. Defaults to 0.
        monitor: name of the metric that says which are best, such as `"val_bleu"`. Needed for `best_to_keep`.
        mode: `"max"` where a higher `monitor` is better, `"min"` where a lower one is. Needed with `monitor`.
        config: optional JSON data that has to be the same on restore, for what shapes cannot tell, such as the number
            of heads or a hash of the training data. `{"model": model.get_config()}` also lets `Pretrained` build the
            model of a checkpoint. Defaults to None.
        parts: optional dictionary of objects whose state is saved too, each with `get_state()`, which returns JSON
            data, and `set_state(state)`: `EarlyStopping` and `MetricsLog`, for example. Defaults to None.
        write: whether to write at all. Of the workers that train one model together, all but the chief pass False:
            they restore what the chief has written. All of them save after the same steps. Defaults to True.

    Raises:
        ValueError: when the model is not built or has no optimizer, or for an argument that breaks the rules above.
    """

    def __init__(
        self,
        directory,
        model,
        *,
        max_to_keep=5,
        best_to_keep=0,
        monitor=None,
        mode=None,
        config=None,
        parts=None,
        write=True,
    ):
        if max_to_keep < 1:
            raise ValueError(f"`max_to_keep` must be positive. Received: max_to_keep={max_to_keep!r}")
        if best_to_keep < 0:
            raise ValueError(f"`best_to_keep` must not be negative. Received: best_to_keep={best_to_keep!r}")
        if best_to_keep and monitor is None:
            raise ValueError(f"`best_to_keep` needs a `monitor`. Received: best_to_keep={best_to_keep!r}, monitor=None")
        if monitor is not None:
            check_mode(mode)
        if not model.built:
            raise ValueError(f"`model` must be built before its variables can be saved. Received: model={model!r}")
        optimizer = getattr(model, "optimizer", None)
        if optimizer is None:
            raise ValueError(f"`model` must be compiled with an optimizer. Received: model={model!r}")
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self.directory = Path(directory)
        self.model = model
        self.max_to_keep = max_to_keep
        self.best_to_keep = best_to_keep
        self.monitor = monitor
        self.mode = mode
        self.parts = dict(parts or {})
        self.write = write
        self.batches = 0
        weights = model.weights
        known = {id(variable) for variable in weights}
        groups = {
            "weights": weights,
            "state": [variable for variable in model.variables if id(variable) not in known],
            "optimizer": optimizer.variables,
        }
        description = {"config": config, **{name: _describe(variables) for name, variables in groups.items()}}
        # For messages only: they need not be the same on restore.
        description["names"] = [weight.path for weight in weights]
        self._description = json.loads(json.dumps(description))
        self._checkpoint = tf.train.Checkpoint(
            **{name: [variable.value for variable in variables] for name, variables in groups.items()}
        )
        self._records = read_records(self.directory)
        self._checked = not self._records
        self._metric_state = None

    @property
    def step(self) -> int:
        """Number of steps made so far, by which checkpoints are called and at which data goes on.

        They are the updates of the optimizer, or where that is more, `batches`, which `ResumeEpoch` keeps: a step that
        is skipped because its gradients are not finite has used up a batch but is no update.
        """
        return max(steps_made(self.model), self.batches)

    @property
    def latest(self) -> str | None:
        """Path of the newest complete checkpoint, or None."""
        return path_of(self.directory, self._records[-1]["step"]) if self._records else None

    def save(self, metrics: dict | None = None, *, temporary: bool = False) -> str:
        """Save the present state. Saving the same step again adds the metrics and does nothing else.

        Args:
            metrics: the logs of the epoch that ends here, a dictionary of numbers. Defaults to None, for a save within
                an epoch: the state of the model's metrics is then saved too.
            temporary: whether this checkpoint is only to resume from. Defaults to False.

        Returns:
            The path of the checkpoint.

        Raises:
            ValueError: when the folder holds checkpoints of another run, or of later steps.
            OSError: when the checkpoint cannot be written. What was written of it is removed.
        """
        step = self.step
        path = path_of(self.directory, step)
        # Also where nothing is written: reading adds up what all workers hold, and waits for them.
        metric_state = self._state_of_metrics() if metrics is None else None
        if not self.write:
            return path
        last = self._records[-1] if self._records else {"step": -1}
        if last["step"] == step and metrics is None and (temporary or not last["temporary"]):
            return path
        if not self._checked:
            self._check_description()
            self._checked = True
        if last["step"] > step:
            raise ValueError(
                f"the folder {self.directory} must hold no checkpoint of a later step: restore the latest one before "
                f"training, or choose another folder. Received: a checkpoint of step {last['step']} at step {step}"
            )
        record = {
            "step": step,
            "temporary": temporary and metrics is None,
            "metrics": {name: _finite_or_none(value) for name, value in (metrics or {}).items()},
            "metric_state": metric_state,
            "parts": {name: part.get_state() for name, part in self.parts.items()},
        }
        records = self._retained([*(other for other in self._records if other["step"] != step), record])
        try:
            self._write(record, records, new=last["step"] != step)
        except (OSError, tf.errors.OpError) as error:
            if last["step"] != step:
                self._remove_all_but(self._records)
            raise OSError(
                f"the checkpoint of step {step} cannot be written to {self.directory}; "
                f"the latest complete one is {self.latest}: {error}"
            ) from error
        self._records = records
        self._remove_all_but(records)
        return path

    def _write(self, record, records, new):
        """Write a checkpoint, then the list in which it is the last one."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_text(self.directory / DESCRIPTION_FILE, json.dumps(self._description))
        write_record(self.directory, record)
        if new:
            # The counter is TensorFlow's own: a checkpoint without it counts as one of another program.
            self._checkpoint.save_counter.assign_add(1)
            self._checkpoint.write(path_of(self.directory, record["step"]))
            for file in self.directory.glob(f"ckpt-{record['step']}.*"):
                sync(file)
        write_list(self.directory, records)

    def _retained(self, records):
        """Those of the records, the oldest first, whose checkpoints stay."""
        steps = {record["step"] for record in [*regular_records(records)[-self.max_to_keep :], records[-1]]}
        if self.best_to_keep:
            steps |= {record["step"] for record in best_records(records, self.monitor, self.mode, self.best_to_keep)}
        return [record for record in records if record["step"] in steps]

    def _remove_all_but(self, records):
        """Removes the files of other steps, also what a killed save has left of its own."""
        steps = {record["step"] for record in records}
        for path in list(self.directory.glob("ckpt-*")):
            match = _FILE_OF_STEP.fullmatch(path.name)
            if match and int(match[1]) not in steps:
                # Gone already, or the disk is at fault, which the error that led here says better.
                with contextlib.suppress(OSError):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _state_of_metrics(self):
        return [keras.ops.convert_to_numpy(variable).tolist() for variable in self.model.metrics_variables]

    def restore_latest(self) -> int:
        """Restore the newest checkpoint that can be read.

        A checkpoint that was damaged after it was written is passed over with a warning; the next save removes it.

        Returns:
            The `step` it was saved at, or 0 when there is none.

        Raises:
            ValueError: when the checkpoints are of another model, optimizer or configuration.
            OSError: when none of the checkpoints can be read.
        """
        records = read_records(self.directory)
        if not records:
            return 0
        self._check_description()
        self._checked = True
        for count in range(len(records), 0, -1):
            record = records[count - 1]
            path = path_of(self.directory, record["step"])
            try:
                self._checkpoint.restore(path).assert_consumed()
            except Exception as error:  # a damaged file shows as IndexError, ValueError or one of TensorFlow's own
                warnings.warn(f"checkpoint {path} cannot be read and is passed over: {error}", stacklevel=2)
                continue
            self._records = records[:count]
            self.batches = record["step"]
            self._metric_state = record["metric_state"]
            for name, part in self.parts.items():
                if name in record["parts"]:
                    part.set_state(record["parts"][name])
            return record["step"]
        raise OSError(f"none of the {len(records)} checkpoints in {self.directory} can be read")

    def add_metrics(self) -> None:
        """Add to the model's metrics the state they had when the restored checkpoint was saved within an epoch.

        `fit` resets the metrics when an epoch begins, and Keras makes some of their variables only in the first step.
        So this comes after that step, once; `ResumeEpoch` calls it. The variables of a metric have to be sums over
        what it has seen, which `tf.distribute` asks of them too.
        """
        state, self._metric_state = self._metric_state, None
        if state is None:
            return
        variables = self.model.metrics_variables
        if [np.shape(value) for value in state] != [tuple(variable.shape) for variable in variables]:
            warnings.warn(
                f"the checkpoint holds the state of other metrics ({len(state)} variables, {len(variables)} here): "
                "the metrics of this epoch are those of its rest",
                stacklevel=2,
            )
            return
        for variable, value in zip(variables, state, strict=True):
            seen = keras.ops.convert_to_numpy(variable)
            variable.assign(np.asarray(value, seen.dtype) + seen)

    def _check_description(self):
        path = self.directory / DESCRIPTION_FILE
        try:
            saved = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(
                f"the checkpoints in {self.directory} cannot be checked: {path} is not readable ({error})"
            ) from error
        differences = []
        for group in ("weights", "state", "optimizer"):
            theirs, ours = saved.get(group, []), self._description[group]
            if len(theirs) != len(ours):
                differences.append(f"{group}: {len(theirs)} variables saved, {len(ours)} here")
            else:
                differences += [
                    f"{group} {index}: saved {old[1]} {old[0]}, here {new[1]} {new[0]}"
                    for index, (old, new) in enumerate(zip(theirs, ours, strict=True))
                    if old != new
                ][:3]
        differences += _differing(saved.get("config"), self._description["config"], "config")[:5]
        if differences:
            raise ValueError(
                f"the checkpoints in {self.directory} do not fit this model and optimizer: " + "; ".join(differences)
            )


def _differing(saved, here, name):
    """Lists the leaves in which two JSON values differ."""
    if isinstance(saved, dict) and isinstance(here, dict):
        return [
            line for key in sorted(saved | here) for line in _differing(saved.get(key), here.get(key), f"{name}.{key}")
        ]
    return [] if saved == here else [f"{name}: saved {saved!r}, here {here!r}"]


def _finite_or_none(value):
    value = float(value)
    return value if math.isfinite(value) else None


class CheckpointEvery(keras.callbacks.Callback):
    """Saves a checkpoint at the end of every epoch, and within it every so many steps or seconds.

    The checkpoint at the end of an epoch has all metrics of its logs. Nothing is saved between the last step of an
    epoch and its end: a run that resumed there would leave out the evaluation.

    Args:
        checkpoints: a `Checkpoints` of the model that is trained.
        steps: also save after every so many steps, counted from the beginning of training. Defaults to None.
        seconds: also save once so many seconds have passed since the last save; the paper's models were saved every
            600. It is no choice for several workers: they would not save at the same step. Defaults to None.

    Raises:
        ValueError: when `steps` or `seconds` is not positive, or `seconds` is given for several workers.
    """

    def __init__(self, checkpoints, *, steps=None, seconds=None):
        super().__init__()
        if steps is not None and steps < 1:
            raise ValueError(f"`steps` must be positive or None. Received: steps={steps!r}")
        if seconds is not None and not seconds > 0:
            raise ValueError(f"`seconds` must be positive or None. Received: seconds={seconds!r}")
        strategy = getattr(checkpoints.model, "distribute_strategy", None)
        if seconds is not None and isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            raise ValueError(
                "`seconds` must be None for several workers, which save after the same steps: give `steps`. "
                f"Received: seconds={seconds!r}"
            )
        self.checkpoints = checkpoints
        self.steps = steps
        self.seconds = seconds
        self._saved_at = time.monotonic()
        self._begin = 0

    def on_train_begin(self, logs=None):
        self._saved_at = time.monotonic()

    def on_epoch_begin(self, epoch, logs=None):
        self._begin = self.checkpoints.step

    # At the beginning of a batch, not at the end of the one before: Keras may call the latter late, and waits for the
    # device at every step if it must not. For the same reason the steps are counted here, not read from the device.
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 0:
            return
        due = self.seconds is not None and time.monotonic() - self._saved_at >= self.seconds
        if due or (self.steps is not None and (self._begin + batch) % self.steps == 0):
            self._save()

    def on_epoch_end(self, epoch, logs=None):
        self._save(logs or {})

    def _save(self, metrics=None):
        self.checkpoints.save(metrics)
        self._saved_at = time.monotonic()
