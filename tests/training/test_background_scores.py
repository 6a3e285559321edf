"""Scores in the background: of the right weights, one at a time, with errors told, and complete after any kill."""

import contextlib
import json
import signal
import threading
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.training.averaging import averaged_weights
from keras_transformer.training.background_scores import BackgroundTranslationScores
from keras_transformer.training.checkpoints import CheckpointEvery, Checkpoints
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.training.resuming import ResumeEpoch, StopOnSignal, TrainingInterrupted

STEPS_PER_EPOCH, EPOCHS = 3, 3
LABELS = np.random.default_rng(5).integers(1, 9, size=(STEPS_PER_EPOCH * EPOCHS, 2, 5))
SOURCES = [f"sentence {number}" for number in range(100)]


def built_model():
    return keras.Sequential([keras.layers.Input((5,), dtype="int32"), keras.layers.Embedding(9, 9)])


def compiled_model():
    keras.utils.set_random_seed(1)
    model = built_model()
    model.compile(keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5), LabelSmoothedCrossEntropy())
    return model


def fingerprint(model):
    """A number that differs for any other weights."""
    return float(sum(np.sum(np.sin(np.arange(w.size)) * w.ravel().astype("float64")) for w in model.get_weights()))


class Killed(BaseException):
    """Ends a run where it is, as SIGKILL would."""


class Hook(keras.callbacks.Callback):
    """Calls `what(step)` at a hook, such as `on_epoch_end`."""

    def __init__(self, hook, what):
        super().__init__()
        setattr(self, hook, lambda *arguments, **named: what(int(self.model.optimizer.iterations)))


def run(folder, *callbacks, during=lambda sources: None, **arguments):
    """One process of a run; `during` is called in the thread, by the translator. Returns the callback."""
    model, copy = compiled_model(), built_model()

    def translate(sources):
        during(sources)
        return [f"{fingerprint(copy)!r} {source}" for source in sources]

    scores = BackgroundTranslationScores(
        translate,
        SOURCES,
        SOURCES,
        {"val_print": lambda hypotheses, _: SimpleNamespace(value=float(hypotheses[0].split()[0]))},
        model_copy=copy,
        path=folder / "dev_scores.jsonl",
        **arguments,
    )
    checkpoints = Checkpoints(folder / "checkpoints", model, max_to_keep=1)
    step = checkpoints.restore_latest()
    with contextlib.closing(scores):
        model.fit(
            tf.data.Dataset.from_tensor_slices((LABELS, LABELS)).skip(step),
            initial_epoch=step // STEPS_PER_EPOCH,
            epochs=EPOCHS,
            steps_per_epoch=STEPS_PER_EPOCH,
            shuffle=False,
            verbose=0,
            callbacks=[
                ResumeEpoch(checkpoints, STEPS_PER_EPOCH),
                scores,
                CheckpointEvery(checkpoints, steps=1),
                *callbacks,
                StopOnSignal(checkpoints),
            ],
        )
    return scores


def evaluated_step():
    """The step that the thread which calls this evaluates."""
    return int(threading.current_thread().name.removeprefix("evaluation of step "))


def records(folder):
    return [json.loads(line) for line in (folder / "dev_scores.jsonl").read_text("utf-8").splitlines()]


def prints(folder):
    return {record["step"]: record["val_print"] for record in records(folder)}


@pytest.fixture(scope="module")
def expected():
    """Fingerprints of the weights and of their moving average at the end of each epoch."""
    own, averaged = {}, {}
    model = compiled_model()

    def look(step):
        own[step] = fingerprint(model)
        with averaged_weights(model):
            averaged[step] = fingerprint(model)

    data = tf.data.Dataset.from_tensor_slices((LABELS, LABELS))
    model.fit(
        data,
        epochs=EPOCHS,
        steps_per_epoch=STEPS_PER_EPOCH,
        shuffle=False,
        verbose=0,
        callbacks=[Hook("on_epoch_end", look)],
    )
    assert len({*own.values(), *averaged.values()}) == 2 * EPOCHS
    return {False: own, True: averaged}


