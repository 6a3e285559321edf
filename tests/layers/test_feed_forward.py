import keras
import numpy as np
import pytest

from keras_transformer.layers import FeedForward

INPUTS = np.random.default_rng(4).normal(size=(2, 5, 6)).astype("float32")


def built(randomize, **arguments):
    layer = FeedForward(11, **arguments)
    layer.build(INPUTS.shape)
    randomize(layer)
    return layer


def test_equals_the_formula(randomize):
    layer = built(randomize)
    first, first_bias, second, second_bias = (weight.numpy().astype("float64") for weight in layer.weights)
    expected = np.maximum(INPUTS @ first + first_bias, 0) @ second + second_bias
    np.testing.assert_allclose(layer(INPUTS), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["gelu", "swish", keras.activations.tanh])
def test_any_keras_activation(activation, randomize):
    layer = built(randomize, activation=activation)
    first, first_bias, second, second_bias = (weight.numpy() for weight in layer.weights)
    hidden = keras.activations.get(activation)(keras.ops.convert_to_tensor(INPUTS @ first + first_bias))
    np.testing.assert_allclose(layer(INPUTS), hidden.numpy() @ second + second_bias, rtol=1e-5, atol=1e-5)


def test_gelu_equals_torch(randomize):
    torch = pytest.importorskip("torch")
    layer = built(randomize, activation="gelu")
    first, first_bias, second, second_bias = (torch.tensor(weight.numpy()) for weight in layer.weights)
    hidden = torch.nn.functional.gelu(torch.tensor(INPUTS) @ first + first_bias)
    np.testing.assert_allclose(layer(INPUTS), hidden @ second + second_bias, rtol=1e-5, atol=1e-5)


def test_every_position_alone(randomize):
    layer = built(randomize)
    np.testing.assert_allclose(layer(INPUTS)[:, 2:3], layer(INPUTS[:, 2:3]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer(INPUTS[0]), layer(INPUTS)[0], rtol=1e-5, atol=1e-6)


def test_dropout_falls_on_the_hidden_units(randomize):
    layer = built(randomize, dropout=0.5)
    layer.output_dense.kernel.assign(np.eye(11, 6))
    layer.output_dense.bias.assign(np.zeros(6))
    hidden = layer.hidden_dense(INPUTS)[..., :6].numpy()
    np.testing.assert_allclose(layer(INPUTS), hidden, rtol=1e-6)
    dropped = layer(INPUTS, training=True).numpy()
    assert ((dropped == 0) & (hidden != 0)).any()
    np.testing.assert_allclose(dropped[dropped != 0], 2 * hidden[dropped != 0], rtol=1e-5)


def test_hidden_dim_must_be_positive():
    with pytest.raises(ValueError, match=r"`hidden_dim` must be positive.*hidden_dim=0"):
        FeedForward(0)


def test_unknown_activation():
    with pytest.raises(ValueError, match="nonsense"):
        FeedForward(4, activation="nonsense")


def test_passes_an_implicit_mask_on():
    vectors = keras.layers.Embedding(9, 6, mask_zero=True)(np.array([[4, 5, 0]]))
    np.testing.assert_array_equal(FeedForward(11)(vectors)._keras_mask, [[True, True, False]])


def test_life(layer_life):
    layer_life(lambda **dtype: FeedForward(11, activation="gelu", name="network", **dtype), {"inputs": INPUTS})
