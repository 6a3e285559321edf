import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers import EncoderLayer, PositionalEmbedding
from keras_transformer.layers.positional_embedding import sinusoidal_positions

IDS = np.array([[3, 4, 2, 0, 0], [5, 3, 9, 1, 2]], "int32")


def formula(positions, dim):
    """Section 3.5 in float64, coordinate by coordinate."""
    table = np.zeros((len(positions), dim))
    for column in range(dim):
        angle = np.asarray(positions, "float64") / 10000 ** ((column - column % 2) / dim)
        table[:, column] = np.sin(angle) if column % 2 == 0 else np.cos(angle)
    return table


def positions_only(**arguments):
    """A layer whose embedding is all zeros, so that its output is the position alone."""
    layer = PositionalEmbedding(10, arguments.pop("output_dim", 8), dropout=0.0, **arguments)
    layer.build()
    layer.embeddings.assign(np.zeros(layer.embeddings.shape))
    return layer


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (4, [0.84147, 0.54030, 0.01000, 0.99995]),
        (5, [0.841471, 0.540302, 0.025116, 0.999685, 0.000631]),
        (1, [0.841471]),
    ],
)
def test_golden_vectors_at_position_one(dim, expected):
    np.testing.assert_allclose(sinusoidal_positions(np.array([1]), dim)[0], expected, atol=1e-5)
    np.testing.assert_allclose(positions_only(output_dim=dim)(IDS)[0, 1], expected, atol=1e-5)


@pytest.mark.parametrize("dim", [6, 7, 512])
def test_equals_the_formula_far_out(dim):
    positions = [0, 1, 2, 63, 511, 4000, 4095, 5000]
    np.testing.assert_allclose(sinusoidal_positions(np.array(positions), dim), formula(positions, dim), atol=5e-4)
    np.testing.assert_allclose(sinusoidal_positions(np.arange(64), dim), formula(range(64), dim), atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "float16", "mixed_float16"])
def test_positions_are_computed_in_float32_and_cast_last(policy):
    outputs = positions_only(output_dim=64, dtype=policy)(IDS, start_index=4000)
    assert outputs.dtype == keras.dtype_policies.get(policy).compute_dtype
    np.testing.assert_allclose(tf.cast(outputs[0], "float32"), formula(range(4000, 4005), 64), atol=1e-3)


def test_embedding_is_scaled_by_the_root_of_the_width():
    layer = PositionalEmbedding(10, 8, dropout=0.0)
    expected = layer(IDS) - formula(range(5), 8)
    np.testing.assert_allclose(expected, np.sqrt(8) * layer.embeddings.numpy()[IDS], rtol=1e-4, atol=1e-5)


def test_positions_follow_time_and_not_the_batch():
    layer = PositionalEmbedding(10, 8, dropout=0.0)
    same = layer(np.full((6, 3), 7))
    np.testing.assert_array_equal(same, np.broadcast_to(same[:1], same.shape))
    assert np.abs(same[:, 0] - same[:, 1]).max() > 0.1


@pytest.mark.parametrize("kind", [{}, {"positions": "learned", "max_length": 12}])
@pytest.mark.parametrize("start", [3, np.int64(3), tf.constant(3), tf.constant(3, tf.int64)])
def test_start_index_moves_the_positions(kind, start):
    layer = PositionalEmbedding(10, 8, dropout=0.0, **kind)
    full = layer(np.concatenate([np.ones((2, 3), "int32"), IDS], axis=1))
    np.testing.assert_allclose(layer(IDS, start_index=start), full[:, 3:], rtol=1e-6, atol=1e-6)


def test_learned_positions_come_from_the_table():
    layer = positions_only(positions="learned", max_length=6)
    np.testing.assert_array_equal(layer(IDS)[1], layer.position_embeddings[:5])
    np.testing.assert_array_equal(layer(IDS, start_index=1)[0], layer.position_embeddings[1:])
    assert {weight.name for weight in layer.weights} == {"embeddings", "position_embeddings"}


@pytest.mark.parametrize(("length", "start"), [(5, 0), (2, 3)])
def test_learned_positions_end_with_a_named_error(length, start):
    layer = PositionalEmbedding(10, 8, positions="learned", max_length=4)
    with pytest.raises(ValueError, match=rf"`max_length`=4.*{length} ids from position {start}"):
        layer(IDS[:, :length], start_index=start)
    assert layer(IDS[:, :4]).shape == (2, 4, 8)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16", "bfloat16"])
def test_reverse_gives_float32_logits_of_the_same_matrix(policy):
    layer = PositionalEmbedding(10, 8, dtype=policy)
    layer.build()
    vectors = np.random.default_rng(1).normal(size=(2, 5, 8)).astype("float32")
    logits = layer(vectors, reverse=True)
    assert logits.dtype == "float32"
    expected = vectors @ tf.cast(layer.embeddings.value, "float32").numpy().T
    np.testing.assert_allclose(logits, expected, atol=1e-5 if policy == "float32" else 3e-2)
    symbolic = layer(keras.Input((None, 8)), reverse=True)
    assert symbolic.dtype == "float32"
    assert symbolic.shape == (None, None, 10)
    assert len(layer.trainable_variables) == 1


