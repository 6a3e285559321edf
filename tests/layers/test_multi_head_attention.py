import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer.layers import MultiHeadAttention

RNG = np.random.default_rng(3)
QUERY = RNG.normal(size=(2, 4, 8)).astype("float32")
VALUE = RNG.normal(size=(2, 6, 8)).astype("float32")
KEY = RNG.normal(size=(2, 6, 8)).astype("float32")
MASK = RNG.random((2, 4, 6)) < 0.6
MASK[..., 0] = True
VALUE_MASK = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], bool)


def formula(layer, query, value, key=None, mask=None):
    """The paper's equations in float64 numpy, head by head. Returns output and weights."""
    key = value if key is None else key

    def project(dense, x):
        bias = 0 if dense.bias is None else dense.bias.numpy().astype("float64")
        return x.astype("float64") @ dense.kernel.numpy().astype("float64") + bias

    queries, keys = project(layer.query_projection, query), project(layer.key_projection, key)
    values = project(layer.value_projection, value)
    d_k, d_v = queries.shape[-1] // layer.num_heads, values.shape[-1] // layer.num_heads
    heads, weights = [], []
    for head in range(layer.num_heads):
        q, k = (x[..., head * d_k : (head + 1) * d_k] for x in (queries, keys))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(d_k)
        exponents = np.exp(scores - scores.max(-1, keepdims=True)) * (1 if mask is None else mask)
        total = exponents.sum(-1, keepdims=True)
        weights.append(np.divide(exponents, total, out=np.zeros_like(exponents), where=total > 0))
        heads.append(weights[-1] @ values[..., head * d_v : (head + 1) * d_v])
    return project(layer.output_projection, np.concatenate(heads, -1)), np.stack(weights, 1)


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("sizes", [{}, {"key_dim": 3, "value_dim": 5, "output_dim": 7}, {"key_dim": 6}])
@pytest.mark.parametrize("mask", [None, MASK])
def test_equals_the_formula(use_bias, sizes, mask, randomize):
    layer = MultiHeadAttention(2, use_bias=use_bias, **sizes)
    layer.build(QUERY.shape, VALUE.shape, KEY.shape)
    randomize(layer)
    outputs, weights = layer(QUERY, VALUE, KEY, attention_mask=mask, return_attention_scores=True)
    expected, expected_weights = formula(layer, QUERY, VALUE, KEY, mask)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer(QUERY, VALUE, KEY, attention_mask=mask), expected, rtol=1e-5, atol=1e-5)


