import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers import Decoder, DecoderLayer, PositionalEmbedding

RNG = np.random.default_rng(8)
INPUTS = RNG.normal(size=(3, 4, 8)).astype("float32")
MEMORY = RNG.normal(size=(3, 6, 8)).astype("float32")
INPUTS_MASK = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]], bool)
MEMORY_MASK = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0]], bool)
MASKS = {"inputs_mask": INPUTS_MASK, "memory_mask": MEMORY_MASK}


def make_layer(**arguments):
    return DecoderLayer(2, 16, **arguments)


def make_stack(**arguments):
    return Decoder(DecoderLayer(2, 16, **arguments), 3)


def run_torch(twin):
    import torch

    return twin(
        torch.tensor(INPUTS),
        torch.tensor(MEMORY),
        tgt_mask=torch.triu(torch.ones((4, 4), dtype=torch.bool), 1),
        tgt_key_padding_mask=torch.tensor(~INPUTS_MASK),
        memory_key_padding_mask=torch.tensor(~MEMORY_MASK),
    )


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layer_equals_torch(norm_first, activation, randomize, torch_copy):
    import torch

    layer = make_layer(activation=activation, norm_first=norm_first, use_attention_bias=True)
    layer.build(INPUTS.shape, MEMORY.shape)
    randomize(layer)
    twin = torch.nn.TransformerDecoderLayer(
        8, 2, 16, activation=activation, norm_first=norm_first, batch_first=True
    ).eval()
    torch_copy.decoder_layer(layer, twin)
    np.testing.assert_allclose(layer(INPUTS, MEMORY, **MASKS), run_torch(twin), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_stack_equals_torch(norm_first, randomize, torch_copy):
    import torch

    stack = make_stack(norm_first=norm_first, use_attention_bias=True)
    stack.build(INPUTS.shape, MEMORY.shape)
    randomize(stack)
    twin = torch.nn.TransformerDecoder(
        torch.nn.TransformerDecoderLayer(8, 2, 16, norm_first=norm_first, batch_first=True),
        3,
        norm=torch.nn.LayerNorm(8) if norm_first else None,
    ).eval()
    for layer, torch_layer in zip(stack.layers, twin.layers, strict=True):
        torch_copy.decoder_layer(layer, torch_layer)
    if norm_first:
        torch_copy.norm(stack.final_norm, twin.norm)
    np.testing.assert_allclose(stack(INPUTS, MEMORY, **MASKS), run_torch(twin), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masks", [{}, {"inputs_mask": np.ones((3, 4), bool)}])
@pytest.mark.parametrize("make", [make_layer, make_stack])
def test_the_future_has_exactly_no_influence(make, masks, norm_first):
    layer = make(norm_first=norm_first)
    inputs = tf.Variable(INPUTS)
    with tf.GradientTape(persistent=True) as tape:
        outputs = layer(inputs, MEMORY, **masks)
        by_position = [tf.reduce_sum(outputs[:, t] ** 3) for t in range(4)]
    for t in range(4):
        gradient = tape.gradient(by_position[t], inputs).numpy()
        assert not gradient[:, t + 1 :].any(), "the future leaks"
        assert (np.abs(gradient[:, : t + 1]).max(-1) > 0).all(), "the past is lost"


def test_masked_memory_has_exactly_no_influence():
    layer = make_layer()
    memory = tf.Variable(MEMORY)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(INPUTS, memory, **MASKS) ** 3)
    influence = np.abs(tape.gradient(loss, memory)).max(-1) > 0
    np.testing.assert_array_equal(influence, MEMORY_MASK)


def test_every_attention_has_a_norm_and_all_are_trained():
    layer = make_layer()
    layer.build(INPUTS.shape, MEMORY.shape)
    assert sum(weight.path.endswith("gamma") for weight in layer.weights) == 3
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(INPUTS, MEMORY, training=True) ** 3)
    gradients = tape.gradient(loss, [weight.value for weight in layer.trainable_variables])
    for weight, gradient in zip(layer.trainable_variables, gradients, strict=True):
        assert np.any(gradient != 0), weight.path


def test_only_a_pre_norm_stack_ends_in_a_norm():
    def num_norms(norm_first):
        stack = make_stack(norm_first=norm_first)
        stack.build(INPUTS.shape, MEMORY.shape)
        return sum(weight.path.endswith("gamma") for weight in stack.weights)

    assert num_norms(False) == 9
    assert num_norms(True) == 10


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_memory_of_padding_only_is_finite_and_alone(policy):
    layer = make_layer(dtype=policy)
    memory_mask = MEMORY_MASK.copy()
    memory_mask[1] = False
    with tf.GradientTape() as tape:
        outputs = layer(INPUTS, MEMORY, memory_mask=memory_mask)
        loss = tf.reduce_sum(tf.cast(outputs, "float32") ** 2)
    gradients = tape.gradient(loss, [weight.value for weight in layer.trainable_variables])
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert np.isfinite(tf.cast(outputs, "float32")).all()
    others = [0, 2]
    expected = layer(INPUTS[others], MEMORY[others], memory_mask=memory_mask[others])
    np.testing.assert_allclose(
        tf.cast(tf.gather(outputs, others), "float32"),
        tf.cast(expected, "float32"),
        atol=1e-6 if policy == "float32" else 2e-2,
    )