def test_mixed_precision_keeps_the_table_in_float32():
    layer = PositionalEmbedding(10, 8, dtype="mixed_float16")
    assert layer(IDS).dtype == "float16"
    assert layer(IDS, training=True).dtype == "float16"
    assert layer.embeddings.dtype == "float32"


def test_dropout_falls_on_the_sum_while_training_only():
    layer = PositionalEmbedding(10, 64, dropout=0.5)
    plain = layer(IDS).numpy()
    np.testing.assert_array_equal(layer(IDS, training=False), plain)
    dropped = layer(IDS, training=True).numpy()
    kept = dropped != 0
    assert 0.35 < kept.mean() < 0.65
    np.testing.assert_allclose(dropped[kept], 2 * plain[kept], rtol=1e-5)


def test_implicit_mask_marks_real_ids():
    np.testing.assert_array_equal(PositionalEmbedding(10, 8)(IDS)._keras_mask, IDS != 0)
    assert getattr(PositionalEmbedding(10, 8, mask_zero=False)(IDS), "_keras_mask", None) is None


def test_implicit_mask_survives_a_stack_and_a_fresh_process(fresh_process, tmp_path):
    ids = keras.Input((None,), dtype="int32", name="ids")
    vectors = PositionalEmbedding(10, 8)(ids)
    for _ in range(2):
        vectors = EncoderLayer(2, 16)(vectors)
    model = keras.Model({"ids": ids}, vectors)
    np.testing.assert_array_equal(model({"ids": IDS})._keras_mask, IDS != 0)
    model.save(tmp_path / "model.keras")
    fresh_process.evaluate(model, tmp_path, {"ids": IDS}, model=str(tmp_path / "model.keras"))


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_padding_changes_no_real_position(explicit, norm_first):
    embedding, layer = PositionalEmbedding(40, 8), EncoderLayer(2, 16, norm_first=norm_first)

    def run(ids):
        ids = np.array([ids])
        return layer(embedding(ids), mask=tf.constant(ids != 0) if explicit else None)

    short, long = run([12, 34]), run([12, 34, 0, 0])
    np.testing.assert_allclose(long[:, :2], short, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16"])
def test_ids_of_any_integer_type(dtype):
    layer = PositionalEmbedding(10, 8)
    np.testing.assert_array_equal(layer(IDS.astype(dtype)), layer(IDS))


@pytest.mark.parametrize("name", ["vocabulary_size", "output_dim"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=rf"`{name}` must be positive.*{name}=0"):
        PositionalEmbedding(**{"vocabulary_size": 10, "output_dim": 8, name: 0})


def test_positions_must_be_known():
    with pytest.raises(ValueError, match=r"`positions` must be one of.*'rotary'"):
        PositionalEmbedding(10, 8, positions="rotary")


@pytest.mark.parametrize("arguments", [{"positions": "learned"}, {"max_length": 5}])
def test_max_length_belongs_to_learned_positions(arguments):
    with pytest.raises(ValueError, match="`max_length` is the number of learned positions"):
        PositionalEmbedding(10, 8, **arguments)


@pytest.mark.parametrize("kind", [{}, {"positions": "learned", "max_length": 7}])
def test_life(kind, layer_life):
    layer_life(
        lambda **dtype: PositionalEmbedding(10, 8, dropout=0.0, name="embedding", **kind, **dtype), {"inputs": IDS}
    )


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_ids_that_come_as_floats_are_ids(policy):
    """`keras.Input` makes floats where it is not told otherwise."""
    layer = PositionalEmbedding(1000, 8, dropout=0.0, dtype=policy)
    ids = np.array([[999, 257, 5, 0], [998, 0, 0, 0]])
    expected = layer(ids)
    outputs = layer(ids.astype("float32"))
    np.testing.assert_array_equal(tf.cast(outputs, "float32"), tf.cast(expected, "float32"))
    np.testing.assert_array_equal(outputs._keras_mask, expected._keras_mask)
    model = keras.Sequential([keras.Input((4,)), layer])
    np.testing.assert_array_equal(tf.cast(model(ids), "float32"), tf.cast(expected, "float32"))
    np.testing.assert_array_equal(layer.compute_mask(keras.Input((4,)), None).shape, (None, 4))


def test_features_in_place_of_ids_are_refused():
    with pytest.raises(ValueError, match=r"Ids must be \[B, T\]. Received: shape \(2, 4, 8\)"):
        PositionalEmbedding(10, 8)(np.zeros((2, 4, 8), "float32"))
