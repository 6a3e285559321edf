"""What an earlier version has written is read as it was meant: a run, its checkpoints, its `.keras` file, its export.

`written_by_earlier_versions/066854b.tar.xz` holds a small run of that version (600 steps on the built-in corpus) and,
in `expected.json`, what that version translated with each part of it.
"""

import json
import tarfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401 - registers the tokenizer's operations

from keras_transformer import BeamSearch, Translator

ARCHIVE = Path(__file__).with_name("written_by_earlier_versions") / "066854b.tar.xz"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of the run, and what its version made of it."""
    directory = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory / "run", json.loads((directory / "expected.json").read_text("utf-8"))


def test_a_finished_run(written):
    run, expected = written
    translator = Translator.load(run, max_extra_tokens=8)
    search = BeamSearch(num_hypotheses=2)
    found = translator.hypotheses(expected["sentences"], search=search, return_alignments=True)
    for hypotheses, rows in zip(found, expected["beam"], strict=True):
        assert [one.text for one in hypotheses] == [text for text, _, _ in rows]
        assert [[list(pair) for pair in one.alignment or ()] for one in hypotheses] == [pairs for _, _, pairs in rows]
        np.testing.assert_allclose([one.score for one in hypotheses], [score for _, score, _ in rows], atol=2e-5)
    assert translator.translate(expected["sentences"], search=BeamSearch(beam_size=1)) == expected["greedy"]


def test_its_keras_file(written):
    run, expected = written
    model = keras.saving.load_model(run / "model.keras", safe_mode=True)
    translator = Translator.load(run, max_extra_tokens=8)
    assert Translator(model, translator.tokenizer, max_extra_tokens=8).translate(expected["sentences"]) == [
        rows[0][0] for rows in expected["beam"]
    ]


def test_its_checkpoints(written, tmp_path):
    run, expected = written
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    for name in ("checkpoints", "tokenizer.model", "config.json"):
        (unfinished / name).symlink_to(run / name)
    for path in (run / "checkpoints", unfinished):
        translator = Translator.load(path, max_extra_tokens=8)
        assert translator.translate(expected["sentences"]) == expected["checkpoint"]


def test_its_export(written):
    run, expected = written
    serve = tf.saved_model.load(run / "export/1").signatures["serving_default"]
    translations = serve(text=tf.constant(expected["sentences"]))["translation"]
    assert [text.decode("utf-8") for text in translations.numpy()] == expected["export"]
    for path in (run / "export", run / "export/1"):
        translator = Translator.load(path, max_extra_tokens=8)
        assert translator.translate(expected["sentences"]) == expected["export_model"]
