"""Sampling against exact distributions, which plain Python spells out, and against greedy search."""

import collections
import functools
import math

import numpy as np
import pytest
import tensorflow as tf
from plain_search import (
    END,
    MARKS,
    ORDINARY,
    PADDING,
    START,
    VOCABULARY_SIZE,
    Table,
    allowed_tokens,
    grow,
    next_logits,
    random_tables,
    start_cache,
)

from keras_transformer.decoding import BeamSearch, Sampling
from keras_transformer.decoding.random_numbers import uniform
from keras_transformer.decoding.sampling import _invert


def make_seeds(count, seed=0):
    return tf.constant(np.random.default_rng(seed).integers(-(2**31), 2**31, [count, 2]), tf.int32)


@functools.cache
def compiled(search, names, max_length, block_length, jit_compile):
    """A search as one graph for batches of any size; `names` are its further tensors."""

    def call(tables, limits, *values):
        arguments = dict(zip(names, values, strict=True))
        room = tf.reduce_max(tf.concat([[0], limits], 0)) if max_length is None else max_length
        if max_length is not None:
            arguments["max_length"] = max_length
        if block_length is not None:
            arguments.update(grow_cache=grow(block_length), block_length=block_length)
            room = 0
        return search(next_logits, start_cache(tables, room, search.width), limits, **MARKS, **arguments)

    signature = [tf.TensorSpec([None, None, VOCABULARY_SIZE]), tf.TensorSpec([None], tf.int32)]
    signature += [tf.TensorSpec([None, 2], tf.int32)] * len(names)
    return tf.function(call, input_signature=signature, jit_compile=jit_compile)


def run(search, tables, limits, *, max_length=None, block_length=None, jit_compile=False, **tensors):
    """Search through tables [B, P, V] in the graph; NumPy results."""
    function = compiled(search, tuple(tensors), max_length, block_length, jit_compile)
    result = function(tables, tf.constant(limits, tf.int32), *tensors.values())
    return type(result)(*(field.numpy() for field in result))


def sequences(result, row):
    """A row's samples as tuples of tokens; checks their form."""
    found = []
    for ids, length, finished in zip(result.ids[row], result.lengths[row], result.finished[row], strict=True):
        tokens = tuple(ids[:length].tolist())
        assert (ids[length:] == PADDING).all()
        assert PADDING not in tokens
        assert START not in tokens
        assert tokens.count(END) == finished
        if finished:
            assert tokens[-1] == END
        found.append(tokens)
    return found


# === The exact distribution ===


def step_distribution(table, tokens, *, temperature=1.0, top_k=0, top_p=1.0, repetition_penalty=1.0, **rules):
    """Probability of each next token: penalty, rules, temperature, top-k, top-p, one after another."""
    logits = list(table.logits(tokens))
    for token in set(tokens):
        logits[token] = logits[token] / repetition_penalty if logits[token] > 0 else logits[token] * repetition_penalty
    weights = {token: math.exp(logits[token] / temperature) for token in allowed_tokens(tokens, **rules)}
    ranked = sorted(weights, key=lambda token: -weights[token])
    if top_k:
        ranked = ranked[:top_k]
    total = sum(weights[token] for token in ranked)
    kept, mass = [], 0.0
    for token in ranked:
        if mass < top_p:
            kept.append(token)
        mass += weights[token] / total
    total = sum(weights[token] for token in kept)
    return {token: weights[token] / total for token in kept}


def distribution(table, limit, tokens=(), probability=1.0, **options):
    """Probability of each sample of at most `limit` tokens."""
    if len(tokens) == limit or END in tokens:
        return {tokens: probability}
    found = {}
    for token, share in step_distribution(table, tokens, **options).items():
        found.update(distribution(table, limit, (*tokens, token), probability * share, **options))
    return found