def test_widths_of_query_key_and_value_may_differ(randomize):
    layer = MultiHeadAttention(2)
    inputs = QUERY, VALUE[..., :5], KEY[..., :3]
    layer(*inputs)
    randomize(layer)
    np.testing.assert_allclose(layer(*inputs), formula(layer, *inputs)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_equals_keras(use_bias, causal, randomize):
    layer = MultiHeadAttention(2, key_dim=3, value_dim=5, use_bias=use_bias)
    layer.build(QUERY.shape, VALUE.shape, KEY.shape)
    randomize(layer)
    twin = keras.layers.MultiHeadAttention(2, key_dim=3, value_dim=5, use_bias=use_bias)
    twin.build(QUERY.shape, VALUE.shape, KEY.shape)
    for name in ("query", "key", "value", "output"):
        dense = getattr(layer, f"{name}_projection")
        other = getattr(twin, f"_{name}_dense")
        other.kernel.assign(dense.kernel.numpy().reshape(other.kernel.shape))
        if use_bias:
            other.bias.assign(dense.bias.numpy().reshape(other.bias.shape))
    arguments = {
        "key": KEY,
        "value_mask": VALUE_MASK,
        "attention_mask": MASK,
        "use_causal_mask": causal,
        "return_attention_scores": True,
    }
    outputs, weights = layer(QUERY, VALUE, **arguments)
    expected, expected_weights = twin(QUERY, VALUE, **arguments)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("use_bias", [False, True])
def test_equals_torch_in_value_and_gradient(use_bias, randomize, torch_copy):
    import torch

    layer = MultiHeadAttention(2, use_bias=True)
    layer.build(QUERY.shape, VALUE.shape, KEY.shape)
    randomize(layer)
    twin = torch.nn.MultiheadAttention(8, 2, bias=True, batch_first=True)
    torch_copy.attention(layer, twin)
    if not use_bias:
        unbiased = MultiHeadAttention(2)
        unbiased.build(QUERY.shape, VALUE.shape, KEY.shape)
        for name in ("query", "key", "value", "output"):
            getattr(unbiased, f"{name}_projection").kernel.assign(getattr(layer, f"{name}_projection").kernel)
        layer = unbiased
        twin.in_proj_bias.zero_()
        twin.out_proj.bias.zero_()
    query = tf.Variable(QUERY)
    with tf.GradientTape() as tape:
        outputs, weights = layer(query, VALUE, KEY, value_mask=VALUE_MASK, return_attention_scores=True)
        loss = tf.reduce_sum(outputs**3)
    with torch.enable_grad():
        torch_query = torch.tensor(QUERY, requires_grad=True)
        expected, expected_weights = twin(
            torch_query,
            torch.tensor(KEY),
            torch.tensor(VALUE),
            key_padding_mask=torch.tensor(~VALUE_MASK),
            average_attn_weights=False,
        )
        (expected**3).sum().backward()
    np.testing.assert_allclose(outputs, expected.detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tape.gradient(loss, query), torch_query.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_true_means_may_attend():
    layer = MultiHeadAttention(1)
    only_third = np.zeros((2, 4, 6), bool)
    only_third[..., 2] = True
    outputs, weights = layer(QUERY, VALUE, attention_mask=only_third, return_attention_scores=True)
    np.testing.assert_array_equal(weights[:, 0], only_third.astype("float32"))
    changed = VALUE.copy()
    changed[:, [0, 1, 3, 4, 5]] = 100.0
    np.testing.assert_array_equal(layer(QUERY, changed, attention_mask=only_third), outputs)


@pytest.mark.parametrize("dtype", ["int32", "int8", "float32", "float16"])
def test_masks_may_be_numbers(dtype):
    layer = MultiHeadAttention(2)
    expected = layer(QUERY, VALUE, attention_mask=MASK, value_mask=VALUE_MASK)
    outputs = layer(QUERY, VALUE, attention_mask=MASK.astype(dtype), value_mask=VALUE_MASK.astype(dtype))
    np.testing.assert_array_equal(outputs, expected)


def test_masks_combine_by_logical_and(randomize):
    layer = MultiHeadAttention(2)
    key_mask = np.array([[0, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1]], bool)
    outputs = layer(QUERY, VALUE, value_mask=VALUE_MASK, key_mask=key_mask, attention_mask=MASK, use_causal_mask=True)
    together = MASK & VALUE_MASK[:, None] & key_mask[:, None] & np.tril(np.ones((4, 6), bool))
    np.testing.assert_allclose(outputs, formula(layer, QUERY, VALUE, mask=together)[0], rtol=1e-5, atol=1e-5)


def test_a_mask_may_differ_by_head():
    layer = MultiHeadAttention(2)
    by_head = np.stack([MASK, ~MASK], axis=1)
    _, weights = layer(QUERY, VALUE, attention_mask=by_head, return_attention_scores=True)
    for head, mask in enumerate((MASK, ~MASK)):
        _, expected = layer(QUERY, VALUE, attention_mask=mask, return_attention_scores=True)
        np.testing.assert_array_equal(weights[:, head], expected[:, head])
    _, weights = layer(QUERY, VALUE, attention_mask=MASK[:, None], return_attention_scores=True)
    np.testing.assert_array_equal(weights, layer(QUERY, VALUE, attention_mask=MASK, return_attention_scores=True)[1])


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16", "float16", "bfloat16"])
def test_a_row_with_nothing_to_attend_to_gives_zeros(policy):
    layer = MultiHeadAttention(2, dtype=policy)
    mask = np.ones((2, 4, 6), bool)
    mask[0, 1] = False  # one query of many
    mask[1] = False  # a whole row of the batch
    query, value = tf.Variable(QUERY), tf.Variable(VALUE)
    with tf.GradientTape() as tape:
        outputs, weights = layer(query, value, attention_mask=mask, return_attention_scores=True)
        loss = tf.reduce_sum(tf.cast(outputs, "float32") ** 2)
    sources = [query, value, *(weight.value for weight in layer.trainable_variables)]
    gradients = [tf.cast(gradient, "float32").numpy() for gradient in tape.gradient(loss, sources)]
    empty = ~mask.any(-1)
    outputs = tf.cast(outputs, "float32").numpy()
    assert not outputs[empty].any()
    assert np.isfinite(outputs).all()
    assert np.abs(outputs[~empty]).min() > 0
    assert not weights.numpy().swapaxes(1, 2)[empty].any()
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert not gradients[0][empty].any(), "an empty query has no influence"
    assert not gradients[1][1].any(), "a value that nobody sees has no influence"
    assert all(gradient.any() for gradient in gradients)


def test_gradients_of_the_other_rows_do_not_see_the_empty_one():
    layer = MultiHeadAttention(2)
    layer.build(QUERY.shape, VALUE.shape)

    def gradients(rows, mask):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(QUERY[rows], VALUE[rows], value_mask=mask) ** 2)
        return tape.gradient(loss, [weight.value for weight in layer.trainable_variables])

    both = np.stack([VALUE_MASK[0], np.zeros(6, bool)])
    for one, two in zip(gradients([0], VALUE_MASK[:1]), gradients([0, 1], both), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_masked_weights_are_exactly_zero_and_rows_sum_to_one(policy, scale):
    scale = 1.0 if policy == "mixed_float16" else scale  # float16 itself ends at 65504
    layer = MultiHeadAttention(2, dtype=policy)
    mask = np.tril(np.ones((4, 6), bool)) & VALUE_MASK[:, None]
    _, weights = layer(
        scale * QUERY, scale * VALUE, value_mask=VALUE_MASK, use_causal_mask=True, return_attention_scores=True
    )
    weights = tf.cast(weights, "float32").numpy()
    assert not (weights * ~mask[:, None]).any()
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-3)


def test_low_precision_stays_near_float32():
    layer = MultiHeadAttention(2)
    reference = layer(QUERY, VALUE, value_mask=VALUE_MASK).numpy()
    for policy in ("mixed_float16", "mixed_bfloat16"):
        low = MultiHeadAttention(2, dtype=policy)
        low.build(QUERY.shape, VALUE.shape)
        low.set_weights(layer.get_weights())
        outputs = low(QUERY, VALUE, value_mask=VALUE_MASK)
        np.testing.assert_allclose(tf.cast(outputs, "float32"), reference, atol=2e-2 * np.abs(reference).max())


def step_through(layer, inputs, cuts, length, as_index=int):
    """Feed `inputs` piece by piece with a cache of `length` positions."""
    cache = layer.start_cache(len(inputs), length)
    pieces = []
    for start, end in zip(cuts, [*cuts[1:], inputs.shape[1]], strict=True):
        piece = inputs[:, start:end]
        outputs, cache = layer(piece, piece, use_causal_mask=True, cache=cache, cache_index=as_index(start))
        pieces.append(outputs)
    return np.concatenate(pieces, axis=1), cache


@pytest.mark.parametrize("cuts", [[0, 1, 2, 3, 4, 5], [0, 3], [0, 3, 5], [0], [0, 1, 5]])
@pytest.mark.parametrize("length", [6, 9])
@pytest.mark.parametrize("as_index", [int, np.int64, tf.constant, lambda i: tf.constant(i, tf.int64)])
def test_cache_equals_full(cuts, length, as_index):
    layer = MultiHeadAttention(2, value_dim=5)
    expected = layer(VALUE, VALUE, use_causal_mask=True)
    outputs, cache = step_through(layer, VALUE, cuts, length, as_index)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)
    assert cache["key"].shape == (2, 2, length, 4)
    assert cache["value"].shape == (2, 2, length, 5)
    full = layer.project(VALUE)
    np.testing.assert_allclose(cache["key"][:, :, :6], full["key"], rtol=1e-5, atol=1e-6)
    assert not np.any(cache["value"][:, :, 6:])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_cache_inside_a_graph_of_unknown_shapes(jit_compile):
    layer = MultiHeadAttention(2)
    expected = layer(VALUE, VALUE, use_causal_mask=True)

    @tf.function(jit_compile=jit_compile, reduce_retracing=True)
    def step(piece, cache, index):
        return layer(piece, piece, use_causal_mask=True, cache=cache, cache_index=index)

    cache = layer.start_cache(2, 8)
    for start, end in ((0, 2), (2, 5), (5, 6)):
        outputs, cache = step(tf.constant(VALUE[:, start:end]), cache, tf.constant(start))
        np.testing.assert_allclose(outputs, expected[:, start:end], rtol=1e-5, atol=1e-6)


