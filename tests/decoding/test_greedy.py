"""A beam of one is greedy search: words that can be read, and the most probable token at each step."""

import math

import numpy as np
import plain_search
import pytest
import tensorflow as tf
from plain_search import END, MARKS, ORDINARY, PADDING, START, VOCABULARY_SIZE, Table

from keras_transformer.decoding import BeamSearch

LETTERS = dict(zip(ORDINARY, "abcde", strict=True))


def spell(words):
    """A next-token function that makes row i spell words[i]."""
    ids = {letter: token for token, letter in LETTERS.items()}
    rows = [[ids[letter] for letter in word] + [END] for word in words]
    longest = max(map(len, rows))
    table = tf.constant([row + [END] * (longest - len(row)) for row in rows])

    def next_logits(ids, cache, index, ancestry):
        wanted = table[:, tf.minimum(index, longest - 1)]
        return 10.0 * tf.one_hot(wanted, VOCABULARY_SIZE)[:, None], cache

    return next_logits


def search(next_logits, max_lengths, **options):
    run = tf.function(lambda limits: BeamSearch(beam_size=1, **options)(next_logits, (), limits, **MARKS))
    return run(tf.constant(max_lengths, tf.int32))


def texts(result):
    return ["".join({**LETTERS, END: "$", PADDING: "_"}.get(int(token), "?") for token in row[0]) for row in result.ids]


def test_spells_each_row_and_pads_after_its_end():
    result = search(spell(["abc", "d", "bb"]), [6, 6, 6])
    assert texts(result) == ["abc$__", "d$____", "bb$___"]
    assert result.lengths.numpy().tolist() == [[4], [2], [3]]
    assert result.finished.numpy().all()


def test_each_row_stops_at_its_own_limit():
    result = search(spell(["abcd", "abcd", "abcd", "abcd"]), [5, 4, 1, 0])
    assert texts(result) == ["abcd$", "abcd_", "a____", "_____"]
    assert result.lengths.numpy().tolist() == [[5], [4], [1], [0]]
    assert result.finished.numpy().tolist() == [[True], [False], [False], [False]]
    assert result.scores.numpy()[3] == result.log_probabilities.numpy()[3] == 0


def test_rows_do_not_depend_on_their_mates():
    words, limits = ["abc", "d", "", "dcba"], [9, 1, 4, 3]
    together = search(spell(words), limits)
    for row, (word, limit) in enumerate(zip(words, limits, strict=True)):
        alone = search(spell([word]), [limit])
        assert texts(together)[row].rstrip("_") == texts(alone)[0].rstrip("_")
        assert together.scores[row] == alone.scores[0]


def test_stops_with_the_last_unsettled_row():
    steps = []

    def counting(ids, cache, index, ancestry):
        steps.append(int(index))
        return spell(["ab", "a"])(ids, cache, index, ancestry)

    BeamSearch(beam_size=1)(counting, (), tf.constant([100, 100]), **MARKS)
    assert steps == [0, 1, 2]


def test_reads_the_start_id_first_and_then_its_own_choice():
    read = []

    def next_logits(ids, cache, index, ancestry):
        read.append(ids.numpy()[:, 0].tolist())
        return spell(["ab", "c"])(ids, cache, index, ancestry)

    BeamSearch(beam_size=1)(next_logits, (), tf.constant([3, 3]), **MARKS)
    assert read[:2] == [[START, START], [ORDINARY[0], ORDINARY[2]]]
    assert [row[0] for row in read] == [START, *ORDINARY[:2]]


def test_padding_and_start_are_never_chosen():
    logits = np.zeros([1, 1, VOCABULARY_SIZE], "float32")
    logits[0, 0, [PADDING, START]] = 9.0
    logits[0, 0, ORDINARY[1]] = 1.0
    result = search(lambda ids, cache, index, ancestry: (tf.constant(logits), cache), [3])
    assert texts(result) == ["bbb"]
    # Their probability is not given to the others.
    np.testing.assert_allclose(
        result.log_probabilities, [[3 * (1 - math.log(2 * math.exp(9) + math.e + VOCABULARY_SIZE - 3))]], rtol=1e-6
    )


@pytest.mark.parametrize("alpha", [-0.5, 0.0, 0.6, 1.0, 2.0, 6.0])
def test_takes_the_most_probable_token_until_the_first_end(alpha):
    """Whatever the length penalty: it ranks hypotheses, and there is one only."""
    logits = plain_search.random_tables(seed=7, count=200)
    limits = np.arange(200) % 6
    result = BeamSearch(beam_size=1, length_penalty=alpha)(
        plain_search.next_logits, plain_search.start_cache(logits, 5, 1), tf.constant(limits, tf.int32), **MARKS
    )
    for row in range(200):
        table, tokens, total = Table(logits[row]), [], 0.0
        while len(tokens) < limits[row] and END not in tokens:
            log_probabilities = table.log_probabilities(tokens)
            tokens.append(max((END, *ORDINARY), key=log_probabilities.__getitem__))
            total += log_probabilities[tokens[-1]]
        assert result.ids[row, 0].numpy().tolist() == tokens + [PADDING] * (5 - len(tokens))
        assert result.lengths[row, 0] == len(tokens)
        assert result.finished[row, 0] == (END in tokens)
        np.testing.assert_allclose(result.log_probabilities[row, 0], total, rtol=1e-6, atol=1e-6)
        score = plain_search.normalized(total, len(tokens), alpha)
        np.testing.assert_allclose(result.scores[row, 0], score, rtol=1e-6, atol=1e-6)
