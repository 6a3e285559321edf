"""The export script."""

import importlib.util
from pathlib import Path

import pytest
import tensorflow as tf

from keras_transformer.translator import Translator

SCRIPT = Path(__file__).parents[2] / "export" / "export_saved_model.py"


@pytest.fixture(scope="module")
def script():
    specification = importlib.util.spec_from_file_location("export_saved_model", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_writes_the_next_version(script, untrained_translator, tmp_path):
    untrained_translator.save(tmp_path / "run")
    first = script.export_saved_model(tmp_path / "run", tmp_path / "served" / "en-de", max_extra_tokens=4)
    second = script.export_saved_model(tmp_path / "run", tmp_path / "served" / "en-de", max_extra_tokens=2)
    assert [path.name for path in (first, second)] == ["1", "2"]
    assert sorted(path.name for path in first.parent.iterdir()) == ["1", "2"]
    serve = tf.saved_model.load(str(second)).signatures["serving_default"]
    expected = Translator.load(tmp_path / "run", max_extra_tokens=2).translate(["one two", "five"])
    served = serve(text=tf.constant(["one two", "five"]))["translation"].numpy()
    assert [translation.decode("utf-8") for translation in served] == expected


def test_a_folder_without_a_run_is_refused(script, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`directory` must hold model\.keras"):
        script.export_saved_model(tmp_path, tmp_path / "served")
