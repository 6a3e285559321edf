import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers import Encoder, EncoderLayer, PositionalEmbedding

RNG = np.random.default_rng(6)
INPUTS = RNG.normal(size=(3, 5, 8)).astype("float32")
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]], bool)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layer_equals_torch(norm_first, activation, randomize, torch_copy):
    import torch

    layer = EncoderLayer(2, 16, activation=activation, norm_first=norm_first, use_attention_bias=True)
    layer.build(INPUTS.shape)
    randomize(layer)
    twin = torch.nn.TransformerEncoderLayer(
        8, 2, 16, activation=activation, norm_first=norm_first, batch_first=True
    ).eval()
    torch_copy.encoder_layer(layer, twin)
    expected = twin(torch.tensor(INPUTS), src_key_padding_mask=torch.tensor(~MASK))
    np.testing.assert_allclose(layer(INPUTS, mask=MASK), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(layer(INPUTS), twin(torch.tensor(INPUTS)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_stack_equals_torch(norm_first, randomize, torch_copy):
    import torch

    stack = Encoder(EncoderLayer(2, 16, norm_first=norm_first, use_attention_bias=True), 3)
    stack.build(INPUTS.shape)
    randomize(stack)
    twin = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(8, 2, 16, norm_first=norm_first, batch_first=True),
        3,
        norm=torch.nn.LayerNorm(8) if norm_first else None,
        enable_nested_tensor=False,
    ).eval()
    for layer, torch_layer in zip(stack.layers, twin.layers, strict=True):
        torch_copy.encoder_layer(layer, torch_layer)
    if norm_first:
        torch_copy.norm(stack.final_norm, twin.norm)
    expected = twin(torch.tensor(INPUTS), src_key_padding_mask=torch.tensor(~MASK))
    np.testing.assert_allclose(stack(INPUTS, mask=MASK), expected, rtol=1e-5, atol=2e-5)


def test_only_a_pre_norm_stack_ends_in_a_norm():
    def num_norms(norm_first):
        stack = Encoder(EncoderLayer(2, 16, norm_first=norm_first), 2)
        stack.build(INPUTS.shape)
        return sum(weight.path.endswith("gamma") for weight in stack.weights)

    assert num_norms(False) == 4
    assert num_norms(True) == 5


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_masks_may_be_numbers(dtype):
    layer = EncoderLayer(2, 16)
    np.testing.assert_array_equal(layer(INPUTS, mask=MASK.astype(dtype)), layer(INPUTS, mask=MASK))


def test_a_mask_for_each_query():
    layer = EncoderLayer(2, 16)
    by_query = np.repeat(MASK[:, None], 5, axis=1)
    np.testing.assert_array_equal(layer(INPUTS, mask=by_query), layer(INPUTS, mask=MASK))
    causal = np.broadcast_to(np.tril(np.ones((5, 5), bool)), (3, 5, 5))
    np.testing.assert_allclose(
        layer(INPUTS, mask=causal)[:, :2], layer(INPUTS[:, :2], mask=causal[:, :2, :2]), atol=1e-5
    )


def test_a_mask_of_a_wrong_rank():
    with pytest.raises(ValueError, match=r"A mask must be \[B, S\] or \[B, T, S\].*\(5,\)"):
        EncoderLayer(2, 16)(INPUTS, mask=MASK[0])


@pytest.mark.parametrize("make", [lambda: EncoderLayer(2, 16), lambda: Encoder(EncoderLayer(2, 16), 2)])
def test_implicit_mask_equals_explicit_and_is_passed_on(make):
    ids = np.array([[4, 5, 0, 0], [4, 5, 6, 7]])
    vectors = PositionalEmbedding(9, 8)(ids)
    plain = tf.constant(vectors.numpy())
    layer = make()
    outputs = layer(vectors)
    np.testing.assert_array_equal(outputs, layer(plain, mask=ids != 0))
    np.testing.assert_array_equal(outputs._keras_mask, ids != 0)
    other = np.array([[1, 0, 0, 0], [0, 1, 1, 1]], bool)
    np.testing.assert_array_equal(layer(vectors, mask=other), layer(plain, mask=other))
    assert np.abs(outputs - layer(plain)).max() > 1e-3


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_row_of_padding_only_is_finite_and_alone(policy):
    layer = EncoderLayer(2, 16, dtype=policy)
    mask = MASK.copy()
    mask[1] = False
    with tf.GradientTape() as tape:
        outputs = layer(INPUTS, mask=mask)
        loss = tf.reduce_sum(tf.cast(outputs, "float32") ** 2)
    gradients = tape.gradient(loss, [weight.value for weight in layer.trainable_variables])
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert np.isfinite(tf.cast(outputs, "float32")).all()
    np.testing.assert_array_equal(outputs[0], layer(INPUTS, mask=MASK)[0])


@pytest.mark.parametrize("norm_first", [False, True])
def test_every_weight_is_trained(norm_first):
    stack = Encoder(EncoderLayer(2, 16, norm_first=norm_first), 2)
    stack.build(INPUTS.shape)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(stack(INPUTS, training=True) ** 3)
    for weight, gradient in zip(
        stack.trainable_variables, tape.gradient(loss, [w.value for w in stack.trainable_variables]), strict=True
    ):
        assert np.any(gradient != 0), weight.path


def test_dropout_of_every_kind_acts_while_training_only():
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        rates = {"dropout": 0.0, name: 0.5}
        layer = EncoderLayer(2, 16, **rates)
        np.testing.assert_array_equal(layer(INPUTS), layer(INPUTS, training=False))
        assert np.abs(layer(INPUTS, training=True) - layer(INPUTS)).max() > 1e-2, name


def test_layers_of_a_stack_start_with_weights_of_their_own():
    stack = Encoder(EncoderLayer(2, 16), 2)
    stack.build(INPUTS.shape)
    kernels = [layer.self_attention.query_projection.kernel.numpy() for layer in stack.layers]
    assert np.abs(kernels[0] - kernels[1]).max() > 0.01


@pytest.mark.parametrize("num_layers", [0, -1])
def test_depth_must_be_positive(num_layers):
    with pytest.raises(ValueError, match=rf"`num_layers` must be positive.*num_layers={num_layers}"):
        Encoder(EncoderLayer(2, 16), num_layers)


def test_width_must_be_divisible_by_the_heads():
    with pytest.raises(ValueError, match=r"divisible by `num_heads`.*8.*num_heads=3"):
        EncoderLayer(3, 16)(INPUTS)


@pytest.mark.parametrize("sizes", [{"num_heads": 0}, {"feed_forward_dim": 0}, {"key_dim": 0}])
def test_sizes_must_be_positive(sizes):
    with pytest.raises(ValueError, match="must be positive"):
        EncoderLayer(**{"num_heads": 2, "feed_forward_dim": 16, **sizes})(INPUTS)


def test_life_of_the_layer(layer_life):
    layer_life(
        lambda **dtype: EncoderLayer(2, 16, key_dim=3, value_dim=5, dropout=0.0, name="layer", **dtype),
        {"inputs": INPUTS, "mask": MASK},
    )


def test_life_of_the_stack(layer_life):
    layer_life(
        lambda **dtype: Encoder(EncoderLayer(2, 16, dropout=0.0, norm_first=True), 2, name="encoder", **dtype),
        {"inputs": INPUTS, "mask": MASK},
    )


def test_layers_take_the_precision_of_the_stack():
    stack = Encoder(EncoderLayer(2, 16), 2, dtype="mixed_bfloat16")
    assert {layer.dtype_policy.name for layer in stack.layers} == {"mixed_bfloat16"}
    assert keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(stack)).compute_dtype == "bfloat16"


@pytest.mark.parametrize(
    "make", [lambda: EncoderLayer(2, 16), lambda: Encoder(EncoderLayer(2, 16), 2)], ids=["one", "two"]
)
def test_a_causal_mask_hides_what_comes_later(make, randomize):
    layer = make()
    layer.build(INPUTS.shape)
    randomize(layer)
    outputs = layer(INPUTS, mask=MASK, use_causal_mask=True)
    lower = np.tril(np.ones((5, 5), bool))
    np.testing.assert_array_equal(outputs, layer(INPUTS, mask=lower & MASK[:, None]))
    changed = INPUTS.copy()
    changed[:, 3:] = 9.0
    np.testing.assert_allclose(
        layer(changed, use_causal_mask=True)[:, :3], layer(INPUTS, use_causal_mask=True)[:, :3], atol=1e-6
    )


def test_a_decoder_only_model_of_any_length():
    ids = keras.Input((None,), dtype="int32")
    embedding = PositionalEmbedding(11, 8, dropout=0.0)
    vectors = Encoder(EncoderLayer(2, 16, dropout=0.0), 2)(embedding(ids), use_causal_mask=True)
    model = keras.Model(ids, embedding(vectors, reverse=True))
    for length in (3, 6):
        batch = RNG.integers(1, 11, size=(2, length))
        assert model(batch).shape == (2, length, 11)
        np.testing.assert_allclose(model(batch)[:, :2], model(batch[:, :2]), atol=1e-5)


def test_a_stack_of_something_else_is_refused():
    with pytest.raises(ValueError, match=r"`layer` must be an `EncoderLayer` or a `DecoderLayer`\. Received: <Dense"):
        Encoder(keras.layers.Dense(8), 2)
