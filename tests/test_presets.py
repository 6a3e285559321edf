import inspect

import numpy as np
import pytest

from keras_transformer.layers import PositionalEmbedding, Residual
from keras_transformer.layers.encoder import TransformerLayer
from keras_transformer.parameter_count import count_parameters
from keras_transformer.presets import PRESETS, preset_arguments
from keras_transformer.transformer import Transformer

# Table 3 of the paper: millions of parameters by the formula for 37,000 tied ids, and as the paper prints them.
TABLE_3 = {
    "base": (63.05, 65),
    "table3-a-1": (63.05, None),
    "table3-a-4": (63.05, None),
    "table3-a-16": (63.05, None),
    "table3-a-32": (63.05, None),
    "table3-b-16": (55.97, 58),
    "table3-b-32": (58.33, 60),
    "table3-c-layers-2": (33.64, 36),
    "table3-c-layers-4": (48.35, 50),
    "table3-c-layers-8": (77.75, 80),
    "table3-c-width-256": (26.82, 28),
    "table3-c-width-1024": (163.82, 168),
    "table3-c-feed-forward-1024": (50.45, 53),
    "table3-c-feed-forward-4096": (88.24, 90),
    "table3-d-dropout-0": (63.05, None),
    "table3-d-dropout-2": (63.05, None),
    "table3-e-learned": (63.05 + 1024 * 512 / 1e6, None),
    "big": (214.17, 213),
}
SMALL = {"num_encoder_layers": 2, "num_decoder_layers": 3, "d_model": 8, "num_heads": 2, "feed_forward_dim": 12}


def count_weights(model):
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)


def default_of(function, name):
    return inspect.signature(function).parameters[name].default


@pytest.mark.parametrize("name", TABLE_3)
def test_parameters_of_table_3(name):
    formula, printed = TABLE_3[name]
    millions = count_parameters(37_000, **preset_arguments(name)) / 1e6
    assert millions == pytest.approx(formula, abs=0.0051)
    if printed is not None:  # the paper's own figures do not agree on one vocabulary
        assert millions == pytest.approx(printed, rel=0.07)


def test_every_row_of_table_3_is_a_preset():
    assert set(TABLE_3) == set(PRESETS) - {"tiny", "small"}


def test_the_base_model_parameter_by_parameter():
    attention = 4 * 512 * 512
    network = 512 * 2048 + 2048 + 2048 * 512 + 512
    encoder = 6 * (attention + network + 2 * 2 * 512)
    decoder = 6 * (2 * attention + network + 3 * 2 * 512)
    assert count_parameters(37_000) == encoder + decoder + 37_000 * 512 == 63_045_632


@pytest.mark.parametrize("name", ["base", "table3-b-16", "table3-c-width-256", "table3-e-learned", "tiny"])
def test_the_model_has_as_many_parameters(name):
    model = Transformer.from_preset(name, 50)
    assert count_weights(model) == count_parameters(50, **preset_arguments(name))


@pytest.mark.parametrize("tying", ["three-way", "two-way", "none"])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"norm_first": True, "use_attention_bias": True},
        {"positions": "learned", "max_length": 9},
        {"key_dim": 3, "value_dim": 5, "use_attention_bias": True},
        {"key_dim": 3},
    ],
)
def test_the_formula_for_every_tying(tying, arguments):
    target = 11 if tying == "three-way" else 17
    arguments = {**SMALL, **arguments, "tying": tying}
    assert count_weights(Transformer(11, target, **arguments)) == count_parameters(11, target, **arguments)


def test_defaults_are_the_papers_base_model():
    defaults = {
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "d_model": 512,
        "num_heads": 8,
        "feed_forward_dim": 2048,
        "activation": "relu",
        "dropout": 0.1,
        "norm_first": False,
        "use_attention_bias": False,
        "positions": "sinusoidal",
        "tying": "three-way",
    }
    for name, value in defaults.items():
        assert default_of(Transformer.__init__, name) == value, name
    big = {"d_model": 1024, "feed_forward_dim": 4096, "num_heads": 16, "dropout": 0.3}
    assert preset_arguments("big") == big


@pytest.mark.parametrize("function", [TransformerLayer.__init__, PositionalEmbedding.__init__, Residual.__init__])
def test_transformer_and_its_layers_have_one_default(function):
    shared = set(inspect.signature(Transformer.__init__).parameters) & set(inspect.signature(function).parameters)
    shared -= {"self", "kwargs", "num_heads", "feed_forward_dim"}
    assert shared
    for name in shared:
        assert default_of(Transformer.__init__, name) == default_of(function, name), name


def test_the_formula_has_the_defaults_of_the_transformer():
    arguments = {"num_encoder_layers": 6, "num_decoder_layers": 6, "d_model": 512, "num_heads": 8}
    assert count_parameters(100, **arguments, feed_forward_dim=2048, tying="three-way") == count_parameters(100)


def test_every_argument_of_a_preset_is_one_of_the_model():
    known = set(inspect.signature(Transformer.__init__).parameters)
    for name in PRESETS:
        assert set(preset_arguments(name)) <= known, name


def test_presets_name_only_departures():
    for name in PRESETS:
        for argument, value in preset_arguments(name).items():
            assert value != default_of(Transformer.__init__, argument), (name, argument)


def test_arguments_are_a_copy():
    preset_arguments("big")["d_model"] = 3
    assert preset_arguments("big")["d_model"] == 1024


def test_unknown_preset():
    with pytest.raises(ValueError, match=r"`name` must be one of tiny, small, base.*'huge'"):
        preset_arguments("huge")


def test_an_argument_the_model_does_not_have_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_layers'"):
        count_parameters(100, num_layers=2)
    assert count_parameters(100, dropout=0.5, dtype="mixed_float16") == count_parameters(100)
