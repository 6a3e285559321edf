"""The weights in checkpoints, without the run that wrote them: the best ones, and the average of several."""

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.training.checkpoint_records import (
    DESCRIPTION_FILE,
    best_records,
    check_mode,
    path_of,
    read_records,
    regular_records,
)


def best_checkpoints(directory: str | os.PathLike, *, monitor: str, mode: str, count: int = 1) -> list[str]:
    """Paths of the best checkpoints of a folder by a metric that they were saved with, the best one first.

    Args:
        directory: a folder written by `Checkpoints`.
        monitor: name of the metric, such as `"val_bleu"`.
        mode: `"max"` where a higher value is better, `"min"` where a lower one is.
        count: how many; fewer are returned when there are fewer. Defaults to 1.

    Raises:
        ValueError: when `mode` or `count` breaks these rules, or no checkpoint was saved with that metric.
    """
    check_mode(mode)
    _check_count(count)
    records = read_records(directory)
    best = best_records(records, monitor, mode, count)
    if not best:
        known = sorted({name for record in regular_records(records) for name in record["metrics"]})
        raise ValueError(
            f"`monitor` must name a metric that a checkpoint in {directory} was saved with, one of {known}. "
            f"Received: monitor={monitor!r}"
        )
    return [path_of(directory, record["step"]) for record in best]


def average_checkpoints(
    checkpoints: str | os.PathLike | Sequence[str],
    model: keras.Model,
    *,
    count: int = 5,
    monitor: str | None = None,
    mode: str | None = None,
) -> list[str]:
    """Set the weights of a model to the mean over several checkpoints.

    Weights that are no floating-point numbers, and all state that is no weight, are not averaged: the former are taken
    from the newest checkpoint, the latter stays as it is. The mean is taken in float64, so that the mean of one
    checkpoint is that checkpoint.

    Args:
        checkpoints: a folder written by `Checkpoints`, or a list of paths.
        model: a built model of the same shape.
        count: how many of a folder's checkpoints to take; fewer are taken when there are fewer. Defaults to 5
            (section 6.1 of the paper, base model).
        monitor: name of a metric, to take a folder's best checkpoints by it, such as `"val_bleu"`. Defaults to None:
            the newest ones.
        mode: `"max"` where a higher `monitor` is better, `"min"` where a lower one is. Needed with `monitor`.

    Returns:
        The list of the paths that were averaged, the oldest first.

    Raises:
        ValueError: when there is no checkpoint, or when one does not fit the model; the error names the weights.
    """
    if not isinstance(checkpoints, (str, os.PathLike)):
        paths = [os.fspath(path) for path in checkpoints]
    elif monitor is not None:
        paths = best_checkpoints(checkpoints, monitor=monitor, mode=mode, count=count)
        paths.sort(key=lambda path: int(path.rpartition("-")[2]))
    else:
        _check_count(count)
        records = regular_records(read_records(checkpoints))[-count:]
        paths = [path_of(checkpoints, record["step"]) for record in records]
    if not paths:
        raise ValueError(f"`checkpoints` must hold at least one checkpoint. Received: checkpoints={checkpoints!r}")
    weights = model.weights
    readers = [tf.train.load_checkpoint(path) for path in paths]
    for path, reader in zip(paths, readers, strict=True):
        check_weights(path, _weights_in(path, reader), model)
    for index, weight in enumerate(weights):
        key = _key(index)
        newest = readers[-1].get_tensor(key)
        if keras.backend.is_float_dtype(weight.dtype):
            # One weight at a time: the checkpoints are never in memory as a whole.
            total = np.zeros(newest.shape, "float64")
            for reader in readers:
                total += np.asarray(reader.get_tensor(key), "float64")
            newest = total / len(readers)
        weight.assign(newest)
    return paths


def saved_config(checkpoint):
    """The `config` of the `Checkpoints` that wrote a checkpoint, given by its path; None where there is none."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads(Path(checkpoint).with_name(DESCRIPTION_FILE).read_text("utf-8")).get("config")
    return None


def _check_count(count):
    if count < 1:
        raise ValueError(f"`count` must be positive. Received: count={count!r}")


def _key(index):
    return f"weights/{index}/.ATTRIBUTES/VARIABLE_VALUE"


def _weights_in(path, reader):
    """Name and shape of every weight in a checkpoint."""
    shapes = reader.get_variable_to_shape_map()
    shapes = [tuple(shapes[_key(index)]) for index in range(sum(key.startswith("weights/") for key in shapes))]
    names = []
    with contextlib.suppress(OSError, ValueError):
        names = json.loads(Path(path).with_name(DESCRIPTION_FILE).read_text("utf-8")).get("names", [])
    if len(names) != len(shapes):
        names = [f"weight {index}" for index in range(len(shapes))]
    return list(zip(names, shapes, strict=True))


def check_weights(source, weights, model):
    """Raise a ValueError that names the differing weights unless the shapes in `source` are those of the model.

    Weights are compared in their order; names only tell them apart in the message.

    Args:
        source: where the weights come from, for the message.
        weights: list of `(name, shape)`.
        model: a built model.
    """
    ours = [(weight.path, tuple(weight.shape)) for weight in model.weights]
    if len(weights) == len(ours):
        differences = [
            f"{name} has shape {shape}, there {other}"
            for (_, other), (name, shape) in zip(weights, ours, strict=True)
            if other != shape
        ]
    else:
        differences = [f"{len(weights)} weights there, {len(ours)} here"]
        for present, absent, place in ((dict(ours), dict(weights), "here"), (dict(weights), dict(ours), "there")):
            differences += [f"{name} is only {place}" for name in present if name not in absent]
    if differences:
        more = f"; and {len(differences) - 8} more" if len(differences) > 8 else ""
        raise ValueError(f"{source} does not fit the model: " + "; ".join(differences[:8]) + more)