def assert_drawn_from(samples, exact):
    """A chi-square test at five standard deviations; rare outcomes are counted together."""
    counts = collections.Counter(samples)
    assert not set(counts) - set(exact), "drew what has no chance"
    common = [outcome for outcome in exact if exact[outcome] * len(samples) >= 5]
    expected = np.array([exact[outcome] * len(samples) for outcome in common])
    observed = np.array([counts[outcome] for outcome in common])
    rest = len(samples) - expected.sum()
    if rest >= 5:
        expected, observed = np.append(expected, rest), np.append(observed, len(samples) - observed.sum())
    freedom = len(expected) - 1
    assert np.sum((observed - expected) ** 2 / expected) < freedom + 5 * math.sqrt(2 * freedom) + 1e-9


OPTIONS = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 50},
    {"top_p": 0.1},
    {"top_p": 0.8},
    {"temperature": 1.7, "top_k": 4, "top_p": 0.7},
    {"temperature": 0.6, "top_p": 0.9, "min_length": 2},
    {"repetition_penalty": 1.8, "top_p": 0.9},
    {"no_repeat_ngram_size": 1, "blocked_ids": (4, 6)},
    {"top_k": 2, "min_length": 1, "repetition_penalty": 0.5, "temperature": 0.8},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_draws_from_the_exact_distribution(options):
    """20,000 samples, by rows and by slots, of up to three tokens."""
    [table] = random_tables(5, 1, num_prefixes=31)
    search = Sampling(num_hypotheses=100, **options)
    result = run(search, np.tile(table, [200, 1, 1]), [3] * 200, seeds=make_seeds(200))
    samples = [sample for row in range(200) for sample in sequences(result, row)]
    assert_drawn_from(samples, distribution(Table(table), 3, **options))


def test_slots_and_steps_are_independent():
    """Pairs of samples of a row, and of rows with seeds next to each other, come as often as two single ones."""
    [table] = random_tables(6, 1, num_prefixes=1)
    seeds = np.stack([np.zeros(10_000), np.arange(10_000)], 1).astype("int32")
    result = run(Sampling(num_hypotheses=2), np.tile(table, [10_000, 1, 1]), [1] * 10_000, seeds=tf.constant(seeds))
    single = distribution(Table(table), 1)
    exact = {(*one, *two): single[one] * single[two] for one in single for two in single}
    tokens = result.ids[:, :, 0]  # [B, 2]
    assert_drawn_from([tuple(pair) for pair in tokens.tolist()], exact)
    assert_drawn_from([tuple(pair) for pair in tokens[:, 0].reshape(-1, 2).tolist()], exact)


# === What a sample may depend on ===

MANY = {
    "plain": Sampling(num_hypotheses=3),
    "filtered": Sampling(num_hypotheses=3, temperature=1.3, top_k=4, top_p=0.9),
    "nucleus": Sampling(num_hypotheses=3, top_p=0.8, repetition_penalty=1.2, no_repeat_ngram_size=2, min_length=1),
}
many = pytest.mark.parametrize("search", MANY.values(), ids=MANY)
LIMITS = [5, 2, 0, 4, 5, 1, 3, 5] * 3  # so many rows that settled ones leave as the cache grows


def assert_same_rows(one, two):
    """Same samples; the one's ids may have more padding."""
    length = min(one.ids.shape[2], two.ids.shape[2])
    np.testing.assert_array_equal(one.ids[:, :, :length], two.ids[:, :, :length])
    for field in ("lengths", "finished"):
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field))
    np.testing.assert_allclose(one.log_probabilities, two.log_probabilities, rtol=1e-5, atol=1e-6)


def rows(result, chosen):
    return type(result)(*(field[chosen] for field in result))


@many
def test_a_row_depends_on_itself_alone(search):
    tables, seeds = random_tables(7, len(LIMITS)), make_seeds(len(LIMITS)).numpy()
    together = run(search, tables, LIMITS, seeds=tf.constant(seeds))
    order = np.random.default_rng(0).permutation(len(LIMITS))
    shuffled = run(search, tables[order], np.array(LIMITS)[order].tolist(), seeds=tf.constant(seeds[order]))
    assert_same_rows(shuffled, rows(together, order))
    for row, limit in enumerate(LIMITS[:8]):
        alone = run(search, tables[[row]], [limit], seeds=tf.constant(seeds[[row]]))
        assert_same_rows(alone, rows(together, [row]))
    again = run(search, tables, LIMITS, seeds=tf.constant(seeds))
    for one, two in zip(again, together, strict=True):
        np.testing.assert_array_equal(one, two)
    other = run(search, tables, LIMITS, seeds=make_seeds(len(LIMITS), seed=1))
    assert (other.ids != together.ids).any()


