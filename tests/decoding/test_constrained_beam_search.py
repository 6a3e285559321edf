"""Constrained beam search against plain Python and against enumeration of all that contains the phrases."""

import itertools
import math

import numpy as np
import plain_search
import pytest
import tensorflow as tf
from plain_search import END, MARKS, ORDINARY, PADDING, VOCABULARY_SIZE, Table, assert_same, hypotheses, normalized

from keras_transformer.decoding import BeamSearch, ConstrainedBeamSearch

A, B, C, D, E = ORDINARY
LIMIT = 5
MAX_TOKENS = 4
# Phrases of one row: alone, several, overlapping, with a common beginning or end, one within the other, given twice.
CASES = [
    [],
    [(A,)],
    [(A, B)],
    [(A, A)],
    [(A, B, C)],
    [(A,), (B,)],
    [(A,), (A,)],
    [(A, B), (B,)],
    [(A,), (B, A)],
    [(A, B), (A, C)],
    [(A, B), (B, C)],
    [(A, B), (A, B)],
    [(A, B), (B, A)],
    [(A, B, A), (A,)],
    [(A,), (B,), (A, C)],
    [(C,), (A,), (B,), (A,)],
]


def padded(rows, num_phrases=None, length=3):
    if num_phrases is None:
        num_phrases = max(map(len, rows), default=0)
    ids = np.full([len(rows), num_phrases, length], PADDING, "int32")
    for row, phrases in enumerate(rows):
        for place, phrase in enumerate(phrases):
            ids[row, place, : len(phrase)] = phrase
    return ids


def search(options, logits, constraints, limits, *, jit_compile=False, prefixes=None, block_length=None, **arguments):
    """One call in a graph, with static shapes."""
    limits = np.asarray(limits, "int32")
    length = max(limits, default=0)
    arguments = {**MARKS, **arguments}
    if isinstance(options, ConstrainedBeamSearch):
        arguments["constraint_ids"] = tf.constant(padded(constraints))
    if prefixes is not None:
        arguments["prefix_ids"] = tf.constant(prefixes, tf.int32)
    room = length
    if block_length:
        arguments |= {"grow_cache": plain_search.grow(block_length), "block_length": block_length}
        room = 0
    run = tf.function(
        lambda: options(
            plain_search.next_logits,
            plain_search.start_cache(logits, room, options.width),
            tf.constant(limits),
            max_length=length,
            **arguments,
        ),
        jit_compile=jit_compile,
    )
    return run()


def contains(tokens, phrases):
    """Whether all phrases stand in `tokens`, each in a place of its own."""
    if not phrases:
        return True
    phrase, *others = phrases
    for place in range(len(tokens) - len(phrase) + 1):
        # What is taken becomes None, which no phrase contains.
        rest = (*tokens[:place], *[None] * len(phrase), *tokens[place + len(phrase) :])
        if tuple(tokens[place : place + len(phrase)]) == tuple(phrase) and contains(rest, others):
            return True
    return False


# === In Python ===


