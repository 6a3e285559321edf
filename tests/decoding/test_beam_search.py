"""Beam search against plain Python and against enumeration of all that can be written."""

import math

import numpy as np
import plain_search
import pytest
import tensorflow as tf
from plain_search import END, MARKS, ORDINARY, PADDING, START, VOCABULARY_SIZE, Table, assert_same, hypotheses

from keras_transformer.decoding import BeamSearch

LIMIT = 5
ALPHAS = (-0.5, 0.0, 0.6, 1.0, 2.0)
LETTERS = {ORDINARY[0]: "a", ORDINARY[1]: "b", END: "$"}


@pytest.fixture(scope="module")
def logits():
    # With this seed no two totals that a search has to tell apart are closer than float32 can.
    return plain_search.random_tables(seed=3, count=500)


@pytest.fixture(scope="module")
def tables(logits):
    return [Table(table) for table in logits]


@pytest.fixture(scope="module")
def enumerated(logits):
    """The tables with nothing but the end after 4 tokens, and the log-probabilities of all that they can write."""
    closed = logits.copy()
    closed[:, -(5**4) :] = -math.inf
    closed[:, -(5**4) :, END] = 0
    return closed, [plain_search.all_log_probabilities(table, LIMIT) for table in closed]


def search(options, logits, limits, next_logits=plain_search.next_logits, **arguments):
    """One call of `options`, outside of a `tf.function`."""
    limits = np.asarray(limits, "int32")
    cache = plain_search.start_cache(logits, max(0, *limits, 0), options.beam_size)
    return options(next_logits, cache, tf.constant(limits), **MARKS, **arguments)


def in_graph(options, length=LIMIT, next_logits=plain_search.next_logits, **arguments):
    """A `tf.function` of tables and limits, traced once for all of them."""
    tables = tf.TensorSpec([None, None, VOCABULARY_SIZE], tf.float32)

    @tf.function(input_signature=(tables, tf.TensorSpec([None], tf.int32)))
    def run(logits, limits):
        cache = plain_search.start_cache(logits, length, options.beam_size)
        return options(next_logits, cache, limits, max_length=length, **MARKS, **arguments)

    return run


# === A table to read: T1 ===


def t1():
    """a .6, b .4; after a: end .4, a .3, b .3; after b: end .9, a .05, b .05; after all else the end."""
    a, b = ORDINARY[:2]
    table = np.full([plain_search.NUM_PREFIXES, VOCABULARY_SIZE], -math.inf, "float32")
    table[:, END] = 0
    table[0, END] = -math.inf
    table[0, [a, b]] = np.log([0.6, 0.4])
    table[1, [END, a, b]] = np.log([0.4, 0.3, 0.3])
    table[2, [END, a, b]] = np.log([0.9, 0.05, 0.05])
    return table[None]


def read(result):
    return [
        "".join(LETTERS[token] for token in tokens) + f" {math.exp(log_probability):.2f}"
        for tokens, log_probability, *_ in hypotheses(result, 0)
    ]


@pytest.mark.parametrize(
    ("options", "limit", "expected"),
    [
        ({"beam_size": 1}, 5, ["a$ 0.24"]),
        ({"beam_size": 2}, 5, ["b$ 0.36"]),
        ({"beam_size": 4, "num_hypotheses": 4}, 5, ["b$ 0.36", "a$ 0.24", "aa$ 0.18", "ab$ 0.18"]),
        # -1.0217 / 1.3611, -1.7148 / 1.7778 twice, -1.4271 / 1.3611: longer ones overtake "a".
        ({"beam_size": 4, "num_hypotheses": 4, "length_penalty": 2}, 5, ["b$ 0.36", "aa$ 0.18", "ab$ 0.18", "a$ 0.24"]),
        ({"beam_size": 4, "length_penalty": 6}, 5, ["aa$ 0.18"]),
        ({"beam_size": 4, "length_penalty": 6}, 2, ["b$ 0.36"]),
        ({"beam_size": 4, "num_hypotheses": 3}, 2, ["b$ 0.36", "a$ 0.24", "aa 0.18"]),
        ({"beam_size": 4, "num_hypotheses": 4}, 1, ["a 0.60", "b 0.40"]),
        ({"beam_size": 4}, 0, [" 1.00"]),
    ],
)
def test_t1(options, limit, expected):
    found = read(search(BeamSearch(**{"length_penalty": 0.0, **options}), t1(), [limit]))
    assert found == expected


