"""Greedy search against tables that can be read and enumerated by hand."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding import greedy_search

START, END = 2, 3
LETTERS = {4: "a", 5: "b", 6: "c", 7: "d"}
VOCABULARY_SIZE = 8


def spell(words):
    """A next-token function that makes row i spell words[i], and counts its calls in the cache."""
    ids = {letter: token for token, letter in LETTERS.items()}
    rows = [[ids[letter] for letter in word] + [END] for word in words]
    longest = max(map(len, rows), default=1)
    padded = np.array([row + [END] * (longest - len(row)) for row in rows], "int32")
    table = tf.constant(padded.reshape(-1, longest))

    def next_logits(last_ids, cache, index):
        wanted = table[:, tf.minimum(index, longest - 1)]
        return 10.0 * tf.one_hot(wanted, VOCABULARY_SIZE), cache + 1

    return next_logits


def search(next_logits, max_lengths, cache=0):
    run = tf.function(lambda limits: greedy_search(next_logits, tf.constant(cache), limits, start_id=START, end_id=END))
    return run(tf.constant(max_lengths, tf.int32))


def text(ids):
    return "".join(LETTERS.get(int(token), {END: "$", 0: "_"}.get(int(token), "?")) for token in ids)


def test_spells_each_row_and_pads_after_its_end():
    result = search(spell(["abc", "d", "bb"]), [6, 6, 6])
    assert [text(row) for row in result.ids] == ["abc$__", "d$____", "bb$___"]
    assert result.lengths.numpy().tolist() == [4, 2, 3]
    assert result.finished.numpy().all()


def test_each_row_stops_at_its_own_limit():
    result = search(spell(["abcd", "abcd", "abcd", "abcd"]), [5, 4, 1, 0])
    assert [text(row) for row in result.ids] == ["abcd$", "abcd_", "a____", "_____"]
    assert result.lengths.numpy().tolist() == [5, 4, 1, 0]
    assert result.finished.numpy().tolist() == [True, False, False, False]
    assert result.scores.numpy()[3] == 0


def test_rows_do_not_depend_on_their_mates():
    words, limits = ["abc", "d", "", "dcba"], [9, 1, 4, 3]
    together = search(spell(words), limits)
    for row, (word, limit) in enumerate(zip(words, limits, strict=True)):
        alone = search(spell([word]), [limit])
        assert text(together.ids[row]).rstrip("_") == text(alone.ids[0]).rstrip("_")
        assert together.scores[row] == alone.scores[0]


@pytest.mark.parametrize("limits", [[], [0, 0]])
def test_nothing_to_decode(limits):
    result = search(spell(["a"] * len(limits)) if limits else spell([]), limits)
    assert result.ids.shape == (len(limits), 0)
    assert result.scores.numpy().tolist() == [0.0] * len(limits)


def test_stops_with_the_last_unsettled_row():
    steps = []

    def counting(last_ids, cache, index):
        steps.append(int(index))
        return spell(["ab", "a"])(last_ids, cache, index)

    greedy_search(counting, tf.constant(0), tf.constant([100, 100]), start_id=START, end_id=END)
    assert steps == [0, 1, 2]


def test_takes_the_most_probable_token_at_each_step():
    """Table T1: greedy goes "a" .6, then "$" .4; the better "b" .36 is out of its sight."""
    table = {"": {"a": 0.6, "b": 0.4}, "a": {"$": 0.4, "a": 0.3, "b": 0.3}, "b": {"$": 0.9, "a": 0.05, "b": 0.05}}
    ids = {"a": 4, "b": 5, "$": END}
    log_probabilities = np.full((VOCABULARY_SIZE, VOCABULARY_SIZE), -1e4, "float32")
    for prefix, row in table.items():
        for token, probability in row.items():
            log_probabilities[ids.get(prefix, START), ids[token]] = np.log(probability)
    rows = tf.constant(log_probabilities)
    result = search(lambda last_ids, cache, index: (tf.gather(rows, last_ids[:, 0]), cache), [5])
    assert text(result.ids[0]) == "a$___"
    np.testing.assert_allclose(result.scores[0], np.log(0.6 * 0.4), rtol=1e-6)


def test_score_is_the_sum_of_log_probabilities():
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(4, VOCABULARY_SIZE, VOCABULARY_SIZE)).astype("float32") * 3
    rows = tf.constant(logits)

    def next_logits(last_ids, cache, index):
        return tf.gather(rows, last_ids[:, 0], batch_dims=1, axis=1), cache

    result = search(next_logits, [12] * 4)
    log_softmax = logits - np.log(np.exp(logits.astype("float64")).sum(-1, keepdims=True))
    for row in range(4):
        last, total = START, 0.0
        for token in result.ids.numpy()[row][: int(result.lengths[row])]:
            total += log_softmax[row, last, token]
            last = token
        np.testing.assert_allclose(result.scores[row], total, rtol=1e-5)


def test_padding_and_start_are_never_chosen():
    logits = np.zeros((1, VOCABULARY_SIZE), "float32")
    logits[0, [0, START]] = 9.0
    logits[0, 5] = 1.0
    result = search(lambda last_ids, cache, index: (tf.constant(logits), cache), [3])
    assert text(result.ids[0]) == "bbb"


def test_reads_the_start_id_first_and_then_its_own_choice():
    read = []

    def next_logits(last_ids, cache, index):
        read.append(last_ids.numpy().tolist())
        return spell(["ab", "c"])(last_ids, cache, index)

    greedy_search(next_logits, tf.constant(0), tf.constant([3, 3]), start_id=START, end_id=END)
    assert read == [[[START], [START]], [[4], [6]], [[5], [END]]]
