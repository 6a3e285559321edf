"""A translator as a TensorFlow SavedModel, for TensorFlow Serving and everything else that loads one."""

import json
from pathlib import Path

import tensorflow as tf

from keras_transformer.decoding import BeamSearch
from keras_transformer.files import DESCRIPTION_FILE, is_version_name, replaced
from keras_transformer.saved_model.model_card import describe, model_card
from keras_transformer.saved_model.signatures import Signatures
from keras_transformer.saved_model.stored_weights import StoredWeights
from keras_transformer.saved_model.warm_up import warm_up_requests, write_warm_up
from keras_transformer.translation.translator import Translator


def write_saved_model(
    translator: Translator,
    path: str | Path,
    *,
    signatures: list[str] | None = None,
    num_hypotheses: int | None = None,
    attention_layer: int = -2,
    weights: str = "float32",
    warm_up: bool = True,
    training: dict | None = None,
    evaluation: dict | None = None,
) -> None:
    """Write a TensorFlow SavedModel that translates strings by itself, tokenizer inside.

    A process that imports tensorflow and tensorflow_text can load it, as can TensorFlow Serving, whose loader wants a
    version number as the last part of `path` (see `next_version`). The folder is complete in itself and knows nothing
    of where it lies. Besides the model it holds `translator.json`, which describes it, the same as a page for people,
    `README.md`, and requests that warm a server up. `Signatures` says what each signature takes and returns.

    Args:
        translator: a `Translator`; its search must be a plain `BeamSearch`, and is that of the export.
        path: the folder to make. It appears whole or not at all.
        signatures: names of those to write. Defaults to all; `["tokens"]` alone, from ids to ids, leaves the tokenizer
            out, and with it all operations that are not TensorFlow's own.
        num_hypotheses: the most translations of `n_best`. Defaults to those of the search, or the beam if that is 1.
        attention_layer: decoder layer that `alignments` are made from, see `Translator.hypotheses`.
        weights: how they are stored, `"float32"`, `"float16"` or `"int8"`; see `StoredWeights`. The model computes in
            its own precision either way.
        warm_up: whether to write the requests.
        training, evaluation: mappings for the description, such as a recipe's configuration and results. Of absolute
            paths in them, only the last part is kept.

    Raises:
        FileExistsError: if `path` exists.
        ValueError: if the translator samples (an export is to give the same answer every time), or another argument is
            out of its range.
    """
    names, num_hypotheses = _names_and_number(translator.search, signatures, num_hypotheses)
    if Path(path).exists():
        raise FileExistsError(f"`path` must not exist yet. Received: {path}")
    description = describe(
        translator,
        signatures=names,
        num_hypotheses=num_hypotheses,
        attention_layer=attention_layer,
        weights=weights,
        training=training,
        evaluation=evaluation,
    )
    module, functions = _module(
        translator, Signatures(translator.pipeline, num_hypotheses, attention_layer), names, weights
    )
    with replaced(path) as folder:
        tf.saved_model.save(module, str(folder), signatures=functions)
        text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        (folder / DESCRIPTION_FILE).write_text(text, "utf-8")
        (folder / "README.md").write_text(model_card(description), "utf-8")
        if warm_up:
            inputs = {name: Signatures.INPUTS[name] for name in names}
            write_warm_up(folder, warm_up_requests(inputs, translator.tokenizer))


def next_version(directory: str | Path) -> Path:
    """Return the version folder to write next in a folder of versions: `directory`/1, then 2, ..."""
    directory = Path(directory)
    versions = [int(path.name) for path in directory.glob("*") if is_version_name(path.name)]
    return directory / str(max(versions, default=0) + 1)


def _names_and_number(search, signatures, num_hypotheses):
    """Return the names of the signatures to write and the number of hypotheses of `n_best`, or raise `ValueError`."""
    if type(search) is not BeamSearch:
        raise ValueError(f"`search` of an export must be a `BeamSearch`. Received: {search}")
    names = list(Signatures.INPUTS) if signatures is None else list(signatures)
    unknown = [name for name in names if name not in Signatures.INPUTS]
    if unknown or not names:
        raise ValueError(f"`signatures` must be some of {', '.join(Signatures.INPUTS)}. Received: {signatures}")
    if num_hypotheses is None:
        num_hypotheses = search.num_hypotheses if search.num_hypotheses > 1 else search.beam_size
    if not 1 <= num_hypotheses <= search.beam_size:
        raise ValueError(
            f"`num_hypotheses` must be positive and at most the beam size, {search.beam_size}. "
            f"Received: {num_hypotheses}"
        )
    return names, num_hypotheses


def _module(translator, signatures, names, weights):
    """Return what a SavedModel is written from: all that it must hold, and a traced function for each signature."""
    stored = StoredWeights(translator.model, weights)
    # Plain variables, never the Keras model: a SavedModel that tracks one loads in Python and fails in a server.
    module = tf.Module()
    module.weights = stored.parts
    if set(names) != {"tokens"}:
        module.tokenizer = translator.tokenizer.graph_tokenizer

    def trace(name):
        def run(**arguments):
            with stored.scope():
                return getattr(signatures, name)(**arguments)

        inputs = {
            argument: tf.TensorSpec(specification.shape, specification.dtype, name=argument)
            for argument, specification in Signatures.INPUTS[name].items()
        }
        return tf.function(run, autograph=False).get_concrete_function(**inputs)

    return module, {name: trace(name) for name in names}
