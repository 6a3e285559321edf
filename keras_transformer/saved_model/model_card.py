"""What an export says of itself, for programs (translator.json) and for people (README.md)."""

import dataclasses
from pathlib import PurePosixPath, PureWindowsPath

import keras_transformer

FORMAT = 1


def describe(translator, *, signatures, num_hypotheses, attention_layer, weights, training, evaluation):
    """Return the content of translator.json: see `write_saved_model`; without a word of where anything lay."""
    models = getattr(translator.model, "models", [translator.model])
    search = dataclasses.asdict(translator.search)
    return {
        "format": FORMAT,
        "package_version": keras_transformer.__version__,
        "signatures": list(signatures),
        "weights": weights,
        "search": {"kind": "greedy" if translator.search.beam_size == 1 else "beam", **search},
        "num_hypotheses": num_hypotheses,
        "attention_layer": attention_layer,
        "limits": {
            name: getattr(translator, name) for name in ("max_source_tokens", "max_extra_tokens", "max_target_tokens")
        },
        "tokenizer": {
            name: getattr(translator.tokenizer, name) for name in ("sha256", "vocabulary_size", "normalization")
        },
        "models": [{"num_parameters": model.count_params(), "config": model.get_config()} for model in models],
        "training": _without_places(training),
        "evaluation": _without_places(evaluation),
    }


def model_card(description):
    """Return the README.md of an export, from the content of translator.json."""
    search, limits = description["search"], description["limits"]
    size = sum(model["num_parameters"] for model in description["models"])
    members = f", an ensemble of {len(description['models'])}" if len(description["models"]) > 1 else ""
    training, evaluation = description["training"] or {}, description["evaluation"] or {}
    languages = [training.get(name) for name in ("source_language", "target_language")]
    title = " to ".join(languages) if all(languages) else "one language to another"
    found = "greedy search" if search["kind"] == "greedy" else f"beam search, beam {search['beam_size']}"
    rows = [
        ("Model", f"Transformer of {size:,} parameters{members}, stored as {description['weights']}"),
        ("Search", f"{found}, length penalty {search['length_penalty']}"),
        ("Longest source", f"{limits['max_source_tokens']} tokens; what is longer is cut, and `truncated` says so"),
        ("Longest translation", _longest(limits)),
        ("Tokenizer", f"SentencePiece, {description['tokenizer']['vocabulary_size']:,} pieces, inside the model"),
        ("Tokenizer SHA-256", f"`{description['tokenizer']['sha256']}`"),
        ("Written by", f"keras_transformer {description['package_version']}"),
    ]
    scores = [
        f"| {name} | {evaluation[name]:.2f} | `{evaluation.get(f'{name}_signature', '')}` |"
        for name in evaluation
        if isinstance(evaluation[name], float) and f"{name}_signature" in evaluation
    ]
    lines = [
        f"# Translation from {title}",
        "",
        "A TensorFlow SavedModel: text in, translations out, tokenizer inside. The folder is complete in itself.",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in rows),
        "",
        "Signatures: " + ", ".join(f"`{name}`" for name in description["signatures"]) + ".",
        "",
        "## Scores",
        "",
        *(["| score | value | signature |", "| --- | --- | --- |", *scores] if scores else ["Not measured."]),
        "",
        "## Limits",
        "",
        "A translation may be wrong, and may be fluent and wrong. The model knows no more than the text it was trained",
        "on, and translates a sentence at a time. `translator.json` holds the configuration of model and training.",
        "",
    ]
    return "\n".join(lines)


def _longest(limits):
    text = f"as many tokens as the source and {limits['max_extra_tokens']} more"
    if limits["max_target_tokens"] is not None:
        text += f", at most {limits['max_target_tokens']}"
    return text + "; `finished` is false where it was cut"


def _without_places(value):
    """Return the value with the names of files in place of absolute paths, as JSON has it."""
    if isinstance(value, dict):
        return {str(name): _without_places(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_places(part) for part in value]
    if isinstance(value, (type(None), bool, int, float)):
        return value
    for path in (PurePosixPath(str(value)), PureWindowsPath(str(value))):
        if path.is_absolute():
            return path.name
    return str(value)
