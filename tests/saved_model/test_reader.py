"""Exports read back: the model with the weights as stored, the tokenizer, and what is wrong with other folders."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.saved_model.reader import read_description, read_model, read_tokenizer
from keras_transformer.saved_model.writer import write_saved_model
from keras_transformer.translation.translator import Translator

SENTENCES = ["one two three", "five, 東京", ""]
TARGETS = ["eins zwei", "vier", "drei"]


@pytest.fixture
def changed(exported, tmp_path):
    """A copy of the export with another description, whose parts are given by name; None removes one."""

    def make(**changes):
        description = json.loads((exported / "translator.json").read_text("utf-8")) | changes
        for name in ("saved_model.pb", "variables"):
            (tmp_path / name).symlink_to(exported / name)
        known = {name: part for name, part in description.items() if part is not None}
        (tmp_path / "translator.json").write_text(json.dumps(known), "utf-8")
        return tmp_path

    return make


def config_of(exported):
    return json.loads((exported / "translator.json").read_text("utf-8"))["models"][0]["config"]


def test_the_model_and_the_tokenizer_are_those_that_were_exported(exported, untrained_translator):
    model, tokenizer = read_model(exported), read_tokenizer(exported)
    assert tokenizer.model == untrained_translator.tokenizer.model
    original = untrained_translator.model
    assert model.get_config() == original.get_config()
    assert [weight.path for weight in model.weights] == [weight.path for weight in original.weights]
    for ours, theirs in zip(model.get_weights(), original.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_smaller_weights_are_those_that_the_export_computes_with(untrained_translator, export_one, storage):
    path = export_one("score", storage)
    score = tf.saved_model.load(str(path)).signatures["score"]
    found = score(source=tf.constant(SENTENCES), target=tf.constant(TARGETS))
    model = read_model(path)
    expected = Translator(model, read_tokenizer(path)).score(SENTENCES, TARGETS)
    np.testing.assert_allclose(found["log_probability"], [one.log_probability for one in expected], rtol=1e-5)
    original = untrained_translator.model
    for ours, theirs in zip(model.weights, original.weights, strict=True):
        assert np.array_equal(ours, theirs) == (len(theirs.shape) < 2), theirs.path


def test_a_model_in_bfloat16(untrained_translator, tmp_path):
    config = {**untrained_translator.model.get_config(), "dtype": "bfloat16"}
    model = untrained_translator.model.from_config(config)
    model.set_weights(untrained_translator.model.get_weights())
    path = tmp_path / "1"
    write_saved_model(Translator(model, untrained_translator.tokenizer), path, signatures=["tokens"], warm_up=False)
    again = read_model(path)
    assert again.dtype_policy.name == "bfloat16"
    for ours, theirs in zip(again.weights, model.weights, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(keras.ops.cast(ours, "float32"), keras.ops.cast(theirs, "float32"))
    with pytest.raises(ValueError, match=r"must hold a tokenizer.*of the signature `tokens` alone"):
        read_tokenizer(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "must be an export of format 1. Received: format 2"),
        ({"format": None}, r"export the model again. Received: KeyError\('format'\)"),
        ({"models": None}, r"the configuration of the model.*export the model again. Received: KeyError\('models'\)"),
        ({"models": [{"num_parameters": 5}]}, r"export the model again. Received: KeyError\('config'\)"),
        ({"models": [{"config": {}}] * 3}, "must hold one model. Received: an ensemble of 3"),
    ],
)
def test_descriptions_of_no_use(changed, changes, message):
    path = changed(**changes)
    for read in (read_description, read_model):
        with pytest.raises(ValueError, match=f"{path} .*{message}"):
            read(path)


def test_an_export_from_elsewhere(tmp_path):
    for text in (None, "", "[]", "\xff"):
        if text is not None:
            (tmp_path / "translator.json").write_text(text, "latin-1")
        with pytest.raises(ValueError, match=f"{tmp_path} must hold a translator.json with"):
            read_model(tmp_path)
    saved = saved_model_pb2.SavedModel()
    saved.meta_graphs.add()
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pytest.raises(ValueError, match=f"{tmp_path} must hold a tokenizer"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 64}, "does not hold the weights of the model"),
        ({"num_encoder_layers": 2}, "does not hold the weights of the model"),
        ({"no_such_setting": 2}, "must hold a `Transformer`.*no_such_setting"),
        ({"num_heads": 5}, "must hold a `Transformer`.*divisible"),
    ],
)
def test_a_configuration_of_another_model(exported, changed, change, message):
    path = changed(models=[{"config": config_of(exported) | change}])
    with pytest.raises(ValueError, match=message):
        read_model(path)


def test_weights_that_are_not_there(changed):
    path = changed()
    (path / "variables").unlink()
    with pytest.raises(ValueError, match=f"{path} does not hold the weights of the model"):
        read_model(path)
