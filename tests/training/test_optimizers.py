"""Adam against Keras's own and against the formula."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.training.optimizers import Adam, WarmupSchedule

INPUTS = np.array([[1, 2, 3, 2], [4, 4, 0, 1]])


def model(optimizer, **arguments):
    keras.utils.set_random_seed(3)
    embedding = keras.layers.ReversibleEmbedding(7, 5, name="embedding")
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, embedding(keras.layers.Dense(5, "relu", name="hidden")(embedding(ids)), reverse=True))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, **{"jit_compile": False, **arguments})
    return model


def train(optimizer, **arguments):
    """Weights and the optimizer's state after 20 steps."""
    trained = model(optimizer, **arguments)
    trained.fit(INPUTS, INPUTS[:, ::-1], epochs=20, verbose=0)
    return {variable.path: np.asarray(variable) for variable in [*trained.weights, *trained.optimizer.variables]}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"learning_rate": WarmupSchedule(8, 10), "epsilon": 1e-9},
        {"weight_decay": 0.1, "global_clipnorm": 0.1},
        {"use_ema": True, "ema_momentum": 0.5, "gradient_accumulation_steps": 2},
        {"amsgrad": True},
    ],
    ids="-".join,
)
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_numbers_are_those_of_keras(arguments, jit_compile):
    # Of these 1 - beta is exact in float32; Keras takes it in float64.
    arguments = {"learning_rate": 0.01, "beta_1": 0.875, "beta_2": 1 - 2**-7, **arguments, "name": "adam"}
    ours = train(Adam(**arguments), jit_compile=jit_compile)
    theirs = train(keras.optimizers.Adam(**arguments), jit_compile=jit_compile)
    assert ours.keys() == theirs.keys()
    for path, value in ours.items():
        np.testing.assert_allclose(value, theirs[path], rtol=1e-6, atol=2e-6, err_msg=path)


def test_default_numbers_are_those_of_keras():
    ours, theirs = (train(optimizer(name="adam")) for optimizer in (Adam, keras.optimizers.Adam))
    assert ours.keys() == theirs.keys()
    for path, value in ours.items():
        np.testing.assert_allclose(value, theirs[path], rtol=1e-4, atol=2e-6, err_msg=path)


def test_formula():
    optimizer = Adam(0.1, beta_1=0.7, beta_2=0.9, epsilon=0.5)
    variable = keras.Variable([1.0, -2.0, 3.0])
    optimizer.build([variable])
    weight, first, second = np.array([1.0, -2.0, 3.0]), 0.0, 0.0
    for step, gradient in enumerate(np.random.normal(size=(9, 3)), 1):
        optimizer.apply([tf.constant(gradient, "float32")])
        first = 0.7 * first + 0.3 * gradient
        second = 0.9 * second + 0.1 * gradient**2
        weight -= 0.1 * np.sqrt(1 - 0.9**step) / (1 - 0.7**step) * first / (np.sqrt(second) + 0.5)
        np.testing.assert_allclose(variable.numpy(), weight, rtol=1e-6)


def test_repeated_rows_are_added_up_and_others_decay():
    optimizers = [optimizer(0.1, beta_1=0.875, beta_2=1 - 2**-7) for optimizer in (Adam, keras.optimizers.Adam)]
    tables = []
    for optimizer in optimizers:
        table = keras.Variable(np.ones([4, 2], "float32"))
        optimizer.build([table])
        for rows in ([1, 1, 2], [3, 1, 3]):
            gradient = tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]]), tf.constant(rows), [4, 2])
            optimizer.apply([gradient if optimizer is optimizers[0] else tf.convert_to_tensor(gradient)])
        tables.append(table.numpy())
    np.testing.assert_allclose(*tables, rtol=1e-6)
    assert (tables[0][0] == 1.0).all()
    assert (tables[0][1:] != 1.0).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_half_precision(dtype):
    variables = [keras.Variable([1.0, 2.0], dtype=dtype) for _ in range(2)]
    for variable, optimizer in zip(
        variables, (Adam(0.1, epsilon=1e-3), keras.optimizers.Adam(0.1, epsilon=1e-3)), strict=True
    ):
        optimizer.build([variable])
        for _ in range(3):
            optimizer.apply([tf.constant([0.5, -1.0])])
    ours, theirs = (keras.ops.convert_to_numpy(variable).astype("float32") for variable in variables)
    np.testing.assert_allclose(ours, theirs, rtol=2e-2)


def test_one_operation_updates_a_weight():
    trained = model(Adam(0.01))
    trained.fit(INPUTS, INPUTS, verbose=0)
    optimizer, variables = trained.optimizer, trained.trainable_variables

    @tf.function
    def apply(gradients):
        optimizer.apply(gradients, variables)

    graph = apply.get_concrete_function([tf.zeros(variable.shape) for variable in variables]).graph
    kinds = [operation.type for operation in graph.get_operations()]
    assert kinds.count("ResourceApplyAdam") == len(variables)
    assert not {"Sqrt", "AssignSubVariableOp"} & set(kinds)


def test_config_and_saving(tmp_path):
    trained = model(Adam(WarmupSchedule(8, 10), beta_2=0.98))
    trained.fit(INPUTS, INPUTS, verbose=0)
    trained.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is Adam
    assert loaded.optimizer.get_config() == trained.optimizer.get_config()
    for one in (trained, loaded):
        one.fit(INPUTS, INPUTS, verbose=0)
    for value, expected in zip(loaded.get_weights(), trained.get_weights(), strict=True):
        np.testing.assert_array_equal(value, expected)
