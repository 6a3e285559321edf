"""What a search may not write: each option, and all together, against plain Python and against its own promise."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import plain_search
import pytest
import tensorflow as tf
from plain_search import END, MARKS, ORDINARY, PADDING, START, VOCABULARY_SIZE, Table, assert_same, hypotheses

from keras_transformer.decoding import BeamSearch

NUM_ROWS = 12
LIMIT = 9
PREFIX_LENGTH = 11
OPTIONS = [
    {"beam_size": 1},
    {"beam_size": 4, "num_hypotheses": 4},
    {"beam_size": 3, "num_hypotheses": 3, "min_length": 3},
    {"beam_size": 1, "min_length": 20},
    {"beam_size": 3, "num_hypotheses": 3, "no_repeat_ngram_size": 1, "length_penalty": 1.0},
    {"beam_size": 4, "num_hypotheses": 2, "no_repeat_ngram_size": 2, "length_penalty": -0.5},
    {"beam_size": 2, "num_hypotheses": 1, "no_repeat_ngram_size": 3},
    {"beam_size": 3, "num_hypotheses": 3, "blocked_ids": (ORDINARY[1], ORDINARY[4])},
    {"beam_size": 1, "repetition_penalty": 1.3},
    {"beam_size": 4, "num_hypotheses": 4, "repetition_penalty": 5.0, "length_penalty": 2.0},
    {"beam_size": 3, "num_hypotheses": 3, "repetition_penalty": 0.5},
    {
        "beam_size": 4,
        "num_hypotheses": 4,
        "min_length": 2,
        "no_repeat_ngram_size": 2,
        "repetition_penalty": 2.0,
        "blocked_ids": (ORDINARY[0],),
    },
]
tokens = st.sampled_from(ORDINARY)
prefixes = st.lists(st.lists(tokens, max_size=PREFIX_LENGTH), min_size=NUM_ROWS, max_size=NUM_ROWS)
limits = st.lists(st.integers(0, LIMIT), min_size=NUM_ROWS, max_size=NUM_ROWS)


def make_search(options):
    """A `tf.function` of tables, limits and prefixes, traced once."""
    signature = (
        tf.TensorSpec([NUM_ROWS, None, VOCABULARY_SIZE], tf.float32),
        tf.TensorSpec([NUM_ROWS], tf.int32),
        tf.TensorSpec([NUM_ROWS, None], tf.int32),
    )

    @tf.function(input_signature=signature)
    def run(logits, limits, prefix_ids):
        cache = plain_search.start_cache(logits, LIMIT, options["beam_size"])
        return BeamSearch(**options)(
            plain_search.next_logits, cache, limits, max_length=LIMIT, prefix_ids=prefix_ids, **MARKS
        )

    return run


def pad(prefixes, length=PREFIX_LENGTH):
    return np.array([prefix + [PADDING] * (length - len(prefix)) for prefix in prefixes], "int32")


def check_promises(found, prefix, limit, options):
    """What the options promise of a result, whatever the search."""
    forced = tuple(prefix[:limit])
    size = options.get("no_repeat_ngram_size", 0)
    for written, *_, finished in found:
        assert written[: len(forced)] == forced
        assert len(written) <= limit
        assert finished or len(written) == limit
        free = range(len(forced), len(written))
        for place in free:
            assert written[place] not in options.get("blocked_ids", ())
            if size and place + 1 >= size:
                ngram = written[place + 1 - size : place + 1]
                before = [written[start : start + size] for start in range(place + 1 - size)]
                assert ngram not in before
        if finished:
            assert len(written) - 1 >= options.get("min_length", 0)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_is_the_plain_search_with_the_same_rules(options):
    run = make_search(options)

    # The same examples always: in others, totals may be so close that float32 ranks them otherwise than float64.
    @hypothesis.settings(deadline=None, max_examples=8, derandomize=True)
    @hypothesis.given(seed=st.integers(0, 10**6), limits=limits, prefixes=prefixes)
    def check(seed, limits, prefixes):
        logits = plain_search.random_tables(seed, NUM_ROWS)
        logits[:, :, ORDINARY[:2]] += 2.0  # so that what has been written comes again
        result = run(logits, limits, pad(prefixes))
        for row, (prefix, limit) in enumerate(zip(prefixes, limits, strict=True)):
            found = hypotheses(result, row)
            check_promises(found, prefix, limit, options)
            wanted = plain_search.beam_search(Table(logits[row]), limit, prefix=prefix, **options)
            assert_same(found, wanted, tolerance=2e-6)

    check()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_is_the_plain_search_without_a_prefix_too(options):
    logits = plain_search.random_tables(6, 60)
    logits[:, :, ORDINARY[:2]] += 2.0
    limits = np.arange(60) % (LIMIT + 1)
    cache = plain_search.start_cache(logits, LIMIT, options["beam_size"])
    result = BeamSearch(**options)(plain_search.next_logits, cache, tf.constant(limits, tf.int32), **MARKS)
    for row, limit in enumerate(limits.tolist()):
        found = hypotheses(result, row)
        check_promises(found, [], limit, options)
        assert_same(found, plain_search.beam_search(Table(logits[row]), limit, **options), tolerance=2e-6)


@pytest.mark.parametrize("num_blocked", [0, 1, 13, 14, 15, 30, 46])
@pytest.mark.parametrize("beam_size", [1, 3])
def test_any_number_of_blocked_ids(num_blocked, beam_size):
    """One step, with the blocked ids among the most probable: what is left is ranked by the model's probabilities."""
    size = 50
    logits = np.random.default_rng(num_blocked).normal(size=[2, size]).astype("float32")
    ranked = [int(token) for token in np.argsort(-logits[0]) if token not in (PADDING, START, END)]
    blocked_ids, logits[1] = ranked[:num_blocked], logits[0, ::-1]
    search = BeamSearch(beam_size=beam_size, num_hypotheses=beam_size, blocked_ids=blocked_ids, min_length=1)
    next_logits = lambda ids, cache, index, ancestry: (tf.tile(logits[:, None], [1, beam_size, 1]), cache)  # noqa: E731
    result = search(next_logits, (), tf.constant([1, 1]), **MARKS)
    for row in range(2):
        exact = logits[row] - np.logaddexp.reduce(logits[row].astype("float64"))
        allowed = sorted(set(range(size)) - {PADDING, START, END, *blocked_ids}, key=lambda token: -exact[token])
        found = [(tokens[0], log_probability) for tokens, log_probability, *_ in hypotheses(result, row)]
        assert [token for token, _ in found] == allowed[:beam_size]
        np.testing.assert_allclose([number for _, number in found], exact[allowed[:beam_size]], rtol=1e-6)


