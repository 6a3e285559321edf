"""The picture of a run: the points are those of the log."""

import json

import pytest

from keras_transformer.runs.report import metrics_figure, plot_metrics, read_metrics

RECORDS = [
    {"step": 10, "loss": 5.0, "val_loss": 4.0, "val_bleu": 1.5, "learning_rate": 1e-3, "gradient_norm": None},
    {"step": 20, "loss": 3.0, "val_loss": 2.0, "learning_rate": 2e-3},
    {"step": 30, "loss": 2.0, "val_loss": 1.0, "val_bleu": 30.0, "learning_rate": 1e-3, "unknown": 7},
]


def curves(figure):
    return {
        (axes.get_title(), line.get_label()): [tuple(point) for point in line.get_xydata()]
        for axes in figure.axes
        for line in axes.get_lines()
    }


def test_points_are_those_of_the_records():
    figure = metrics_figure(RECORDS, "en to de")
    assert curves(figure) == {
        ("Loss", "training"): [(10, 5), (20, 3), (30, 2)],
        ("Loss", "development"): [(10, 4), (20, 2), (30, 1)],
        ("Score of translations", "BLEU"): [(10, 1.5), (30, 30)],  # not every evaluation translates
        ("Learning rate", "learning rate"): [(10, 1e-3), (20, 2e-3), (30, 1e-3)],
    }
    assert [axes.get_xlabel() for axes in figure.axes] == ["step"] * 3
    assert [axes.get_yscale() for axes in figure.axes] == ["linear"] * 3
    assert [axes.get_legend() is not None for axes in figure.axes] == [True, True, False]
    assert figure.get_suptitle() == "en to de"
    (perplexity,) = metrics_figure([{"step": 1, "perplexity": 9.0}]).axes
    assert perplexity.get_yscale() == "log"


def test_writes_a_picture_of_a_log_that_a_kill_has_cut_off(tmp_path):
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in RECORDS) + '{"step": 40, "lo', "utf-8")
    assert read_metrics(log) == RECORDS
    (tmp_path / "report.png").write_bytes(b"old")
    scores = tmp_path / "dev_scores.jsonl"
    scores.write_text('{"step": 20, "val_chrf": 50.0}\n', "utf-8")
    plot_metrics([log, scores], tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == [scores.name, "metrics.jsonl", "report.png"]


def test_nothing_to_draw(tmp_path):
    with pytest.raises(ValueError, match="Received: 1 records without any"):
        metrics_figure([{"step": 1, "loss": None}])
    with pytest.raises(FileNotFoundError):
        plot_metrics([tmp_path / "none.jsonl"], tmp_path / "report.png")
