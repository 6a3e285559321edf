import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.training.optimizers import (
    ConstantSchedule,
    CosineSchedule,
    WarmupSchedule,
)

KINDS = [
    int,
    float,
    np.int64,
    np.float32,
    np.array,
    lambda step: tf.constant(step, "int32"),
    lambda step: tf.constant(step, "int64"),
    lambda step: tf.constant(step, "float32"),
    lambda step: keras.ops.convert_to_tensor(step),
    lambda step: keras.Variable(step, dtype="int64", trainable=False),
]


@pytest.mark.parametrize("kind", KINDS)
def test_the_papers_rates_for_steps_of_any_kind(kind):
    schedule = WarmupSchedule(512)
    # The paper's step n is the call with n - 1.
    for step, rate in ((1, 1.74693e-07), (4000, 6.98771e-04), (16000, 3.49386e-04)):
        result = schedule(kind(step - 1))
        assert keras.backend.standardize_dtype(result.dtype) == "float32"
        np.testing.assert_allclose(result, rate, rtol=3e-6)


def test_formula_in_float64():
    schedule = WarmupSchedule(1024, warmup_steps=123, scale=0.7)
    for step in (0, 1, 100, 121, 122, 123, 4000, 10**6):
        n = step + 1.0
        np.testing.assert_allclose(schedule(step), 0.7 * 1024**-0.5 * min(n**-0.5, n * 123**-1.5), rtol=1e-6)


def test_peak():
    np.testing.assert_allclose(WarmupSchedule(512).peak_learning_rate, 6.987712e-04, rtol=1e-6)
    np.testing.assert_allclose(WarmupSchedule(1024).peak_learning_rate, 4.941059e-04, rtol=1e-6)
    schedule = WarmupSchedule.from_peak(5e-3, warmup_steps=2000)
    np.testing.assert_allclose(schedule.peak_learning_rate, 5e-3, rtol=1e-12)
    rates = [float(schedule(step)) for step in (1998, 1999, 2000)]
    assert np.argmax(rates) == 1
    np.testing.assert_allclose(rates[1], 5e-3, rtol=1e-6)


def test_first_update_changes_the_weights_by_the_papers_first_rate():
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(WarmupSchedule(1, warmup_steps=4)), "mae")
    model.fit(np.ones((1, 1)), np.zeros((1, 1)), verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], 1 - 4**-1.5, rtol=1e-6)
    np.testing.assert_allclose(model.optimizer.learning_rate, 2 * 4**-1.5, rtol=1e-6)


