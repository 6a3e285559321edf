"""Every private name of Keras and TensorFlow that the package uses: why, and what breaks without it.

Private names may go with any version of Keras or TensorFlow. `tests/test_keras_internals.py` has a test for each, so
that an upgrade tells at once.
"""

import contextlib

import keras


def builds_without_reading(specification):
    """Decorate a model class: `fit` and others learn the shapes of a batch without reading one.

    Before they run under a `tf.distribute` strategy, Keras calls `Model._maybe_symbolic_build` to make the variables of
    metrics and optimizer. To learn the shapes it reads a batch and averages it over the replicas: that fails where
    replicas hold unequal numbers of rows, and uses up a batch of a pipeline that cannot be read twice. What is known of
    the batches tells the same, and `Model._symbolic_build` takes it. Without the two names, `fit` under a strategy
    fails on unequal rows.

    Args:
        specification: function of the model and of Keras's iterator of epochs (or None) to what a batch looks like, a
            nested structure of tensor specifications, or to None to leave it to Keras.
    """

    def decorate(model_class):
        def build(self, iterator=None, data_batch=None):
            known = specification(self, iterator)
            if known is None:
                return super(model_class, self)._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
            with self.distribute_strategy.scope():
                return self._symbolic_build(data_batch=known)

        model_class._maybe_symbolic_build = build
        return model_class

    return decorate


def build_for_fit(model):
    """Make now what `fit` would make at its start: the variables of metrics and optimizer."""
    model._maybe_symbolic_build()


def has_own_strategy(model):
    """Whether a model was made under a strategy: `Model._distribute_strategy`, None where the default one holds.

    `Model.distribute_strategy` gives the default strategy then and cannot tell.
    """
    return model._distribute_strategy is not None


@contextlib.contextmanager
def gradients_summed_already(optimizer):
    """Within it, an optimizer does not add up the gradients of all replicas: they are summed before they are clipped.

    Keras has no switch for `Optimizer._all_reduce_sum_gradients`. Without the name, gradients would be added up twice.
    """
    # It shadows the method of the class; `list` gives back the pairs unchanged.
    set_untracked(optimizer, "_all_reduce_sum_gradients", list)
    try:
        yield
    finally:
        object.__delattr__(optimizer, "_all_reduce_sum_gradients")


def set_untracked(target, name, value):
    """Set an attribute of a model or an optimizer past Keras's tracking, which would count it among its own state.

    Keras tracks in `__setattr__` of its classes; that of `object` is not concerned. Were it to track elsewhere,
    `weights` of a `TrainingModel` would change.
    """
    object.__setattr__(target, name, value)


def adam_moments(optimizer, variable):
    """The two moments that Adam keeps of a variable: `Adam._momentums` and `_velocities`, by `_get_variable_index`.

    Without the names, our `Adam` has no state to update in one pass.
    """
    index = optimizer._get_variable_index(variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def reduction_name(strategy):
    """How a strategy adds up gradients over its replicas, for the log.

    TensorFlow keeps `_cross_device_ops` and `_communication_options` of a strategy's `extended` to itself.
    """
    extended = strategy.extended
    name = type(extended._cross_device_ops).__name__
    if name == "CollectiveAllReduce":
        name += f" ({extended._communication_options.implementation.value})"
    return name


def batch_specification(iterator):
    """What the batches of Keras's iterator of epochs look like; None where the data is distributed already.

    `EpochIterator.data_adapter` is undocumented. Without it, see `builds_without_reading`.
    """
    specification = iterator.data_adapter.get_tf_dataset().element_spec
    return specification if all(hasattr(leaf, "shape") for leaf in keras.tree.flatten(specification)) else None