def test_t1_has_only_so_many_hypotheses():
    """Eight may be asked for, and six can be written: the other two do not exist, and none is given twice."""
    result = search(BeamSearch(beam_size=8, num_hypotheses=8, length_penalty=0.0), t1(), [LIMIT])
    assert sorted(read(result)) == ["a$ 0.24", "aa$ 0.18", "ab$ 0.18", "b$ 0.36", "ba$ 0.02", "bb$ 0.02"]
    assert result.lengths[0].numpy().tolist() == [2, 2, 3, 3, 3, 3, 0, 0]
    assert result.scores[0, 6:].numpy().tolist() == [-math.inf, -math.inf]
    np.testing.assert_allclose(result.scores[0, :6], np.log([0.36, 0.24, 0.18, 0.18, 0.02, 0.02]), rtol=1e-6)


# === Random tables ===


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_as_wide_as_the_space_finds_what_enumeration_finds(logits, alpha, enumerated):
    """Strings of up to 4 tokens: all 3 token ones with each of their continuations fit into the beam.

    As in T1, what the table has no row for is followed by the end.
    """
    closed, log_probabilities = enumerated
    run = in_graph(BeamSearch(beam_size=5**3 * 6, num_hypotheses=10, length_penalty=alpha))
    result = run(closed, tf.fill([500], LIMIT))
    for row in range(500):
        wanted = plain_search.exhaustive_search(log_probabilities[row], LIMIT, alpha, 10)
        assert_same(hypotheses(result, row), wanted)


def test_a_beam_as_wide_as_the_space_at_the_limit(logits):
    """As above, but the fifth token may be any, so that many strings are cut."""
    options = BeamSearch(beam_size=5**4 * 6, num_hypotheses=1000)
    result = in_graph(options)(logits[:20], tf.fill([20], LIMIT))
    for row in range(20):
        log_probabilities = plain_search.all_log_probabilities(logits[row], LIMIT)
        wanted = plain_search.exhaustive_search(log_probabilities, LIMIT, 0.6, 1000)
        assert_same(hypotheses(result, row)[: len(wanted)], wanted)
        assert result.finished[row].numpy().sum() == len(wanted) == 781


@pytest.mark.parametrize("beam_size", range(1, 9))
def test_is_the_plain_search_that_never_stops_early(logits, tables, beam_size):
    @tf.function
    def run(alpha):  # a tensor, so that all alphas share a trace
        return [
            search(BeamSearch(beam_size=beam_size, length_penalty=alpha, num_hypotheses=count), logits, [LIMIT] * 500)
            for count in (1, beam_size)
        ]

    for alpha in ALPHAS:
        first, best = run(tf.constant(alpha))
        options = {"beam_size": beam_size, "length_penalty": alpha, "num_hypotheses": beam_size}
        for row, table in enumerate(tables):
            wanted = plain_search.beam_search(table, LIMIT, **options)
            assert_same(hypotheses(best, row), wanted)
            assert_same(hypotheses(first, row), wanted[:1])


@pytest.mark.parametrize("beam_size", [1, 3, 8])
@pytest.mark.parametrize("alpha", [-0.5, 1.0])
def test_rows_with_few_possible_tokens(beam_size, alpha):
    """Half of all tokens are impossible, so hypotheses die and beams stay empty."""
    logits = plain_search.random_tables(seed=2, count=200)
    logits[np.random.default_rng(3).random(logits.shape) < 0.5] = -math.inf
    logits[:, :, PADDING] = 0.0
    options = {"beam_size": beam_size, "length_penalty": alpha, "num_hypotheses": beam_size}
    result = search(BeamSearch(**options), logits, [LIMIT] * 200)
    assert np.isneginf(result.scores).any()
    assert not np.isnan(result.scores).any()
    for row in range(200):
        assert_same(hypotheses(result, row), plain_search.beam_search(Table(logits[row]), LIMIT, **options))


# === Rows, limits, steps ===


