"""Beginning with the weights of another run, and training only a part of them."""

import os
from pathlib import Path

import keras

from keras_transformer.training.checkpoints import average_checkpoints, check_weights

MODEL_FILE = "model.keras"


def load_weights_from(model, source):
    """Gives a model the weights of another one that has the same weights; its optimizer and state stay as they are.

    Args:
        model: a built model.
        source: a `.keras` file; the run directory that holds one as `model.keras`; a folder of checkpoints, whose
            newest one is taken; or the path of one checkpoint, such as `run/checkpoints/ckpt-1000`.

    Returns:
        The path of the file or checkpoint that was read.

    Raises:
        FileNotFoundError: when there is nothing of the kind at `source`.
        ValueError: when the weights there do not fit the model; the error names them.
    """
    source = Path(source)
    if (source / MODEL_FILE).is_file():
        source = source / MODEL_FILE
    if source.is_file():
        other = keras.saving.load_model(source, compile=False)
        check_weights(source, [(weight.path, tuple(weight.shape)) for weight in other.weights], model)
        for weight, value in zip(model.weights, other.weights, strict=True):
            weight.assign(keras.ops.convert_to_numpy(value))
        return str(source)
    for folder in (source, source / "checkpoints"):
        if (folder / "checkpoint").is_file():
            return average_checkpoints(folder, model, count=1)[0]
    if source.with_name(source.name + ".index").is_file():
        return average_checkpoints([os.fspath(source)], model)[0]
    raise FileNotFoundError(
        f"`source` must be a .keras file, a run directory with a {MODEL_FILE}, a folder of checkpoints, or the path "
        f"of a checkpoint. Received: source={str(source)!r}"
    )


def freeze(model, prefixes):
    """Keeps some weights of a model as they are while it is trained. Call it before `compile`.

    The weights are saved and loaded as before; what is frozen is not part of the saved model. Dropout in frozen parts
    goes on.

    Args:
        model: a built model.
        prefixes: list of beginnings of weight paths, in whole names: `"encoder"` is all weights below it and
            `"encoder/layer_1"` one of its layers, not `layer_10`.

    Returns:
        The list of the paths of the frozen weights.

    Raises:
        ValueError: when there is no weight below a prefix, or when no weight would be left to train.
    """
    if isinstance(prefixes, str):
        raise ValueError(f"`prefixes` must be a list of strings. Received: prefixes={prefixes!r}")
    frozen = []
    for prefix in prefixes:
        prefix = prefix.rstrip("/")
        below = [weight for weight in model.weights if f"{weight.path}/".startswith(f"{prefix}/")]
        if not below:
            known = sorted({weight.path.split("/")[0] for weight in model.weights})
            raise ValueError(
                f"`prefixes` must be beginnings of the paths of weights, which begin with {known}. Received: {prefix!r}"
            )
        frozen += below
    if all(any(weight is other for other in frozen) for weight in model.trainable_weights):
        raise ValueError(f"`prefixes` must leave weights to train. Received: prefixes={list(prefixes)!r}, all of them")
    for weight in frozen:
        weight.trainable = False
    return sorted({weight.path for weight in frozen})
