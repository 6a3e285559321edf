"""The one door to a trained model, whatever it was saved as."""

import dataclasses
import json
import os
from pathlib import Path

import keras

from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.decoding import BeamSearch
from keras_transformer.files import (
    CHECKPOINTS_FOLDER,
    CONFIG_FILE,
    MODEL_FILE,
    TOKENIZER_FILE,
    exported_versions,
    is_export,
)
from keras_transformer.saved_model.reader import read_description, read_model, read_tokenizer
from keras_transformer.training.checkpoint_average import average_checkpoints, saved_config
from keras_transformer.training.checkpoint_records import path_of, read_records, regular_records
from keras_transformer.transformer import Transformer
from keras_transformer.translation.translator import Translator


class Pretrained:
    """A model that was trained before, and its tokenizer. Nothing large is read before it is asked for.

    Args:
        path: one of these, the first that fits:

            - an export, or a folder of numbered exports, of which the newest is taken;
            - a run directory with its `model.keras`, or such a file itself;
            - a run directory without one yet, or its folder of checkpoints, of which the newest is taken, or the path
              of one checkpoint, such as `run/checkpoints/ckpt-1000`.

    Attributes:
        path: the export, file or checkpoint that is read.
        storage: how its weights are stored: `"float32"`, or in an export also `"float16"` or `"int8"`, which round.

    Raises:
        FileNotFoundError: if there is nothing of the kind at `path`.
        ValueError: if an export does not say what its model is, or holds an ensemble.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = _find(Path(path))
        self.storage = read_description(self.path)["weights"] if is_export(self.path) else "float32"

    def load_model(self) -> Transformer:
        """The model with its trained weights, not compiled.

        Raises:
            ValueError: if the model of the export is no `Transformer`, or a checkpoint does not say what its model is.
        """
        if is_export(self.path):
            return read_model(self.path)
        if self.path.is_file():
            return keras.saving.load_model(self.path, compile=False)
        config = saved_config(self.path) or {}
        if "model" not in config:
            raise ValueError(
                f"{self.path} must be saved with `config={{'model': model.get_config()}}`; where it is not, "
                "`average_checkpoints` reads it into a model that you build. Received: a checkpoint without"
            )
        model = Transformer.from_config(config["model"])
        average_checkpoints([str(self.path)], model)
        return model

    def load_tokenizer(self) -> Tokenizer:
        """The tokenizer that the model was trained with.

        Raises:
            FileNotFoundError: if there is none where a run directory has it.
            ValueError: if the export has none.
        """
        if is_export(self.path):
            return read_tokenizer(self.path)
        path = self.run_directory / TOKENIZER_FILE
        if not path.is_file():
            raise FileNotFoundError(f"`directory` must hold {TOKENIZER_FILE}. Received: no file {path}")
        return Tokenizer.load(path)

    @property
    def run_directory(self) -> Path:
        """The folder of the run that the model belongs to; of an export, itself."""
        if is_export(self.path):
            return self.path
        return self.path.parent if self.path.is_file() else self.path.parent.parent

    def translation_arguments(self) -> dict:
        """How the model translates: the arguments of `Translator` that it was exported with, or that its run has.

        Returns:
            Mapping with `"search"` and limits; without what is not known, for which `Translator` has defaults.
        """
        if is_export(self.path):
            description = read_description(self.path)
            search = {name: value for name, value in description.get("search", {}).items() if name != "kind"}
            try:
                return {"search": BeamSearch(**search), **description.get("limits", {})}
            except TypeError as error:
                raise ValueError(f"{self.path} must tell a `BeamSearch`. Received: {search}: {error}") from error
        try:
            config = json.loads((self.run_directory / CONFIG_FILE).read_text("utf-8"))
        except FileNotFoundError:
            return {}
        search = {name: config[name] for name in ("beam_size", "length_penalty") if name in config}
        limits = {name: config[name] for name in ("max_extra_tokens",) if name in config}
        return {"search": BeamSearch(**search), **limits}

    def beam_search(self, **changes) -> BeamSearch:
        """The search that the model translates with, or a `BeamSearch()`, with those options changed that are not None.

        Args:
            changes: arguments of `BeamSearch`.

        Raises:
            ValueError: if an option is out of its range.
        """
        changes = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self.translation_arguments().get("search", BeamSearch()), **changes)


def load_translator(
    path: str | os.PathLike, *more: str | os.PathLike, translator_class: type[Translator] = Translator, **arguments
) -> Translator:
    """Make a `Translator` of what was trained; `Translator.load` is the same.

    Args:
        path: what `Pretrained` takes.
        more: further ones, for an ensemble.
        translator_class: `Translator`, or a subclass.
        arguments: of `Translator`, in place of those that the model, in an ensemble the first, was trained or exported
            with.

    Raises:
        FileNotFoundError: if there is nothing of the kind, or no tokenizer with it.
        ValueError: if the tokenizers of an ensemble differ; also as `Pretrained`.
    """
    found = [Pretrained(one) for one in (path, *more)]
    tokenizers = [one.load_tokenizer() for one in found]
    for one, tokenizer in zip(found, tokenizers, strict=True):
        if tokenizer.sha256 != tokenizers[0].sha256:
            raise ValueError(f"An ensemble needs one tokenizer. Received: another one in {one.run_directory}")
    arguments = {**found[0].translation_arguments(), **arguments}
    return translator_class([one.load_model() for one in found], tokenizers[0], **arguments)


def _find(path):
    versions = exported_versions(path)
    if versions:
        return versions[max(versions)]
    for file in (path / MODEL_FILE, path):
        if file.is_file():
            return file
    for folder in (path, path / CHECKPOINTS_FOLDER):
        records = regular_records(read_records(folder))
        if records:
            return Path(path_of(folder, records[-1]["step"]))
    if path.with_name(path.name + ".index").is_file():
        return path
    raise FileNotFoundError(
        f"`directory` must hold {MODEL_FILE} or a checkpoint: a trained model must be a run directory, a .keras file, "
        f"checkpoints or an export. Received: {str(path)!r}"
    )
