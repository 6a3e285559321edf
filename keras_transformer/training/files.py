"""Writing small text files so that neither a kill nor a loss of power leaves half of one."""

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
