"""Reading an export back: the model and the tokenizer that it was written from."""

import json
from pathlib import Path

from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.files import DESCRIPTION_FILE, SAVED_MODEL_FILE
from keras_transformer.saved_model.model_card import FORMAT
from keras_transformer.saved_model.stored_weights import StoredWeights
from keras_transformer.transformer import Transformer


def read_description(path):
    """The content of `translator.json`, of an export whose model can be read back.

    Raises:
        ValueError: if it is not there, has another format, or does not have the configuration of one model.
    """
    try:
        description = json.loads((Path(path) / DESCRIPTION_FILE).read_text("utf-8"))
        known_format, configs = description["format"] == FORMAT, [one["config"] for one in description["models"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path} must hold a {DESCRIPTION_FILE} with the format and the configuration of the model, as "
            f"`write_saved_model` of this version writes it; export the model again. Received: {error!r}"
        ) from error
    if not known_format:
        raise ValueError(f"{path} must be an export of format {FORMAT}. Received: format {description['format']!r}")
    if len(configs) != 1:
        raise ValueError(f"{path} must hold one model. Received: an ensemble of {len(configs)}")
    return description


def read_model(path):
    """The `Transformer` that an export was written from, with its weights as they are stored: rounded if not float32.

    Args:
        path: folder that `write_saved_model` wrote.

    Raises:
        ValueError: as `read_description`; also if the model is no `Transformer`, or the weights are not its own.
    """
    description = read_description(path)
    config = description["models"][0]["config"]
    try:
        model = Transformer.from_config(config)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} must hold a `Transformer`. Received: its configuration {config}: {error}") from error
    StoredWeights(model, description["weights"]).load(path)
    return model


def read_tokenizer(path):
    """The `Tokenizer` inside of an export; it is taken out of the graph, which is not loaded.

    Raises:
        ValueError: if there is none, as in an export of the signature `tokens` alone.
    """
    saved = saved_model_pb2.SavedModel.FromString((Path(path) / SAVED_MODEL_FILE).read_bytes())
    for node in saved.meta_graphs[0].graph_def.node:
        if node.op == "SentencepieceOp":
            return Tokenizer(node.attr["model"].s)
    raise ValueError(f"{path} must hold a tokenizer. Received: an export without one, of the signature `tokens` alone")
