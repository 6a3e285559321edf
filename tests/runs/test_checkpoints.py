import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.runs.checkpoints import CheckpointEvery, Checkpoints
from keras_transformer.training.checkpoint_average import average_checkpoints, best_checkpoints

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


class Killed(BaseException):
    """Leaves the disk as SIGKILL would: nothing catches it, and nothing is written on its way out."""


def kill_at_event(monkeypatch, number):
    """From here on the event of this number, of all that change the disk, is the last one, and only half done."""
    events = []

    def counted(function, half=None):
        def call(*arguments, **named):
            events.append(function.__name__)
            if len(events) == number:
                if half is not None:
                    half(*arguments)
                raise Killed
            return function(*arguments, **named)

        return call

    def half_a_checkpoint(checkpoint, path):
        Path(path + "_temp").mkdir()
        (Path(path + "_temp") / "part-00000-of-00001.data-00000-of-00001").write_bytes(b"half")
        Path(path + ".data-00000-of-00001").write_bytes(b"half")

    def half_a_text(path, text, encoding):
        path.write_bytes(text[: len(text) // 2].encode(encoding))

    monkeypatch.setattr(tf.train.Checkpoint, "write", counted(tf.train.Checkpoint.write, half_a_checkpoint))
    monkeypatch.setattr(Path, "write_text", counted(Path.write_text, half_a_text))
    monkeypatch.setattr(os, "replace", counted(os.replace))
    monkeypatch.setattr(os, "fsync", counted(os.fsync))
    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))
    return events


def stems(directory):
    return {path.name.split(".")[0].removesuffix("_temp") for path in directory.glob("ckpt-*")}


def test_killed_anywhere_in_a_save_the_run_ends_as_if_it_had_never_stopped(tmp_path, monkeypatch):
    uninterrupted = compiled_model()
    for step in range(5):
        train(uninterrupted, [step])
        checkpoints = Checkpoints(tmp_path / "whole", uninterrupted, max_to_keep=2)
        checkpoints.save()
        if step == 2:
            begun = tmp_path / "begun"
            shutil.copytree(tmp_path / "whole", begun)
    expected = sorted(path.name for path in (tmp_path / "whole").iterdir())
    model, resumed = compiled_model(), compiled_model()
    restored = set()
    for number in range(1, 100):
        directory = tmp_path / str(number)
        shutil.copytree(begun, directory)
        checkpoints = Checkpoints(directory, model, max_to_keep=2)
        assert checkpoints.restore_latest() == 3
        train(model, [3])
        with monkeypatch.context() as patch:
            events = kill_at_event(patch, number)
            with contextlib.suppress(Killed):
                checkpoints.save()
        if len(events) < number:
            break
        after = Checkpoints(directory, resumed, max_to_keep=2)
        step = after.restore_latest()
        restored.add(step)
        for later in range(step, 5):
            train(resumed, [later])
            after.save()
        assert_same(resumed, uninterrupted)
        # Also what the average at the end would be taken of, and nothing of the killed save is left.
        assert stems(directory) == {"ckpt-4", "ckpt-5"}
        names = sorted(path.name for path in directory.iterdir() if not path.name.startswith(".writing-"))
        assert names == expected
    assert {"write", "write_text", "replace", "fsync", "unlink"} == set(events)
    assert restored == {3, 4}
    assert number > 12


SLOW_SAVE = """
import sys
sys.path.insert(0, {folder!r})
from test_checkpoints import Checkpoints, compiled_model, train
model = compiled_model(width=100_000)
checkpoints = Checkpoints({directory!r}, model)
for step in range(6):
    train(model, [step])
    checkpoints.save()
"""


