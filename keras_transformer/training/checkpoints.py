"""Checkpoints that resume to the bit, and the average of the last few."""

import json
import os
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

_DESCRIPTION = "description.json"


def _describe(variables):
    # Names are left out: Keras counts them up within a process ("dense", "dense_1").
    return [[list(variable.shape), keras.backend.standardize_dtype(variable.dtype)] for variable in variables]


class Checkpoints:
    """Saves and restores everything that a training run needs to go on as if it had never stopped.

    A checkpoint holds the weights of the model, its other state (the seeds of dropout among it) and all variables of
    the optimizer, so also the step, which is `optimizer.iterations`. The state of metrics is left out: resume where an
    epoch begins, or take the metrics of that epoch as those of its rest.

    A checkpoint becomes the latest one only when it is complete; a save that is killed leaves the one before. Beside
    the checkpoints lies `description.json`, from which a restore into another model tells what differs.

    Args:
        directory: folder of the checkpoints. It is made when the first one is saved.
        model: a built `keras.Model`, compiled with the optimizer to save.
        max_to_keep: how many of the newest checkpoints stay. Defaults to 5, which the paper averages for the base
            model (section 6.1).
        config: optional JSON data that has to be the same on restore, for what shapes cannot tell, such as the number
            of heads: `model.get_config()`, for example. Defaults to None.

    Raises:
        ValueError: when the model is not built or has no optimizer, or `max_to_keep` is not positive.
    """

    def __init__(self, directory, model, *, max_to_keep=5, config=None):
        if max_to_keep < 1:
            raise ValueError(f"`max_to_keep` must be positive. Received: max_to_keep={max_to_keep!r}")
        if not model.built:
            raise ValueError(f"`model` must be built before its variables can be saved. Received: model={model!r}")
        optimizer = getattr(model, "optimizer", None)
        if optimizer is None:
            raise ValueError(f"`model` must be compiled with an optimizer. Received: model={model!r}")
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self.directory = Path(directory)
        self.model = model
        weights = model.weights
        known = {id(variable) for variable in weights}
        groups = {
            "weights": weights,
            "state": [variable for variable in model.variables if id(variable) not in known],
            "optimizer": optimizer.variables,
        }
        self._description = json.loads(
            json.dumps({"config": config, **{name: _describe(variables) for name, variables in groups.items()}})
        )
        self._checkpoint = tf.train.Checkpoint(
            **{name: [variable.value for variable in variables] for name, variables in groups.items()}
        )
        self._manager = tf.train.CheckpointManager(self._checkpoint, str(self.directory), max_to_keep=max_to_keep)

    @property
    def latest(self):
        """Path of the newest complete checkpoint, or None."""
        return self._manager.latest_checkpoint

    def save(self):
        """Saves the present state and returns its path. Saving the same step again does nothing."""
        step = int(self.model.optimizer.iterations)
        path = str(self.directory / f"ckpt-{step}")
        if self.latest == path:
            return path
        self.directory.mkdir(parents=True, exist_ok=True)
        target = self.directory / _DESCRIPTION
        temporary = target.with_name(_DESCRIPTION + ".temporary")
        temporary.write_text(json.dumps(self._description), "utf-8")
        os.replace(temporary, target)
        return self._manager.save(checkpoint_number=step)

    def restore_latest(self):
        """Restores the newest checkpoint that can be read.

        A checkpoint that was damaged after it was written is passed over with a warning.

        Returns:
            The step it was saved at, or 0 when there is none.

        Raises:
            ValueError: when the checkpoints are of another model, optimizer or configuration.
            OSError: when none of the checkpoints can be read.
        """
        paths = list(reversed(self._manager.checkpoints))
        if not paths:
            return 0
        self._check_description()
        for path in paths:
            try:
                self._checkpoint.restore(path).assert_consumed()
            except Exception as error:  # a damaged file shows as IndexError, ValueError or one of TensorFlow's own
                warnings.warn(f"checkpoint {path} cannot be read and is passed over: {error}", stacklevel=2)
                continue
            return int(self.model.optimizer.iterations)
        raise OSError(f"none of the {len(paths)} checkpoints in {self.directory} can be read")

    def _check_description(self):
        path = self.directory / _DESCRIPTION
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


