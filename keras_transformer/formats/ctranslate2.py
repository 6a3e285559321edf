"""Write a trained `Transformer` as a model directory of CTranslate2, https://opennmt.net/CTranslate2."""

import os
from pathlib import Path

import keras
import numpy as np
import sentencepiece

from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.files import TOKENIZER_FILE, replaced
from keras_transformer.layers.positional_embedding import sinusoidal_positions
from keras_transformer.transformer import Transformer
from keras_transformer.vocabulary import END_ID, START_ID, UNKNOWN_ID

# Keras's names, as a `Transformer`'s configuration has them, and the members of `ctranslate2.specs.Activation`.
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "tanh": "Tanh", "sigmoid": "Sigmoid"}


def write_ctranslate2(
    model: Transformer | str | Path,
    tokenizer: Tokenizer | None,
    directory: str | Path,
    *,
    quantization: str | None = None,
    max_length: int = 1024,
) -> None:
    """Write `model` for CTranslate2, which translates on CPUs and NVIDIA GPUs without TensorFlow.

    The directory holds CTranslate2's own files and the tokenizer, which the `sentencepiece` package reads alone:

        processor = sentencepiece.SentencePieceProcessor(model_file="served/tokenizer.model")
        translator = ctranslate2.Translator("served")
        results = translator.translate_batch(processor.encode(["One sentence."], out_type=str))
        processor.decode(results[0].hypotheses[0])

    The end mark of the source and the start of the target are added by CTranslate2. Its log-probabilities are the
    model's; its search has defaults of its own, among them a beam of 2, at least 1 and at most 256 target tokens.

    Args:
        model: a `Transformer` of any size, tying, norm position, positions, with or without attention biases; or the
            path of a trained one, anything that `Pretrained` takes.
        tokenizer: the `Tokenizer` the model was trained with; `None` for the one that is found with the path.
        directory: the folder to make. It appears whole or not at all.
        quantization: what the weights are stored as: `"int8"`, `"int8_float32"`, `"int8_float16"`,
            `"int8_bfloat16"`, `"int16"`, `"float16"`, `"bfloat16"` (needs PyTorch) or `"float32"`. Defaults to
            `None`, float32. CTranslate2 can also convert while it loads (its `compute_type`).
        max_length: number of sinusoidal positions to write, for both sides; CTranslate2 fails on longer rows. A model
            with learned positions brings its own number. Defaults to 1024, where CTranslate2 cuts its input.

    Raises:
        ImportError: if CTranslate2 is not installed.
        FileExistsError: if `directory` exists.
        FileNotFoundError: if nothing trained is at the path.
        ValueError: if the vocabularies do not fit each other, or if CTranslate2 has no `activation` like the model's
            or cannot have its `key_dim` and `value_dim`, which must be equal.
    """
    specs = _import_specs()
    directory = Path(directory)
    if directory.exists() or directory.is_symlink():
        raise FileExistsError(f"`directory` must not exist yet. Received: {directory}")
    quantizations = specs.model_spec.ACCEPTED_MODEL_TYPES
    if quantization is not None and quantization not in quantizations:
        raise ValueError(f"`quantization` must be None or one of {quantizations}. Received: {quantization!r}")
    if max_length < 1:
        raise ValueError(f"`max_length` must be positive. Received: {max_length}")
    model, tokenizer = _loaded(model, tokenizer)
    config = model.get_config()
    spec = _empty_spec(specs, config)
    _fill_spec(spec, model, config, max_length)
    _set_vocabularies(spec, tokenizer, config)
    spec.config.layer_norm_epsilon = config["layer_norm_epsilon"]
    spec.validate()
    spec.optimize(quantization=quantization)

    with replaced(directory) as folder:
        folder.mkdir()
        spec.save(str(folder))
        tokenizer.save(folder / TOKENIZER_FILE)


def _loaded(model, tokenizer):
    if not isinstance(model, (str, os.PathLike)):
        return model, tokenizer
    from keras_transformer.pretrained import Pretrained

    pretrained = Pretrained(model)
    return pretrained.load_model(), tokenizer or pretrained.load_tokenizer()


def _import_specs():
    try:
        import ctranslate2.specs
    except ImportError as error:
        raise ImportError(
            "`write_ctranslate2` needs CTranslate2: pip install 'keras-transformer-translation[ctranslate2]'"
        ) from error
    return ctranslate2.specs