def test_a_cache_with_slots_equals_each_slot_alone():
    layer = MultiHeadAttention(2, value_dim=5)
    inputs = RNG.normal(size=(2, 3, 4, 8)).astype("float32")  # two rows, three slots, four positions
    layer.build((2, 4, 8), (2, 4, 8))
    cache = layer.start_cache(2, 4, 3)
    assert cache["value"].shape == (2, 2, 4, 3, 5)
    own = np.broadcast_to(np.eye(3, dtype=bool)[:, None], (3, 4, 3))  # slot k descends from slot k
    for index in range(4):
        mask = (own & (np.arange(4) <= index)[:, None]).reshape(3, 12)
        piece = inputs[:, :, index]
        outputs, cache = layer(
            piece, piece, attention_mask=np.stack([mask] * 2), cache=cache, cache_index=tf.constant(index)
        )
        for slot in range(3):
            alone = layer(inputs[:, slot], inputs[:, slot], use_causal_mask=True)
            np.testing.assert_allclose(outputs[:, slot], alone[:, index], rtol=1e-5, atol=1e-6)


def test_cache_in_float16():
    layer = MultiHeadAttention(2, dtype="mixed_float16")
    layer.build(VALUE.shape, VALUE.shape)
    outputs, cache = step_through(layer, VALUE, [0, 1, 2, 3, 4, 5], 6)
    assert cache["key"].dtype == "float16"
    np.testing.assert_allclose(outputs, layer(VALUE, VALUE, use_causal_mask=True), atol=5e-3)


