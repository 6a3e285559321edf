"""A trained model found and read, whatever it was saved as."""

import io
import json
import shutil
import sys

import keras
import numpy as np
import pytest

from keras_transformer.commands.translate import Translate
from keras_transformer.decoding import BeamSearch
from keras_transformer.pretrained import Pretrained
from keras_transformer.runs.checkpoints import Checkpoints
from keras_transformer.saved_model.writer import write_saved_model
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.translation.translator import Translator

INPUTS = {"source_ids": np.array([[5, 6, 3, 0], [7, 3, 0, 0]]), "target_ids": np.array([[2, 5, 6], [2, 7, 0]])}
LABELS = np.array([[5, 6, 3], [7, 3, 0]])


@pytest.fixture(scope="module")
def trained(untrained_translator, tmp_path_factory):
    """A run directory, and the weights of its checkpoints by step and of its model, which differ."""
    run = tmp_path_factory.mktemp("run")
    model = untrained_translator.model.from_config(untrained_translator.model.get_config())
    model.compile(keras.optimizers.Adam(0.1), LabelSmoothedCrossEntropy())
    checkpoints = Checkpoints(run / "checkpoints", model, config={"model": model.get_config(), "data": {}})
    weights = {}
    for step in (1, 2, 3):
        model.train_on_batch(INPUTS, LABELS)
        checkpoints.save(temporary=step == 3)  # as a signal leaves it: only to resume from
        weights[step] = model.get_weights()
    model.train_on_batch(INPUTS, LABELS)
    model.save(run / "model.keras")
    untrained_translator.tokenizer.save(run / "tokenizer.model")
    return run, weights, model.get_weights()


def check(found, path, model, weights, tokenizer):
    assert found.path == path
    assert found.storage == "float32"
    assert found.load_tokenizer().model == tokenizer.model
    loaded = found.load_model()
    assert loaded.get_config() == model.get_config()
    for ours, theirs in zip(loaded.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_run_directories_files_and_checkpoints(trained, untrained_translator, tmp_path):
    run, saved, final = trained
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    for name in ("checkpoints", "tokenizer.model"):
        (unfinished / name).symlink_to(run / name)
    for source, path, weights in (
        (run, run / "model.keras", final),
        (str(run / "model.keras"), run / "model.keras", final),
        (run / "checkpoints", run / "checkpoints" / "ckpt-2", saved[2]),
        (str(run / "checkpoints" / "ckpt-1"), run / "checkpoints" / "ckpt-1", saved[1]),
        (unfinished, unfinished / "checkpoints" / "ckpt-2", saved[2]),
    ):
        check(Pretrained(source), path, untrained_translator.model, weights, untrained_translator.tokenizer)


def test_exports(exported, untrained_translator, tmp_path):
    weights = untrained_translator.model.get_weights()
    for source in (exported, str(exported.parent)):
        check(Pretrained(source), exported, untrained_translator.model, weights, untrained_translator.tokenizer)
    for version, storage in (("8", "float16"), ("10", "int8"), ("9", "float32")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").write_bytes(b"")
        description = json.loads((exported / "translator.json").read_text("utf-8")) | {"weights": storage}
        (tmp_path / version / "translator.json").write_text(json.dumps(description), "utf-8")
    newest = Pretrained(tmp_path)
    assert (newest.path, newest.storage) == (tmp_path / "10", "int8")
    (tmp_path / "10" / "translator.json").unlink()
    with pytest.raises(ValueError, match=f"{tmp_path / '10'} must hold a translator.json"):
        Pretrained(tmp_path)


def test_nothing_there(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for source in (tmp_path, tmp_path / "missing", tmp_path / "checkpoints" / "ckpt-1"):
        with pytest.raises(FileNotFoundError, match=f"must be a run directory, .* or an export. Received: '{source}'"):
            Pretrained(source)


def test_a_tokenizer_that_is_not_there(trained, tmp_path):
    run, _, _ = trained
    (tmp_path / "model.keras").symlink_to(run / "model.keras")
    with pytest.raises(FileNotFoundError, match=f"{tmp_path / 'tokenizer.model'}"):
        Pretrained(tmp_path).load_tokenizer()


@pytest.mark.parametrize("config", [None, {"data": 1}, "none at all"])
def test_checkpoints_that_do_not_say_what_their_model_is(trained, tmp_path, config):
    run, _, _ = trained
    shutil.copytree(run / "checkpoints", tmp_path / "checkpoints")
    path = tmp_path / "checkpoints" / "description.json"
    if config == "none at all":
        path.unlink()
    else:
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"config": config}), "utf-8")
    with pytest.raises(ValueError, match=r"ckpt-2 must be saved with `config=\{'model': model.get_config\(\)\}`"):
        Pretrained(tmp_path).load_model()


