"""What every search says of itself, and what it then has to be given."""

import dataclasses

import plain_search
import pytest
import tensorflow as tf
from plain_search import MARKS, ORDINARY, hypotheses

from keras_transformer.decoding import BeamSearch, ConstrainedBeamSearch, Sampling, Search


@pytest.mark.parametrize("search", [BeamSearch(), BeamSearch().containing(2), Sampling()])
def test_has_all_that_a_search_has(search):
    names = [*Search.__annotations__, "containing"]
    assert names == ["num_hypotheses", "width", "needs_attention", "needs_seeds", "containing"]
    for name in names:
        assert hasattr(search, name)
    assert callable(search)


def test_says_what_it_needs():
    assert not BeamSearch().needs_attention
    assert BeamSearch(coverage_penalty=0.1).needs_attention
    assert BeamSearch(coverage_penalty=0.1).containing(1).needs_attention
    assert not Sampling().needs_attention
    assert [search.needs_seeds for search in (BeamSearch(), BeamSearch().containing(1), Sampling())] == [0, 0, 1]


def test_containing_keeps_all_options():
    options = {"beam_size": 3, "num_hypotheses": 2, "length_penalty": 0.1, "min_length": 1, "blocked_ids": (5,)}
    wanted = ConstrainedBeamSearch(num_constraint_tokens=4, **options)
    assert BeamSearch(**options).containing(4) == BeamSearch(**options).containing(2).containing(4) == wanted
    assert wanted.width == 15


def test_a_sample_cannot_be_made_to_contain_phrases():
    with pytest.raises(ValueError, match=r"`constraints` need a `BeamSearch`. Received: search=Sampling\("):
        Sampling().containing(1)


def test_phrases_and_banks_come_together():
    logits = plain_search.random_tables(0, 1)
    for search, phrases in ((BeamSearch(), tf.zeros([1, 1, 1], tf.int32)), (BeamSearch().containing(1), None)):
        cache = plain_search.start_cache(logits, 3, search.width)
        with pytest.raises(ValueError, match="`constraint_ids`"):
            search(plain_search.next_logits, cache, tf.constant([3]), constraint_ids=phrases, **MARKS)


def test_exports_tell_these_options():
    assert list(dataclasses.asdict(BeamSearch())) == [
        *("min_length", "no_repeat_ngram_size", "repetition_penalty", "blocked_ids"),
        *("beam_size", "length_penalty", "num_hypotheses", "coverage_penalty"),
    ]


@pytest.mark.parametrize("phrases", [[[], [], []], [[], [ORDINARY[0]], [ORDINARY[1]]]])
def test_rows_with_banks_have_limits_and_penalties_of_their_own(phrases):
    """Each row gets what a search with these options gives it; without phrases, plain search, bit by bit."""
    logits = plain_search.random_tables(7, 3)
    minima, alphas = [3, 0, 2], [-0.5, 2.0, 0.6]
    constraint_ids = tf.constant([[phrase or [plain_search.PADDING]] for phrase in phrases])

    def run(search, rows, **arguments):
        cache = plain_search.start_cache(logits[rows], 5, search.width)
        limits = tf.fill([len(rows)], 5)
        return search(plain_search.next_logits, cache, limits, **MARKS, **arguments)

    search = BeamSearch(beam_size=3, num_hypotheses=3).containing(1)
    of_rows = {"min_lengths": tf.constant(minima), "length_penalties": tf.constant(alphas)}
    found = run(search, [0, 1, 2], constraint_ids=constraint_ids, **of_rows)
    for row, (minimum, alpha) in enumerate(zip(minima, alphas, strict=True)):
        options = BeamSearch(beam_size=3, num_hypotheses=3, min_length=minimum, length_penalty=alpha)
        alone = run(options.containing(1), [row], constraint_ids=constraint_ids[row : row + 1])
        assert hypotheses(found, row) == hypotheses(alone, 0)
        if not phrases[row]:
            assert hypotheses(found, row) == hypotheses(run(options, [row]), 0)
