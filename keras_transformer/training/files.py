"""Writing small text files so that neither a kill nor a loss of power leaves half of one.

A log of records is such a file: one JSON object a line, each with the `step` of training that it belongs to.
"""

import json
import math
import os


def write_through(path, text, mode="w"):
    """Writes text to a file and returns when it is on the disk."""
    with open(path, mode, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def replace(path, text):
    """Replaces the text of a file (a `pathlib.Path`) at once: a reader sees the old text or the new one."""
    temporary = path.with_name(path.name + ".temporary")
    write_through(temporary, text)
    os.replace(temporary, path)


def sync(path):
    """Returns when the content of a file, or the list of files of a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_record(path, record):
    """Adds a record to a log; a number that is not finite becomes null, since JSON has no word for it."""
    record = {name: value if math.isfinite(value) else None for name, value in record.items()}
    write_through(path, json.dumps(record) + "\n", "a")


def keep_records(path, step):
    """Removes the records of later steps from a log, and a line that a kill has cut off; makes its folder.

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
        replace(path, kept)
    return [_step_of(line) for line in lines]


def _step_of(line):
    """Step of a record, or infinity for a line that is none."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf
