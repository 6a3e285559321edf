"""A run through `fit` with everything in it, stopped anywhere, against one that was not."""

import json
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers import Dropout
from keras_transformer.runs.callbacks import MetricsLog
from keras_transformer.runs.checkpoints import CheckpointEvery, Checkpoints
from keras_transformer.runs.resuming import ResumeEpoch, StopOnSignal, TrainingInterrupted
from keras_transformer.training.checkpoint_average import best_checkpoints
from keras_transformer.training.early_stopping import EarlyStopping
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy, TokenCount
from keras_transformer.training.optimizers import Adam

STEPS_PER_EPOCH, EPOCHS = 4, 3
GENERATOR = np.random.default_rng(3)
# Batches with unequal numbers of real tokens; 0 is padding.
INPUTS = GENERATOR.integers(1, 9, size=(STEPS_PER_EPOCH * EPOCHS, 3, 5))
LABELS = INPUTS * (np.arange(5) < GENERATOR.integers(1, 6, size=(*INPUTS.shape[:2], 1)))


def compiled_model(skip=False):
    """A small model; with `skip` the gradients of the first steps overflow, and these steps are skipped."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.layers.Input((5,)), keras.layers.Embedding(9, 6), Dropout(0.5), keras.layers.Dense(9)]
    )
    optimizer = Adam(0.01, use_ema=True, ema_momentum=0.8)
    if skip:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**127, dynamic_growth_steps=5)
    model.compile(
        optimizer,
        LabelSmoothedCrossEntropy(),
        loss_weights=4.0 if skip else None,
        metrics=[TokenAccuracy(), Perplexity(), TokenCount()],
    )
    return model


class Killed(BaseException):
    """Ends a run where it is, as SIGKILL would: nothing of the package catches it."""


class Disturb(keras.callbacks.Callback):
    """Does something when a hook, such as `on_train_batch_end`, is called after so many steps."""

    def __init__(self, hook, step, what):
        super().__init__()
        self.step = step
        self.what = what
        self.done = False
        setattr(self, hook, self.disturb)

    def disturb(self, *arguments, **named):
        if not self.done and int(self.model.optimizer.iterations) == self.step:
            self.done = True
            self.what()


def kill():
    raise Killed


def terminate():
    signal.raise_signal(signal.SIGTERM)


def run(directory, disturb=None, place=0, skip=False):
    """One process of a run; `disturb` is put into the list of callbacks at `place`."""
    model = compiled_model(skip)
    log = MetricsLog(directory / "metrics.jsonl")
    stopping = EarlyStopping("val_loss", mode="min", patience=9)
    checkpoints = Checkpoints(
        directory / "checkpoints",
        model,
        max_to_keep=3,
        best_to_keep=1,
        monitor="val_loss",
        mode="min",
        parts={"early_stopping": stopping, "log": log},
    )
    step = checkpoints.restore_latest()
    callbacks = [
        ResumeEpoch(checkpoints, STEPS_PER_EPOCH),
        stopping,
        log,
        CheckpointEvery(checkpoints, steps=3),
        StopOnSignal(checkpoints),
    ]
    if disturb:
        callbacks.insert(place, disturb)
    model.fit(
        tf.data.Dataset.from_tensor_slices((INPUTS, LABELS)).skip(step),
        validation_data=tf.data.Dataset.from_tensor_slices((INPUTS[:2], LABELS[:2])),
        initial_epoch=step // STEPS_PER_EPOCH,
        epochs=EPOCHS,
        steps_per_epoch=STEPS_PER_EPOCH,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )
    return model, stopping, step


def results(directory, model, stopping):
    """All that a run leaves, but for the times in its log."""
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text("utf-8").splitlines()]
    for record in records:
        assert record["target_tokens_per_second"] == record["target_tokens"] / record.pop("seconds")
        del record["target_tokens_per_second"]
    return {
        "variables": [np.asarray(variable).tolist() for variable in [*model.variables, *model.optimizer.variables]],
        "log": records,
        "checkpoints": sorted(path.name for path in (directory / "checkpoints").iterdir()),
        "best": best_checkpoints(directory / "checkpoints", monitor="val_loss", mode="min")[0][-6:],
        "stopping": stopping.get_state(),
    }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("uninterrupted")
    model, stopping, _ = run(directory)
    expected = results(directory, model, stopping)
    assert [record["step"] for record in expected["log"]] == [4, 8, 12]
    assert [record["target_tokens"] for record in expected["log"]] == [
        np.count_nonzero(LABELS[epoch * 4 : epoch * 4 + 4]) for epoch in range(EPOCHS)
    ]
    return expected


KILLS = {
    "within epochs": [
        ("on_train_batch_end", 1, kill, 0),  # nothing is saved yet
        ("on_train_batch_end", 4, kill, 0),  # the epoch's steps are made, its end is not
        ("on_train_batch_end", 7, kill, 0),  # saved after step 6, within an epoch
        ("on_train_batch_begin", 9, kill, 9),  # just after a save
    ],
    "within evaluations": [
        ("on_test_batch_end", 4, kill, 0),
        ("on_test_end", 8, kill, 0),
        ("on_epoch_end", 8, kill, 2),  # before the epoch is in the log
        ("on_epoch_end", 8, kill, 3),  # it is in the log, but not saved
        ("on_epoch_end", 12, kill, 4),  # the last one is saved
    ],
}


@pytest.mark.parametrize("name", KILLS)
def test_killed_runs_end_like_one_that_was_never_stopped(tmp_path, uninterrupted, name):
    for hook, step, what, place in KILLS[name]:
        with pytest.raises(Killed):
            run(tmp_path, Disturb(hook, step, what), place)
    model, stopping, begin = run(tmp_path)
    assert begin == {"within epochs": 9, "within evaluations": 12}[name]
    assert results(tmp_path, model, stopping) == uninterrupted


def test_a_signal_saves_the_running_step_and_the_run_ends_the_same(tmp_path, uninterrupted):
    previous = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    for hook, at, saved in (
        ("on_train_batch_end", 2, 2),
        ("on_train_batch_begin", 4, 4),  # between two epochs, nothing to add
        ("on_train_batch_end", 5, 5),
        ("on_train_batch_end", 8, 8),  # the epoch's last step: after the evaluation
        ("on_train_batch_end", 10, 10),  # not one of those that are kept at the end
        ("on_test_batch_end", 12, 12),
    ):
        with pytest.raises(TrainingInterrupted, match=f"stopped by SIGTERM after step {saved} and saved") as stopped:
            run(tmp_path, Disturb(hook, at, terminate))
        assert stopped.value.step == saved
        assert stopped.value.signal == "SIGTERM"
        assert stopped.value.path == str(tmp_path / "checkpoints" / f"ckpt-{saved}")
        assert (tmp_path / "checkpoints" / f"ckpt-{saved}.index").is_file()
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == previous
    model, stopping, begin = run(tmp_path)
    assert begin == 12
    assert results(tmp_path, model, stopping) == uninterrupted
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == previous


def fit_and_send(tmp_path, numbers):
    model = compiled_model()
    stop = StopOnSignal(Checkpoints(tmp_path, model))

    def send():
        for number in numbers:
            signal.raise_signal(number)

    try:
        model.fit(INPUTS[0], LABELS[0], epochs=9, verbose=0, callbacks=[Disturb("on_epoch_end", 2, send), stop])
    finally:
        stop._stop_listening()
    return model


@pytest.fixture
def ctrl_c():
    """Python's own handler, also where the tests run in the background, in which SIGINT is ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_saves_and_a_second_one_stops_at_once(tmp_path):
    with pytest.raises(TrainingInterrupted, match="stopped by SIGINT after step 2"):
        fit_and_send(tmp_path / "once", [signal.SIGINT])
    assert (tmp_path / "once" / "ckpt-2.index").is_file()
    with pytest.raises(KeyboardInterrupt):
        fit_and_send(tmp_path / "twice", [signal.SIGINT, signal.SIGINT])
    assert not (tmp_path / "twice").exists()


