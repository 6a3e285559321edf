"""The coverage penalty against its formula: beta times the logarithm of the attention that each position got."""

import math

import numpy as np
import plain_search
import pytest
import tensorflow as tf
from plain_search import MARKS, START, VOCABULARY_SIZE, Table, assert_same, hypotheses, normalized

from keras_transformer.decoding import BeamSearch

NUM_ROWS = 40
LIMIT = 4
SOURCE_LENGTH = 3
# Strings of up to 3 tokens: all of 2 with each of their continuations.
WIDE = 5**3 * 6


@pytest.fixture(scope="module")
def toy():
    """Tables, attention [B, V, S] by the last id read, and the real positions of each source."""
    generator = np.random.default_rng(8)
    attention = generator.dirichlet([0.5] * SOURCE_LENGTH, size=(NUM_ROWS, VOCABULARY_SIZE)).astype("float32")
    source_mask = np.arange(SOURCE_LENGTH) < generator.integers(1, SOURCE_LENGTH + 1, size=[NUM_ROWS, 1])
    return plain_search.random_tables(seed=9, count=NUM_ROWS), attention, source_mask


def attending(ids, cache, index, ancestry):
    logits, rest = plain_search.next_logits(ids, {name: cache[name] for name in ("tables", "ids")}, index, ancestry)
    return logits, {**cache, **rest}, tf.gather(cache["attention"], ids, batch_dims=1)


def run(options, toy, limits, **arguments):
    logits, attention, source_mask = toy
    room = 0 if arguments else LIMIT
    cache = plain_search.start_cache(logits, room, options["beam_size"]) | {"attention": tf.constant(attention)}
    search = tf.function(BeamSearch(**options).__call__)
    return search(attending, cache, tf.constant(limits), source_mask=tf.constant(source_mask), **MARKS, **arguments)


def coverage_score(tokens, attention, source_mask, beta):
    """GNMT, equation 14: what was read to write `tokens` is the start id and all of them but the last."""
    total = 0.0
    for position in np.flatnonzero(source_mask):
        got = sum(float(attention[token, position]) for token in (START, *tokens[:-1]))
        total += math.log(min(got, 1.0))
    return beta * total


def enumerate_best(logits, attention, source_mask, alpha, beta):
    """The best of everything that ends within the limit."""
    table, ranked = Table(logits), []
    for tokens in plain_search.all_sequences(LIMIT):
        total = table.log_probability(tokens)
        score = normalized(total, len(tokens), alpha) + coverage_score(tokens, attention, source_mask, beta)
        ranked.append((tokens, total, score, True))
    return sorted(ranked, key=lambda hypothesis: -hypothesis[2])[:5]


@pytest.mark.parametrize(("alpha", "beta"), [(0.6, 0.2), (0.0, 1.0), (-0.5, 3.0), (1.0, 0.4)])
def test_ranks_by_the_formula(toy, alpha, beta):
    logits, attention, source_mask = toy
    options = {"beam_size": WIDE, "num_hypotheses": 5, "length_penalty": alpha, "coverage_penalty": beta}
    result = run(options, toy, [LIMIT] * NUM_ROWS)
    plain = run(options | {"coverage_penalty": 1e-30}, toy, [LIMIT] * NUM_ROWS)
    assert (result.ids.numpy() != plain.ids.numpy()).any()  # or nothing is shown
    for row in range(NUM_ROWS):
        wanted = enumerate_best(logits[row], attention[row], source_mask[row], alpha, beta)
        assert_same(hypotheses(result, row), wanted, tolerance=4e-6)


@pytest.mark.parametrize("grown", [False, True])
def test_narrow_beams_and_cut_hypotheses_score_by_the_formula(toy, grown):
    """Every score is that of its tokens, which the search may only get right if coverage moves with its hypothesis."""
    logits, attention, source_mask = toy
    limits = np.arange(NUM_ROWS, dtype="int32") % (LIMIT + 1)
    options = {"beam_size": 3, "num_hypotheses": 3, "coverage_penalty": 0.5}
    arguments = {"grow_cache": plain_search.grow(2), "block_length": 2} if grown else {}
    result = run(options, toy, limits, **arguments)
    cut = 0
    for row in range(NUM_ROWS):
        found = hypotheses(result, row)
        for tokens, log_probability, score, finished in found if limits[row] else ():
            total = Table(logits[row]).log_probability(tokens)
            wanted = normalized(total, len(tokens), 0.6)
            wanted += coverage_score(tokens, attention[row], source_mask[row], 0.5)
            np.testing.assert_allclose([log_probability, score], [total, wanted], rtol=4e-6)
            cut += not finished
        finished_scores = [score for *_, score, finished in found if finished]
        assert finished_scores == sorted(finished_scores, reverse=True)
    assert cut > 0


def test_padding_of_the_source_does_not_count(toy):
    """Attention to padding is nothing to be missed: three more positions, all masked, change nothing."""
    logits, attention, source_mask = toy
    wider = (
        logits,
        np.pad(attention, [(0, 0), (0, 0), (0, 3)]),
        np.pad(source_mask, [(0, 0), (0, 3)]),
    )
    options = {"beam_size": 3, "num_hypotheses": 3, "coverage_penalty": 0.5}
    for one, two in zip(run(options, wider, [LIMIT] * NUM_ROWS), run(options, toy, [LIMIT] * NUM_ROWS), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)


def test_what_got_no_attention_at_all_stays_finite(toy):
    logits, attention, source_mask = toy
    blind = (logits, np.zeros_like(attention), np.ones_like(source_mask))
    scores = run({"beam_size": 3, "coverage_penalty": 0.5}, blind, [LIMIT] * NUM_ROWS).scores
    assert np.isfinite(scores).all()


def test_attention_and_mask_come_with_the_penalty_only(toy):
    logits, attention, source_mask = toy
    cache = plain_search.start_cache(logits, LIMIT, 4) | {"attention": tf.constant(attention)}
    plain = plain_search.start_cache(logits, LIMIT, 4)
    limits = tf.fill([NUM_ROWS], LIMIT)
    with pytest.raises(ValueError, match="`source_mask` must be given with a coverage penalty"):
        BeamSearch(coverage_penalty=0.1)(attending, cache, limits, **MARKS)
    with pytest.raises(ValueError, match="`source_mask` must be given with a coverage penalty, and only with one"):
        BeamSearch()(plain_search.next_logits, plain, limits, source_mask=source_mask, **MARKS)
    with pytest.raises(ValueError, match="`next_logits` must return attention with a coverage penalty"):
        BeamSearch(coverage_penalty=0.1)(plain_search.next_logits, plain, limits, source_mask=source_mask, **MARKS)
    with pytest.raises(ValueError, match=r"`next_logits` must return attention .* only with one"):
        BeamSearch()(attending, cache, limits, **MARKS)