def grid_search(
    table, limit, phrases, *, beam_size, length_penalty=0.6, num_hypotheses=1, repetition_penalty=1.0, **rules
):
    """Grid beam search to the limit, never stopping early; as `plain_search.beam_search`, which it is without phrases.

    Hypotheses with the same tokens are equally probable whatever they cover, so order counts: among equals, those
    written freely come first, then the better parent's, then the first phrase's.
    """
    if not phrases:
        return plain_search.beam_search(
            table,
            limit,
            beam_size=beam_size,
            length_penalty=length_penalty,
            num_hypotheses=num_hypotheses,
            repetition_penalty=repetition_penalty,
            **rules,
        )
    prefix, lengths = rules.get("prefix", ()), tuple(map(len, phrases))
    equals = [[other for other, same in enumerate(phrases) if same == phrase] for phrase in phrases]

    def cover(progress, place):
        """One token more; equal phrases are the same, whichever is covered."""
        progress = [covered + (other == place) for other, covered in enumerate(progress)]
        ranked = [sorted((progress[other] for other in group), reverse=True) for group in equals]
        return tuple(ranked[place][group.index(place)] for place, group in enumerate(equals))

    banks, finished = [{} for _ in range(sum(lengths) + 1)], []
    banks[0][(), (0,) * len(phrases)] = 0.0
    for length in range(1, limit + 1):
        freely, by_phrase = [[{} for _ in banks] for _ in range(2)]
        for bank, hypotheses_there in enumerate(banks):
            for (tokens, progress), total in hypotheses_there.items():
                guiding = plain_search.guiding_log_probabilities(table, tokens, repetition_penalty)
                unfinished = [place for place in range(len(phrases)) if 0 < progress[place] < lengths[place]]
                if not unfinished:
                    for token in plain_search.allowed_tokens(tokens, **rules):
                        if token != END or progress == lengths:
                            freely[bank][(*tokens, token), progress] = total + guiding[token]
                for place in unfinished or range(len(phrases)):
                    if progress[place] < lengths[place]:
                        token = phrases[place][progress[place]]
                        if length > len(prefix) or prefix[length - 1] == token:
                            by_phrase[bank + 1][(*tokens, token), cover(progress, place)] = total + guiding[token]
        for bank in range(len(banks)):
            candidates = freely[bank] | by_phrase[bank]  # what is in both keeps the first one's place
            ranked = sorted(candidates.items(), key=lambda candidate: -candidate[1])
            for (tokens, _), total in ranked[:beam_size]:
                if tokens[-1] == END:
                    finished.append((tokens, normalized(total, length, length_penalty), True))
            banks[bank] = dict([candidate for candidate in ranked if candidate[0][0][-1] != END][:beam_size])
    finished.sort(key=lambda hypothesis: -hypothesis[1])
    unfinished = {}
    for bank in reversed(banks):
        for (tokens, _), total in bank.items():
            unfinished.setdefault(tokens, (tokens, normalized(total, limit, length_penalty), False))
    results = finished + list(unfinished.values())
    return [(tokens, table.log_probability(tokens), score, ended) for tokens, score, ended in results[:num_hypotheses]]


# === What can be read ===


def spell(weights):
    """The same probabilities everywhere."""
    table = np.full([1, plain_search.NUM_PREFIXES, VOCABULARY_SIZE], -math.inf, "float32")
    for token, weight in weights.items():
        table[..., token] = math.log(weight)
    return table


def test_writes_what_it_has_to_and_nothing_else():
    probabilities = {END: 0.5, A: 0.2, B: 0.15, C: 0.1}
    wanted = {
        (): (END,),
        ((B,),): (B, END),
        ((B, A),): (B, A, END),
        ((B,), (B,)): (B, B, END),
        ((A, B), (A,), (B,)): (A, A, B, B, END),
    }
    options = ConstrainedBeamSearch(num_constraint_tokens=MAX_TOKENS, beam_size=8, length_penalty=0.0)
    table = np.tile(spell(probabilities), [len(wanted), 1, 1])
    result = search(options, table, list(wanted), [LIMIT] * len(wanted))
    for row, (phrases, expected) in enumerate(wanted.items()):
        ((tokens, log_probability, score, finished),) = hypotheses(result, row)
        assert finished
        assert sorted(tokens) == sorted(expected)  # where there are several phrases, either order is as probable
        assert contains(tokens, phrases)
        total = sum(math.log(probabilities[token] / sum(probabilities.values())) for token in tokens)
        np.testing.assert_allclose([log_probability, score], total, rtol=1e-5)


# === Random tables ===


@pytest.mark.parametrize("alpha", [-0.5, 0.6, 2.0])
def test_a_wide_beam_finds_what_enumeration_finds(alpha):
    """Four ordinary tokens, up to four of them before the end."""
    constraints = [phrases for phrases in CASES if sum(map(len, phrases)) <= 3]
    logits = plain_search.random_tables(seed=11, count=len(constraints))
    options = ConstrainedBeamSearch(
        num_constraint_tokens=3, beam_size=260, num_hypotheses=6, length_penalty=alpha, blocked_ids=(E,)
    )
    result = search(options, logits, constraints, [LIMIT] * len(constraints))
    for row, phrases in enumerate(constraints):
        fits = [E not in tokens and contains(tokens, phrases) for tokens in plain_search.all_sequences(LIMIT)]
        log_probabilities = np.where(fits, plain_search.all_log_probabilities(logits[row], LIMIT), -math.inf)
        wanted = plain_search.exhaustive_search(log_probabilities, LIMIT, alpha, min(6, sum(fits)))
        finished = [hypothesis for hypothesis in hypotheses(result, row) if hypothesis[3]]
        assert_same(finished, wanted)


