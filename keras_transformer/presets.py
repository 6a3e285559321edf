"""The paper's model sizes (Table 3) and what a size costs, by formula.

A preset names only where it departs from the base model, whose values are the defaults of `Transformer`.
"""

import inspect

# Sizes for `Transformer`, by name. "tiny" and "small" are ours, for laptops and tests of speed; the rest is Table 3.
PRESETS = {
    "tiny": {
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "d_model": 128,
        "num_heads": 4,
        "feed_forward_dim": 256,
    },
    "small": {"d_model": 256, "num_heads": 4, "feed_forward_dim": 1024},
    "base": {},
    "big": {"d_model": 1024, "num_heads": 16, "feed_forward_dim": 4096, "dropout": 0.3},
    "table3-a-1": {"num_heads": 1},
    "table3-a-4": {"num_heads": 4},
    "table3-a-16": {"num_heads": 16},
    "table3-a-32": {"num_heads": 32},
    "table3-b-16": {"key_dim": 16, "value_dim": 64},
    "table3-b-32": {"key_dim": 32, "value_dim": 64},
    "table3-c-layers-2": {"num_encoder_layers": 2, "num_decoder_layers": 2},
    "table3-c-layers-4": {"num_encoder_layers": 4, "num_decoder_layers": 4},
    "table3-c-layers-8": {"num_encoder_layers": 8, "num_decoder_layers": 8},
    "table3-c-width-256": {"d_model": 256},
    "table3-c-width-1024": {"d_model": 1024},
    "table3-c-feed-forward-1024": {"feed_forward_dim": 1024},
    "table3-c-feed-forward-4096": {"feed_forward_dim": 4096},
    "table3-d-dropout-0": {"dropout": 0.0},
    "table3-d-dropout-2": {"dropout": 0.2},
    "table3-e-learned": {"positions": "learned", "max_length": 1024},
}


def preset_arguments(name):
    """The `Transformer` arguments of a preset.

    Raises:
        ValueError: if there is no preset of that name.
    """
    if name not in PRESETS:
        raise ValueError(f"`name` must be one of {', '.join(PRESETS)}. Received: name={name!r}")
    return dict(PRESETS[name])


def count_parameters(source_vocabulary_size: int, target_vocabulary_size: int | None = None, **arguments) -> int:
    """Return the number of trained parameters of a `Transformer`, from the formula and not from a model.

    Args:
        source_vocabulary_size, target_vocabulary_size, arguments: those of `Transformer`, with its defaults; those that
            change no count make no difference.

    Raises:
        TypeError: if `Transformer` has no such argument.
    """
    from keras_transformer.transformer import Transformer

    given = inspect.signature(Transformer).bind(source_vocabulary_size, target_vocabulary_size, **arguments)
    given.apply_defaults()
    config = given.arguments
    source_vocabulary_size, d_model, num_heads = (
        config[name] for name in ("source_vocabulary_size", "d_model", "num_heads")
    )
    target_vocabulary_size = config["target_vocabulary_size"] or source_vocabulary_size
    key_dim = config["key_dim"] or d_model // num_heads
    value_dim = config["value_dim"] or key_dim
    attention = 2 * d_model * num_heads * key_dim + 2 * d_model * num_heads * value_dim
    if config["use_attention_bias"]:
        attention += 2 * num_heads * key_dim + num_heads * value_dim + d_model
    feed_forward = 2 * d_model * config["feed_forward_dim"] + config["feed_forward_dim"] + d_model
    norm = 2 * d_model
    encoder = config["num_encoder_layers"] * (attention + feed_forward + 2 * norm)
    decoder = config["num_decoder_layers"] * (2 * attention + feed_forward + 3 * norm)
    final_norms = 2 * norm if config["norm_first"] else 0
    rows = {
        "three-way": source_vocabulary_size,
        "two-way": source_vocabulary_size + target_vocabulary_size,
        "none": source_vocabulary_size + 2 * target_vocabulary_size,
    }[config["tying"]]
    tables = 0
    if config["positions"] == "learned":
        tables = (1 if config["tying"] == "three-way" else 2) * config["max_length"] * d_model
    return encoder + decoder + final_norms + rows * d_model + tables
