"""A picture of a run's curves, from the log that `MetricsLog` writes."""

import json
import math
from pathlib import Path

from keras_transformer.files import replaced

# Title of a panel, and the logs it shows with their names in the legend.
_PANELS = (
    ("Loss", {"loss": "training", "val_loss": "development"}),
    ("Perplexity", {"perplexity": "training", "val_perplexity": "development"}),
    ("Token accuracy", {"token_accuracy": "training", "val_token_accuracy": "development"}),
    ("Score of translations", {"val_bleu": "BLEU", "val_chrf": "chrF"}),
    ("Learning rate", {"learning_rate": "learning rate"}),
    ("Gradient norm", {"gradient_norm": "gradient norm"}),
    ("Target tokens a second", {"target_tokens_per_second": "training"}),
    ("Padding share of targets", {"target_padding_share": "training"}),
)
_COLUMNS = 2
_LOGARITHMIC = ("Perplexity",)  # the first epochs would press the rest to the floor


def read_metrics(path):
    """Records of a metrics log, a list of mappings; a last line that a kill has cut off is left out.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    records = []
    for line in Path(path).read_text("utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records


def metrics_figure(records, title=""):
    """Draw the curves of a run over its steps, a panel for each kind that the records have.

    Args:
        records: list of mappings with `step`, as `read_metrics` gives them, in the order of the steps for each metric.
        title: above all panels.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if there is nothing to draw.
    """
    from matplotlib.figure import Figure

    panels = []
    for name, curves in _PANELS:
        points = {
            label: [(record["step"], record[log]) for record in records if _is_number(record.get(log))]
            for log, label in curves.items()
        }
        if any(points.values()):
            panels.append((name, {label: pairs for label, pairs in points.items() if pairs}))
    if not panels:
        raise ValueError(f"`records` must hold metrics to draw. Received: {len(records)} records without any")

    num_rows = -(-len(panels) // _COLUMNS)
    figure = Figure(figsize=(5.5 * _COLUMNS, 3.2 * num_rows), layout="constrained")
    for place, (name, points) in enumerate(panels):
        axes = figure.add_subplot(num_rows, _COLUMNS, place + 1)
        for label, pairs in points.items():
            axes.plot(*zip(*pairs, strict=True), label=label, marker="." if len(pairs) < 40 else None)
        if name in _LOGARITHMIC and all(value > 0 for pairs in points.values() for _, value in pairs):
            axes.set_yscale("log")
        axes.set_title(name)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        if set(points) - {"training", name.lower()}:
            axes.legend()
    if title:
        figure.suptitle(title)
    return figure


def plot_metrics(logs, path, title=""):
    """Write the curves of a run as a picture, for example `report.png`; an older one is replaced.

    Args:
        logs: paths of its logs.
        path: path of the picture; its suffix chooses the format.
        title: above all panels.

    Raises:
        FileNotFoundError, ValueError: if there is no such log, or nothing in them.
    """
    figure = metrics_figure([record for log in logs for record in read_metrics(log)], title)
    with replaced(path) as temporary:
        figure.savefig(temporary, dpi=120)


def _is_number(value):
    return isinstance(value, (int, float)) and math.isfinite(value)
