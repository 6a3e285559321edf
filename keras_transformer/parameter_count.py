"""What a size costs, by formula."""

import inspect

from keras_transformer.transformer import Transformer


def count_parameters(source_vocabulary_size: int, target_vocabulary_size: int | None = None, **arguments) -> int:
    """Return the number of trained parameters of a `Transformer`, from the formula and not from a model.

    Args:
        source_vocabulary_size, target_vocabulary_size, arguments: those of `Transformer`, with its defaults; those that
            change no count make no difference.

    Raises:
        TypeError: if `Transformer` has no such argument.
    """
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
