import re

import keras
import numpy as np
import pytest

from keras_transformer.training.fine_tuning import copy_weights, freeze
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.transformer import Transformer

INPUTS = {"source_ids": np.array([[5, 6, 3, 0], [7, 3, 0, 0]]), "target_ids": np.array([[2, 5, 6], [2, 7, 0]])}
LABELS = np.array([[5, 6, 3], [7, 3, 0]])


def transformer(**arguments):
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "num_heads": 2, "feed_forward_dim": 12}
    return Transformer(**{"source_vocabulary_size": 20, **sizes, "dropout": 0.1, **arguments})


def assert_equal(weights, others):
    for ours, theirs in zip(weights, others, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def state(model):
    """All that is no weight: seeds of dropout, the optimizer."""
    weights = {id(weight) for weight in model.weights}
    others = [variable for variable in model.variables if id(variable) not in weights]
    return [keras.ops.convert_to_numpy(variable) for variable in (*others, *model.optimizer.variables)]


def test_weights_are_copied_and_nothing_else():
    source, target = transformer(), transformer()
    for model in (source, target):
        model.compile(keras.optimizers.Adam(0.1), LabelSmoothedCrossEntropy())
    for _ in range(2):
        source.train_on_batch(INPUTS, LABELS)
    target.train_on_batch(INPUTS, LABELS)
    before = state(target)
    copy_weights(source, target)
    assert_equal(target.get_weights(), source.get_weights())
    assert_equal(state(target), before)
    assert int(target.optimizer.iterations) == 1


@pytest.mark.parametrize(
    "free",
    [
        *({"dropout": 0.3}, {"attention_dropout": 0.2, "activation_dropout": 0.1, "embedding_dropout": 0.0}),
        *({"name": "other"}, {"trainable": False}, {"key_dim": 4}, {"dtype": "mixed_bfloat16"}),
    ],
)
def test_what_may_differ(free):
    source, target = transformer(), transformer(**free)
    copy_weights(source, target)
    assert_equal(target.get_weights(), source.get_weights())


@pytest.mark.parametrize(
    ("there", "message"),
    [
        # What no shape of a weight tells.
        ({"num_heads": 4}, "num_heads is 4 there, 2 here"),
        ({"activation": "gelu"}, "activation is 'gelu' there, 'relu' here"),
        ({"norm_first": True, "layer_norm_epsilon": 1e-3}, "norm_first is True there, False here; layer_norm_epsilon"),
        # What shapes tell too, but less plainly.
        ({"num_encoder_layers": 2}, "num_encoder_layers is 2 there, 1 here"),
        ({"tying": "two-way"}, "tying is 'two-way' there, 'three-way' here"),
        ({"positions": "learned", "max_length": 9}, "positions is 'learned' there, 'sinusoidal' here; max_length is 9"),
    ],
)
def test_settings_that_differ_are_named(there, message):
    target = transformer()
    before = target.get_weights()
    with pytest.raises(ValueError, match="the trained model has other settings than this one: " + re.escape(message)):
        copy_weights(transformer(**there), target)
    assert_equal(target.get_weights(), before)


def test_weights_that_differ_are_named():
    message = r"query/kernel has shape \(8, 8\), there \(8, 12\)"
    with pytest.raises(ValueError, match=f"the trained model does not fit the model: .*{message}"):
        copy_weights(transformer(key_dim=6), transformer())
    dense = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3, name="dense")])
    message = r"31 weights there, 2 here; .*dense/kernel is only here; .*embeddings is only there; .*; and 26 more"
    with pytest.raises(ValueError, match=message):
        copy_weights(transformer(), dense)


def test_models_of_plain_keras():
    source, target = (keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3)]) for _ in range(2))
    assert source.layers[0].name != target.layers[0].name
    copy_weights(source, target)
    assert_equal(target.get_weights(), source.get_weights())


def test_frozen_weights_stay():
    model = transformer()
    frozen = freeze(model, ["encoder", "decoder/layer_0/feed_forward/"])
    assert frozen == sorted(
        weight.path
        for weight in model.weights
        if weight.path.startswith("encoder/") or weight.path.startswith("decoder/layer_0/feed_forward/")
    )
    assert len(frozen) > 10
    model.compile(keras.optimizers.Adam(0.1), LabelSmoothedCrossEntropy())
    before = dict(zip([weight.path for weight in model.weights], model.get_weights(), strict=True))
    model.fit(INPUTS, LABELS, epochs=2, verbose=0)
    for weight in model.weights:
        same = np.array_equal(weight, before[weight.path])
        assert same == (weight.path in frozen), weight.path


def test_a_prefix_ends_with_a_name():
    model = keras.Sequential(
        [keras.layers.Input((2,)), keras.layers.Dense(2, name="a_1"), keras.layers.Dense(2, name="a_10")]
    )
    start = model.weights[0].path.removesuffix("a_1/kernel")
    assert freeze(model, [start + "a_1"]) == [start + "a_1/bias", start + "a_1/kernel"]


def test_bad_prefixes():
    model = transformer()
    message = r"which begin with \['decoder', 'embedding', 'encoder'\]. Received: 'encode'"
    with pytest.raises(ValueError, match=message):
        freeze(model, ["encoder", "encode"])
    with pytest.raises(ValueError, match=r"`prefixes` must be a list of strings. Received: prefixes='encoder'"):
        freeze(model, "encoder")
    with pytest.raises(ValueError, match="must leave weights to train"):
        freeze(model, ["encoder", "decoder", "embedding"])
    assert len(model.trainable_weights) == len(model.weights)