@pytest.mark.parametrize("prefix", [[], [5], [5, 5, 7]])
def test_a_prefix_as_long_as_it_is(prefix):
    """However it is padded, and also without a prefix argument if there is nothing to force."""
    logits = plain_search.random_tables(1, NUM_ROWS)
    options = {"beam_size": 3, "num_hypotheses": 3}
    run = make_search(options)
    results = [
        run(logits, [LIMIT] * NUM_ROWS, pad([prefix] * NUM_ROWS, length)) for length in range(len(prefix), 2 * LIMIT)
    ]
    if not prefix:
        cache = plain_search.start_cache(logits, LIMIT, 3)
        limits = tf.fill([NUM_ROWS], LIMIT)
        results.append(BeamSearch(**options)(plain_search.next_logits, cache, limits, **MARKS))
    for result in results[1:]:
        for one, two in zip(result, results[0], strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-6)


@pytest.mark.parametrize(
    "prefix",
    [
        [ORDINARY[0], ORDINARY[0], ORDINARY[0], ORDINARY[0]],  # repeats itself
        [ORDINARY[2], ORDINARY[2]],  # is blocked
        [ORDINARY[2], END],  # ends before the least length
    ],
)
def test_a_prefix_goes_before_every_rule(prefix):
    options = {"beam_size": 2, "min_length": 3, "no_repeat_ngram_size": 1, "blocked_ids": (ORDINARY[2],)}
    logits = plain_search.random_tables(2, NUM_ROWS)
    result = make_search(options)(logits, [LIMIT] * NUM_ROWS, pad([prefix] * NUM_ROWS))
    for row in range(NUM_ROWS):
        [(written, log_probability, *_)] = hypotheses(result, row)
        assert list(written[: len(prefix)]) == prefix
        np.testing.assert_allclose(log_probability, Table(logits[row]).log_probability(written), rtol=2e-6)


def test_a_prefix_that_the_model_rules_out_has_no_result():
    logits = plain_search.random_tables(3, NUM_ROWS)
    logits[0, 0, ORDINARY[0]] = -np.inf
    result = make_search({"beam_size": 2})(logits, [LIMIT] * NUM_ROWS, pad([[ORDINARY[0]]] * NUM_ROWS))
    assert hypotheses(result, 0) == []
    assert all(len(hypotheses(result, row)) == 1 for row in range(1, NUM_ROWS))


def test_what_is_allowed_keeps_the_probability_that_the_model_gives_it():
    logits = np.log(np.array([0.1, 0.1, 0.2, 0.25, 0.05, 0.1, 0.1, 0.1], "float32"))
    next_logits = lambda ids, cache, index, ancestry: (tf.broadcast_to(logits, [1, 1, 8]), cache)  # noqa: E731
    search = BeamSearch(beam_size=1, blocked_ids=[ORDINARY[0]], min_length=1)
    result = search(next_logits, (), tf.constant([2]), **MARKS)
    assert result.ids.numpy().tolist() == [[[ORDINARY[2], END]]]
    np.testing.assert_allclose(result.log_probabilities, [[np.log(0.1 * 0.2)]], rtol=1e-6)