@pytest.mark.parametrize(
    ("options", "seed"),
    [
        ({"beam_size": 1, "length_penalty": 2.0}, 1),
        pytest.param({"beam_size": 2, "num_hypotheses": 2, "length_penalty": -0.5}, 2, marks=pytest.mark.slow),
        ({"beam_size": 3, "num_hypotheses": 3, "length_penalty": 1.0, "repetition_penalty": 1.5}, 3),
        ({"beam_size": 4, "num_hypotheses": 4, "min_length": 3, "no_repeat_ngram_size": 2, "blocked_ids": (A,)}, 4),
        ({"beam_size": 8, "num_hypotheses": 8, "length_penalty": 0.0}, 5),
    ],
)
def test_is_the_plain_search_that_never_stops_early(options, seed):
    constraints = CASES * 6
    generator = np.random.default_rng(seed)
    logits = plain_search.random_tables(seed, len(constraints))
    limits = generator.integers(0, 8, len(constraints))
    search_options = ConstrainedBeamSearch(num_constraint_tokens=MAX_TOKENS, **options)
    result = search(search_options, logits, constraints, limits)
    for row, phrases in enumerate(constraints):
        table, found = Table(logits[row]), hypotheses(result, row)
        assert_same(found, grid_search(table, limits[row], phrases, **options))
        for tokens, log_probability, score, finished in found:
            assert contains(tokens, phrases) or not finished
            np.testing.assert_allclose(log_probability, table.log_probability(tokens), rtol=1e-5, atol=1e-5)
            if options.get("repetition_penalty", 1) == 1:
                length = len(tokens)
                alpha = search_options.length_penalty
                np.testing.assert_allclose(score, normalized(log_probability, length, alpha), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_rows_without_phrases_get_what_beam_search_gives(beam_size):
    logits = plain_search.random_tables(seed=21, count=40)
    limits = [*range(LIMIT + 1)] * 6 + [LIMIT] * 4
    options = {"beam_size": beam_size, "num_hypotheses": beam_size, "repetition_penalty": 1.2}
    wanted = search(BeamSearch(**options), logits, None, limits)
    for num_tokens, mates in ((0, [[]]), (MAX_TOKENS, [[(A, B), (C,)], [(B,)]])):
        found = search(
            ConstrainedBeamSearch(num_constraint_tokens=num_tokens, **options),
            np.concatenate([logits, logits[: len(mates)]]),
            [[]] * 40 + mates,
            [*limits, *[LIMIT] * len(mates)],
        )
        for one, two in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one[:40], two)


def test_rows_do_not_depend_on_their_mates():
    logits = plain_search.random_tables(seed=22, count=len(CASES))
    limits = [3 + row % 4 for row in range(len(CASES))]
    options = ConstrainedBeamSearch(num_constraint_tokens=MAX_TOKENS, beam_size=3, num_hypotheses=2)
    together = search(options, logits, CASES, limits)
    for row in (5, 11):
        alone = search(options, logits[row : row + 1], CASES[row : row + 1], limits[row : row + 1])
        assert_same(hypotheses(alone, 0), hypotheses(together, row))
    order = np.random.default_rng(0).permutation(len(CASES))
    shuffled = search(options, logits[order], [CASES[row] for row in order], np.array(limits)[order])
    for one, two in zip(shuffled, together, strict=True):
        np.testing.assert_array_equal(one, tf.gather(two, order))


def test_more_banks_than_needed_change_nothing():
    logits = plain_search.random_tables(seed=23, count=len(CASES))
    results = [
        search(
            ConstrainedBeamSearch(num_constraint_tokens=count, beam_size=2, num_hypotheses=2), logits, CASES, [6] * 16
        )
        for count in (MAX_TOKENS, MAX_TOKENS + 3)
    ]
    for row in range(len(CASES)):
        assert_same(hypotheses(results[0], row), hypotheses(results[1], row))


# === Limits ===


