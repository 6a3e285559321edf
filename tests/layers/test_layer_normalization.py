"""Layer normalisation against Keras's own and against PyTorch's gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.position_wise import LayerNormalization


def pair(width, dtype="float32", epsilon=1e-6):
    """Our layer and Keras's, with the same weights."""
    layers = [
        LayerNormalization(epsilon, dtype=dtype),
        keras.layers.LayerNormalization(epsilon=epsilon, dtype=dtype),
    ]
    weights = np.random.normal(size=(2, width)).astype("float32")
    for layer in layers:
        layer.build((None, None, width))
        layer.set_weights(weights)
    return layers


def outputs_and_gradients(layer, inputs, upstream, function=lambda call: call, **arguments):
    def run(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs, **arguments)
            loss = tf.reduce_sum(tf.cast(outputs, "float32") * upstream)
        return [outputs, *tape.gradient(loss, [inputs, *(weight.value for weight in layer.weights)])]

    return [np.asarray(value, "float64") for value in function(run)(tf.constant(inputs))]


@pytest.mark.parametrize("shape", [(3, 5, 8), (4, 8), (2, 1, 3, 16), (0, 5, 8), (1, 1, 2)])
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_outputs_and_gradients_are_those_of_keras(shape, jit_compile, training):
    ours, theirs = pair(shape[-1])
    inputs, upstream = np.random.normal(1.0, 3.0, (2, *shape)).astype("float32")
    function = tf.function(jit_compile=True) if jit_compile else tf.function
    for value, expected in zip(
        outputs_and_gradients(ours, inputs, upstream, function, training=training),
        outputs_and_gradients(theirs, inputs, upstream),
        strict=True,
    ):
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


def test_gradients_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    ours, _ = pair(8)
    inputs, upstream = np.random.normal(-2.0, 3.0, (2, 3, 5, 8))
    norm = torch.nn.LayerNorm(8, eps=1e-6, dtype=torch.float64)
    with torch.no_grad():
        for parameter, weight in zip(norm.parameters(), ours.get_weights(), strict=True):
            parameter.copy_(torch.tensor(weight))
    x = torch.tensor(inputs, requires_grad=True)
    outputs = norm(x)
    (outputs * torch.tensor(upstream)).sum().backward()
    expected = [outputs, x.grad, norm.weight.grad, norm.bias.grad]
    values = outputs_and_gradients(ours, inputs.astype("float32"), upstream.astype("float32"), training=True)
    for value, other in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, other.detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "unit"), [("mixed_float16", 2**-10), ("mixed_bfloat16", 2**-7)])
def test_half_precision_is_computed_in_float32(dtype, unit):
    ours, theirs = pair(8, dtype)
    # The squares are beyond the range of float16.
    inputs = np.random.normal(0.0, 1000.0, (3, 5, 8)).astype("float32")
    outputs = ours(inputs)
    assert outputs.dtype == ours.compute_dtype
    assert all(weight.dtype == "float32" for weight in ours.weights)
    # Both round the same numbers, which differ in the last place of float32: by one place of the half at most.
    np.testing.assert_allclose(
        np.asarray(outputs, "float32"), np.asarray(theirs(inputs), "float32"), rtol=unit, atol=1e-5
    )


def test_equal_entries_give_beta():
    ours, _ = pair(8)
    inputs = np.full([2, 8], 1e4, "float32")
    outputs, gradient, *_ = outputs_and_gradients(ours, inputs, np.ones_like(inputs), training=True)
    np.testing.assert_array_equal(outputs, np.tile(ours.get_weights()[1], (2, 1)))
    assert np.isfinite(gradient).all()


def test_config_and_mask():
    layer = LayerNormalization(1e-3, name="norm")
    assert LayerNormalization.from_config(layer.get_config()).get_config() == layer.get_config()
    masked = keras.layers.Embedding(4, 8, mask_zero=True)(np.array([[1, 2, 0]]))
    assert layer(masked)._keras_mask.numpy().tolist() == [[True, True, False]]


@pytest.mark.parametrize("training", [False, True])
def test_only_training_has_a_gradient_of_its_own(training):
    """A gradient function in a graph keeps an exported model, once loaded, from being saved again."""
    layer, _ = pair(8)
    graph = tf.function(lambda inputs: layer(inputs, training=training)).get_concrete_function(
        tf.TensorSpec([None, None, 8])
    )
    assert any(operation.type == "IdentityN" for operation in graph.graph.get_operations()) == training
