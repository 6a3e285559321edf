"""The length penalty against its formula, and the bound that lets a search stop."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from keras_transformer.decoding.beam_records import best_possible_score, length_penalty

# float32 takes a power of up to (205 / 6) ** 3 with this relative error at most.
ROUNDING = 1e-6


@pytest.mark.parametrize("alpha", [-2, -0.5, 0, 0.6, 1, 2.0])
def test_is_the_formula(alpha):
    lengths = np.arange(1, 200)
    penalties = length_penalty(lengths, alpha).numpy()
    assert penalties.dtype == "float32"
    assert (penalties > 0).all()
    np.testing.assert_allclose(penalties, ((5 + lengths) / 6) ** alpha, rtol=ROUNDING)


def test_values_to_check_by_hand():
    assert length_penalty(1, 0.6) == 1  # one token, the end mark, is what all is measured by
    assert length_penalty(7, 1.0) == 2
    assert length_penalty(7, 2.0) == 4
    assert length_penalty(7, -1.0) == 0.5
    assert length_penalty(100, 0.0) == 1


@hypothesis.settings(deadline=None, max_examples=200)
@hypothesis.given(
    total=st.floats(-100, 0),
    length=st.integers(0, 100),
    more=st.integers(1, 100),
    alpha=st.floats(-3, 3),
    further=st.lists(st.floats(-20, 0), min_size=100, max_size=100),
)
def test_no_continuation_beats_the_best_possible_score(total, length, more, alpha, further):
    bound = float(best_possible_score(np.float32(total), length, length + more, alpha))
    ends = length + np.arange(1, more + 1)
    penalties = ((5 + ends) / 6) ** alpha
    scores = (total + np.cumsum(further)[:more]) / penalties
    assert scores.max() <= bound + ROUNDING * abs(bound)
    # Certain tokens attain it: the bound is no greater than it has to be.
    np.testing.assert_allclose((total / penalties).max(), bound, rtol=ROUNDING, atol=1e-30)


def test_bound_of_many_rows():
    totals, limits = np.array([-1.0, -2.0, -np.inf], "float32"), np.array([4, 7, 7])
    np.testing.assert_allclose(best_possible_score(totals, 3, limits, 1.0), [-1 * 6 / 9, -2 * 6 / 12, -np.inf])
    np.testing.assert_allclose(best_possible_score(totals, 3, limits, -1.0), [-9 / 6, -2 * 9 / 6, -np.inf])
    np.testing.assert_allclose(best_possible_score(totals, 3, limits, 0.0), totals)
