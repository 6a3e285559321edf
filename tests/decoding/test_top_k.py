"""The two passes over the vocabulary against TensorFlow's own and against NumPy in float64."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.constraints import log_normalizer, top_k

# Small ones; ones that many sizes of block divide; prime ones; five blocks of 251 and two of 1,009; one below and above
# the width from which blocks are used.
WIDTHS = (1, 5, 8, 37, 1023, 1024, 1031, 1255, 2018, 4096, 10007, 16000, 16001)


def check_top_k(values, k, function=top_k):
    best, indices = function(tf.constant(values), k)
    expected, _ = tf.math.top_k(values, k)
    np.testing.assert_array_equal(best, expected)
    assert best.dtype == tf.float32
    assert indices.dtype == tf.int32
    indices = indices.numpy()
    assert ((indices >= 0) & (indices < values.shape[-1])).all()
    possible = np.isfinite(expected)
    np.testing.assert_array_equal(np.take_along_axis(values, indices, -1)[possible], expected[possible])
    for row, places in zip(best.numpy().reshape([-1, k]), indices.reshape([-1, k]), strict=True):
        places = places[np.isfinite(row)]
        assert len(set(places)) == len(places)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("k", [1, 2, 8, 16])
def test_top_k(width, k):
    generator = np.random.default_rng(width)
    k = min(k, width)
    values = generator.normal(size=(3, 4, width)).astype("float32")
    check_top_k(values, k)
    check_top_k(values[0], k)
    check_top_k(np.sort(values), k)
    check_top_k(np.round(values), k)  # with ties
    values[generator.random(values.shape) < 0.9] = -np.inf
    check_top_k(values, k)
    values[:, :, :-1] = -np.inf  # as where a prefix forces the last token
    check_top_k(values, k)
    check_top_k(np.full([2, width], -np.inf, "float32"), k)


@pytest.mark.parametrize("width", [8, 1031, 16000])
def test_top_k_of_unknown_leading_sizes(width):
    values = np.random.default_rng(0).normal(size=(3, 2, width)).astype("float32")

    @tf.function(input_signature=[tf.TensorSpec([None, None, width])])
    def run(values):
        best, indices = top_k(values, 4)
        assert best.shape.as_list() == indices.shape.as_list() == [None, None, 4]
        return best, indices

    check_top_k(values, 4, lambda values, k: run(values))
    check_top_k(values[:, :1], 4, lambda values, k: run(values))
    check_top_k(values[:0], 4, lambda values, k: run(values))


@pytest.mark.parametrize("width", [8, 1031, 16000])
def test_compiled_by_xla(width):
    values = np.random.default_rng(1).normal(size=(2, 3, width)).astype("float32")
    check_top_k(values, 4, tf.function(lambda values, k: top_k(values, 4), jit_compile=True))
    normalizer = tf.function(log_normalizer, jit_compile=True)(values)
    np.testing.assert_allclose(normalizer, logsumexp(values), rtol=1e-6)


def logsumexp(values):
    values = values.astype("float64")
    return np.logaddexp.reduce(values, axis=-1)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
def test_log_normalizer(width, scale):
    generator = np.random.default_rng(width)
    values = (scale * generator.normal(size=(3, 4, width))).astype("float32")
    for case in (values, values[0], np.where(generator.random(values.shape) < 0.9, np.float32(-np.inf), values)):
        case = case.copy()
        case[..., generator.integers(width)] = scale  # something is possible
        exact = logsumexp(case)
        # To a few roundings of what it is computed from.
        rounding = 2e-7 * np.maximum(np.abs(exact), 1) + 2e-7 * np.abs(case.max(-1))
        assert (np.abs(log_normalizer(tf.constant(case)) - exact) <= rounding).all()


@pytest.mark.parametrize("width", [8, 16000])
def test_no_log_probability_is_positive(width):
    values = np.random.default_rng(2).normal(size=(1000, width)).astype("float32")
    values[np.arange(1000), np.arange(1000) % width] = np.linspace(0, 40, 1000)
    assert (values.max(-1) - log_normalizer(tf.constant(values))).numpy().max() <= 0
