"""A process with two CPU devices; see test_averaging.py and test_checkpoints.py. Takes a folder, prints JSON.

In the folder, `one/` holds a checkpoint that one device has saved after two steps. Here two replicas restore it and
make a third step, and others make all three and save them as `two/`.
"""

import json
import sys
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.runs.checkpoints import Checkpoints
from keras_transformer.training.moving_average import averaged_weights
from keras_transformer.training.optimizers import Adam

INPUTS = np.random.default_rng(4).normal(size=(3, 8, 3)).astype("float32")
TARGETS = INPUTS.sum(-1, keepdims=True)


def compiled_model():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    # A sum over the rows: what the replicas add up is the loss of the whole batch.
    loss = keras.losses.MeanSquaredError(reduction="sum")
    model.compile(Adam(0.01, use_ema=True, ema_momentum=0.8), loss, metrics=["mae"])
    return model


def state(model):
    """Everything in a checkpoint, the moving average, and the metrics of the steps so far, as lists."""
    with averaged_weights(model):
        average = [weight.tolist() for weight in model.get_weights()]
    return {
        "variables": [np.asarray(variable).tolist() for variable in [*model.variables, *model.optimizer.variables]],
        "average": average,
        "mae": float(model.get_metrics_result()["mae"]),
    }


def train(model, steps):
    data = tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).skip(steps.start).take(len(steps))

    class KeepWeights(keras.callbacks.Callback):
        """The end of `fit` puts the moving average in their place."""

        def on_epoch_end(self, epoch, logs=None):
            self.weights = self.model.get_weights()

    keep = KeepWeights()
    model.fit(data, shuffle=False, verbose=0, callbacks=[keep])
    model.set_weights(keep.weights)


def main(folder):
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        restored, whole = compiled_model(), compiled_model()
        step = Checkpoints(folder / "one", restored).restore_latest()
        train(restored, range(step, 3))
        train(whole, range(3))
        Checkpoints(folder / "two", whole).save()
    return {"step": step, "restored": state(restored), "whole": state(whole)}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
