import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer.runs.callbacks import MetricsLog, TranslationScores
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.training.metrics import TokenCount

LABELS = np.array([[1, 2, 0], [3, 0, 0], [1, 1, 1], [2, 2, 0]])


def compiled_model():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((3,), dtype="int32"), keras.layers.Embedding(5, 5)])
    model.compile(keras.optimizers.SGD(0.5), LabelSmoothedCrossEntropy(), metrics=[TokenCount()])
    return model


def fit(model, *callbacks, epochs=1, **arguments):
    return model.fit(LABELS, LABELS, batch_size=2, epochs=epochs, verbose=0, callbacks=list(callbacks), **arguments)


def records(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def exact_matches(hypotheses, references):
    return SimpleNamespace(value=100 * np.mean([a == b for a, b in zip(hypotheses, references, strict=True)]))


def upper(sentences):
    return [sentence.upper() for sentence in sentences]


def length_ratio(hypotheses, references):
    return SimpleNamespace(value=sum(map(len, hypotheses)) / sum(map(len, references)))


SCORES = {"val_exact": exact_matches, "val_length": length_ratio}


def test_scores_are_seen_by_later_callbacks_and_the_history(tmp_path, capsys):
    scores = TranslationScores(upper, ["ein", "zwei"], ["EIN", "DREISSIG"], SCORES, num_examples=1)
    stop = keras.callbacks.EarlyStopping(monitor="val_exact", mode="max", patience=1)
    history = fit(compiled_model(), scores, MetricsLog(tmp_path / "metrics.jsonl"), stop, epochs=9)
    assert history.history["val_exact"] == [50.0, 50.0]
    assert history.history["val_length"] == [7 / 11, 7 / 11]
    for record in records(tmp_path / "metrics.jsonl"):
        assert (record["val_exact"], record["val_length"]) == (50.0, 7 / 11)
    assert scores.hypotheses == ["EIN", "ZWEI"]
    assert {name: result.value for name, result in scores.results.items()} == {"val_exact": 50.0, "val_length": 7 / 11}
    printed = capsys.readouterr().out
    assert "source      ein\n  reference   EIN\n  translation EIN" in printed
    assert "zwei" not in printed


def test_scores_and_examples_of_every_second_epoch(tmp_path):
    shown = []
    scores = TranslationScores(
        upper, ["ein"], ["EIN"], SCORES, every=2, num_examples=3, show_examples=lambda *seen: shown.append(seen)
    )
    fit(compiled_model(), scores, MetricsLog(tmp_path / "metrics.jsonl"), epochs=4)
    assert ["val_exact" in record for record in records(tmp_path / "metrics.jsonl")] == [False, True, False, True]
    assert shown == [(4, [("ein", "EIN", "EIN")]), (8, [("ein", "EIN", "EIN")])]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sources": []}, "`sources` must hold at least one sentence"),
        ({"references": ["a", "b"]}, "`references` must hold one reference for each source. Received: 1 s.*, 2 ref"),
        ({"every": 0}, "`every` must be a positive number of epochs. Received: every=0"),
        ({"num_examples": -1}, "`num_examples` must not be negative. Received: num_examples=-1"),
    ],
)
def test_bad_arguments(arguments, message):
    arguments = {"sources": ["a"], "references": ["a"], **arguments}
    with pytest.raises(ValueError, match=message):
        TranslationScores(upper, scores=SCORES, **arguments)


def test_a_translation_that_loses_sentences_is_an_error():
    scores = TranslationScores(lambda sentences: sentences[1:], ["a", "b"], ["a", "b"], SCORES)
    with pytest.raises(ValueError, match="Received: 1 translations of 2 sources"):
        fit(compiled_model(), scores)


def test_log_holds_one_record_an_epoch(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    history = fit(compiled_model(), MetricsLog(path), epochs=3, validation_data=(LABELS, LABELS))
    written = records(path)
    assert [record["step"] for record in written] == [2, 4, 6]
    assert [record["epoch"] for record in written] == [1, 2, 3]
    assert [record["loss"] for record in written] == history.history["loss"]
    assert [record["val_loss"] for record in written] == history.history["val_loss"]
    for record in written:
        assert record["learning_rate"] == 0.5
        assert record["target_tokens"] == 8
        assert record["target_tokens_per_second"] == 8 / record["seconds"]
    # In the logs as well, for the callbacks that follow.
    assert [record["target_tokens_per_second"] for record in written] == history.history["target_tokens_per_second"]


def test_log_after_a_resume_has_neither_gap_nor_repeat(tmp_path):
    path = tmp_path / "metrics.jsonl"
    fit(compiled_model(), MetricsLog(path), epochs=4)
    whole = records(path)
    # The run was killed in its fifth epoch, while a line was written; the checkpoint is of the second epoch.
    path.write_text(path.read_text("utf-8") + '{"step": 10, "ep', "utf-8")
    model = compiled_model()
    fit(model, epochs=2)
    fit(model, MetricsLog(path), epochs=5, initial_epoch=2)
    again = records(path)
    assert [record["step"] for record in again] == [2, 4, 6, 8, 10]
    assert again[:2] == whole[:2]
    assert [record["loss"] for record in again[:4]] == [record["loss"] for record in whole]
    assert list(tmp_path.iterdir()) == [path]


def test_log_of_a_fresh_run_drops_what_an_older_one_left(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for _ in range(2):
        fit(compiled_model(), MetricsLog(path))
    assert [record["step"] for record in records(path)] == [2]


def test_log_writes_what_is_not_finite_as_null(tmp_path):
    class Diverge(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["loss"] = float("nan")

    fit(compiled_model(), Diverge(), MetricsLog(tmp_path / "metrics.jsonl"))
    assert records(tmp_path / "metrics.jsonl")[0]["loss"] is None
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text("utf-8")


def test_seconds_of_an_epoch_go_on_after_a_resume(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    states = []

    class Clock(keras.callbacks.Callback):
        """A step takes 3 seconds, an evaluation 100."""

        def on_train_batch_begin(self, batch, logs=None):
            states.append(log.get_state())
            now[0] += 3.0

        def on_test_begin(self, logs=None):
            now[0] += 100.0

    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.set_state({"seconds": 50.0})
    fit(compiled_model(), Clock(), log, epochs=2, validation_data=(LABELS, LABELS))
    assert [record["seconds"] for record in records(tmp_path / "metrics.jsonl")] == [56.0, 6.0]
    assert [record["target_tokens_per_second"] for record in records(tmp_path / "metrics.jsonl")] == [8 / 56, 8 / 6]
    # At the beginning of each step, and after the end of the last epoch.
    assert [*states, log.get_state()] == [{"seconds": seconds} for seconds in (50.0, 53.0, 0.0, 3.0, 0.0)]


def test_a_score_that_fails_is_reported_and_training_goes_on(tmp_path, capsys):
    def broken(*arguments):
        raise OSError("no such splitter")

    scores = TranslationScores(
        upper, ["ein"], ["EIN"], {"val_broken": broken, **SCORES}, num_examples=1, show_examples=broken
    )
    history = fit(compiled_model(), scores, MetricsLog(tmp_path / "metrics.jsonl"), epochs=2)
    assert history.history["val_exact"] == [100.0, 100.0]
    assert "val_broken" not in history.history
    assert len(records(tmp_path / "metrics.jsonl")) == 2
    reported = capsys.readouterr().err
    assert "val_broken at step 2 failed, and the run goes on without: OSError('no such splitter')" in reported
    assert "Examples at step 4 failed" in reported
