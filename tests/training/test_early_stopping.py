from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer.training.early_stopping import EarlyStopping


def play(stopping, values, first=0):
    """Epochs with these values of `val_bleu`; returns the epoch at which training was ended, or None."""
    model = SimpleNamespace(stop_training=False, optimizer=SimpleNamespace(iterations=0), metrics=[])
    stopping.set_model(model)
    for epoch, value in enumerate(values, first):
        model.optimizer.iterations = 10 * (epoch + 1)
        stopping.on_epoch_end(epoch, {"val_bleu": value})
        if model.stop_training:
            return epoch
    return None


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("min_delta", [0.0, 0.25])
def test_stops_where_keras_does(mode, min_delta):
    generator = np.random.default_rng(0)
    stops = set()
    for _ in range(60):
        values = np.round(generator.normal(size=12), 1)
        patience = int(generator.integers(1, 5))
        ours = EarlyStopping("val_bleu", mode=mode, patience=patience, min_delta=min_delta)
        theirs = keras.callbacks.EarlyStopping("val_bleu", mode=mode, patience=patience, min_delta=min_delta)
        theirs.on_train_begin()
        stop = play(ours, values)
        assert stop == play(theirs, values)
        assert ours.stopped == (stop is not None)
        assert ours.best == theirs.best
        assert ours.best_step == 10 * (theirs.best_epoch + 1)
        stops.add(stop)
    assert len(stops) > 5


def test_stops_at_the_same_epoch_after_a_resume_at_any():
    values = [1.0, 3.0, 2.0, 4.0, 3.0, 3.5, 3.9, 1.0]
    for resumed in range(6):
        first = EarlyStopping("val_bleu", mode="max", patience=3)
        assert play(first, values[:resumed]) is None
        second = EarlyStopping("val_bleu", mode="max", patience=3)
        second.set_state(first.get_state())
        assert play(second, values[resumed:], first=resumed) == 6
        assert (second.best, second.best_step, second.wait, second.stopped) == (4.0, 40, 3, True)


def test_what_is_not_finite_is_no_improvement():
    stopping = EarlyStopping("val_bleu", mode="max", patience=3)
    assert play(stopping, [float("nan"), 1.0, float("inf"), float("nan"), 0.5, 2.0]) == 4
    assert stopping.best == 1.0


def test_epochs_without_the_metric_do_not_count():
    stopping = EarlyStopping("val_bleu", mode="max", patience=2)
    with pytest.warns(UserWarning, match=r"no `val_bleu` in the logs of epoch 1 .*There are: \['loss'\]"):
        stopping.on_epoch_end(0, {"loss": 1.0})
    stopping.on_epoch_end(1, {"loss": 1.0})  # said once
    assert play(stopping, [2.0, 1.0]) is None
    stopping.on_epoch_end(2, {})
    assert play(stopping, [1.0]) == 0


def test_ends_a_fit():
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    stopping = EarlyStopping("loss", mode="min", patience=2)
    history = model.fit(np.ones((2, 1)), np.ones((2, 1)), epochs=9, verbose=0, callbacks=[stopping])
    assert len(history.epoch) == 3
    assert stopping.best_step == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "auto"}, '`mode` must be "max" or "min". Received: mode=\'auto\''),
        ({"patience": 0}, "`patience` must be a positive number of evaluations. Received: patience=0"),
        ({"min_delta": -0.1}, "`min_delta` must not be negative. Received: min_delta=-0.1"),
        ({"min_delta": float("nan")}, "Received: min_delta=nan"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        EarlyStopping("val_bleu", **{"mode": "max", "patience": 3, **arguments})