def test_a_real_kill_while_a_checkpoint_is_written(tmp_path):
    script = SLOW_SAVE.format(folder=os.path.dirname(__file__), directory=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("ckpt-4*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGKILL)
    process.wait()
    uninterrupted, resumed = compiled_model(width=100_000), compiled_model(width=100_000)
    train(uninterrupted, range(6))
    checkpoints = Checkpoints(tmp_path, resumed)
    step = checkpoints.restore_latest()
    assert step in (3, 4, 5)
    train(resumed, range(step, 6))
    assert_same(resumed, uninterrupted)
    checkpoints.save()
    assert stems(tmp_path) == {f"ckpt-{kept}" for kept in [*range(1, step + 1), 6][-5:]}


@contextlib.contextmanager
def largest_file(size):
    """As a full disk, but for this process: writing fails where a file would grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [100, 2_000, 20_000])  # the description, the text beside it, the data do not fit
def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, size):
    model = compiled_model(width=2_000)
    checkpoints = Checkpoints(tmp_path, model, config={"note": "x" * 1_000})
    train(model, [0])
    checkpoints.save()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    train(model, [1])
    message = (
        rf"the checkpoint of step 2 cannot be written to {tmp_path}; the latest complete one is .*/ckpt-1: .*large"
    )
    with largest_file(size), pytest.raises(OSError, match=message):
        checkpoints.save()
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".temporary"}
    assert after == before
    assert checkpoints.latest == str(tmp_path / "ckpt-1")
    resumed = compiled_model(width=2_000)
    assert Checkpoints(tmp_path, resumed, config={"note": "x" * 1_000}).restore_latest() == 1
    # Space was made: the same object goes on.
    checkpoints.save()
    train(resumed, [1])
    assert_same(model, resumed)
    assert Checkpoints(tmp_path, resumed, config={"note": "x" * 1_000}).restore_latest() == 2


def test_a_full_disk_at_the_very_end_of_a_save(tmp_path, monkeypatch):
    model = compiled_model()
    checkpoints = Checkpoints(tmp_path, model)
    checkpoints.save()
    train(model, [0])

    def replace(source, target):
        if str(target).endswith("checkpoint"):
            raise OSError(28, "No space left on device")
        os.rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(OSError, match="No space left on device"):
            checkpoints.save()
    assert stems(tmp_path) == {"ckpt-0"}
    assert Checkpoints(tmp_path, compiled_model()).restore_latest() == 0
    assert checkpoints.latest == str(tmp_path / "ckpt-0")


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    model = compiled_model()
    checkpoints = Checkpoints(tmp_path, model)
    for step in range(2):
        train(model, [step])
        checkpoints.save()
    data = tmp_path / "ckpt-2.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:40])
    other = compiled_model()
    again = Checkpoints(tmp_path, other)
    with pytest.warns(UserWarning, match="ckpt-2 cannot be read and is passed over"):
        assert again.restore_latest() == 1
    assert again.latest == str(tmp_path / "ckpt-1")
    # The step is made and saved again, in place of the damaged one.
    train(other, [1])
    again.save()
    assert Checkpoints(tmp_path, model).restore_latest() == 2
    assert_same(model, other)
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


def test_several_workers_do_not_save_by_the_clock():
    several = tf.distribute.MultiWorkerMirroredStrategy
    checkpoints = SimpleNamespace(model=SimpleNamespace(distribute_strategy=several.__new__(several)))
    with pytest.raises(ValueError, match=r"`seconds` must be None for several workers.*Received: seconds=35"):
        CheckpointEvery(checkpoints, seconds=35)
    CheckpointEvery(checkpoints, steps=35)


def test_bad_retention(tmp_path):
    for arguments, message in (
        ({"best_to_keep": -1}, "`best_to_keep` must not be negative. Received: best_to_keep=-1"),
        ({"best_to_keep": 1}, "`best_to_keep` needs a `monitor`. Received: best_to_keep=1"),
        ({"best_to_keep": 1, "monitor": "loss"}, '`mode` must be "max" or "min" for a `monitor`. Received: mode=None'),
    ):
        with pytest.raises(ValueError, match=message):
            Checkpoints(tmp_path, compiled_model(), **arguments)
    with pytest.raises(ValueError, match=r"`seconds` must be positive or None. Received: seconds=0"):
        CheckpointEvery(Checkpoints(tmp_path, compiled_model()), seconds=0)


BLEU = [3.0, 9.0, float("nan"), 7.0, 9.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("mode", "kept", "best"),
    [("max", {2, 5, 6, 7}, [5, 2, 4, 1]), ("min", {6, 7}, [6, 7, 1, 4])],
)
def test_the_newest_and_the_best_are_kept_also_after_a_restart(tmp_path, mode, kept, best):
    model = compiled_model()
    arguments = {"best_to_keep": 2, "monitor": "val_bleu", "mode": mode}
    for steps in (range(4), range(4, 7)):
        few, all_ = (
            Checkpoints(tmp_path / "few", model, max_to_keep=2, **arguments),
            Checkpoints(tmp_path / "all", model, max_to_keep=9),
        )
        for step in steps:
            train(model, [step % 6])
            for checkpoints in (few, all_):
                checkpoints.save()
                checkpoints.save({"val_bleu": BLEU[step], "loss": 0.5})
    assert stems(tmp_path / "few") == {f"ckpt-{step}" for step in kept}
    assert best_checkpoints(tmp_path / "all", monitor="val_bleu", mode=mode, count=4) == [
        str(tmp_path / "all" / f"ckpt-{step}") for step in best
    ]
    assert best_checkpoints(tmp_path / "few", monitor="val_bleu", mode=mode) == [
        str(tmp_path / "few" / f"ckpt-{best[0]}")
    ]
    assert json.loads((tmp_path / "all" / "ckpt-3.json").read_text("utf-8"))["metrics"] == {
        "val_bleu": None,
        "loss": 0.5,
    }
    assert Checkpoints(tmp_path / "few", compiled_model()).restore_latest() == 7


def test_average_of_the_best_checkpoints(tmp_path):
    model = compiled_model()
    checkpoints = Checkpoints(tmp_path, model, max_to_keep=9)
    history = {}
    for step in range(7):
        train(model, [step % 6])
        checkpoints.save({"val_bleu": BLEU[step]})
        history[step + 1] = model.get_weights()
    other = compiled_model()
    paths = average_checkpoints(tmp_path, other, count=3, monitor="val_bleu", mode="max")
    assert paths == [str(tmp_path / f"ckpt-{step}") for step in (2, 4, 5)]
    for weight, *values in zip(other.get_weights(), *(history[step] for step in (2, 4, 5)), strict=True):
        np.testing.assert_allclose(weight, np.mean(np.asarray(values, "float64"), axis=0), rtol=1e-7)
    # One checkpoint is that checkpoint, to the bit.
    average_checkpoints(tmp_path, other, count=1, monitor="val_bleu", mode="min")
    for weight, expected in zip(other.get_weights(), history[6], strict=True):
        np.testing.assert_array_equal(weight, expected)
    with pytest.raises(ValueError, match=r"`monitor` must name a metric .* one of \['val_bleu'\].*monitor='val_loss'"):
        average_checkpoints(tmp_path, other, monitor="val_loss", mode="min")
    with pytest.raises(ValueError, match='`mode` must be "max" or "min"'):
        average_checkpoints(tmp_path, other, monitor="val_bleu")


def test_a_temporary_checkpoint_serves_to_resume_and_for_nothing_else(tmp_path):
    model = compiled_model()
    checkpoints = Checkpoints(tmp_path, model, max_to_keep=2)
    for step in range(4):
        train(model, [step])
        checkpoints.save(temporary=step == 2)
        if step == 2:
            assert stems(tmp_path) == {"ckpt-1", "ckpt-2", "ckpt-3"}
            assert average_checkpoints(tmp_path, compiled_model(), count=2) == [
                str(tmp_path / "ckpt-1"),
                str(tmp_path / "ckpt-2"),
            ]
            resumed = compiled_model()
            assert Checkpoints(tmp_path, resumed).restore_latest() == 3
            assert_same(resumed, model)
    assert stems(tmp_path) == {"ckpt-2", "ckpt-4"}
    # A regular save of the same step makes it a regular one.
    train(model, [4])
    checkpoints.save(temporary=True)
    checkpoints.save()
    checkpoints.save(temporary=True)
    assert average_checkpoints(tmp_path, compiled_model(), count=1) == [str(tmp_path / "ckpt-5")]
    assert stems(tmp_path) == {"ckpt-4", "ckpt-5"}


def test_a_folder_of_another_or_a_longer_run_is_not_written_to(tmp_path):
    model = compiled_model()
    train(model, range(3))
    Checkpoints(tmp_path, model, config={"data": "a1"}).save()
    files = sorted(tmp_path.iterdir())
    other = compiled_model()
    with pytest.raises(ValueError, match=r"config.data: saved 'a1', here 'b2'"):
        Checkpoints(tmp_path, other, config={"data": "b2"}).save()
    with pytest.raises(ValueError, match=r"restore the latest one .*Received: a checkpoint of step 3 at step 0"):
        Checkpoints(tmp_path, other, config={"data": "a1"}).save()
    assert sorted(tmp_path.iterdir()) == files


def test_a_worker_that_is_not_the_chief_restores_and_writes_nothing(tmp_path):
    model = compiled_model()
    worker = Checkpoints(tmp_path / "run", model, write=False)
    train(model, [0])
    assert worker.save({"loss": 1.0}) == str(tmp_path / "run" / "ckpt-1")
    assert not (tmp_path / "run").exists()
    Checkpoints(tmp_path / "run", model).save()
    files = sorted((tmp_path / "run").iterdir())
    other = compiled_model()
    worker = Checkpoints(tmp_path / "run", other, write=False)
    assert worker.restore_latest() == 1
    assert_same(model, other)
    train(other, [1])
    worker.save()
    assert sorted((tmp_path / "run").iterdir()) == files


def test_checkpoints_without_a_record_beside_them_can_be_restored(tmp_path):
    model = compiled_model()
    train(model, [0])
    Checkpoints(tmp_path, model).save({"loss": 1.0})
    (tmp_path / "ckpt-1.json").unlink()
    other = compiled_model()
    assert Checkpoints(tmp_path, other).restore_latest() == 1
    assert_same(model, other)
    with pytest.raises(ValueError, match="`monitor` must name a metric"):
        best_checkpoints(tmp_path, monitor="loss", mode="min")


def test_state_of_parts(tmp_path):
    class Part:
        def __init__(self, state):
            self.state = state

        def get_state(self):
            return self.state

        def set_state(self, state):
            self.state = state

    model = compiled_model()
    Checkpoints(tmp_path, model, parts={"a": Part([1, 0.1]), "b": Part({"x": None})}).save()
    a, c = Part(None), Part("own")
    Checkpoints(tmp_path, model, parts={"a": a, "c": c}).restore_latest()
    assert a.state == [1, 0.1]
    assert c.state == "own"


def test_tensorflow_finds_the_latest_checkpoint(tmp_path):
    model = compiled_model()
    checkpoints = Checkpoints(tmp_path, model)
    for step in range(2):
        train(model, [step])
        checkpoints.save()
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-2")


def test_callback_saves_after_some_seconds(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Tick(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            now[0] += 10.0

    model = compiled_model()
    checkpoints = Checkpoints(tmp_path, model, max_to_keep=99)
    every = CheckpointEvery(checkpoints, seconds=35)
    now[0] += 1000.0  # what comes before training does not count
    inputs, targets = INPUTS.reshape(-1, 3), TARGETS.reshape(-1, 1)
    model.fit(inputs, targets, batch_size=2, epochs=2, verbose=0, callbacks=[Tick(), every])
    # Due at the fourth tick, at the beginning of which three steps are made; the end of an epoch saves too.
    assert stems(tmp_path) == {f"ckpt-{step}" for step in (3, 7, 11, 12, 15, 19, 23, 24)}


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
    message = (
        r"ckpt-0 does not fit the model: .*dense.*/kernel has shape \(3, 9\), there \(3, 8\); .*/bias has shape \(9,\)"
    )
    with pytest.raises(ValueError, match=message):
        average_checkpoints(tmp_path, compiled_model(width=9))


def test_description_is_json(tmp_path):
    Checkpoints(tmp_path, compiled_model(), config={"heads": 2}).save()
    saved = json.loads((tmp_path / "description.json").read_text("utf-8"))
    assert saved["config"] == {"heads": 2}
    assert saved["weights"] == [[[3, 8], "float32"], [[8], "float32"], [[8, 1], "float32"], [[1], "float32"]]
    assert saved["state"] == [[[2], "int64"]]  # the seed of the dropout
