"""The paper's model sizes (Table 3).

A preset names only where it departs from the base model, whose values are the defaults of `Transformer`.
"""

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