def test_min_length_does_not_count_the_end_mark():
    logits = tf.one_hot([[END]], VOCABULARY_SIZE, 5.0) + tf.one_hot([[ORDINARY[0]]], VOCABULARY_SIZE, 1.0)
    for min_length in range(4):
        search = BeamSearch(beam_size=1, min_length=min_length)
        result = search(lambda ids, cache, index, ancestry: (logits, cache), (), tf.constant([3]), **MARKS)
        cut = min_length == 3
        assert result.ids.numpy().tolist() == [[([ORDINARY[0]] * min_length + [END] * (not cut) + [PADDING] * 3)[:3]]]
        assert result.finished.numpy().tolist() == [[not cut]]


def test_repetition_penalty_by_hand():
    """Tokens a, a's logit 2 halves to 1 once it is written; b's logit -1 doubles to -2; the end's 0.5 stays."""
    logits = np.full([VOCABULARY_SIZE], -20, "float32")
    logits[[END, ORDINARY[0], ORDINARY[1]]] = 0.5, 2.0, -1.0
    next_logits = lambda ids, cache, index, ancestry: (tf.broadcast_to(logits, [1, 1, 8]), cache)  # noqa: E731
    search = BeamSearch(beam_size=1, repetition_penalty=2.0, length_penalty=0.0, min_length=2, no_repeat_ngram_size=1)
    result = search(next_logits, (), tf.constant([3]), **MARKS)
    assert result.ids.numpy().tolist() == [[[ORDINARY[0], ORDINARY[1], END]]]

    def log_probability(token, logits):
        return logits[token] - np.logaddexp.reduce(logits.astype("float64"))

    model = sum(log_probability(token, logits) for token in (ORDINARY[0], ORDINARY[1], END))
    guides = [logits.copy() for _ in range(3)]
    guides[1][ORDINARY[0]] = guides[2][ORDINARY[0]] = 1.0
    guides[2][ORDINARY[1]] = -2.0
    guiding = sum(
        log_probability(token, guide) for token, guide in zip((ORDINARY[0], ORDINARY[1], END), guides, strict=True)
    )
    np.testing.assert_allclose(result.log_probabilities, [[model]], rtol=1e-6)
    np.testing.assert_allclose(result.scores, [[guiding]], rtol=1e-6)


def test_nothing_left_to_write():
    """Five tokens, none twice, no end before eight: there is no such hypothesis."""
    logits = plain_search.random_tables(4, NUM_ROWS)
    options = {"beam_size": 2, "num_hypotheses": 2, "no_repeat_ngram_size": 1, "min_length": 8}
    result = make_search(options)(logits, [5] * 6 + [6] * 6, pad([[]] * NUM_ROWS))
    for row in range(6):
        assert len(hypotheses(result, row)) == 2
        assert hypotheses(result, row + 6) == []
    assert not np.isnan(result.scores).any()
    assert not np.isnan(result.log_probabilities).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_length": -1}, r"`min_length`.*min_length=-1"),
        ({"no_repeat_ngram_size": -2}, r"`no_repeat_ngram_size`.*no_repeat_ngram_size=-2"),
        ({"repetition_penalty": 0.0}, r"`repetition_penalty`.*repetition_penalty=0.0"),
        ({"repetition_penalty": -1.5}, r"`repetition_penalty`.*repetition_penalty=-1.5"),
        ({"repetition_penalty": float("nan")}, r"`repetition_penalty`.*repetition_penalty=nan"),
        ({"blocked_ids": [1, -4]}, r"`blocked_ids`.*blocked_ids=\(1, -4\)"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**options)


@pytest.mark.parametrize("token", [END, VOCABULARY_SIZE, 100])
def test_blocked_ids_that_the_vocabulary_does_not_allow(token):
    logits = tf.zeros([1, 4, VOCABULARY_SIZE])
    search = BeamSearch(blocked_ids=[ORDINARY[0], token])
    with pytest.raises(ValueError, match=rf"`blocked_ids`.*{VOCABULARY_SIZE}.*: {token}"):
        search(lambda ids, cache, index, ancestry: (logits, cache), (), tf.constant([1]), **MARKS)


def test_padding_and_start_may_be_blocked_as_well():
    logits = plain_search.random_tables(5, NUM_ROWS)
    free = make_search({"beam_size": 2})(logits, [LIMIT] * NUM_ROWS, pad([[]] * NUM_ROWS))
    blocked = make_search({"beam_size": 2, "blocked_ids": (PADDING, START)})(
        logits, [LIMIT] * NUM_ROWS, pad([[]] * NUM_ROWS)
    )
    for one, two in zip(free, blocked, strict=True):
        np.testing.assert_array_equal(one, two)