def test_cache_returned_after_the_weights():
    layer = MultiHeadAttention(2)
    layer.build(VALUE.shape, VALUE.shape)
    outputs = layer(
        VALUE,
        VALUE,
        use_causal_mask=True,
        cache=layer.start_cache(2, 7),
        cache_index=0,
        return_attention_scores=True,
    )
    assert outputs[0].shape == (2, 6, 8)
    assert outputs[1].shape == (2, 2, 6, 7)
    assert set(outputs[2]) == {"key", "value"}


def test_projected_value_equals_value():
    layer = MultiHeadAttention(2)
    expected = layer(QUERY, VALUE, KEY, value_mask=VALUE_MASK)
    projected = layer.project(VALUE, KEY)
    np.testing.assert_array_equal(layer(QUERY, projected, value_mask=VALUE_MASK), expected)
    np.testing.assert_array_equal(layer(QUERY, projected), layer(QUERY, VALUE, KEY))


def test_implicit_masks_are_honoured_and_an_explicit_one_wins():
    ids = np.array([[4, 5, 0, 0], [4, 5, 6, 7]])
    vectors = keras.layers.Embedding(9, 8, mask_zero=True)(ids)
    plain = tf.constant(vectors.numpy())
    layer = MultiHeadAttention(2)
    outputs = layer(QUERY, vectors)
    np.testing.assert_array_equal(outputs, layer(QUERY, plain, value_mask=ids != 0))
    assert np.abs(outputs - layer(QUERY, plain)).max() > 1e-3
    other = np.array([[1, 0, 0, 0], [0, 1, 1, 1]], bool)
    np.testing.assert_array_equal(layer(QUERY, vectors, value_mask=other), layer(QUERY, plain, value_mask=other))
    np.testing.assert_array_equal(layer(vectors, tf.constant(VALUE))._keras_mask, ids != 0)


def test_dropout_falls_on_the_weights_while_training_only():
    layer = MultiHeadAttention(1, dropout=0.5)
    plain, weights = layer(QUERY, VALUE, return_attention_scores=True)
    np.testing.assert_array_equal(layer(QUERY, VALUE, training=False), plain)
    dropped, reported = layer(QUERY, VALUE, return_attention_scores=True, training=True)
    np.testing.assert_array_equal(reported, weights)
    assert np.abs(dropped - plain).max() > 1e-3
    many = layer(np.repeat(QUERY, 4000, axis=0), np.repeat(VALUE, 4000, axis=0), training=True).numpy()
    np.testing.assert_allclose(many.reshape(2, 4000, 4, 8).mean(1), plain, atol=0.05 * np.abs(plain).max())


