"""The names of the files and folders that runs and exports are made of, and the one way to write a file whole."""

import contextlib
import fcntl
import os
import shutil
import warnings
from pathlib import Path

# In a run directory.
MODEL_FILE = "model.keras"
TOKENIZER_FILE = "tokenizer.model"
CHECKPOINTS_FOLDER = "checkpoints"
CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.jsonl"
RESULTS_FILE = "results.json"
TRANSLATIONS_FILE = "test.translations.txt"
PICTURE_FILE = "report.png"
TOKENS_FOLDER = "tokens"
LOGS_FOLDER = "logs"
EXPORT_FOLDER = "export"
# In an export.
SAVED_MODEL_FILE = "saved_model.pb"
DESCRIPTION_FILE = "translator.json"


def is_export(path):
    """Whether a folder (a `pathlib.Path`) is a SavedModel."""
    return (path / SAVED_MODEL_FILE).is_file()


def is_version_name(name):
    """Whether a folder's name is the number of a version, which TensorFlow Serving keeps in an int64."""
    return name.isascii() and name.isdigit() and len(name) < 19


def version_of(path):
    """The version that a folder's name says; 1 if the name is no number."""
    name = Path(path).name
    return int(name) if is_version_name(name) else 1


def exported_versions(directory):
    """Folders of the exports in a folder of numbered versions, by number; of an export, itself."""
    directory = Path(directory)
    if is_export(directory):
        return {version_of(directory): directory}
    try:
        folders = list(directory.iterdir())
    except OSError:
        return {}
    return {version_of(path): path for path in folders if is_version_name(path.name) and is_export(path)}


@contextlib.contextmanager
def replaced(path):
    """A temporary path beside `path`, to write a file or a folder to; on success it takes the place of `path` at once.

    A reader sees what was there or what is new, never a part, and neither a kill nor a loss of power leaves half of it:
    the content is on the disk before it is renamed. If the body fails, what was there stays. A folder takes the place
    of nothing or of an empty folder only.

    Args:
        path: a path, whose folder is made if it is not there. The temporary name keeps its ending.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".writing-{path.name}")
    _remove(temporary)  # of a process that was killed
    try:
        yield temporary
        for written in [*temporary.rglob("*"), temporary] if temporary.is_dir() else [temporary]:
            sync(written)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        _remove(temporary)


def write_text(path, text):
    """Replace the text of a file at once, see `replaced`."""
    with replaced(path) as temporary:
        temporary.write_text(text, "utf-8")


def sync(path):
    """Return when the content of a file, or the list of files of a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FolderLock:
    """Ownership of a folder, until it is released or the process ends, however it ends. Nothing is written for it.

    Args:
        path: a folder that exists.

    Raises:
        BlockingIOError: if another process owns it, or another lock of this process.
    """

    def __init__(self, path):
        self._descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise BlockingIOError(f"{path} belongs to another process that is at work in it") from None
        except OSError as error:  # file systems without locks
            warnings.warn(f"{path} cannot be locked against other processes: {error}", stacklevel=2)

    def release(self):
        """Give the folder up."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self):
        if getattr(self, "_descriptor", None) is not None:
            self.release()


def empty_folder(path):
    """Delete all that is in a folder."""
    for content in path.iterdir():
        _remove(content)


def _remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
