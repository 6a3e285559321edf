"""The list of a folder's checkpoints, and what is known of each: a record.

The list is the file `checkpoint`, in TensorFlow's own text format, by which its tools find the latest one. A record is
the file `ckpt-STEP.json` beside the checkpoint, a dictionary of

- `step`: how many steps were made;
- `temporary`: whether the checkpoint is only to resume from;
- `metrics`: the logs it was saved with, null for what is not finite;
- `metric_state`: the variables of the model's metrics, or null;
- `parts`: the states of other objects, by name.
"""

import contextlib
import json
import re
from pathlib import Path

from keras_transformer.files import sync, write_text

DESCRIPTION_FILE = "description.json"
_LISTED = re.compile(r'all_model_checkpoint_paths: ".*?ckpt-(\d+)"')


def path_of(directory, step):
    """Path of the checkpoint of a step, without the endings of its files."""
    return str(Path(directory) / f"ckpt-{step}")


def read_records(directory):
    """Records of the checkpoints in a folder's list, the oldest first; an empty list where there is no folder."""
    listed = ""
    with contextlib.suppress(FileNotFoundError):
        listed = (Path(directory) / "checkpoint").read_text("utf-8")
    records = []
    for step in sorted({int(step) for step in _LISTED.findall(listed)}):
        record = {"temporary": False, "metrics": {}, "metric_state": None, "parts": {}}
        with contextlib.suppress(OSError, ValueError):  # damaged, or of a checkpoint that was written without one
            record |= json.loads(Path(path_of(directory, step) + ".json").read_text("utf-8"))
        records.append({**record, "step": step})
    return records


def write_record(directory, record):
    """Write what is known of a checkpoint."""
    write_text(Path(path_of(directory, record["step"]) + ".json"), json.dumps(record))


def write_list(directory, records):
    """Make the checkpoints of these records, the oldest first, those of the folder."""
    names = [f"ckpt-{record['step']}" for record in records]
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    write_text(Path(directory) / "checkpoint", "".join(line + "\n" for line in lines))
    sync(directory)


def check_mode(mode):
    """Raise a ValueError unless `mode` says in which direction a metric is better."""
    if mode not in ("max", "min"):
        raise ValueError(f'`mode` must be "max" or "min" for a `monitor`. Received: mode={mode!r}')


def best_records(records, monitor, mode, count):
    """The best of the records by a metric, the best one first; of equals the newest first, temporary ones never."""
    sign = 1 if mode == "max" else -1
    known = [record for record in regular_records(records) if record["metrics"].get(monitor) is not None]
    return sorted(known, key=lambda record: (sign * record["metrics"][monitor], record["step"]), reverse=True)[:count]


def regular_records(records):
    """Those of the records that are not temporary."""
    return [record for record in records if not record["temporary"]]