def _empty_spec(specs, config):
    """Return the `TransformerSpec` of the model's shape, or raise an error for what CTranslate2 has not."""
    activation = config["activation"]
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ValueError(f"CTranslate2 has only the activations {tuple(ACTIVATIONS)}. Received: {activation!r}")
    key_dim = config["key_dim"] or config["d_model"] // config["num_heads"]
    value_dim = config["value_dim"] or key_dim
    if key_dim != value_dim:
        raise ValueError(
            "CTranslate2 has one width for keys and values, so `key_dim` and `value_dim` must be equal. "
            f"Received: key_dim={key_dim}, value_dim={value_dim}"
        )
    arguments = {
        "num_heads": config["num_heads"],
        "pre_norm": config["norm_first"],
        "activation": specs.Activation[ACTIVATIONS[activation]],
        "head_dim": key_dim,
    }
    return specs.TransformerSpec(
        specs.TransformerEncoderSpec(config["num_encoder_layers"], **arguments),
        specs.TransformerDecoderSpec(config["num_decoder_layers"], **arguments),
    )


def _fill_spec(spec, model, config, max_length):
    encoder, decoder = spec.encoder, spec.decoder
    encoder.embeddings[0].weight = _array(model.source_embedding.embeddings)
    decoder.embeddings.weight = _array(model.target_embedding.embeddings)
    if model.output_dense is None:
        decoder.projection.weight = decoder.embeddings.weight
    else:
        _set_linear(decoder.projection, model.output_dense)

    if config["positions"] == "learned":
        encoder.position_encodings.encodings = _array(model.source_embedding.position_embeddings)
        decoder.position_encodings.encodings = _array(model.target_embedding.position_embeddings)
    else:
        table = _array(sinusoidal_positions(np.arange(max_length, dtype="int32"), config["d_model"]))
        encoder.position_encodings.encodings = decoder.position_encodings.encodings = table

    for layer_spec, layer in zip(encoder.layer, model.encoder.layers, strict=True):
        _set_self_attention(layer_spec.self_attention, layer.self_attention, layer.self_attention_residual)
        _set_feed_forward(layer_spec.ffn, layer)
    for layer_spec, layer in zip(decoder.layer, model.decoder.layers, strict=True):
        _set_self_attention(layer_spec.self_attention, layer.self_attention, layer.self_attention_residual)
        _set_cross_attention(layer_spec.attention, layer.cross_attention, layer.cross_attention_residual)
        _set_feed_forward(layer_spec.ffn, layer)
    if config["norm_first"]:
        _set_norm(encoder.layer_norm, model.encoder.final_norm)
        _set_norm(decoder.layer_norm, model.decoder.final_norm)


def _set_vocabularies(spec, tokenizer, config):
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    pieces = [processor.IdToPiece(index) for index in range(processor.GetPieceSize())]
    for name, register in (
        ("source_vocabulary_size", spec.register_source_vocabulary),
        ("target_vocabulary_size", spec.register_target_vocabulary),
    ):
        if config[name] < len(pieces):
            raise ValueError(
                f"The model's `{name}` must be at least the number of pieces of `tokenizer`. "
                f"Received: {name}={config[name]}, {len(pieces)} pieces"
            )
        register(_fill_up(pieces, config[name]))
    spec.config.unk_token = pieces[UNKNOWN_ID]
    spec.config.bos_token = spec.config.decoder_start_token = pieces[START_ID]
    spec.config.eos_token = pieces[END_ID]
    spec.config.add_source_eos = True


def _fill_up(pieces, size):
    """Return pieces up to `size`: ids that the tokenizer never makes get names that no piece has."""
    taken = set(pieces)
    names = list(pieces)
    for index in range(len(pieces), size):
        name = f"<unused_{index}>"
        while name in taken:
            name += "_"
        names.append(name)
    return names


def _set_self_attention(spec, attention, residual):
    _set_linear(spec.linear[0], attention.query_projection, attention.key_projection, attention.value_projection)
    _set_linear(spec.linear[1], attention.output_projection)
    _set_norm(spec.layer_norm, residual.norm)


def _set_cross_attention(spec, attention, residual):
    _set_linear(spec.linear[0], attention.query_projection)
    _set_linear(spec.linear[1], attention.key_projection, attention.value_projection)
    _set_linear(spec.linear[2], attention.output_projection)
    _set_norm(spec.layer_norm, residual.norm)


def _set_feed_forward(spec, layer):
    _set_linear(spec.linear_0, layer.feed_forward.hidden_dense)
    _set_linear(spec.linear_1, layer.feed_forward.output_dense)
    _set_norm(spec.layer_norm, layer.feed_forward_residual.norm)


def _set_linear(spec, *denses):
    """Set one map of CTranslate2, whose weights are [outputs, inputs], to one of ours or several side by side."""
    spec.weight = np.concatenate([_array(dense.kernel).T for dense in denses])
    if denses[0].use_bias:
        spec.bias = np.concatenate([_array(dense.bias) for dense in denses])


def _set_norm(spec, norm):
    spec.gamma = _array(norm.gamma)
    spec.beta = _array(norm.beta)


def _array(tensor):
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))
