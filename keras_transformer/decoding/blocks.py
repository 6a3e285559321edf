"""The loop of every search, in blocks of steps between which the cache grows."""

import tensorflow as tf


def run_blocks(step, state, max_length, grow_cache=None, block_length=None):
    """Take steps until all rows are settled.

    A cache that has room for all positions from the start is mostly empty, and attention reads, and a write copies,
    all of it. So unless XLA wants fixed shapes, the cache grows by a block of positions at a time.

    Args:
        step: function `(state, room) -> state`; `room` is the number of positions that the cache has room for.
        state: a `NamedTuple` with `index`, `settled` (boolean [B]) and `cache`.
        max_length: the number of steps at most; a multiple of `block_length`, if there is one.
        grow_cache, block_length: as for `BeamSearch`.

    Returns:
        The last state.
    """
    make = type(state)

    def run(state, room):
        def unsettled(*state):
            state = make(*state)
            return (state.index < room) & ~tf.reduce_all(state.settled)

        def body(*before):
            after = step(make(*before), room)
            tf.nest.map_structure(lambda one, two: two.set_shape(one.shape), make(*before), after)
            return after

        return make(*tf.while_loop(unsettled, body, state))

    if grow_cache is None:
        return run(state, max_length)

    def run_block(*state):
        state = make(*state)
        return run(state._replace(cache=grow_cache(state.cache)), state.index + block_length)

    def loosened(before, after):
        return tf.TensorShape([one if one == two else None for one, two in zip(before.shape, after.shape, strict=True)])

    shapes = tf.nest.map_structure(lambda tensor: tensor.shape, state)
    shapes = shapes._replace(cache=tf.nest.map_structure(loosened, state.cache, grow_cache(state.cache)))
    unsettled = lambda *state: ~tf.reduce_all(make(*state).settled)  # noqa: E731
    return make(*tf.while_loop(unsettled, run_block, state, shape_invariants=shapes))
