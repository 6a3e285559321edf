"""Beginning with the weights of another model, and training only a part of them."""

from collections.abc import Sequence

import keras

from keras_transformer.training.checkpoint_average import check_weights

# Settings that may differ between models of the same weights: of training and precision, and widths that the shapes of
# the weights tell.
_FREE_SETTINGS = ("name", "dtype", "trainable", "key_dim", "value_dim")


def copy_weights(source: keras.Model, target: keras.Model) -> None:
    """Give a model the weights of another one; its optimizer and the seeds of dropout stay as they are.

    Args:
        source, target: two built models with the same weights, and with the same settings but for those of dropout,
            `dtype`, `name` and `trainable`. Settings are what `get_config` returns; they are not compared where that
            is a list of layers, as in a model of plain Keras.

    Raises:
        ValueError: when the models do not fit; the error names the settings, or else the weights, that differ.
    """
    there, here = _settings(source), _settings(target)
    differences = [
        f"{name} is {there.get(name)!r} there, {here.get(name)!r} here"
        for name in (there | here if there and here else ())
        if there.get(name) != here.get(name)
    ]
    if differences:
        raise ValueError("the trained model has other settings than this one: " + "; ".join(differences))
    check_weights("the trained model", [(weight.path, tuple(weight.shape)) for weight in source.weights], target)
    for weight, value in zip(target.weights, source.weights, strict=True):
        weight.assign(keras.ops.convert_to_numpy(value))


def _settings(model):
    config = model.get_config()
    if "layers" in config:
        return {}
    return {
        name: value for name, value in config.items() if name not in _FREE_SETTINGS and not name.endswith("dropout")
    }


def freeze(model: keras.Model, prefixes: Sequence[str]) -> list[str]:
    """Keep some weights of a model as they are while it is trained. Call it before `compile`.

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