@pytest.mark.parametrize("make", [make_layer, make_stack])
def test_implicit_masks_equal_explicit_ones(make):
    target_ids, source_ids = np.array([[4, 5, 0], [4, 5, 6]]), np.array([[3, 4, 0, 0, 0], [3, 4, 5, 6, 7]])
    embedding = PositionalEmbedding(9, 8)
    inputs, memory = embedding(target_ids), embedding(source_ids)
    plain_inputs, plain_memory = tf.constant(inputs.numpy()), tf.constant(memory.numpy())
    layer = make()
    outputs = layer(inputs, memory)
    explicit = layer(plain_inputs, plain_memory, inputs_mask=target_ids != 0, memory_mask=source_ids != 0)
    np.testing.assert_array_equal(outputs, explicit)
    np.testing.assert_array_equal(outputs._keras_mask, target_ids != 0)
    other = np.array([[0, 1, 1, 1, 1], [1, 0, 0, 0, 0]], bool)
    np.testing.assert_array_equal(
        layer(inputs, memory, memory_mask=other),
        layer(plain_inputs, plain_memory, inputs_mask=target_ids != 0, memory_mask=other),
    )


def test_masks_for_each_query_equal_masks_of_tokens():
    layer = make_layer()
    np.testing.assert_array_equal(
        layer(
            INPUTS,
            MEMORY,
            inputs_mask=np.repeat(INPUTS_MASK[:, None], 4, axis=1),
            memory_mask=np.repeat(MEMORY_MASK[:, None], 4, axis=1),
        ),
        layer(INPUTS, MEMORY, **MASKS),
    )


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("cuts", [[0, 1, 2, 3], [0, 2], [0, 3], [0]])
@pytest.mark.parametrize("make", [make_layer, make_stack])
@pytest.mark.parametrize("projected", [False, True])
def test_step_by_step_equals_full(make, cuts, norm_first, projected):
    layer = make(norm_first=norm_first)
    expected = layer(INPUTS, MEMORY, memory_mask=MEMORY_MASK)
    memory = layer.project_memory(MEMORY) if projected else MEMORY
    cache = layer.start_cache(3, 5)
    for start, end in zip(cuts, [*cuts[1:], 4], strict=True):
        outputs, cache = layer(INPUTS[:, start:end], memory, memory_mask=MEMORY_MASK, cache=cache, cache_index=start)
        np.testing.assert_allclose(outputs, expected[:, start:end], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cached", [False, True])
def test_attention_to_the_memory_on_request(cached):
    stack = make_stack()
    expected = stack(INPUTS, MEMORY, memory_mask=MEMORY_MASK)
    arguments = {"memory_mask": MEMORY_MASK}
    if cached:
        arguments |= {"cache": stack.start_cache(3, 4), "cache_index": 0}
    outputs, scores, *cache = stack(INPUTS, MEMORY, return_attention_scores=True, **arguments)
    assert len(cache) == cached
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
    assert len(scores) == stack.num_layers
    for weights in scores:
        assert weights.shape == (3, 2, 4, 6)
        np.testing.assert_allclose(np.sum(weights, axis=-1), 1.0, atol=1e-5)
        assert not np.any(np.asarray(weights)[~np.broadcast_to(MEMORY_MASK[:, None, None], weights.shape)])


@pytest.mark.parametrize("make", [make_layer, make_stack])
def test_projected_memory_needs_no_mask(make):
    layer = make()
    expected = layer(INPUTS, MEMORY)
    np.testing.assert_allclose(layer(INPUTS, layer.project_memory(MEMORY)), expected, rtol=1e-5, atol=1e-5)
    embedded = PositionalEmbedding(9, 8)(np.array([[4, 5, 0, 0]] * 3))  # one mask is implicit, the other missing
    np.testing.assert_allclose(
        layer(embedded, layer.project_memory(MEMORY)), layer(embedded, MEMORY), rtol=1e-5, atol=1e-5
    )


def test_a_stack_of_three_builds_without_call_for_unequal_lengths_and_widths():
    stack = make_stack()
    stack.build((None, None, 8), (None, None, 10))
    other = make_stack()
    memory = RNG.normal(size=(3, 6, 10)).astype("float32")
    expected = other(INPUTS, memory)
    assert [weight.shape for weight in stack.weights] == [weight.shape for weight in other.weights]
    stack.set_weights(other.get_weights())
    np.testing.assert_array_equal(stack(INPUTS, memory), expected)


def test_width_must_be_divisible_by_the_heads():
    with pytest.raises(ValueError, match=r"divisible by `num_heads`.*8.*num_heads=3"):
        DecoderLayer(3, 16)(INPUTS, MEMORY)


def test_depth_must_be_positive():
    with pytest.raises(ValueError, match=r"`num_layers` must be positive.*num_layers=0"):
        Decoder(DecoderLayer(2, 16), 0)


def test_a_cache_needs_its_index():
    layer = make_stack()
    layer.build(INPUTS.shape, MEMORY.shape)
    with pytest.raises(ValueError, match="`cache` needs `cache_index`"):
        layer(INPUTS, MEMORY, cache=layer.start_cache(3, 5))


def test_life_of_the_layer(layer_life):
    layer_life(
        lambda **dtype: DecoderLayer(2, 16, dropout=0.0, use_attention_bias=True, name="layer", **dtype),
        {"inputs": INPUTS, "memory": MEMORY, **MASKS},
    )


@pytest.mark.slow
def test_life_of_the_stack(layer_life):
    layer_life(
        lambda **dtype: Decoder(DecoderLayer(2, 16, dropout=0.0, norm_first=True), 2, name="decoder", **dtype),
        {"inputs": INPUTS, "memory": MEMORY, **MASKS},
    )