class CheckpointEvery(keras.callbacks.Callback):
    """Saves a checkpoint at the end of every epoch, and within it every so many steps.

    Args:
        checkpoints: a `Checkpoints` of the model that is trained.
        steps: also save after every so many steps, counted from the beginning of training. Defaults to None: at the
            end of an epoch only.

    Raises:
        ValueError: when `steps` is not positive.
    """

    def __init__(self, checkpoints, *, steps=None):
        super().__init__()
        if steps is not None and steps < 1:
            raise ValueError(f"`steps` must be positive or None. Received: steps={steps!r}")
        self.checkpoints = checkpoints
        self.steps = steps
        # Keras runs ahead of callbacks that it may call late. A save within the epoch must not be one of them.
        self.async_safe = steps is None

    def on_train_batch_end(self, batch, logs=None):
        if self.steps is not None and int(self.model.optimizer.iterations) % self.steps == 0:
            self.checkpoints.save()

    def on_epoch_end(self, epoch, logs=None):
        self.checkpoints.save()


def average_checkpoints(checkpoints, model, *, count=5):
    """Sets the weights of a model to the mean over several checkpoints.

    Weights that are no floating-point numbers, and all state that is no weight, are not averaged: the former are taken
    from the newest checkpoint, the latter stays as it is. The mean is taken in float64.

    Args:
        checkpoints: a folder written by `Checkpoints`, whose last `count` checkpoints are taken, or a list of paths.
        model: a built model of the same shape.
        count: how many of a folder's checkpoints to take; fewer are taken when there are fewer. Defaults to 5
            (section 6.1 of the paper, base model).

    Returns:
        The list of the paths that were averaged.

    Raises:
        ValueError: when there is no checkpoint, or when one does not fit the model.
    """
    if isinstance(checkpoints, (str, os.PathLike)):
        if count < 1:
            raise ValueError(f"`count` must be positive. Received: count={count!r}")
        state = tf.train.get_checkpoint_state(os.fspath(checkpoints))
        paths = list(state.all_model_checkpoint_paths)[-count:] if state else []
    else:
        paths = [os.fspath(path) for path in checkpoints]
    if not paths:
        raise ValueError(f"`checkpoints` must hold at least one checkpoint. Received: checkpoints={checkpoints!r}")
    weights = model.weights
    keys = [f"weights/{index}/.ATTRIBUTES/VARIABLE_VALUE" for index in range(len(weights))]
    readers = [tf.train.load_checkpoint(path) for path in paths]
    for path, reader in zip(paths, readers, strict=True):
        shapes = {
            key: tuple(shape) for key, shape in reader.get_variable_to_shape_map().items() if key.startswith("weights/")
        }
        expected = {key: tuple(weight.shape) for key, weight in zip(keys, weights, strict=True)}
        if shapes != expected:
            raise ValueError(
                f"the checkpoint {path} does not fit the model: it holds {len(shapes)} weights with "
                f"{sum(map(_size, shapes.values()))} parameters, the model {len(expected)} with "
                f"{sum(map(_size, expected.values()))}, or they differ in shape"
            )
    for key, weight in zip(keys, weights, strict=True):
        newest = readers[-1].get_tensor(key)
        if keras.backend.is_float_dtype(weight.dtype):
            # One weight at a time: the checkpoints are never in memory as a whole.
            total = np.zeros(newest.shape, "float64")
            for reader in readers:
                total += np.asarray(reader.get_tensor(key), "float64")
            newest = total / len(readers)
        weight.assign(newest)
    return paths


def _size(shape):
    return int(np.prod(shape))
