"""Word alignments of attention that can be read by eye."""

import numpy as np
import tensorflow as tf

from keras_transformer.translation.alignment import align_words


def align(attention, source_words, target_words):
    attention = tf.constant(np.asarray(attention, "float32"))
    words = (tf.constant(words, tf.int32) for words in (source_words, target_words))
    alignment, weights = align_words(attention, *words)
    return alignment.numpy().tolist(), weights.numpy()


def test_pieces_of_a_word_are_added_in_the_source_and_averaged_in_the_target():
    attention = [
        # "the", "do-", "g", end
        [0.4, 0.3, 0.25, 0.05],  # first piece of a word: neither piece of "dog" beats "the", both together do
        [0.9, 0.05, 0.05, 0.0],  # second piece: with the first, "the" has 0.65 on average and "dog" 0.325
        [0.1, 0.1, 0.3, 0.5],  # a word of its own: "dog"; the end mark is no word
        [0.0, 0.0, 0.0, 1.0],  # the end mark aligns with nothing
    ]
    source = [0, 1, 1, -1]
    alignment, weights = align([attention, attention], [source, source], [[0, 0, 1, -1], [0, 1, 2, -1]])
    assert alignment == [[0, 1, -1], [1, 0, 1]]
    np.testing.assert_allclose(weights[0], [[0.65, 0.325], [0.1, 0.4], [0, 0]], atol=1e-6)
    np.testing.assert_allclose(weights[1], [[0.4, 0.55], [0.9, 0.1], [0.1, 0.4]], atol=1e-6)


def test_texts_without_words():
    assert align(np.ones([2, 1, 1]), [[-1], [0]], [[0], [-1]])[0] == [[-1], [-1]]
    alignment, weights = align(np.ones([1, 1, 1]), [[-1]], [[0]])
    assert (alignment, weights.shape) == ([[-1]], (1, 1, 0))
    assert align(np.ones([1, 0, 1]), [[0]], np.zeros([1, 0]))[0] == [[]]
    assert align(np.ones([0, 2, 1]), np.zeros([0, 1]), np.zeros([0, 2]))[0] == []
