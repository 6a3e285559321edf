import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.training.checkpoints import CheckpointEvery, Checkpoints, average_checkpoints

INPUTS = np.random.default_rng(0).normal(size=(6, 4, 3)).astype("float32")
TARGETS = INPUTS.sum(-1, keepdims=True)


def compiled_model(width=8, optimizer="adam"):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(width), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    )
    model.compile(optimizer, "mse")
    return model


def train(model, steps):
    for step in steps:
        model.train_on_batch(INPUTS[step], TARGETS[step])


def everything(model):
    return [np.asarray(variable) for variable in [*model.variables, *model.optimizer.variables]]


def assert_same(model, other):
    for ours, theirs in zip(everything(model), everything(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_resumed_training_equals_uninterrupted_training_to_the_bit(tmp_path):
    uninterrupted = compiled_model()
    train(uninterrupted, range(6))

    model = compiled_model()
    checkpoints = Checkpoints(tmp_path, model)
    assert checkpoints.latest is None
    assert checkpoints.restore_latest() == 0
    train(model, range(3))
    assert checkpoints.save() == checkpoints.latest == str(tmp_path / "ckpt-3")
    train(model, range(3, 5))

    resumed = compiled_model()
    assert Checkpoints(tmp_path, resumed).restore_latest() == 3
    train(resumed, range(3, 6))
    assert_same(resumed, uninterrupted)


KILLED = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from test_checkpoints import Checkpoints, compiled_model, train
import tensorflow as tf
model = compiled_model()
checkpoints = Checkpoints({directory!r}, model)
for step in range(6):
    train(model, [step])
    if step == 3:
        # Killed between the last byte of the data and the line that names it the latest.
        import tensorflow.python.checkpoint.checkpoint_management as management
        management.update_checkpoint_state_internal = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
    checkpoints.save()
"""


def test_a_kill_during_a_save_leaves_the_last_good_checkpoint(tmp_path):
    script = KILLED.format(folder=os.path.dirname(__file__), directory=str(tmp_path))
    status = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert status.returncode == -9, status.stderr
    uninterrupted, resumed = compiled_model(), compiled_model()
    train(uninterrupted, range(6))
    assert Checkpoints(tmp_path, resumed).restore_latest() == 3
    train(resumed, range(3, 6))
    assert_same(resumed, uninterrupted)


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    model = compiled_model()
    checkpoints = Checkpoints(tmp_path, model)
    for step in range(2):
        train(model, [step])
        checkpoints.save()
    data = tmp_path / "ckpt-2.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:40])
    other = compiled_model()
    with pytest.warns(UserWarning, match="ckpt-2 cannot be read and is passed over"):
        assert Checkpoints(tmp_path, other).restore_latest() == 1
    for path in tmp_path.glob("*.data*"):
        path.write_bytes(b"")
    with pytest.warns(UserWarning, match="passed over"), pytest.raises(OSError, match="none of the 2 checkpoints"):
        Checkpoints(tmp_path, other).restore_latest()


def test_only_the_newest_are_kept_also_after_a_restart(tmp_path):
    model = compiled_model()
    for steps in (range(3), range(3, 5)):
        checkpoints = Checkpoints(tmp_path, model, max_to_keep=2)
        for step in steps:
            train(model, [step])
            checkpoints.save()
            checkpoints.save()
    assert {path.stem for path in tmp_path.glob("*.index")} == {"ckpt-4", "ckpt-5"}


def test_a_folder_may_move(tmp_path):
    model = compiled_model()
    train(model, range(2))
    Checkpoints(tmp_path / "old", model).save()
    (tmp_path / "old").rename(tmp_path / "new")
    other = compiled_model()
    assert Checkpoints(tmp_path / "new", other).restore_latest() == 2
    assert_same(model, other)


@pytest.mark.parametrize(
    ("other", "config", "message"),
    [
        (lambda: compiled_model(width=9), {"heads": 2}, r"weights 0: saved float32 \[3, 8\], here float32 \[3, 9\]"),
        (lambda: compiled_model(optimizer="sgd"), {"heads": 2}, "optimizer: 10 variables saved, 2 here"),
        (compiled_model, {"heads": 4, "width": 8}, "config.heads: saved 2, here 4; config.width: saved None, here 8"),
    ],
)
def test_checkpoints_of_another_run_are_an_error(tmp_path, other, config, message):
    model = compiled_model()
    Checkpoints(tmp_path, model, config={"heads": 2}).save()
    with pytest.raises(ValueError, match=f"the checkpoints in {tmp_path} do not fit .*{message}"):
        Checkpoints(tmp_path, other(), config=config).restore_latest()


def test_a_missing_description_is_an_error(tmp_path):
    model = compiled_model()
    Checkpoints(tmp_path, model).save()
    (tmp_path / "description.json").unlink()
    with pytest.raises(ValueError, match=r"description.json is not readable"):
        Checkpoints(tmp_path, model).restore_latest()


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match=r"`max_to_keep` must be positive. Received: max_to_keep=0"):
        Checkpoints(tmp_path, compiled_model(), max_to_keep=0)
    with pytest.raises(ValueError, match="`model` must be built"):
        Checkpoints(tmp_path, keras.Sequential([keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="`model` must be compiled with an optimizer"):
        Checkpoints(tmp_path, keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match=r"`steps` must be positive or None. Received: steps=0"):
        CheckpointEvery(Checkpoints(tmp_path, compiled_model()), steps=0)


@pytest.mark.parametrize(("steps", "saved"), [(None, {3, 6}), (2, {2, 3, 4, 6})])
def test_callback(tmp_path, steps, saved):
    model = compiled_model()
    checkpoints = Checkpoints(tmp_path, model, max_to_keep=9)
    inputs, targets = INPUTS.reshape(-1, 3), TARGETS.reshape(-1, 1)
    model.fit(inputs, targets, batch_size=8, epochs=2, verbose=0, callbacks=[CheckpointEvery(checkpoints, steps=steps)])
    assert {int(path.stem.split("-")[1]) for path in tmp_path.glob("*.index")} == saved
    # What was saved within the epoch is the state of exactly that step.
    reader = tf.train.load_checkpoint(str(tmp_path / f"ckpt-{min(saved)}"))
    assert reader.get_tensor("optimizer/0/.ATTRIBUTES/VARIABLE_VALUE") == min(saved)


def test_average_of_the_last_checkpoints(tmp_path):
    model = compiled_model()
    checkpoints = Checkpoints(tmp_path, model)
    history = []
    for step in range(4):
        train(model, [step])
        checkpoints.save()
        history.append(model.get_weights())
    other = compiled_model()
    paths = average_checkpoints(tmp_path, other, count=3)
    assert paths == [str(tmp_path / f"ckpt-{step}") for step in (2, 3, 4)]
    for weight, *values in zip(other.get_weights(), *history[1:], strict=True):
        np.testing.assert_allclose(weight, np.mean(np.asarray(values, "float64"), axis=0), rtol=1e-7)
    assert len(average_checkpoints(tmp_path, other, count=50)) == 4
    assert average_checkpoints(paths[:1], other) == paths[:1]
    for weight, expected in zip(other.get_weights(), history[1], strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_average_of_what_does_not_fit_or_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="`checkpoints` must hold at least one checkpoint"):
        average_checkpoints(tmp_path, compiled_model())
    with pytest.raises(ValueError, match=r"`count` must be positive. Received: count=0"):
        average_checkpoints(tmp_path, compiled_model(), count=0)
    Checkpoints(tmp_path, compiled_model()).save()
    with pytest.raises(ValueError, match=r"ckpt-0 does not fit the model: it holds 4 weights with 41 parameters.* 46"):
        average_checkpoints(tmp_path, compiled_model(width=9))


def test_description_is_json(tmp_path):
    Checkpoints(tmp_path, compiled_model(), config={"heads": 2}).save()
    saved = json.loads((tmp_path / "description.json").read_text("utf-8"))
    assert saved["config"] == {"heads": 2}
    assert saved["weights"] == [[[3, 8], "float32"], [[8], "float32"], [[8, 1], "float32"], [[1], "float32"]]
    assert saved["state"] == [[[2], "int64"]]  # the seed of the dropout
