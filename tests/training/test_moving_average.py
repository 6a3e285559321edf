"""The optimizer's moving average against numpy, on one device and on two replicas, and checkpoints between the two."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer.runs.checkpoints import Checkpoints
from keras_transformer.training.moving_average import EvaluateAveragedWeights, averaged_weights

SCRIPT = Path(__file__).with_name("two_replicas.py")
GENERATOR = np.random.default_rng(0)
INPUTS = GENERATOR.normal(size=(12, 3)).astype("float32")
TARGETS = GENERATOR.normal(size=(12, 1)).astype("float32")


def compiled_model(loss_scale=False, **arguments):
    keras.utils.set_random_seed(2)
    model = keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.BatchNormalization(), keras.layers.Dense(4), keras.layers.Dense(1)]
    )
    optimizer = keras.optimizers.SGD(0.1, **{"use_ema": True, "ema_momentum": 0.7, **arguments})
    model.compile(keras.optimizers.LossScaleOptimizer(optimizer) if loss_scale else optimizer, "mse")
    return model


class Record(keras.callbacks.Callback):
    """Keeps the trainable weights after every step, and what the average should then be, in float64."""

    def __init__(self):
        super().__init__()
        self.weights = []
        self.average = None

    def on_train_batch_end(self, batch, logs=None):
        self.weights = [np.array(weight) for weight in self.model.trainable_weights]
        if self.average is None:
            self.average = [weight.astype("float64") for weight in self.weights]
        self.average = [0.7 * a + 0.3 * weight for a, weight in zip(self.average, self.weights, strict=True)]


def fit(model, *callbacks, **arguments):
    return model.fit(INPUTS, TARGETS, batch_size=2, shuffle=False, verbose=0, callbacks=list(callbacks), **arguments)


def assert_close(weights, expected):
    for ours, theirs in zip(weights, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("loss_scale", [False, True])
def test_the_average_is_numpys_and_the_weights_come_back_to_the_bit(loss_scale):
    record = Record()
    seen = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            with averaged_weights(self.model):
                seen.append([np.array(weight) for weight in self.model.trainable_weights])
                assert_close(seen[-1], record.average)
            for weight, before in zip(self.model.trainable_weights, record.weights, strict=True):
                np.testing.assert_array_equal(weight, before)

    model = compiled_model(loss_scale)
    fit(model, record, Look(), epochs=2)
    assert len(seen) == 2
    assert np.abs(seen[0][2] - seen[1][2]).max() > 1e-3
    # Keras leaves the average in the model when training ends.
    assert_close(model.trainable_weights, record.average)


def test_an_error_brings_the_weights_back_too():
    model = compiled_model()
    model.train_on_batch(INPUTS, TARGETS)
    model.train_on_batch(INPUTS, TARGETS)
    before = [np.array(weight) for weight in model.trainable_weights]

    def fail():
        with averaged_weights(model):
            assert np.any(np.asarray(model.trainable_weights[2]) != before[2])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    for ours, theirs in zip(model.trainable_weights, before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_validation_within_fit_is_that_of_the_average():
    model = compiled_model()
    losses = []

    class Evaluate(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            with averaged_weights(self.model):
                predictions = np.asarray(self.model(INPUTS))
            own = np.asarray(self.model(INPUTS))
            losses.append((np.mean((predictions - TARGETS) ** 2), np.mean((own - TARGETS) ** 2)))

    history = fit(model, EvaluateAveragedWeights(), Evaluate(), epochs=2, validation_data=(INPUTS, TARGETS))
    averaged, own = np.transpose(losses)
    np.testing.assert_allclose(history.history["val_loss"], averaged, rtol=1e-5)
    assert np.all(np.abs(averaged - own) > 1e-3)
    # The evaluations have left no trace in training.
    other = compiled_model()
    fit(other, epochs=2)
    for ours, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_before_the_first_step_there_is_no_average():
    model = compiled_model()
    model.optimizer.build(model.trainable_variables)
    before = model.get_weights()
    with averaged_weights(model):
        for ours, theirs in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_an_optimizer_without_an_average_is_an_error():
    model = compiled_model(use_ema=False)
    message = "`model` must be compiled with an optimizer with `use_ema=True`"
    with pytest.raises(ValueError, match=message), averaged_weights(model):
        pass


@pytest.fixture(scope="module")
def script():
    specification = importlib.util.spec_from_file_location("two_replicas", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def two_replicas(script, tmp_path_factory):
    """What one device computes, and two replicas, with a checkpoint handed over in each direction."""
    folder = tmp_path_factory.mktemp("replicas")
    one = script.compiled_model()
    script.train(one, range(2))
    Checkpoints(folder / "one", one).save()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    script.train(one, range(2, 3))
    return folder, script.state(one), json.loads(done.stdout.splitlines()[-1])


def assert_same_state(ours, theirs):
    for key in ("variables", "average"):
        for one, other in zip(ours[key], theirs[key], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours["mae"], theirs["mae"], rtol=1e-5)


def test_two_replicas_have_the_same_average_and_go_on_from_the_checkpoint_of_one_device(two_replicas):
    _, one, replies = two_replicas
    assert replies["step"] == 2
    assert_same_state(replies["restored"], one)
    assert_same_state({**replies["whole"], "mae": one["mae"]}, one)


def test_one_device_goes_on_from_the_checkpoint_of_two_replicas(script, two_replicas):
    folder, _, replies = two_replicas
    model = script.compiled_model()
    checkpoints = Checkpoints(folder / "two", model)
    assert checkpoints.restore_latest() == 3
    # The metrics of the three steps too, which the replicas held in parts.
    model.evaluate(script.INPUTS[0], script.TARGETS[0], verbose=0)  # Keras makes their variables on first use
    model.reset_metrics()
    checkpoints.add_metrics()
    saved = script.state(model)
    for key in ("variables", "average"):
        assert saved[key] == replies["whole"][key]
    np.testing.assert_allclose(saved["mae"], replies["whole"]["mae"], rtol=1e-6)
