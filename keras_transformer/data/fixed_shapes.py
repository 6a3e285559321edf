"""A few lengths to pad all pairs to."""

import numpy as np

# Factor between the lengths that are tried: every one up to 50 tokens, then in steps of 2 %.
_GROWTH = 1.02


def boundaries(longest: int, growth: float) -> list[int]:
    """Lengths to pad to: ascending, each about `growth` times the one before, the last one exactly `longest`."""
    lengths = [min(4, longest)]
    while lengths[-1] < longest:
        lengths.append(min(longest, max(lengths[-1] + 1, round(lengths[-1] * growth))))
    return lengths


def fixed_lengths(source_lengths, target_lengths, *, num_shapes: int, shape_cost: float) -> np.ndarray:
    """Source and target lengths of at most `num_shapes` shapes, for pairs that are padded to the first that holds them.

    Of all shapes that hold each other they have the least cost: positions of all pairs on both sides, and `shape_cost`
    for each shape. Lengths above 50 tokens are tried in steps of 2 %.

    Args:
        source_lengths, target_lengths: integers [N].
        num_shapes: largest number of shapes.
        shape_cost: what another shape must save to be worth while, in positions. Above 0.

    Returns:
        int64 [K, 2], each column ascending; the last row has the longest lengths.
    """
    source, target = (np.array(boundaries(int(side.max()), _GROWTH)) for side in (source_lengths, target_lengths))
    # By the last shape: the positions of a pair, the pairs that it and those before it hold, and the least cost.
    positions = source[:, None] + target
    held = np.zeros(positions.shape, np.int64)
    np.add.at(held, (np.searchsorted(source, source_lengths), np.searchsorted(target, target_lengths)), 1)
    held = held.cumsum(axis=0).cumsum(axis=1)
    costs = [shape_cost + positions * held]
    cells = [(width, np.nonzero(positions == width)) for width in np.unique(positions)]
    for _ in range(num_shapes - 1):
        cost = np.empty_like(costs[0])
        for width, cell in cells:
            # Whatever shape is the one before, it takes its pairs from this one.
            before = costs[-1] - width * held
            before = np.minimum.accumulate(np.minimum.accumulate(before, axis=0), axis=1)
            cost[cell] = shape_cost + width * held[cell] + before[cell]
        costs.append(cost)
    costs = costs[: 1 + np.argmin([cost[-1, -1] for cost in costs])]
    row, column = len(source) - 1, len(target) - 1
    chosen = [(source[row], target[column])]
    for cost in costs[-2::-1]:
        before = (cost - positions[row, column] * held)[: row + 1, : column + 1]
        row, column = np.unravel_index(before.argmin(), before.shape)
        chosen.append((source[row], target[column]))
    return np.array(chosen[::-1])
