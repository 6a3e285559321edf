"""Word alignments of attention that can be read by eye."""

import numpy as np

from keras_transformer.alignment import align_words


def test_pieces_of_a_word_are_added_in_the_source_and_averaged_in_the_target():
    attention = np.array(
        [
            # "the", "do-", "g", end
            [0.4, 0.3, 0.25, 0.05],  # first piece of a word: neither piece of "dog" beats "the", both together do
            [0.9, 0.05, 0.05, 0.0],  # second piece: with the first, "the" has 0.65 on average and "dog" 0.325
            [0.1, 0.1, 0.3, 0.5],  # a word of its own: "dog"; the end mark is no word
            [0.0, 0.0, 0.0, 1.0],  # the end mark aligns with nothing
        ]
    )
    source, target = [True, True, False, None], [True, False, True, None]
    assert align_words(attention, source, target) == ((0, 0), (1, 1))
    assert align_words(attention[[0, 2, 3]], source, [True, True, None]) == ((1, 0), (1, 1))


def test_a_first_piece_without_a_mark_begins_a_word():
    assert align_words(np.array([[0.2, 0.8]]), [False, True], [False]) == ((1, 0),)


def test_texts_without_words():
    assert align_words(np.ones([1, 1]), [None], [True]) == ()
    assert align_words(np.ones([1, 1]), [True], [None]) == ()
    assert align_words(np.ones([0, 1]), [True], []) == ()
