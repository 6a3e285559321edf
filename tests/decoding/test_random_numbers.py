"""Threefry against its authors' published vectors, and what a row's numbers may depend on."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.random_numbers import threefry, uniform


def words(text):
    return tuple(tf.constant(int(word, 16), tf.uint32) for word in text.split())


@pytest.mark.parametrize(
    ("counters", "keys", "bits"),
    [
        ("00000000 00000000", "00000000 00000000", "6b200159 99ba4efe"),
        ("ffffffff ffffffff", "ffffffff ffffffff", "1cb996fc bb002be7"),
        ("243f6a88 85a308d3", "13198a2e 03707344", "c4923a9c 483df7a0"),
    ],
)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_gives_the_published_bits(counters, keys, bits, jit_compile):
    found = tf.function(threefry, jit_compile=jit_compile)(words(keys), words(counters))
    assert [f"{word.numpy():08x}" for word in found] == bits.split()


SEEDS = np.random.default_rng(0).integers(-(2**31), 2**31, [50, 2]).astype("int32")


def test_a_number_depends_on_its_seed_column_and_step_alone():
    together = uniform(SEEDS, 4, 30).numpy()
    np.testing.assert_array_equal(uniform(SEEDS[7:8], 2, 9)[0], together[7, :2, :9])
    np.testing.assert_array_equal(tf.function(uniform, jit_compile=True)(SEEDS, 4, 30), together)
    np.testing.assert_array_equal(tf.function(uniform)(SEEDS, 4, tf.constant(30)), together)


def test_all_numbers_differ_and_are_evenly_spread():
    seeds = np.stack(np.meshgrid(np.arange(-5, 5), np.arange(-5, 5)), -1).reshape(-1, 2)  # as poor as seeds get
    numbers = uniform(seeds.astype("int32"), 8, 25).numpy()  # [100, 8, 25]
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert len(np.unique(numbers)) > numbers.size - 50  # 12 equal pairs are expected of 20,000 24-bit numbers
    counts = np.histogram(numbers, 100, (0, 1))[0]
    assert np.sum((counts - 200) ** 2 / 200) < 99 + 5 * np.sqrt(2 * 99)
    flat = numbers.reshape(100, -1) - 0.5
    correlations = np.corrcoef(flat)[np.triu_indices(100, 1)] * np.sqrt(flat.shape[1])
    assert abs(correlations.std() - 1) < 0.05
    assert abs(correlations).max() < 5.5


def test_nothing_to_draw():
    assert uniform(np.zeros([0, 2], "int32"), 3, 4).shape == (0, 3, 4)
    assert uniform(np.zeros([2, 2], "int32"), 3, 0).shape == (2, 3, 0)
