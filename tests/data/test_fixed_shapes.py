"""The choice of shapes against trying all of them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.data.fixed_shapes import fixed_lengths

SOURCE_LENGTHS, TARGET_LENGTHS = range(4, 10), range(4, 9)  # shorter ones are not tried


def cost_of(shapes, pairs, shape_cost):
    """Positions of all pairs, each in the first shape that holds it, and what the shapes cost themselves."""
    positions = 0
    for source, target in pairs:
        positions += next(sum(shape) for shape in shapes if source <= shape[0] and target <= shape[1])
    return positions + shape_cost * len(shapes)


def holds_the_one_before(shapes):
    return all(one[0] <= other[0] and one[1] <= other[1] for one, other in itertools.pairwise(shapes))


@settings(max_examples=50, deadline=None)
@given(
    pairs=st.lists(
        st.tuples(st.sampled_from(SOURCE_LENGTHS), st.sampled_from(TARGET_LENGTHS)), min_size=1, max_size=30
    ),
    num_shapes=st.integers(1, 3),
    shape_cost=st.integers(1, 20),
)
def test_no_other_shapes_cost_less(pairs, num_shapes, shape_cost):
    longest = tuple(map(max, zip(*pairs, strict=True)))
    least = min(
        cost_of([*shapes, longest], pairs, shape_cost)
        for count in range(num_shapes)
        for shapes in itertools.combinations(itertools.product(SOURCE_LENGTHS, TARGET_LENGTHS), count)
        if holds_the_one_before([*shapes, longest])
    )
    chosen = fixed_lengths(*np.array(pairs).T, num_shapes=num_shapes, shape_cost=shape_cost).tolist()
    assert len(chosen) <= num_shapes
    assert holds_the_one_before(chosen)
    assert tuple(chosen[-1]) == longest
    assert cost_of(chosen, pairs, shape_cost) == least


@pytest.mark.parametrize(("shape_cost", "expected"), [(219, [[5, 6], [10, 12]]), (221, [[10, 12]])])
def test_a_shape_must_save_what_it_costs(shape_cost, expected):
    """A shape of their own saves 20 pairs 11 positions each."""
    source, target = np.array([5] * 20 + [10] * 20), np.array([6] * 20 + [12] * 20)
    assert fixed_lengths(source, target, num_shapes=4, shape_cost=shape_cost).tolist() == expected