@many
def test_room_and_compilation_change_nothing(search):
    tables, seeds = random_tables(7, len(LIMITS)), make_seeds(len(LIMITS))
    plain = run(search, tables, LIMITS, seeds=seeds)
    assert_same_rows(run(search, tables, LIMITS, seeds=seeds, max_length=9), plain)
    assert_same_rows(run(search, tables, LIMITS, seeds=seeds, max_length=9, jit_compile=True), plain)
    for block_length in (1, 3):
        assert_same_rows(run(search, tables, LIMITS, seeds=seeds, block_length=block_length), plain)
    cut = run(search, tables, LIMITS, seeds=seeds, max_length=2)
    assert_same_rows(cut, run(search, tables, np.minimum(LIMITS, 2).tolist(), seeds=seeds))


def test_the_first_samples_stay_when_more_are_asked_for():
    tables, seeds = random_tables(7, len(LIMITS)), make_seeds(len(LIMITS))
    few, more = (run(Sampling(num_hypotheses=n), tables, LIMITS, seeds=seeds) for n in (2, 5))
    assert_same_rows(few, type(more)(*(field[:, :2] for field in more)))


def test_samples_differ_and_score_as_the_model_does():
    tables = random_tables(8, 20)
    for search in (Sampling(num_hypotheses=10), Sampling(num_hypotheses=10, temperature=1.5, repetition_penalty=2.0)):
        result = run(search, tables, [5] * 20, seeds=make_seeds(20))
        for row, table in enumerate(map(Table, tables)):
            samples = sequences(result, row)
            assert len(set(samples)) > 1
            wanted = [table.log_probability(sample) for sample in samples]
            np.testing.assert_allclose(result.log_probabilities[row], wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(result.scores, result.log_probabilities)
        assert 0 < result.finished.mean() < 1


@pytest.mark.parametrize(
    ("filters", "rules"),
    [
        ({"temperature": 1e-4}, {}),
        ({"temperature": 1e-44}, {"min_length": 3}),
        ({"top_k": 1}, {"no_repeat_ngram_size": 2}),
        ({"top_p": 1e-6}, {"repetition_penalty": 1.7}),
        ({"top_p": 1e-6, "temperature": 2.0}, {"blocked_ids": (3, 7)}),
        ({"temperature": 1e-4}, {"min_length": 5, "no_repeat_ngram_size": 1}),
    ],
    ids=str,
)
def test_without_chance_it_is_greedy(filters, rules):
    tables, limits = random_tables(9, 30), [8, 5, 1] * 10
    prefix_ids = np.zeros([30, 2], "int32")
    prefix_ids[::2, 0] = 4
    prefix_ids[::4, 1] = 3
    result = run(Sampling(**filters, **rules), tables, limits, seeds=make_seeds(30), prefix_ids=prefix_ids)
    greedy = run(BeamSearch(beam_size=1, **rules), tables, limits, prefix_ids=prefix_ids)
    for field in ("ids", "lengths", "finished"):
        np.testing.assert_array_equal(getattr(result, field), getattr(greedy, field))
    np.testing.assert_allclose(result.log_probabilities, greedy.log_probabilities, rtol=1e-6, atol=1e-6)


# === Constraints and limits ===


def test_keeps_the_rules():
    tables = random_tables(10, 30)
    prefix_ids = np.zeros([30, 2], "int32")
    prefixes = [(5, 4), (3,), ()] * 10
    for row, prefix in enumerate(prefixes):
        prefix_ids[row, : len(prefix)] = prefix
    rules = {"min_length": 4, "no_repeat_ngram_size": 2, "blocked_ids": (3,)}
    search = Sampling(num_hypotheses=10, temperature=2.0, **rules)
    result = run(search, tables, [7] * 30, seeds=make_seeds(30), prefix_ids=prefix_ids)
    for row, prefix in enumerate(prefixes):
        for sample in sequences(result, row):
            assert sample
            for place, token in enumerate(sample):
                assert token in allowed_tokens(sample[:place], prefix=prefix, **rules)


def test_each_row_has_its_own_limit():
    tables = random_tables(11, 5)
    tables[:, :, END] = -20.0
    result = run(Sampling(num_hypotheses=2), tables, [0, 1, 3, 5, -2], seeds=make_seeds(5))
    assert result.ids.shape == (5, 2, 5)
    np.testing.assert_array_equal(result.lengths, [[0] * 2, [1] * 2, [3] * 2, [5] * 2, [0] * 2])
    assert not result.finished.any()
    assert (result.log_probabilities[[0, 4]] == 0).all()


@pytest.mark.parametrize("block_length", [None, 4])
@pytest.mark.parametrize("count", [0, 2])
def test_nothing_to_draw(count, block_length):
    tables = random_tables(12, count)
    result = run(Sampling(num_hypotheses=2), tables, [0] * count, seeds=make_seeds(count), block_length=block_length)
    assert result.ids.shape == (count, 2, 0)
    assert (result.scores == 0).all()


def test_a_dead_end_does_not_exist():
    """Five tokens that may come once each, and an end that may not come before the seventh."""
    search = Sampling(num_hypotheses=2, no_repeat_ngram_size=1, min_length=6)
    result = run(search, random_tables(13, 3), [8, 5, 8], seeds=make_seeds(3))
    np.testing.assert_array_equal(result.lengths, [[0, 0], [5, 5], [0, 0]])
    np.testing.assert_array_equal(np.isneginf(result.scores), [[True, True], [False, False], [True, True]])
    assert (result.ids[[0, 2]] == PADDING).all()
    assert not result.finished.any()
    assert all(sorted(sample) == sorted(ORDINARY) for sample in sequences(result, 1))


def test_stops_with_the_last_sample():
    steps = []

    def function(ids, cache, index, ancestry):
        steps.append(int(index))
        return next_logits(ids, cache, index, ancestry)

    cache = start_cache(random_tables(14, 4), 90, 3)
    result = Sampling(num_hypotheses=3)(function, cache, tf.fill([4], 90), seeds=make_seeds(4), **MARKS)
    assert result.finished.numpy().all()
    assert len(steps) == result.lengths.numpy().max() < 90


def test_shows_the_model_its_own_slots():
    seen = []

    def function(ids, cache, index, ancestry):
        seen.append((int(index), ancestry.numpy().tolist()))
        return tf.zeros([*ids.shape, VOCABULARY_SIZE]), cache, "a third value is of no interest"

    search = Sampling(num_hypotheses=2, min_length=9)
    search(function, tf.constant(0), tf.constant([3, 2]), seeds=make_seeds(2), **MARKS)
    rows = [[[0, -1, -1], [1, -1, -1]], [[0, 0, -1], [1, 1, -1]], [[0, 0, 0], [1, 1, 1]]]
    assert seen == [(index, [row, row]) for index, row in enumerate(rows)]


# === Wide vocabularies ===


def draw_first(search, logits, seeds):
    """The first tokens of rows with logits [B, V]."""
    logits = tf.constant(logits)[:, None]
    result = tf.function(
        lambda logits, seeds: search(
            lambda ids, cache, index, ancestry: (logits, cache),
            tf.constant(0),
            tf.ones([tf.shape(logits)[0]], tf.int32),
            seeds=seeds,
            **MARKS,
        )
    )(logits, seeds)
    return result.ids[:, 0, 0].numpy()


def wide_logits(size):
    """Rows of all kinds, from nearly certain to flat."""
    scales = np.geomspace(0.05, 20, 200)[:, None]
    return (np.random.default_rng(15).normal(size=[200, size]) * scales).astype("float32")


@pytest.mark.parametrize("size", [1_500, 2_048])
def test_inverts_the_cumulated_probabilities(size):
    logits, seeds = wide_logits(size), make_seeds(200)
    tokens = draw_first(Sampling(temperature=0.7), logits, seeds)
    weights = np.exp(logits.astype("float64") / 0.7)
    weights[:, [PADDING, START]] = 0
    cumulated = np.cumsum(weights, axis=1) / weights.sum(1, keepdims=True)
    random = uniform(seeds, 1, 1).numpy()[:, 0, 0]
    rows = np.arange(200)
    assert (random < cumulated[rows, tokens] + 1e-5).all()
    assert (random > cumulated[rows, tokens - 1] - 1e-5).all()


@pytest.mark.parametrize("size", [1_500, 2_048])
def test_finds_nuclei_of_any_size(size):
    """Those of up to 64 tokens are found without a sort; a batch with both kinds gives each row what it gets alone."""
    logits, seeds = wide_logits(size), make_seeds(200)
    search = Sampling(top_p=0.9)
    tokens = draw_first(search, logits, seeds)
    probabilities = np.exp(logits.astype("float64"))
    probabilities[:, [PADDING, START]] = 0
    probabilities /= probabilities.sum(1, keepdims=True)
    order = np.argsort(-probabilities, axis=1)
    ranked = np.take_along_axis(probabilities, order, axis=1)
    nuclei = (np.cumsum(ranked, axis=1) - ranked < 0.9).sum(1)
    assert nuclei.min() == 1
    assert nuclei.max() > 1_000
    places = np.argmax(order == tokens[:, None], axis=1)
    assert (places < nuclei).all()
    random = uniform(seeds, 1, 1).numpy()[:, 0, 0]
    cumulated = np.cumsum(ranked, axis=1) / np.cumsum(ranked, axis=1)[np.arange(200), nuclei - 1][:, None]
    assert (random < cumulated[np.arange(200), places] + 1e-5).all()
    small = np.flatnonzero(nuclei < 60)
    assert 0 < len(small) < 200
    np.testing.assert_array_equal(draw_first(search, logits[small], tf.gather(seeds, small)), tokens[small])
    for row in (0, 100, 199):
        assert draw_first(search, logits[[row]], seeds[row : row + 1]) == tokens[row]


@pytest.mark.parametrize("size", [1, 7, 300, 1_500])
def test_never_lands_on_a_weight_of_zero(size):
    """Not with the least and the greatest random number either, nor with sums that round."""
    generator = np.random.default_rng(16)
    weights = generator.exponential(size=[400, 1, size]) ** 4 * (generator.random([400, 1, size]) < 0.05)
    weights[:, :, generator.integers(size, size=2)] = generator.random([400, 1, 1])
    weights = weights.astype("float32")
    invert = [tf.function(_invert, jit_compile=jit_compile) for jit_compile in (False, True)]
    for random in (0.0, 2.0**-24, 0.5, 1 - 2.0**-23, 1 - 2.0**-24):
        for find in invert:
            places = find(weights, tf.fill([400, 1], random)).numpy()
            assert (np.take_along_axis(weights[:, 0], places, axis=1) > 0).all()


# === Arguments ===


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
        ({"num_hypotheses": 0}, "num_hypotheses"),
        ({"min_length": -1}, "min_length"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
    ],
)
def test_refuses_options_out_of_range(arguments, name):
    with pytest.raises(ValueError, match=f"`{name}` must .*Received: {name}="):
        Sampling(**arguments)


@pytest.mark.parametrize("seeds", [np.zeros([2, 2], "int64"), np.zeros([2], "int32"), np.zeros([3, 2], "int32")])
def test_refuses_seeds_that_are_not_two_numbers_a_row(seeds):
    cache = start_cache(random_tables(0, 2), 3, 1)
    with pytest.raises(ValueError, match="`seeds` must be int32"):
        Sampling()(next_logits, cache, tf.constant([3, 3]), seeds=seeds, **MARKS)


def test_growth_wants_both_arguments():
    cache = start_cache(random_tables(0, 1), 0, 1)
    with pytest.raises(ValueError, match="`grow_cache` and `block_length`"):
        Sampling()(next_logits, cache, tf.constant([3]), seeds=make_seeds(1), block_length=4, **MARKS)


def test_is_a_value():
    assert Sampling(blocked_ids=[4]) == Sampling(blocked_ids=(4,))
    assert hash(Sampling(top_k=2)) != hash(Sampling())
    assert Sampling(num_hypotheses=3).width == 3