@pytest.fixture(scope="module")
def things(untrained_translator, tmp_path_factory):
    """One model as everything that it may have been saved as, by the kind of thing."""
    run = tmp_path_factory.mktemp("things") / "run"
    model = untrained_translator.model
    tokenizer = untrained_translator.tokenizer
    untrained_translator.save(run)
    search = BeamSearch(beam_size=2, length_penalty=1.0)
    translator = Translator(model, tokenizer, search=search, max_extra_tokens=3, max_source_tokens=40)
    write_saved_model(translator, run / "export" / "1", warm_up=False)
    config = {"beam_size": 2, "length_penalty": 1.0, "max_extra_tokens": 3, "source_language": "en"}
    (run / "config.json").write_text(json.dumps(config), "utf-8")
    under_way = run.with_name("under_way")
    copy = model.from_config(model.get_config())
    copy.set_weights(model.get_weights())
    copy.compile("sgd", LabelSmoothedCrossEntropy())
    Checkpoints(under_way / "checkpoints", copy, config={"model": model.get_config()}).save()
    tokenizer.save(under_way / "tokenizer.model")
    shutil.copy(run / "config.json", under_way)
    return {
        "a run": run,
        "a .keras file": run / "model.keras",
        "versions": run / "export",
        "an export": run / "export" / "1",
        "a run under way": under_way,
        "checkpoints": under_way / "checkpoints",
        "a checkpoint": under_way / "checkpoints" / "ckpt-0",
    }


KINDS = ["a run", "a .keras file", "versions", "an export", "a run under way", "checkpoints", "a checkpoint"]
SENTENCES = ["one two", "", "three four five"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_loaded_and_translates_as_it_was_trained_or_exported_to(kind, things, untrained_translator):
    search = BeamSearch(beam_size=2, length_penalty=1.0)
    expected = Translator(
        untrained_translator.model, untrained_translator.tokenizer, search=search, max_extra_tokens=3
    ).translate(SENTENCES)
    translator = Translator.load(things[kind])
    assert (translator.search, translator.max_extra_tokens) == (search, 3)
    assert translator.translate(SENTENCES) == expected
    assert Translator.load(str(things[kind]), max_extra_tokens=1).max_extra_tokens == 1
    assert translator.max_source_tokens == (40 if "export" in kind or kind == "versions" else 1024)


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_translates_with_every_kind(kind, things, untrained_translator, monkeypatch):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join([*SENTENCES, ""]).encode())))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output))
    searches, hypotheses = [], Translator.hypotheses

    def watched(translator, *given, **named):
        searches.append(translator.search)
        return hypotheses(translator, *given, **named)

    command = Translate(model=(things[kind],))
    with monkeypatch.context() as patch:
        patch.setattr(Translator, "hypotheses", watched)
        command.run(*command.load())
    # An export runs its own graph.
    assert searches == ([] if "export" in kind or kind == "versions" else [BeamSearch(beam_size=2, length_penalty=1.0)])
    assert output.getvalue().decode().splitlines() == Translator.load(things[kind]).translate(SENTENCES)


def test_kinds_make_an_ensemble(things):
    search = BeamSearch(beam_size=2, length_penalty=1.0)
    alone = Translator.load(things["a run"])
    both = Translator.load(things["a run under way"], things["an export"], search=search, max_extra_tokens=3)
    assert len(both.model.models) == 2
    translating_as_the_first = Translator.load(things["an export"], things["a run under way"])
    assert (translating_as_the_first.search, translating_as_the_first.max_extra_tokens) == (search, 3)
    assert translating_as_the_first.max_source_tokens == 40
    found = Pretrained(things["a run"]).beam_search(beam_size=3, length_penalty=None)
    assert found == BeamSearch(beam_size=3, length_penalty=1.0)
    assert both.translate(SENTENCES) == alone.translate(SENTENCES)


def test_a_subclass_loads_itself_and_a_search_that_is_none_is_refused(things, tmp_path):
    class Own(Translator):
        pass

    assert type(Own.load(things["a run"])) is Own
    export = tmp_path / "1"
    shutil.copytree(things["an export"], export)
    description = json.loads((export / "translator.json").read_text("utf-8"))
    description["search"]["depth"] = 3
    (export / "translator.json").write_text(json.dumps(description), "utf-8")
    with pytest.raises(ValueError, match=r"must tell a `BeamSearch`\. Received: .*depth"):
        Pretrained(export).translation_arguments()
