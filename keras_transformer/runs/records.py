"""Logs of records: one JSON object a line, each with the `step` of training that it belongs to."""

import json
import math
import os

from keras_transformer.files import write_text


def append_record(path, record):
    """Add a record to a log; a number that is not finite becomes null, since JSON has no word for it."""
    record = {name: value if math.isfinite(value) else None for name, value in record.items()}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def keep_records(path, step):
    """Remove the records of later steps from a log, and a line that a kill has cut off; makes its folder.

    Returns:
        The steps of the records that stay.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return []
    written = path.read_text("utf-8")
    lines = [line for line in written.split("\n") if _step_of(line) <= step]
    kept = "".join(line + "\n" for line in lines)
    if kept != written:
        write_text(path, kept)
    return [_step_of(line) for line in lines]


def _step_of(line):
    """Step of a record, or infinity for a line that is none."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf
