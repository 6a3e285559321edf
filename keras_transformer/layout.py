"""Where things lie: the names of the files and folders that run directories and exports are made of."""

from pathlib import Path

# In a run directory.
MODEL_FILE = "model.keras"
TOKENIZER_FILE = "tokenizer.model"
CHECKPOINTS_FOLDER = "checkpoints"
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