def test_a_single_key_takes_all_the_weight_without_a_warning():
    outputs, weights = MultiHeadAttention(2)(QUERY, VALUE[:, :1], return_attention_scores=True)
    np.testing.assert_array_equal(weights, np.ones((2, 2, 4, 1)))
    # Not to the bit: the kernel of a matrix product may add up the rows of a block in another order than the rest.
    np.testing.assert_allclose(outputs, np.broadcast_to(outputs[:, :1], outputs.shape), rtol=0, atol=5e-7)


def test_no_weight_depends_on_batch_mates():
    layer = MultiHeadAttention(2)
    both = layer(QUERY, VALUE, value_mask=VALUE_MASK)
    np.testing.assert_allclose(layer(QUERY[:1], VALUE[:1, :4]), both[:1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["num_heads", "key_dim", "value_dim", "output_dim"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=rf"`{name}` must be positive.*{name}=0"):
        MultiHeadAttention(**{"num_heads": 2, name: 0})


def test_width_must_be_divisible_by_the_heads():
    with pytest.raises(ValueError, match=r"divisible by `num_heads`.*8.*num_heads=3"):
        MultiHeadAttention(3)(QUERY, VALUE)
    assert MultiHeadAttention(3, key_dim=4)(QUERY, VALUE).shape == QUERY.shape


def test_masks_of_a_wrong_rank_are_named():
    layer = MultiHeadAttention(2)
    with pytest.raises(ValueError, match=r"`attention_mask` must have rank 3 or 4.*\(2, 6\)"):
        layer(QUERY, VALUE, attention_mask=VALUE_MASK)
    with pytest.raises(ValueError, match=r"`value_mask` must have rank 2.*\(2, 4, 6\)"):
        layer(QUERY, VALUE, value_mask=MASK)


def test_cache_needs_an_index_inside_it():
    layer = MultiHeadAttention(2)
    layer.build(VALUE.shape, VALUE.shape)
    cache = layer.start_cache(2, 7)
    with pytest.raises(ValueError, match="`cache` needs `cache_index`"):
        layer(VALUE, VALUE, use_causal_mask=True, cache=cache)
    with pytest.raises(ValueError, match=r"`cache_index`.*must fit the cache.*cache_index=2, 6 positions.*7"):
        layer(VALUE, VALUE, use_causal_mask=True, cache=cache, cache_index=2)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_dropout_must_be_a_share(rate):
    with pytest.raises(ValueError, match=r"`rate` must be in \[0, 1\)"):
        MultiHeadAttention(2, dropout=rate)(QUERY, VALUE)


def test_kernels_are_drawn_one_by_one():
    layer = MultiHeadAttention(2, kernel_initializer=keras.initializers.GlorotUniform(seed=None))
    layer.build(QUERY.shape, QUERY.shape)
    assert np.abs(layer.query_projection.kernel - layer.key_projection.kernel).max() > 0.01


def test_life(layer_life):
    layer_life(
        lambda **dtype: MultiHeadAttention(2, key_dim=3, value_dim=5, use_bias=True, name="attention", **dtype),
        {"query": QUERY, "value": VALUE, "key": KEY, "attention_mask": MASK},
    )


def test_symbolic_weights_output():
    layer = MultiHeadAttention(2)
    outputs, weights = layer(keras.Input((None, 8)), keras.Input((None, 8)), return_attention_scores=True)
    assert outputs.shape == (None, None, 8)
    assert weights.shape[1] == 2
    assert len(weights.shape) == 4
    assert ops.shape(outputs)[-1] == 8


@pytest.mark.parametrize(
    "masks", [{"value_mask": VALUE_MASK[:, :5]}, {"key_mask": VALUE_MASK[:, :5]}, {"attention_mask": MASK[:, :, :5]}]
)
def test_a_mask_of_another_length_is_refused(masks):
    (name,) = masks
    with pytest.raises(ValueError, match=rf"`{name}` must cover 6 keys\. Received: shape \(2,"):
        MultiHeadAttention(2)(QUERY, VALUE, **masks)
