"""Each private name of Keras and TensorFlow that is used is there and does what it is used for."""

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import keras_internals


def compiled_model(optimizer="adam"):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def test_maybe_symbolic_build_makes_what_fit_needs():
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = compiled_model()
        assert not model.optimizer.built
        model._maybe_symbolic_build(data_batch=(np.zeros((1, 2)), np.zeros((1, 1))))
    assert model.optimizer.built


def test_maybe_symbolic_build_is_what_fit_calls_under_a_strategy(monkeypatch):
    called = []
    known = keras.KerasTensor((None, 2)), keras.KerasTensor((None, 1))

    @keras_internals.builds_without_reading(lambda model, iterator: called.append(iterator) or known)
    class Model(keras.Sequential):
        pass

    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = Model([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    model.fit(np.zeros((4, 2)), np.zeros((4, 1)), verbose=0)
    assert called


def test_symbolic_build_takes_specifications():
    model = compiled_model()
    model._symbolic_build(data_batch=(keras.KerasTensor((None, 2)), keras.KerasTensor((None, 1))))
    assert model.optimizer.built
    assert len(model.metrics_variables) > 0


def test_build_for_fit():
    @keras_internals.builds_without_reading(
        lambda model, iterator: (keras.KerasTensor((None, 2)), keras.KerasTensor((None, 1)))
    )
    class Model(keras.Sequential):
        pass

    model = Model([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    keras_internals.build_for_fit(model)
    assert model.optimizer.built


def test_distribute_strategy():
    assert not keras_internals.has_own_strategy(compiled_model())
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        assert keras_internals.has_own_strategy(compiled_model())


def test_all_reduce_sum_gradients():
    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    optimizer = keras.optimizers.SGD()
    assert callable(TFOptimizer._all_reduce_sum_gradients)
    with keras_internals.gradients_summed_already(optimizer):
        assert optimizer._all_reduce_sum_gradients([(1, 2)]) == [(1, 2)]
    assert optimizer._all_reduce_sum_gradients.__func__ is TFOptimizer._all_reduce_sum_gradients


def test_set_untracked():
    layer = keras.layers.Layer()
    keras_internals.set_untracked(layer, "aside", keras.Variable(1.0))
    assert layer.weights == []
    layer.tracked = keras.Variable(1.0)
    assert len(layer.weights) == 1


def test_adam_moments():
    model = compiled_model(keras.optimizers.Adam(beta_1=0.5, beta_2=0.75))
    model.train_on_batch(np.ones((1, 2)), np.ones((1, 1)))
    kernel = model.layers[0].kernel
    momentum, velocity = keras_internals.adam_moments(model.optimizer, kernel)
    assert momentum.shape == velocity.shape == kernel.shape
    np.testing.assert_allclose(velocity, 0.25 * (np.asarray(momentum) / 0.5) ** 2, rtol=1e-5)


def test_cross_device_ops():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"], cross_device_ops=tf.distribute.ReductionToOneDevice())
    assert keras_internals.reduction_name(strategy) == "ReductionToOneDevice"


def test_communication_options():
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    assert keras_internals.reduction_name(strategy) == "CollectiveAllReduce (RING)"


def test_data_adapter():
    seen = []

    class Model(keras.Sequential):
        def _maybe_symbolic_build(self, iterator=None, data_batch=None):
            seen.append(keras_internals.batch_specification(iterator))
            return super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)

    model = Model([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(np.zeros((4, 2)), np.zeros((4, 1)), verbose=0)
    assert [leaf.shape.as_list() for leaf in seen[0]] == [[None, 2], [None, 1]]
