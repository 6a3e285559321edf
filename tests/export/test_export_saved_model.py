"""The export script."""

import importlib.util
import json
from pathlib import Path

import pytest
import tensorflow as tf

from keras_transformer.decoding import BeamSearch
from keras_transformer.translation.translator import Translator

SCRIPT = Path(__file__).parents[2] / "export" / "export_saved_model.py"


@pytest.fixture(scope="module")
def script():
    specification = importlib.util.spec_from_file_location("export_saved_model", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_writes_the_next_version(script, untrained_translator, tmp_path):
    run, served = tmp_path / "run", tmp_path / "served" / "en-de"
    untrained_translator.save(run)
    (run / "config.json").write_text('{"source": "/some/where/train.en", "preset": "tiny"}', "utf-8")
    (run / "results.json").write_text('{"test_bleu": 1.5, "test_bleu_signature": "x", "export": "/else"}', "utf-8")
    first = script.export_saved_model((run,), served, max_extra_tokens=4, signatures=("serving_default",))
    second = script.export_saved_model(
        (run,), served, max_extra_tokens=2, signatures=("serving_default",), beam_size=2, weights="float16"
    )
    assert [path.name for path in (first, second)] == ["1", "2"]
    assert sorted(path.name for path in first.parent.iterdir()) == ["1", "2"]
    for path, search, limit in ((first, BeamSearch(), 4), (second, BeamSearch(beam_size=2), 2)):
        serve = tf.saved_model.load(str(path)).signatures["serving_default"]
        expected = Translator.load(run, search=search, max_extra_tokens=limit).translate(["one two", "five"])
        served = serve(text=tf.constant(["one two", "five"]))["translation"].numpy()
        assert [translation.decode("utf-8") for translation in served] == expected
    description = json.loads((second / "translator.json").read_text("utf-8"))
    assert (description["search"]["beam_size"], description["weights"]) == (2, "float16")
    assert description["training"] == {"source": "train.en", "preset": "tiny"}
    assert description["evaluation"] == {"test_bleu": 1.5, "test_bleu_signature": "x"}


def test_several_runs_make_an_ensemble(script, untrained_translator, tmp_path):
    for run in ("one", "two"):
        untrained_translator.save(tmp_path / run)
    (tmp_path / "one" / "results.json").write_text('{"test_bleu": 1.5}', "utf-8")
    path = script.export_saved_model((tmp_path / "one", tmp_path / "two"), tmp_path / "served", signatures=("tokens",))
    description = json.loads((path / "translator.json").read_text("utf-8"))
    assert len(description["models"]) == 2
    assert description["evaluation"] is None


def test_a_folder_without_a_run_is_refused(script, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`directory` must hold model\.keras"):
        script.export_saved_model((tmp_path,), tmp_path / "served")