@pytest.mark.parametrize("alpha", [-0.5, 0.6, 2.0])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_row_depends_on_nothing_but_itself(logits, tables, beam_size, alpha):
    options = {"beam_size": beam_size, "length_penalty": alpha, "num_hypotheses": beam_size}
    run = in_graph(BeamSearch(**options))
    limits = np.arange(60) % (LIMIT + 1)
    together = run(logits[:60], limits)
    shuffled = np.random.default_rng(4).permutation(60)
    mixed = run(logits[shuffled], limits[shuffled])
    for row in range(60):
        found = hypotheses(together, row)
        assert_same(found, plain_search.beam_search(tables[row], int(limits[row]), **options))
        assert_same(hypotheses(mixed, np.flatnonzero(shuffled == row)[0]), found)
        alone = run(logits[row : row + 1], limits[row : row + 1])
        assert_same(hypotheses(alone, 0), found)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_row_may_have_its_own_length_penalty_and_least_length(logits, tables, beam_size):
    penalties = np.resize(np.array(ALPHAS, "float32"), 60)
    shortest = np.resize(np.arange(4, dtype="int32"), 60)
    run = in_graph(BeamSearch(beam_size=beam_size), min_lengths=shortest, length_penalties=penalties)
    result = run(logits[:60], np.full([60], LIMIT, "int32"))
    for row in range(60):
        options = {"length_penalty": float(penalties[row]), "min_length": int(shortest[row])}
        expected = plain_search.beam_search(tables[row], LIMIT, beam_size=beam_size, **options)
        assert_same(hypotheses(result, row), expected)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_nothing_to_decode(beam_size):
    options = BeamSearch(beam_size=beam_size)
    for limits in ([], [0, 0], [-1, 0]):
        result = search(options, np.zeros([len(limits), 1, VOCABULARY_SIZE], "float32"), limits)
        assert result.ids.shape == (len(limits), 1, 0)
        assert result.lengths.numpy().tolist() == [[0]] * len(limits)
        assert result.scores.numpy().tolist() == [[0.0]] * len(limits)
        assert not result.finished.numpy().any()


def test_limits_are_cut_to_max_length(logits, tables):
    options = BeamSearch(beam_size=2, num_hypotheses=2)
    result = in_graph(options, length=3)(logits[:20], np.full([20], 9))
    assert result.ids.shape == (20, 2, 3)
    for row in range(20):
        assert_same(hypotheses(result, row), plain_search.beam_search(tables[row], 3, beam_size=2, num_hypotheses=2))


@pytest.mark.parametrize("alpha", [-0.5, 0.6, 2.0])
@pytest.mark.parametrize(("beam_size", "num_hypotheses"), [(1, 1), (2, 1), (4, 1), (4, 3)])
def test_stops_with_the_last_row_that_is_not_settled(alpha, beam_size, num_hypotheses):
    options = {"beam_size": beam_size, "num_hypotheses": num_hypotheses, "length_penalty": alpha}
    logits = plain_search.random_tables(seed=5, count=30)
    logits[:, :, END] += 2.0
    settled = [plain_search.settled_after(Table(table), LIMIT, **options) for table in logits]
    assert len(set(settled)) > 1
    steps = tf.Variable(0)

    def counting(*arguments):
        steps.assign_add(1)
        return plain_search.next_logits(*arguments)

    run = in_graph(BeamSearch(**options), next_logits=counting)
    for start in range(0, 30, 2):
        steps.assign(0)
        run(logits[start : start + 2], [LIMIT, LIMIT])
        assert steps.numpy() == max(settled[start : start + 2])


