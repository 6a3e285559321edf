"""The loop of every search, in blocks of steps between which the cache grows and settled rows leave."""

import tensorflow as tf

# Rows left are rounded up to a multiple of this many: few distinct sizes, because TensorFlow prepares kernels for each.
_ROW_MULTIPLE = 8


def search_limits(max_lengths, max_length, grow_cache, block_length):
    """What every search makes of these arguments (see `BeamSearch`).

    Returns:
        `(max_lengths, max_length, width)`: the rows' limits, int32 [B], the greatest of them, and the positions that
        the cache will have room for at most, which is a whole number of blocks.

    Raises:
        ValueError: if one of `grow_cache` and `block_length` comes without the other.
    """
    if (grow_cache is None) != (block_length is None):
        raise ValueError("`grow_cache` and `block_length` must be given together.")
    if max_length is None:
        max_length = tf.reduce_max(tf.concat([[0], max_lengths], 0))
    max_lengths = tf.clip_by_value(max_lengths, 0, max_length)
    width = max_length if grow_cache is None else -(-max_length // block_length) * block_length
    return max_lengths, max_length, width


def run_blocks(step, state, max_length, grow_cache, block_length, row_inputs):
    """Take steps until all rows are settled.

    A cache that has room for all positions from the start is mostly empty, and attention reads, and a write copies,
    all of it; and rows that are settled would be computed until the last one is. So, unless XLA wants fixed shapes,
    the cache grows by a block of positions at a time, and settled rows are left out of the blocks that follow.

    Args:
        step: function `(state, room, row_inputs) -> state`; `room` is the number of positions that the cache has room
            for.
        state: a `NamedTuple` with `index` (scalar), `settled` (boolean [B]) and `cache`; all else are tensors, or
            nested ones, whose first dimension are the rows. A step leaves what a settled row's result is made from
            as it was.
        max_length: the number of steps at most; a multiple of `block_length`, if there is one.
        grow_cache, block_length: as for `BeamSearch`.
        row_inputs: nested tensors (or None), their first dimension the rows, that a step reads and never changes.

    Returns:
        The last state, of all rows; its cache is of no use.
    """
    if grow_cache is None:
        return _run(step, state, max_length, row_inputs)

    def run_block(rows, live, results):
        rows, live = _leave_out_settled(rows, live)
        inputs = tf.nest.map_structure(lambda tensor: None if tensor is None else tf.gather(tensor, rows), row_inputs)
        live = live._replace(cache=grow_cache(live.cache))
        live = _run(step, live, live.index + block_length, inputs)

        def put_back(every, some):
            return tf.tensor_scatter_nd_update(every, rows[:, None], some) if some.shape.rank else some

        return rows, live, tf.nest.map_structure(put_back, results, live._replace(cache=()))

    def unsettled(rows, live, results):
        return ~tf.reduce_all(live.settled)

    rows = tf.range(tf.shape(state.settled)[0])
    results = state._replace(cache=())
    live_shapes = tf.nest.map_structure(_loosened, results)._replace(
        cache=tf.nest.map_structure(_loosened, state.cache, grow_cache(state.cache))
    )
    shapes = (tf.TensorShape([None]), live_shapes, tf.nest.map_structure(lambda tensor: tensor.shape, results))
    return tf.while_loop(unsettled, run_block, (rows, state, results), shape_invariants=shapes)[2]


def _run(step, state, room, inputs):
    """Take steps while the cache has room and a row is not settled."""
    make = type(state)

    def unsettled(*state):
        state = make(*state)
        return (state.index < room) & ~tf.reduce_all(state.settled)

    def body(*before):
        before = make(*before)
        after = step(before, room, inputs)
        tf.nest.map_structure(lambda one, two: two.set_shape(one.shape), before, after)
        return after

    return make(*tf.while_loop(unsettled, body, state))


def _loosened(before, after=None):
    """The shape of a tensor that may have fewer rows later, and other sizes where it differs from `after`."""
    sizes = zip(before.shape, before.shape if after is None else after.shape, strict=True)
    sizes = [one if one == two else None for one, two in sizes]
    return tf.TensorShape([None, *sizes[1:]] if sizes else [])


def _leave_out_settled(rows, state):
    """The rows that are not settled, and some that are, to make their number a multiple."""
    num_rows = tf.shape(state.settled)[0]
    num_left = tf.reduce_sum(tf.cast(~state.settled, tf.int32))
    num_left = tf.minimum(-(-num_left // _ROW_MULTIPLE) * _ROW_MULTIPLE, num_rows)

    def leave_out():
        kept = tf.sort(tf.argsort(tf.cast(state.settled, tf.int32), stable=True)[:num_left])
        return tf.nest.map_structure(lambda x: tf.gather(x, kept) if x.shape.rank else x, (rows, state))

    return tf.cond(num_left < num_rows, leave_out, lambda: (rows, state))