def test_without_room_the_hypothesis_that_covers_most_is_given():
    table = spell({END: 0.5, A: 0.4, B: 0.05, C: 0.03, D: 0.02})
    options = ConstrainedBeamSearch(num_constraint_tokens=MAX_TOKENS, beam_size=2)
    phrases = [(B, C), (D,)]
    result = search(options, np.tile(table, [4, 1, 1]), [phrases] * 4, [1, 2, 3, 4])
    for row, wanted in enumerate([{(B,), (D,)}, {(B, C), (D, B)}, {(B, C, D), (D, B, C)}]):
        ((tokens, _, _, finished),) = hypotheses(result, row)
        assert not finished
        assert tokens in wanted
    ((tokens, _, _, finished),) = hypotheses(result, 3)
    assert finished
    assert tokens in {(B, C, D, END), (D, B, C, END)}


# === Other options ===


def test_phrases_may_contain_blocked_tokens_and_repeat_ngrams():
    table = spell({END: 0.5, A: 0.4, B: 0.1})
    options = ConstrainedBeamSearch(
        num_constraint_tokens=MAX_TOKENS, beam_size=2, blocked_ids=(B,), no_repeat_ngram_size=1
    )
    result = search(options, table, [[(B, B), (A,)]], [LIMIT])
    ((tokens, _, _, finished),) = hypotheses(result, 0)
    assert finished
    assert sorted(tokens) == sorted((B, B, A, END))


def test_prefixes_come_first_and_may_cover_phrases():
    constraints = [[(A, B)], [(A, B)], [(A, B)], [(A, B), (C,)], [(A, B), (A, B)], [(C,), (C, D)]] * 8
    prefixes = [(A, B, C), (C, A, 0), (B, B, B), (C, 0, 0), (A, B, 0), (C, C, 0)] * 8
    logits = plain_search.random_tables(31, len(constraints))
    options = {"beam_size": 3, "num_hypotheses": 3}
    result = search(
        ConstrainedBeamSearch(num_constraint_tokens=MAX_TOKENS, **options),
        logits,
        constraints,
        [7] * len(constraints),
        prefixes=prefixes,
    )
    for row, (phrases, prefix) in enumerate(zip(constraints, prefixes, strict=True)):
        prefix = tuple(token for token in prefix if token)
        found = hypotheses(result, row)
        assert_same(found, grid_search(Table(logits[row]), 7, phrases, prefix=prefix, **options))
        for tokens, _, _, finished in found:
            assert tokens[: len(prefix)] == prefix
            assert contains(tokens, phrases) or not finished
    # A phrase in the prefix is not asked for again.
    wanted = spell({END: 0.5, A: 0.25, B: 0.25})
    search_options = ConstrainedBeamSearch(num_constraint_tokens=2, beam_size=2)
    result = search(search_options, wanted, [[(A, B)]], [LIMIT], prefixes=[(A, B)])
    assert hypotheses(result, 0)[0][0] == (A, B, END)


def test_coverage_penalty_ranks_finished_hypotheses():
    """The attention of a token is one source position's, its own; the tokens are equally probable."""
    logits = tf.zeros([VOCABULARY_SIZE])

    def next_logits(ids, cache, index, ancestry):
        attention = tf.stack([ids == A, ids == B, ids == C], 2)
        return tf.broadcast_to(logits, [*ids.shape, VOCABULARY_SIZE]), cache, tf.cast(attention, tf.float32)

    options = ConstrainedBeamSearch(
        num_constraint_tokens=1, beam_size=200, length_penalty=0.0, coverage_penalty=1.0, blocked_ids=(D, E)
    )
    result = options(
        next_logits,
        tf.zeros([2]),
        tf.constant([4, 4]),
        constraint_ids=tf.constant([[[A]], [[B]]]),
        source_mask=tf.constant([[False, True, True], [True, True, False]]),
        **MARKS,
    )
    # Each row's phrase and its real positions: all are covered by at most three tokens.
    for row, covered in enumerate(({A, B, C}, {A, B})):
        assert set(result.ids[row, 0].numpy()) - {END, PADDING} == covered
        length = int(result.lengths[row, 0])
        assert length == len(covered) + 1
        np.testing.assert_allclose(result.scores[row, 0], -length * math.log(VOCABULARY_SIZE), rtol=1e-6)


# === How it is run ===


@pytest.mark.parametrize("how", [{"jit_compile": True}, {"block_length": 2}, {"block_length": 4}])
def test_xla_and_growing_caches_give_the_same(how):
    constraints = CASES * 2
    logits = plain_search.random_tables(41, len(constraints))
    limits = np.random.default_rng(41).integers(0, 7, len(constraints))
    options = ConstrainedBeamSearch(num_constraint_tokens=MAX_TOKENS, beam_size=3, num_hypotheses=2)
    wanted, found = (search(options, logits, constraints, limits, **some) for some in ({}, how))
    for row in range(len(constraints)):
        assert_same(hypotheses(found, row), hypotheses(wanted, row))


