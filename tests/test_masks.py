import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.masks import causal_mask, padding_mask


def test_padding_mask_marks_real_tokens():
    mask = padding_mask(np.array([[5, 6, 0], [7, 0, 0], [0, 0, 0]]))
    assert mask.dtype == "bool"
    np.testing.assert_array_equal(mask, [[True, True, False], [True, False, False], [False, False, False]])


def test_padding_mask_of_another_id():
    np.testing.assert_array_equal(padding_mask(np.array([[0, 1, 9]]), padding_id=9), [[True, True, False]])


def test_causal_mask_is_the_lower_triangle():
    mask = causal_mask(4)
    assert mask.dtype == "bool"
    np.testing.assert_array_equal(mask, np.tril(np.ones((1, 4, 4), bool)))


@pytest.mark.parametrize("as_tensor", [int, np.int64, tf.constant, lambda n: tf.constant(n, tf.int64)])
def test_causal_mask_from_a_later_position(as_tensor):
    mask = causal_mask(2, 6, query_start=as_tensor(3))
    np.testing.assert_array_equal(mask, [[[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]]])


def test_causal_mask_of_lengths_known_only_when_run():
    @tf.function(input_signature=[tf.TensorSpec((None, None))])
    def mask(x):
        return causal_mask(keras.ops.shape(x)[0], keras.ops.shape(x)[1])

    np.testing.assert_array_equal(mask(np.zeros((2, 3), "float32")), [[[1, 0, 0], [1, 1, 0]]])
