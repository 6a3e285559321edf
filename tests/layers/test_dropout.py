import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

from keras_transformer.layers import Dropout

ONES = np.ones((8, 50), "float32")


def test_equals_keras_on_one_device():
    ours, theirs = Dropout(0.4, seed=11), keras.layers.Dropout(0.4, seed=11)
    for _ in range(3):
        np.testing.assert_array_equal(ours(ONES, training=True), theirs(ONES, training=True))


def test_zeroes_a_share_and_scales_the_rest():
    dropped = Dropout(0.25)(np.ones((200, 200), "float32"), training=True).numpy()
    assert abs((dropped == 0).mean() - 0.25) < 0.02
    np.testing.assert_allclose(dropped[dropped != 0], 1 / 0.75, rtol=1e-6)


@pytest.mark.parametrize("arguments", [{}, {"training": False}, {"training": None}])
def test_does_nothing_at_inference(arguments):
    np.testing.assert_array_equal(Dropout(0.5)(ONES, **arguments), ONES)


def test_rate_zero_does_nothing_and_holds_no_state():
    layer = Dropout(0.0)
    np.testing.assert_array_equal(layer(ONES, training=True), ONES)
    assert not layer.variables


def test_every_call_draws_anew_and_a_seed_repeats_it():
    one, two = Dropout(0.5, seed=3), Dropout(0.5, seed=3)
    first, second = one(ONES, training=True), one(ONES, training=True)
    assert np.any(first != second)
    np.testing.assert_array_equal(two(ONES, training=True), first)
    np.testing.assert_array_equal(two(ONES, training=True), second)


def test_layers_without_a_seed_differ():
    assert np.any(Dropout(0.5)(ONES, training=True) != Dropout(0.5)(ONES, training=True))


@pytest.mark.parametrize("rate", [-0.1, 1, 2])
def test_rate_must_be_a_share(rate):
    with pytest.raises(ValueError, match=rf"`rate` must be in \[0, 1\).*rate={rate}"):
        Dropout(rate)


def test_passes_an_implicit_mask_on():
    vectors = keras.layers.Embedding(9, 6, mask_zero=True)(np.array([[4, 5, 0]]))
    np.testing.assert_array_equal(Dropout(0.5)(vectors, training=True)._keras_mask, [[True, True, False]])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_drops_inside_fit(jit_compile):
    inputs = keras.Input((50,))
    kernel = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Model(inputs, kernel(Dropout(0.5)(inputs)))
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=jit_compile)
    losses = model.fit(ONES, 50 * ONES[:, :1], epochs=3, verbose=0).history["loss"]
    assert len(set(losses)) == 3
    assert min(losses) > 1
    assert model.evaluate(ONES, 50 * ONES[:, :1], verbose=0) < 1e-6


def test_life(layer_life):
    layer = Dropout(0.5, seed=3, name="dropout")
    layer_life.check_registration(layer)
    layer_life.check_config_and_build(layer, {"inputs": ONES}, {}, ONES)
    layer_life.check_shapes(layer, {"inputs": ONES}, {}, ONES)
    layer_life.check_saving(layer, {"inputs": ONES}, {})
    assert Dropout(0.5, dtype="mixed_float16")(ONES, training=True).dtype == "float16"


REPLICAS = textwrap.dedent(
    """
    import keras, numpy as np, tensorflow as tf
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    from keras_transformer.layers import Dropout
    from keras_transformer.transformer import Transformer

    ones = tf.ones((4, 500))
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def draws(seed, count=6):
        with strategy.scope():
            layer = Dropout(0.5, seed=seed)
        step = tf.function(lambda: layer(ones, training=True) != 0)
        runs = [strategy.experimental_local_results(strategy.run(step)) for _ in range(count)]
        return np.array([[replica.numpy() for replica in run] for run in runs])

    kept = draws(5)  # [draw, replica, ...]
    alone = Dropout(0.5, seed=5)
    for index in range(6):
        assert (kept[index, 0] == (alone(ones, training=True) != 0).numpy()).all(), "replica 0 is Keras's stream"
    flat = kept.reshape(12, -1)
    agree = (flat[:, None] == flat[None]).mean(-1)[~np.eye(12, dtype=bool)]
    assert abs(agree - 0.5).max() < 0.06, agree  # every draw of every replica is independent of every other
    assert (draws(5) == kept).all(), "a seed repeats all replicas"
    assert (draws(6) != kept).any()

    def transformer():
        keras.utils.set_random_seed(9)
        with strategy.scope():
            model = Transformer(
                12, num_encoder_layers=1, num_decoder_layers=1, d_model=8, num_heads=2, feed_forward_dim=16
            )
        ids = {"source_ids": tf.constant([[3, 4, 5]]), "target_ids": tf.constant([[2, 6]])}
        results = strategy.run(tf.function(lambda: model(ids, training=True)))
        plain = strategy.run(tf.function(lambda: model(ids, training=False)))
        return [[x.numpy() for x in strategy.experimental_local_results(r)] for r in (results, plain)]

    (first, second), (plain, other) = transformer()
    assert abs(first - second).max() > 1e-3, "replicas of a Transformer drop alike"
    assert (plain == other).all()
    (again, again_second), _ = transformer()
    assert (first == again).all() and (second == again_second).all(), "set_random_seed repeats a run"
    print("replicas differ")
    """
)


def test_replicas_draw_masks_of_their_own():
    # A process of its own: logical devices can be configured only before TensorFlow starts.
    result = subprocess.run([sys.executable, "-c", REPLICAS], capture_output=True, text=True, timeout=120)
    assert "replicas differ" in result.stdout, result.stderr[-3000:]
