"""A process that has imported the package and nothing else: it loads what a test saved and says what it computes.

Reads one JSON request a line and answers with one JSON line; see `FreshProcess` in conftest.py.
"""

import json
import sys
import traceback
import warnings

import keras
import numpy as np

import keras_transformer.layers
import keras_transformer.transformer  # noqa: F401


def evaluate(inputs, results, *, model=None, config=None, weights=None, checkpoint=None):
    """Load `model`, or build `config` and load `weights` or `checkpoint`; store its output, mask and variables."""
    if model is not None:
        model = keras.models.load_model(model, safe_mode=True)
    else:
        model = keras.models.model_from_json(config)
    if weights is not None:
        model.load_weights(weights)
    if checkpoint is not None:
        import tensorflow as tf

        tf.train.Checkpoint(model=model).restore(checkpoint).assert_existing_objects_matched().assert_consumed()
    outputs = model(dict(np.load(inputs)))
    arrays = {"outputs": keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32"))}
    if getattr(outputs, "_keras_mask", None) is not None:
        arrays["mask"] = keras.ops.convert_to_numpy(outputs._keras_mask)
    for index, weight in enumerate(model.weights):
        arrays[f"weight_{index}"] = keras.ops.convert_to_numpy(weight)
    np.savez(results, **arrays)
    return {"paths": [weight.path for weight in model.weights]}


def main():
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
    for line in sys.stdin:
        try:
            answer = evaluate(**json.loads(line))
        except BaseException:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