@pytest.mark.parametrize("moving_average", [False, True])
def test_scores_are_of_the_weights_at_their_step_while_training_goes_on(tmp_path, expected, moving_average, capsys):
    """Each evaluation is held up until two more steps are made, which would hang if training waited."""
    seen = {step: threading.Event() for step in range(STEPS_PER_EPOCH * EPOCHS + 1)}

    def hold(sources):
        assert seen[min(evaluated_step() + 2, STEPS_PER_EPOCH * EPOCHS)].wait(60)

    examples, shown = [], []
    scores = run(
        tmp_path,
        Hook("on_train_batch_end", lambda step: seen[step].set()),
        during=hold,
        moving_average=moving_average,
        num_examples=2,
        show_examples=lambda step, shown: examples.append((step, shown)),
        show_scores=lambda step, scores: shown.append((step, scores)),
    )
    own = expected[moving_average]
    assert prints(tmp_path) == own
    assert shown == [(step, {"val_print": value}) for step, value in own.items()]
    assert [(step, [row[2] for row in rows]) for step, rows in examples] == [
        (step, [f"{value!r} sentence {number}" for number in range(2)]) for step, value in own.items()
    ]
    assert scores.hypotheses == [f"{own[9]!r} {source}" for source in SOURCES]
    assert all(record["copy_bytes"] == 9 * 9 * 4 for record in records(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"dev_scores.jsonl", "checkpoints"}
    printed = capsys.readouterr().out
    assert f"Development set at step 9: val_print {own[9]:.2f} (" in printed
    assert "s for the last evaluation" in printed


def test_the_next_evaluation_waits_for_the_one_before(tmp_path, expected, monkeypatch):
    """The first one takes 100 seconds of a clock that stands still but for it, from when training waits for it."""
    now, waiting, under_way = [0.0], threading.Event(), []
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    join = threading.Thread.join

    def join_and_tell(thread, timeout=None):
        if thread.name == "evaluation of step 3":
            waiting.set()
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", join_and_tell)

    def during(sources):
        under_way.append(evaluated_step())
        assert sum("evaluation of" in thread.name for thread in threading.enumerate()) == 1
        if under_way == [3]:
            assert waiting.wait(60)
            now[0] += 100

    run(tmp_path, during=during)
    assert prints(tmp_path) == expected[False]
    assert [record["waited_seconds"] for record in records(tmp_path)] == [0, 100, 0]
    assert [record["seconds"] for record in records(tmp_path)] == [100, 0, 0]


@pytest.mark.parametrize("at", [3, 9])
def test_an_error_in_the_thread_ends_training_with_it_and_its_scores_come_after_a_resume(tmp_path, expected, at):
    failed, steps = threading.Event(), []

    def fail(sources):
        if evaluated_step() == at:
            failed.set()
            raise ZeroDivisionError("no such word")

    def look(step):
        if step == at + 1:  # the step after the evaluation began
            assert failed.wait(60)
            for thread in threading.enumerate():
                if "evaluation of" in thread.name:
                    thread.join()
        steps.append(step)

    with pytest.raises(ZeroDivisionError, match="no such word"):
        run(tmp_path, Hook("on_train_batch_end", look), during=fail)
    assert steps[-1] in (at, at + 1), "before the next step, or the one after that when it was under way"
    run(tmp_path)
    assert prints(tmp_path) == expected[False]


@pytest.mark.parametrize(
    ("hook", "at"),
    [
        ("on_epoch_end", 3),  # saved, its evaluation not finished
        ("on_train_batch_begin", 5),  # two checkpoints later, which is all that is kept
        ("on_train_batch_end", 6),  # the second evaluation has not begun
        ("on_epoch_end", 9),  # nothing is left but the evaluation
        ("on_train_end", 9),
    ],
)
def test_a_kill_leaves_neither_gap_nor_repeat(tmp_path, expected, hook, at):
    last = max(step for step in (3, 6, 9) if step < at or (step == at and hook != "on_train_batch_end"))
    killed = threading.Event()

    def during(sources):
        # The last one that began is under way when the run is killed, and never finishes: its record is not written.
        if hook != "on_train_end" and evaluated_step() == last:
            assert killed.wait(60)
            raise Killed

    def kill(step):
        if step == at:
            killed.set()
            raise Killed

    with pytest.raises(Killed):
        run(tmp_path, Hook(hook, kill), during=during)
    before = prints(tmp_path) if (tmp_path / "dev_scores.jsonl").exists() else {}
    assert before == {step: expected[False][step] for step in (3, 6, 9) if step < last or hook == "on_train_end"}
    # A line that was cut off, and what a run wrote of steps whose checkpoint was lost.
    with open(tmp_path / "dev_scores.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 30, "val_print": 1.0}\n{"step": 3, "val_pr')
    (tmp_path / "dev_scores-30.weights.h5").write_bytes(b"of a step that was not made")
    begun = []
    run(tmp_path, during=lambda sources: begun.append(evaluated_step()))
    assert [record["step"] for record in records(tmp_path)] == [3, 6, 9]
    assert prints(tmp_path) == expected[False]
    assert len(set(begun)) == 3 - len(before), "each step is evaluated once, and none that was"
    assert {path.name for path in tmp_path.iterdir()} == {"dev_scores.jsonl", "checkpoints"}


def test_a_kill_between_the_record_and_the_removal_of_the_weights(tmp_path, expected):
    run(tmp_path)
    built_model().save_weights(tmp_path / "dev_scores-6.weights.h5")
    run(tmp_path)
    assert prints(tmp_path) == expected[False]
    assert not (tmp_path / "dev_scores-6.weights.h5").exists()


def test_close_gives_up_between_two_parts_of_the_development_set(tmp_path):
    begun, parts = threading.Event(), []
    closed = threading.Event()

    def during(sources):
        parts.append(len(sources))
        begun.set()
        assert closed.wait(60)

    def kill(step):
        if step == 4:
            assert begun.wait(60)
            threading.Timer(0.2, closed.set).start()  # while `close` waits
            raise Killed

    with pytest.raises(Killed):
        run(tmp_path, Hook("on_train_batch_end", kill), during=during)
    assert 0 < parts[0] < len(SOURCES)
    assert len(parts) == 1
    assert not (tmp_path / "dev_scores.jsonl").exists()


def test_a_signal_while_the_last_evaluation_is_awaited(tmp_path, expected):
    def send(step):
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(TrainingInterrupted, match="stopped by SIGTERM after step 9"):
        run(tmp_path, Hook("on_train_end", send))
    run(tmp_path)
    assert prints(tmp_path) == expected[False]


def test_every_second_epoch(tmp_path, expected):
    run(tmp_path, every=2)
    assert prints(tmp_path) == {6: expected[False][6]}


def test_another_model_is_refused(tmp_path):
    model = compiled_model()
    other = keras.Sequential([keras.layers.Input((5,)), keras.layers.Embedding(9, 8)])
    scores = BackgroundTranslationScores(
        list, SOURCES, SOURCES, {}, model_copy=other, path=tmp_path / "dev_scores.jsonl"
    )
    with pytest.raises(ValueError, match=r"`model_copy` must have the weights of the model that is trained"):
        model.fit(LABELS[0], LABELS[0], verbose=0, callbacks=[scores])