def test_config_round_trip(tmp_path):
    schedule = WarmupSchedule(np.int64(512), warmup_steps=np.int32(10), scale=np.float32(0.5))
    config = json.loads(json.dumps(schedule.get_config()))
    assert config == {"d_model": 512, "warmup_steps": 10, "scale": 0.5}
    for step in (0, 1, 100, 4000, 10**6):
        np.testing.assert_array_equal(WarmupSchedule.from_config(config)(step), schedule(step))
    name = keras.saving.get_registered_name(WarmupSchedule)
    assert name == "keras_transformer>WarmupSchedule"
    assert keras.saving.get_registered_object(name) is WarmupSchedule
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(schedule), "mse")
    model.fit(np.ones((1, 1)), np.zeros((1, 1)), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    assert loaded.optimizer.get_config()["learning_rate"]["config"] == config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d_model": 0}, "`d_model` must be a positive integer. Received: d_model=0"),
        ({"d_model": 512.0}, "d_model=512.0"),
        ({"d_model": 8, "warmup_steps": 0}, "`warmup_steps` must be a positive integer. Received: warmup_steps=0"),
        ({"d_model": 8, "scale": -1}, "`scale` must be a positive number. Received: scale=-1"),
        ({"d_model": 8, "scale": float("inf")}, "scale=inf"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmupSchedule(**arguments)


def test_bad_peak():
    with pytest.raises(ValueError, match=r"`peak_learning_rate` must be a positive number. Received: peak_l.*=0"):
        WarmupSchedule.from_peak(0)


# Rates of the updates 1, 2, ... in plain Python.
CLOSED_FORMS = {
    "linear inverse square root": (
        WarmupSchedule.from_peak(5e-3, 40),
        lambda n: 5e-3 * n / 40 if n <= 40 else 5e-3 * math.sqrt(40 / n),
    ),
    "cosine": (
        CosineSchedule(2e-3, 100, warmup_steps=20, final_fraction=0.1),
        lambda n: (
            2e-3 * n / 20
            if n <= 20
            else 2e-3 * 0.1 + 2e-3 * 0.9 * math.cos(math.pi / 2 * min((n - 20) / 80, 1)) ** 2  # the half angle
        ),
    ),
    "cosine without warm-up": (
        CosineSchedule(1.0, 11),
        lambda n: math.cos(math.pi / 2 * min((n - 1) / 10, 1)) ** 2,
    ),
    "constant": (ConstantSchedule(0.3, 7), lambda n: 0.3 * n / 7 if n <= 7 else 0.3),
    "constant without warm-up": (ConstantSchedule(0.3), lambda n: 0.3),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_closed_form(name):
    schedule, rate = CLOSED_FORMS[name]
    for n in (*range(1, 130), 10_000):
        np.testing.assert_allclose(schedule(n - 1), rate(n), rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("name", CLOSED_FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_step(name, kind):
    schedule, rate = CLOSED_FORMS[name]
    result = schedule(kind(8))
    assert keras.backend.standardize_dtype(result.dtype) == "float32"
    assert result.shape == ()
    np.testing.assert_allclose(result, rate(9), rtol=2e-6)


def test_cosine_ends_where_it_says():
    schedule = CosineSchedule(2.0, 50, warmup_steps=5, final_fraction=0.25)
    rates = [float(schedule(step)) for step in range(60)]
    assert np.argmax(rates) == 4
    assert rates[4] == 2.0
    assert np.all(np.diff(rates[4:50]) < 0)
    assert rates[49:] == [0.5] * 11
    assert float(CosineSchedule(2.0, 50)(49)) == 0.0


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_config_round_trip_in_a_saved_model(tmp_path, name):
    schedule, _ = CLOSED_FORMS[name]
    assert keras.saving.get_registered_name(type(schedule)) == f"keras_transformer>{type(schedule).__name__}"
    config = json.loads(json.dumps(schedule.get_config()))
    copy = type(schedule).from_config(config)
    assert [float(copy(step)) for step in range(0, 200, 7)] == [float(schedule(step)) for step in range(0, 200, 7)]
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(schedule), "mse")
    model.fit(np.ones((1, 1)), np.zeros((1, 1)), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    assert loaded.optimizer.get_config()["learning_rate"]["config"] == config
    assert float(loaded.optimizer.learning_rate) == float(schedule(1))


@pytest.mark.parametrize(
    ("schedule", "arguments", "message"),
    [
        (CosineSchedule, {"peak_learning_rate": -1, "total_steps": 9}, "Received: peak_learning_rate=-1"),
        (CosineSchedule, {"peak_learning_rate": 1, "total_steps": 9.5}, "`total_steps` must be a positive integer"),
        (CosineSchedule, {"peak_learning_rate": 1, "total_steps": 1}, "total_steps=1, warmup_steps=0"),
        (
            CosineSchedule,
            {"peak_learning_rate": 1, "total_steps": 9, "warmup_steps": 9},
            "`total_steps` must be greater than 1 and than `warmup_steps`. Received: total_steps=9, warmup_steps=9",
        ),
        (CosineSchedule, {"peak_learning_rate": 1, "total_steps": 9, "warmup_steps": -1}, "Received: warmup_steps=-1"),
        (
            CosineSchedule,
            {"peak_learning_rate": 1, "total_steps": 9, "final_fraction": 1.5},
            r"`final_fraction` must be a number in \[0, 1\]. Received: final_fraction=1.5",
        ),
        (ConstantSchedule, {"peak_learning_rate": "fast"}, "Received: peak_learning_rate='fast'"),
        (ConstantSchedule, {"peak_learning_rate": 1, "warmup_steps": True}, "Received: warmup_steps=True"),
    ],
)
def test_bad_arguments_of_the_other_schedules(schedule, arguments, message):
    with pytest.raises(ValueError, match=message):
        schedule(**arguments)
