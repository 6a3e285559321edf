"""How far training has come."""

from keras import ops


def steps_made(model):
    """Number of updates that the optimizer of a model has made, a Python integer.

    `int(optimizer.iterations)` fails for a variable that `tf.distribute` mirrors.
    """
    return int(ops.convert_to_numpy(model.optimizer.iterations))