def test_traces_once_for_all_shapes_and_runs_eagerly():
    options = ConstrainedBeamSearch(num_constraint_tokens=MAX_TOKENS, beam_size=2)

    def run(logits, limits, constraint_ids):
        cache = plain_search.start_cache(logits, LIMIT, options.width)
        return options(
            plain_search.next_logits, cache, limits, constraint_ids=constraint_ids, max_length=LIMIT, **MARKS
        )

    shapes = ([None, None, VOCABULARY_SIZE], [None], [None, None, None])
    types = (tf.float32, tf.int32, tf.int32)
    graph = tf.function(run, input_signature=[tf.TensorSpec(*each) for each in zip(shapes, types, strict=True)])
    logits = plain_search.random_tables(seed=51, count=len(CASES))
    whole = hypotheses_of(graph(logits, tf.fill([16], LIMIT), padded(CASES)))
    assert whole == hypotheses_of(run(tf.constant(logits), tf.fill([16], LIMIT), tf.constant(padded(CASES))))
    narrow = graph(logits[:7], tf.fill([7], LIMIT), padded(CASES[:7], num_phrases=2, length=5))
    assert hypotheses_of(narrow) == whole[:7]
    for num_phrases, length in itertools.product((0, 3), (0, 3)):
        free = graph(logits[:1], tf.fill([1], LIMIT), padded([[]], num_phrases, length))
        assert hypotheses_of(free) == whole[:1]
    assert hypotheses_of(graph(logits[:0], tf.zeros([0], tf.int32), padded([]))) == []


def hypotheses_of(result):
    return [[tokens for tokens, *_ in hypotheses(result, row)] for row in range(result.ids.shape[0])]


# === Errors ===


def call(**changes):
    arguments = {"constraint_ids": tf.constant(padded([[(A, B)]])), **MARKS, **changes}
    options = ConstrainedBeamSearch(num_constraint_tokens=1)
    cache = plain_search.start_cache(spell({END: 1.0}), LIMIT, options.width)
    return options(plain_search.next_logits, cache, tf.constant([LIMIT]), **arguments)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"`num_constraint_tokens` must not be negative.*-1"):
        ConstrainedBeamSearch(num_constraint_tokens=-1)
    with pytest.raises(ValueError, match="`beam_size` must be positive"):
        ConstrainedBeamSearch(num_constraint_tokens=1, beam_size=0)
    with pytest.raises(TypeError, match="num_constraint_tokens"):
        ConstrainedBeamSearch()
    with pytest.raises(ValueError, match=r"`constraint_ids` must be int32.*\(1, 2\)"):
        call(constraint_ids=tf.constant([[A, B]]))
    with pytest.raises(ValueError, match=r"`constraint_ids` must be int32.*int64"):
        call(constraint_ids=tf.constant([[[A]]], tf.int64))
    with pytest.raises(ValueError, match="`grow_cache` and `block_length`"):
        call(constraint_ids=tf.constant([[[A]]]), block_length=2)
    with pytest.raises(ValueError, match="`source_mask`"):
        call(constraint_ids=tf.constant([[[A]]]), source_mask=tf.constant([[True]]))


def test_more_tokens_than_banks():
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than `num_constraint_tokens`"):
        call()
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than `num_constraint_tokens`"):
        tf.function(call)()
    # XLA does not check, but it does not finish what lacks a phrase either.
    assert not tf.function(call, jit_compile=True)(max_length=LIMIT).finished.numpy().any()


@pytest.mark.parametrize("phrase", [(A, END), (END,), (A, PADDING, B), (PADDING, A)])
def test_phrases_that_cannot_be_written(phrase):
    options = ConstrainedBeamSearch(num_constraint_tokens=3, beam_size=2, num_hypotheses=2)
    table = np.tile(spell({END: 0.5, A: 0.2, B: 0.2, C: 0.1}), [2, 1, 1])
    result = search(options, table, [[phrase], [(A,)]], [LIMIT] * 2)
    assert not any(finished for *_, finished in hypotheses(result, 0))
    assert all(finished for *_, finished in hypotheses(result, 1))