@pytest.mark.parametrize("block_length", [1, 2, 3, 8])
def test_a_cache_that_grows_while_settled_rows_leave_changes_nothing(logits, block_length):
    options = BeamSearch(beam_size=3, num_hypotheses=3)
    generator = np.random.default_rng(6)
    logits = logits[:60].copy()
    logits[:, :, END] += generator.permutation(np.linspace(-2, 8, 60, dtype="float32"))[:, None]  # some end soon
    prefix_ids = generator.choice(ORDINARY, size=(60, 4)).astype("int32")
    prefix_ids *= np.arange(4) < generator.integers(-4, 5, size=(60, 1))
    rooms = []

    def next_logits(ids, cache, index, ancestry):
        rooms.append((len(ids), int(index), cache["ids"].shape[1], ancestry.shape[2]) if tf.executing_eagerly() else ())
        return plain_search.next_logits(ids, cache, index, ancestry)

    def run(logits, limits, prefix_ids):
        arguments = {"grow_cache": plain_search.grow(block_length), "block_length": block_length}
        cache = plain_search.start_cache(logits, 0, 3)
        return options(next_logits, cache, limits, prefix_ids=prefix_ids, **MARKS, **arguments)

    signature = (
        tf.TensorSpec([None, None, VOCABULARY_SIZE], tf.float32),
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([None, 4], tf.int32),
    )
    graph = tf.function(run, input_signature=signature)
    for limits in (generator.permutation(60) % 6, np.full([60], 4), np.zeros([60], int)):
        grown = graph(logits, limits, prefix_ids)
        plain = search(options, logits, limits, prefix_ids=tf.constant(prefix_ids))
        assert grown.ids.shape == (60, 3, max(limits))
        for row in range(60):
            assert_same(hypotheses(grown, row), hypotheses(plain, row))
    assert rooms == [()]  # one trace

    rooms.clear()
    run(tf.constant(logits), tf.fill([60], LIMIT), tf.constant(prefix_ids))
    for _, index, *room in rooms:
        assert room == [(index // block_length + 1) * block_length] * 2
    num_rows = [rows for rows, *_ in rooms]
    assert num_rows == sorted(num_rows, reverse=True)
    assert num_rows[0] == 60
    assert num_rows[-1] == 60 if block_length >= LIMIT else num_rows[-1] < 60
    assert all(rows % 8 == 0 or rows == 60 for rows in num_rows)


@pytest.mark.parametrize("constrained", [False, True])
def test_compiled_by_xla(logits, tables, constrained):
    options = {"beam_size": 3, "num_hypotheses": 2}
    prefix, arguments = None, {}
    if constrained:
        options |= {"min_length": 2, "no_repeat_ngram_size": 2, "repetition_penalty": 1.5, "blocked_ids": (5,)}
        prefix = np.array([[3, 0], [0, 0], [4, 4], [6, 7]] * 5, "int32")
        arguments = {"prefix_ids": tf.constant(prefix)}
    limits = np.arange(20) % (LIMIT + 1)

    @tf.function(jit_compile=True)
    def run(logits, limits):
        cache = plain_search.start_cache(logits, LIMIT, 3)
        return BeamSearch(**options)(plain_search.next_logits, cache, limits, max_length=LIMIT, **MARKS, **arguments)

    result = run(tf.constant(logits[:20]), tf.constant(limits, tf.int32))
    for row in range(20):
        rules = {"prefix": tuple(token for token in prefix[row].tolist() if token)} if constrained else {}
        wanted = plain_search.beam_search(tables[row], int(limits[row]), **options, **rules)
        assert_same(hypotheses(result, row), wanted)


def test_a_next_token_function_may_have_no_cache():
    logits = tf.constant(np.log([0.1, 0.1, 0.7, 0.05, 0.05]).astype("float32"))

    @tf.function
    def run():
        return BeamSearch(beam_size=2)(
            lambda ids, cache, index, ancestry: (tf.broadcast_to(logits, [1, 2, 5]), cache), (), [2], **MARKS
        )

    assert run().lengths.numpy().tolist() == [[1]]


def test_a_wide_vocabulary_whose_size_no_block_divides():
    """The next tokens of a beam that is almost empty stay within the vocabulary."""
    size = 1031
    seen = []

    def next_logits(ids, cache, index, ancestry):
        seen.append(ids.numpy())
        return tf.broadcast_to(tf.one_hot(size - 1, size, 0.0, -math.inf), [2, 4, size]), cache

    options = BeamSearch(beam_size=4, num_hypotheses=4)
    result = options(next_logits, (), tf.constant([3, 2]), **MARKS)
    assert np.max(seen) == size - 1
    assert result.ids[:, 0].numpy().tolist() == [[size - 1] * 3, [size - 1] * 2 + [PADDING]]
    assert result.lengths.numpy().tolist() == [[3, 0, 0, 0], [2, 0, 0, 0]]


# === Arguments ===


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, r"`beam_size`.*beam_size=0"),
        ({"num_hypotheses": 0}, r"`num_hypotheses`.*num_hypotheses=0"),
        ({"beam_size": 4, "num_hypotheses": 5}, r"`num_hypotheses`.*num_hypotheses=5, beam_size=4"),
        ({"coverage_penalty": -0.2}, r"`coverage_penalty`.*coverage_penalty=-0.2"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**options)


def test_arguments_that_go_together(logits):
    with pytest.raises(ValueError, match="`grow_cache` and `block_length`"):
        search(BeamSearch(), logits[:1], [2], block_length=2)
    with pytest.raises(ValueError, match="`grow_cache` and `block_length`"):
        search(BeamSearch(), logits[:1], [2], grow_cache=plain_search.grow(2))


def test_options_are_hashable_and_equal_by_value():
    assert BeamSearch(blocked_ids=[3]) == BeamSearch(blocked_ids=(3,))
    assert hash(BeamSearch(blocked_ids=[3])) == hash(BeamSearch(blocked_ids=(3,)))
    assert BeamSearch().width == BeamSearch().beam_size == 4
    assert START not in ORDINARY
