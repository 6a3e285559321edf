import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers import FeedForward, Residual

INPUTS = np.random.default_rng(5).normal(size=(2, 4, 6)).astype("float32")


def normalize(x, epsilon=1e-6):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


def test_post_norm_equals_the_paper():
    outputs = Residual(dropout=0.0)(INPUTS, sublayer=lambda x: 3 * x**2)
    np.testing.assert_allclose(outputs, normalize(INPUTS + 3 * INPUTS**2), rtol=1e-4, atol=1e-5)


def test_pre_norm_normalises_the_sublayers_input():
    outputs = Residual(norm_first=True)(INPUTS, sublayer=lambda x: 3 * x**2)
    np.testing.assert_allclose(outputs, INPUTS + 3 * normalize(INPUTS) ** 2, rtol=1e-4, atol=1e-4)


def test_post_norm_is_the_default():
    np.testing.assert_array_equal(
        Residual()(INPUTS, sublayer=tf.tanh), Residual(norm_first=False)(INPUTS, sublayer=tf.tanh)
    )


def test_epsilon_is_used():
    outputs = Residual(layer_norm_epsilon=0.5)(INPUTS, sublayer=tf.zeros_like)
    np.testing.assert_allclose(outputs, normalize(INPUTS, 0.5), rtol=1e-4, atol=1e-5)


def test_dropout_falls_on_the_sublayer_and_never_on_the_inputs():
    layer = Residual(dropout=0.5, norm_first=True)
    outputs = layer(INPUTS, sublayer=tf.ones_like, training=True).numpy()
    added = np.round(outputs - INPUTS, 4)
    assert set(np.unique(added)) == {0.0, 2.0}
    np.testing.assert_allclose(layer(INPUTS, sublayer=tf.ones_like), INPUTS + 1, rtol=1e-6)


@pytest.mark.parametrize("norm_first", [False, True])
def test_passes_the_rest_of_a_tuple_on(norm_first):
    layer = Residual(norm_first=norm_first)
    outputs, extra, other = layer(INPUTS, sublayer=lambda x: (x, {"a": 1}, "b"))
    assert (extra, other) == ({"a": 1}, "b")
    np.testing.assert_array_equal(outputs, layer(INPUTS, sublayer=lambda x: x))


def test_passes_an_implicit_mask_on():
    vectors = keras.layers.Embedding(9, 6, mask_zero=True)(np.array([[4, 5, 0]]))
    np.testing.assert_array_equal(Residual()(vectors, sublayer=tf.tanh)._keras_mask, [[True, True, False]])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(policy):
    layer = Residual(dtype=policy)
    outputs = layer(INPUTS, sublayer=tf.tanh, training=True)
    assert outputs.dtype == layer.compute_dtype
    assert all(weight.dtype == "float32" for weight in layer.trainable_variables)
    low = tf.cast(layer(INPUTS, sublayer=tf.tanh), "float32")
    np.testing.assert_allclose(low, Residual()(INPUTS, sublayer=tf.tanh), atol=3e-2)


def test_config_and_build_without_call():
    layer = Residual(dropout=0.3, norm_first=True, layer_norm_epsilon=1e-3, name="around")
    config = json.loads(json.dumps(layer.get_config()))
    copy = Residual.from_config(config)
    assert copy.get_config() == layer.get_config()
    copy.build((None, None, 6))
    assert [weight.path for weight in copy.trainable_variables] == ["around/norm/gamma", "around/norm/beta"]
    assert keras.saving.get_registered_object("keras_transformer>Residual") is Residual


def test_refuses_a_dropout_that_is_no_share():
    with pytest.raises(ValueError, match=r"`rate` must be in \[0, 1\)"):
        Residual(dropout=1.5)(INPUTS, sublayer=tf.tanh)


def test_life_with_a_sublayer_of_its_own(layer_life):
    def make(**arguments):
        return Residual(dropout=0.0, sublayer=FeedForward(8, **arguments), **arguments)

    layer_life(make, {"inputs": INPUTS})


def test_a_sublayer_of_its_own_is_trained_and_saved():
    inputs = keras.Input((4, 6))
    model = keras.Model(inputs, Residual(dropout=0.0, sublayer=FeedForward(8))(inputs))
    before = model.get_weights()
    model.compile("sgd", "mse")
    model.fit(INPUTS, INPUTS + 1, verbose=0)
    assert len(before) == 6
    assert all(np.any(one != two) for one, two in zip(before, model.get_weights(), strict=True))


def test_a_sublayer_that_keras_would_not_see_is_refused():
    layer, inputs = FeedForward(8), keras.Input((4, 6))
    for given, sublayer in ((INPUTS, layer), (inputs, layer), (inputs, lambda x: layer(x))):
        with pytest.raises(ValueError, match="neither trained nor saved"):
            Residual()(given, sublayer=sublayer)
    with pytest.raises(ValueError, match="`sublayer` must be given either"):
        Residual()(INPUTS)
    with pytest.raises(ValueError, match="`sublayer` must be given either"):
        Residual(sublayer=layer)(INPUTS, sublayer=tf.tanh)