def test_metrics_of_another_shape_are_left_alone(tmp_path):
    model = compiled_model()
    model.train_on_batch(INPUTS[0], LABELS[0])
    Checkpoints(tmp_path, model).save()
    model = compiled_model()
    checkpoints = Checkpoints(tmp_path, model)
    checkpoints.restore_latest()
    with pytest.warns(UserWarning, match=r"state of other metrics \(7 variables, 2 here\)"):
        checkpoints.add_metrics()
    checkpoints.add_metrics()  # once is enough


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match=r"`steps_per_epoch` must be positive. Received: steps_per_epoch=0"):
        ResumeEpoch(Checkpoints(tmp_path, compiled_model()), 0)


def test_skipped_steps_move_neither_data_nor_epochs(tmp_path):
    model, stopping, _ = run(tmp_path / "whole", skip=True)
    expected = results(tmp_path / "whole", model, stopping)
    updates = [record["step"] for record in expected["log"]]
    assert [record["epoch"] for record in expected["log"]] == [1, 2, 3]
    assert 0 < updates[0] < 4, "some of the first epoch's steps should be skipped, and not all"
    assert (tmp_path / "whole" / "checkpoints" / "ckpt-12.json").is_file()
    begins = []
    for hook, at, what, error in (
        ("on_train_batch_end", updates[0], kill, Killed),
        ("on_epoch_end", updates[0], terminate, TrainingInterrupted),
        ("on_train_batch_end", updates[0] + 2, terminate, TrainingInterrupted),
        ("on_test_begin", updates[1], kill, Killed),
    ):
        with pytest.raises(error) as stopped:
            run(tmp_path / "killed", Disturb(hook, at, what), skip=True)
        begins.append(stopped.value.step if error is TrainingInterrupted else None)
    assert begins == [None, 4, 6, None]
    model, stopping, step = run(tmp_path / "killed", skip=True)
    assert step == 6
    assert results(tmp_path / "killed", model, stopping) == expected


@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_lost_terminal_stops_training_unless_that_is_ignored(is_ignored):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    try:
        stop = StopOnSignal(None)
        stop.on_train_begin()
        assert (signal.getsignal(signal.SIGHUP) == signal.SIG_IGN) == is_ignored
        stop.on_train_end()
        assert signal.getsignal(signal.SIGHUP) == (signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGHUP, before)
