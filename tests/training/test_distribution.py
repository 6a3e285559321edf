"""Training on several replicas against one device, in processes with several logical CPU devices."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.runs.checkpoints import Checkpoints
from keras_transformer.runs.resuming import ResumeEpoch
from keras_transformer.training.distribution import TrainingModel
from keras_transformer.training.losses import LabelSmoothedCrossEntropy

UNEVEN = {"num_batches": 20}  # see `make_batches`: unequal numbers of rows and tokens, replicas without either
EVEN = {"data": "even"}
CLIPPING = ("Adam", {"learning_rate": 0.01, "global_clipnorm": 0.02})
SECONDS = 120  # after which a request counts as hanging


class Replicas:
    """Sends work to one process for each number of devices, started on first use."""

    def __init__(self, directory):
        self.directory = directory
        self.processes = {}
        self.answers = {}

    def ask(self, request, devices=2, **arguments):
        """The answer to a request of replicas_process.py, and the arrays that it stored."""
        key = json.dumps([request, devices, arguments])
        if key not in self.answers:
            if devices not in self.processes:
                script = str(Path(__file__).with_name("replicas_process.py"))
                self.processes[devices] = subprocess.Popen(
                    [sys.executable, script, str(devices)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            process = self.processes[devices]
            results = str(self.directory / f"{len(self.answers)}.npz")
            process.stdin.write(json.dumps({"request": request, "results": results, **arguments}) + "\n")
            process.stdin.flush()
            timer = threading.Timer(SECONDS, process.kill)
            timer.start()
            answer = json.loads(process.stdout.readline())
            timer.cancel()
            arrays = []
            if Path(results).exists():
                with np.load(results) as file:
                    arrays = [file[name] for name in file.files]
            self.answers[key] = answer, arrays
        return self.answers[key]

    def train(self, replicas, *, fails=False, **arguments):
        """Train; without a strategy for one replica. Returns the answer and the weights."""
        answer, weights = self.ask("train", devices=max(2, replicas), replicas=replicas, **arguments)
        assert fails or "error" not in answer, answer["traceback"]
        return answer, weights

    def close(self):
        for process in self.processes.values():
            process.stdin.close()
            process.stdout.close()
            process.wait(timeout=30)


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    processes = Replicas(tmp_path_factory.mktemp("replicas"))
    yield processes
    processes.close()


def difference(weights, others):
    return max(np.abs(weight - other).max() for weight, other in zip(weights, others, strict=True))


def assert_same_numbers(numbers, expected, rtol=1e-5):
    """Also in a history, as far as both have a number."""
    shared = set(numbers) & set(expected)
    assert {"loss", "perplexity", "target_tokens", "token_accuracy"} <= shared
    for name in shared:
        np.testing.assert_allclose(numbers[name], expected[name], rtol=rtol, err_msg=name)


# === The loss ===


def test_loss_on_each_replica_is_that_of_the_global_batch(replicas):
    labels = [[[1, 2, 0], [3, 0, 0]], [[4, 4, 5]]]
    weights = [[[1.0, 0.5, 1.0], [2.0, 1.0, 1.0]], [[0.0, 3.0, 1.0]]]
    answer, logits = replicas.ask("loss_by_replica", labels=labels, weights=weights)
    batch, whole = np.concatenate(labels), tf.constant(np.concatenate(logits), "float32")
    with tf.GradientTape() as tape:
        tape.watch(whole)
        expected = LabelSmoothedCrossEntropy()(batch, whole, np.concatenate(weights))
    np.testing.assert_allclose(np.multiply(answer["values"], 2), [expected, expected], rtol=1e-6)
    gradient = tape.gradient(expected, whole)
    np.testing.assert_allclose(np.concatenate(answer["gradients"]), gradient, atol=1e-7)


def test_loss_without_a_real_token_on_one_replica_or_on_any(replicas):
    labels, weights = [[[1, 2, 0]], [[0, 0, 0]]], [[[1.0, 1.0, 1.0]]] * 2
    answer, logits = replicas.ask("loss_by_replica", labels=labels, weights=weights)
    expected = LabelSmoothedCrossEntropy()(labels[0], logits[0].astype("float32"))
    np.testing.assert_allclose(np.multiply(answer["values"], 2), [expected, expected], rtol=1e-6)
    assert not np.any(answer["gradients"][1])
    answer, _ = replicas.ask("loss_by_replica", labels=[labels[1]] * 2, weights=weights)
    assert answer["values"] == [0, 0]
    assert not np.any(answer["gradients"])


# === Keras's own step ===


@pytest.mark.slow
@pytest.mark.parametrize("num_replicas", [2, 3])
def test_stock_fit_of_a_transformer_equals_one_device(replicas, num_replicas):
    """Also reads the pipeline as often as one device does: a batch more or less would show."""
    run = {"model": "transformer", "data": UNEVEN, "validation": {}}
    expected, expected_weights = replicas.train(1, **run)
    answer, weights = replicas.train(num_replicas, **run)
    assert difference(weights, expected_weights) < 1e-5
    assert_same_numbers(answer["history"], expected["history"])
    assert_same_numbers(answer["evaluate"], expected["evaluate"])


def test_a_mean_over_each_replica_is_another_loss(replicas):
    """That the data here tell an exact loss from Keras's."""
    _, expected = replicas.train(1, data=EVEN)
    _, exact = replicas.train(2, data=EVEN)
    _, other = replicas.train(2, data=EVEN, loss="mean")
    assert difference(exact, expected) < 1e-5
    assert difference(other, expected) > 1e-2


# === The step of TrainingModel ===


def test_step_on_one_device_is_that_of_keras(replicas):
    expected, expected_weights = replicas.train(1, data=UNEVEN, validation={})
    answer, weights = replicas.train(1, data=UNEVEN, validation={}, step={})
    assert difference(weights, expected_weights) < 1e-6
    assert_same_numbers(answer["history"], expected["history"], rtol=1e-6)
    assert_same_numbers(answer["evaluate"], expected["evaluate"], rtol=1e-6)
    assert set(answer["evaluate"]) == set(expected["evaluate"])
    assert set(answer["history"]) == {*expected["history"], "gradient_norm", "skipped_steps"}
    assert answer["same_weights"]


@pytest.mark.parametrize(
    ("num_replicas", "step"),
    [
        (2, {}),
        (2, {"num_micro_batches": 3}),
        (2, {"max_skipped_steps": None}),
        pytest.param(3, {}, marks=pytest.mark.slow),
        pytest.param(3, {"num_micro_batches": 3}, marks=pytest.mark.slow),
    ],
)
def test_step_equals_one_device(replicas, num_replicas, step):
    expected, expected_weights = replicas.train(1, data=UNEVEN, validation={})
    answer, weights = replicas.train(num_replicas, data=UNEVEN, validation={}, step=step)
    assert difference(weights, expected_weights) < 1e-5
    assert_same_numbers(answer["history"], expected["history"])
    assert_same_numbers(answer["evaluate"], expected["evaluate"])
    assert answer["optimizer"]["iteration"] == 20
    assert answer["strategy"].endswith("gradients are added up by CollectiveAllReduce (RING)")


@pytest.mark.parametrize("step", [None, {}], ids=str)
@pytest.mark.parametrize("data", ["full", "even"])
def test_one_update(replicas, data, step):
    """Every position real, or one replica with a sixth of the other's tokens."""
    run = {"data": {"data": data, "num_batches": 1}, "optimizer": ("SGD", {"learning_rate": 0.1})}
    expected, expected_weights = replicas.train(1, **run)
    answer, weights = replicas.train(2, **run, step=step)
    assert difference(weights, expected_weights) < 1e-6
    assert answer["history"]["loss"] == pytest.approx(expected["history"]["loss"], abs=1e-6)


@pytest.mark.parametrize("step", [None, {}], ids=str)
@pytest.mark.parametrize("data", ["seventeen", "seventeen padded"])
def test_seventeen_examples_in_batches_of_eight(replicas, data, step):
    """The last batch leaves one replica without a row; in the padded ones that replica never has a real token."""
    run = {"data": {"data": data, "num_batches": 3}, "validation": {"data": data, "num_batches": 3}}
    expected, expected_weights = replicas.train(1, **run)
    answer, weights = replicas.train(2, **run, step=step)
    assert difference(weights, expected_weights) < 1e-5
    assert_same_numbers(answer["history"], expected["history"])
    assert answer["history"]["val_loss"] == pytest.approx(expected["history"]["val_loss"], abs=1e-6)
    assert answer["history"]["target_tokens"] == [answer["num_tokens"]]
    assert answer["evaluate"]["loss"] == pytest.approx(expected["evaluate"]["loss"], abs=1e-6)


@pytest.mark.parametrize(
    ("reduction", "described"),
    [("hierarchical-copy", "HierarchicalCopyAllReduce"), ("one-device", "ReductionToOneDevice")],
)
def test_ways_to_add_up_gradients(replicas, reduction, described):
    expected, expected_weights = replicas.train(1, data=UNEVEN, validation={})
    answer, weights = replicas.train(2, data=UNEVEN, validation={}, step={}, reduction=reduction)
    assert answer["strategy"].startswith("2 replicas in one process, on /")
    assert answer["strategy"].endswith(f"CPU:1; gradients are added up by {described}")
    assert difference(weights, expected_weights) < 1e-5
    assert_same_numbers(answer["history"], expected["history"])


@pytest.mark.parametrize("step", [None, {}, {"num_micro_batches": 2}], ids=str)
def test_size_of_the_update(replicas, step):
    """Adam would take the same step with twice the gradient."""
    optimizer = ("SGD", {"learning_rate": 0.5})
    _, expected = replicas.train(1, data=EVEN, optimizer=optimizer)
    _, weights = replicas.train(2, data=EVEN, optimizer=optimizer, step=step)
    assert difference(weights, expected) < 1e-5
    _, start = replicas.train(1, data=EVEN, optimizer=("SGD", {"learning_rate": 0.0}))
    assert difference(weights, start) > 1e-2


@pytest.mark.slow
def test_step_of_a_transformer_equals_one_device(replicas):
    run = {"model": "transformer", "data": UNEVEN}
    expected, expected_weights = replicas.train(1, **run)
    answer, weights = replicas.train(2, **run, step={"num_micro_batches": 2})
    assert difference(weights, expected_weights) < 2e-5
    assert_same_numbers(answer["history"], expected["history"])


@pytest.mark.parametrize("step", [{}, {"num_micro_batches": 2}], ids=str)
def test_clips_the_gradient_of_the_global_batch(replicas, step):
    _, expected = replicas.train(1, data=EVEN, optimizer=CLIPPING)
    answer, weights = replicas.train(2, data=EVEN, optimizer=CLIPPING, step=step)
    assert difference(weights, expected) < 1e-5
    _, unclipped = replicas.train(1, data=EVEN)
    assert difference(weights, unclipped) > 1e-2
    _, of_keras = replicas.train(2, data=EVEN, optimizer=CLIPPING)
    assert difference(of_keras, expected) > 1e-2, "Keras clips right: this class need no longer"
    whole, _ = replicas.train(1, data=EVEN, optimizer=CLIPPING, step={})
    np.testing.assert_allclose(answer["history"]["gradient_norm"], whole["history"]["gradient_norm"], rtol=1e-5)
    assert answer["history"]["gradient_norm"][0] > 0.02


def test_weight_decay_and_moving_average(replicas):
    optimizer = ("AdamW", {"learning_rate": 0.01, "weight_decay": 0.1, "use_ema": True, "ema_momentum": 0.5})
    _, expected = replicas.train(1, data=EVEN, optimizer=optimizer)
    _, weights = replicas.train(2, data=EVEN, optimizer=optimizer, step={})
    assert difference(weights, expected) < 1e-5
    _, plain = replicas.train(1, data=EVEN)
    assert difference(weights, plain) > 1e-3


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_a_gradient_that_is_not_finite_on_one_replica_changes_nothing_anywhere(replicas, num_replicas):
    answer, weights = replicas.train(num_replicas, data={**EVEN, "bad": [2, 3, 6]}, step={})
    expected, expected_weights = replicas.train(num_replicas, data={**EVEN, "leave_out": [2, 3, 6]}, step={})
    assert difference(weights, expected_weights) == 0
    assert answer["history"].pop("skipped_steps") == [3]
    assert expected["history"].pop("skipped_steps") == [0]
    assert answer["history"] == expected["history"]
    assert answer["optimizer"] == expected["optimizer"]
    assert answer["optimizer"]["iteration"] == 7
    _, applied = replicas.train(num_replicas, data={**EVEN, "bad": [2, 3, 6]}, step={"max_skipped_steps": None})
    assert not np.isfinite(applied[0]).all()


def test_stops_after_too_many_skipped_steps_and_says_where(replicas):
    run = {"data": {**EVEN, "bad": [2, 4, 5]}, "step": {"max_skipped_steps": 2}}
    answer, _ = replicas.train(2, fails=True, **run)
    assert answer["error"] == "FloatingPointError"
    assert answer["message"].startswith(
        "Training stopped: 2 steps in a row had gradients that are not finite, the last one at step 4; "
        "weights: 5 of 5, the first of them reversible_embedding"
    )
    assert answer["message"].endswith("labels of the batch, by replica: 2 x 6, 2 x 6")
    answer, _ = replicas.train(2, **{**run, "step": {"max_skipped_steps": 3}}, save=str(replicas.directory / "skipped"))
    assert answer["skipped_in_a_row"] == 0


@pytest.mark.parametrize(
    "step",
    [
        {},
        pytest.param({"num_micro_batches": 2}, marks=pytest.mark.slow),
        pytest.param({"max_skipped_steps": None}, marks=pytest.mark.slow),
    ],
)
def test_float16_has_one_loss_scale_for_all_replicas(replicas, step):
    run = {"data": {**EVEN, "bad": [2, 3, 6]}, "policy": "mixed_float16"}
    expected, expected_weights = replicas.train(1, **run)
    alone, weights = replicas.train(1, **run, step={})
    assert difference(weights, expected_weights) < 1e-6
    assert alone["optimizer"] == expected["optimizer"]
    assert expected["optimizer"]["dynamic_scale"] == 2.0**15 / 8
    answer, weights = replicas.train(2, **run, step=step)
    assert difference(weights, expected_weights) < 1e-3
    assert answer["optimizer"] == expected["optimizer"]
    assert answer["dtypes"] == ["float32"]
    _, of_keras = replicas.train(2, **run)
    assert not difference(of_keras, expected_weights) < 1e-3, "Keras scales right: this class need no longer"
    _, in_float32 = replicas.train(1, **{**run, "policy": "float32"}, step={})
    assert difference(in_float32, expected_weights) < 1e-3


def test_loss_scale_grows_after_good_steps(replicas):
    optimizer = ("LossScaleOptimizer", {"inner_optimizer": "adam", "dynamic_growth_steps": 4})
    answer, _ = replicas.train(2, data=EVEN, policy="mixed_float16", optimizer=optimizer, step={})
    expected, _ = replicas.train(1, data=EVEN, policy="mixed_float16", optimizer=optimizer)
    assert answer["optimizer"] == expected["optimizer"]
    assert answer["optimizer"]["dynamic_scale"] == 2.0**15 * 4
    assert answer["optimizer"]["step_counter"] == 2


def test_bfloat16(replicas):
    _, expected = replicas.train(1, data=EVEN, policy="mixed_bfloat16")
    answer, weights = replicas.train(2, data=EVEN, policy="mixed_bfloat16", step={"num_micro_batches": 2})
    assert difference(weights, expected) < 1e-2
    assert answer["dtypes"] == ["float32"]
    assert set(answer["optimizer"]) == {"iteration", "learning_rate"}, "no loss scale"


@pytest.mark.slow
@pytest.mark.parametrize("step", [{}, {"num_micro_batches": 2}], ids=str)
def test_compiled_by_xla(replicas, step):
    expected, expected_weights = replicas.train(1, data=EVEN)
    answer, weights = replicas.train(2, data=EVEN, step=step, jit_compile=True)
    assert difference(weights, expected_weights) < 1e-5
    assert_same_numbers(answer["history"], expected["history"])


FEW_SHAPES = """
import keras
from keras_transformer.data.batches import Batches
from keras_transformer.data.token_store import TokenStore
from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.training.distribution import TrainingModel
from keras_transformer.training.losses import LabelSmoothedCrossEntropy

tokenizer = Tokenizer.train(["a b c d e f"], vocabulary_size=270)
pairs = [("a " * (1 + i % 13), "b " * (1 + i * i % 17)) for i in range(200)]
batches = Batches(TokenStore.from_pairs(pairs, tokenizer), tokens_per_batch=128, row_multiple=2, num_shapes=4)
inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ("source_ids", "target_ids")}
source, target = (keras.layers.Embedding(270, 4)(ids) for ids in inputs.values())
model = keras.Model(inputs, keras.layers.Dense(270)(target + keras.ops.mean(source, axis=1, keepdims=True)))
training = TrainingModel(model, num_micro_batches=2)
training.compile("adam", LabelSmoothedCrossEntropy(), jit_compile=True)
training.fit(batches.dataset(), epochs=2, steps_per_epoch=batches.num_batches(), shuffle=False, verbose=0)
print(batches.statistics().num_shapes)
"""


@pytest.mark.slow
def test_xla_compiles_once_for_each_shape(tmp_path):
    environment = {**os.environ, "XLA_FLAGS": f"--xla_dump_to={tmp_path}", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run([sys.executable, "-c", FEW_SHAPES], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "4"
    assert len(list(tmp_path.glob("*.before_optimizations.txt"))) == 4


@pytest.mark.slow  # tests/layers/test_dropout.py has the replicas
def test_dropout_differs_by_replica_and_micro_batch_and_repeats(replicas, tmp_path):
    answer, _ = replicas.ask("dropout_by_replica")
    first, second = np.array(answer["outputs"])
    assert np.abs(first - second).max() > 1e-4
    _, weights = replicas.train(2, dropout=0.3, step={})
    _, again = replicas.train(2, dropout=0.3, step={}, save=str(tmp_path))
    assert difference(weights, again) == 0
    for other in ({"step": {"num_micro_batches": 2}, "dropout": 0.3}, {"step": {}, "dropout": 0.0}):
        _, others = replicas.train(2, **other)
        assert difference(weights, others) > 1e-3


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_checkpoint_of_one_number_of_replicas_goes_on_with_another(replicas, tmp_path, before, after):
    run = {"step": {}, "optimizer": ("Adam", {"learning_rate": 0.01})}
    saved, _ = replicas.train(before, **run, data={"num_batches": 6}, save=str(tmp_path))
    answer, weights = replicas.train(after, **run, restore=str(tmp_path), skip_batches=6)
    assert answer["restored_moments"] == saved["moments"]
    assert np.abs(saved["moments"][0]).max() > 0
    expected, expected_weights = replicas.train(after, **run)
    assert difference(weights, expected_weights) < 1e-5
    for moment, other in zip(answer["moments"], expected["moments"], strict=True):
        np.testing.assert_allclose(moment, other, atol=1e-6)
    assert answer["optimizer"] == expected["optimizer"]
    _, forgetful = replicas.train(after, **run, skip_batches=6)
    assert difference(forgetful, expected_weights) > 1e-3


# === One device ===


def lookup_model(regularizer=None):
    """Its embedding is only looked up: TensorFlow gives the gradient as rows, one for each time an id occurs."""
    ids = keras.Input((None,), dtype="int32")
    return keras.Model(ids, keras.layers.Dense(6, kernel_regularizer=regularizer)(keras.layers.Embedding(6, 4)(ids)))


IDS = np.array([[1, 1, 1, 2], [1, 3, 3, 1]], "int32")


def test_repeated_ids_are_added_up_before_adam_squares_them():
    model = lookup_model()
    table, kernel, bias = model.get_weights()
    logits = tf.Variable(table[IDS] @ kernel + bias)
    with tf.GradientTape() as tape:
        loss = LabelSmoothedCrossEntropy()(IDS, logits)
    gradient = np.zeros_like(table)
    np.add.at(gradient, IDS, tape.gradient(loss, logits).numpy() @ kernel.T)
    # The first step of Adam moves each entry by the learning rate against the sign of its gradient.
    training = TrainingModel(model)
    training.compile(keras.optimizers.Adam(0.01, epsilon=1e-9), LabelSmoothedCrossEntropy())
    training.fit(IDS, IDS, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], table - 0.01 * np.sign(gradient), atol=1e-5)


def test_regularizer_counts_once():
    losses = {}
    for num_micro_batches in (None, 1, 2):
        keras.utils.set_random_seed(1)
        model = lookup_model(keras.regularizers.L2(0.1))
        if num_micro_batches is not None:
            model = TrainingModel(model, num_micro_batches=num_micro_batches)
        model.compile(keras.optimizers.SGD(0.5), LabelSmoothedCrossEntropy())
        losses[num_micro_batches] = model.fit(IDS, IDS, epochs=3, verbose=0).history["loss"]
    np.testing.assert_allclose(losses[1], losses[None], rtol=1e-6)
    np.testing.assert_allclose(losses[2], losses[None], rtol=1e-6)
    assert losses[None][0] > np.log(6) + 0.05, "nothing was regularized"


def test_saves_the_model_that_it_was_made_from(tmp_path):
    model = lookup_model()
    training = TrainingModel(model)
    training.compile("adam", LabelSmoothedCrossEntropy())
    training.fit(
        *(IDS, IDS),
        callbacks=[
            keras.callbacks.ModelCheckpoint(tmp_path / "model.keras"),
            keras.callbacks.ModelCheckpoint(tmp_path / "model.weights.h5", save_weights_only=True),
        ],
        verbose=0,
    )
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(loaded(IDS), model(IDS))
    other = lookup_model()
    TrainingModel(other).load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other(IDS), model(IDS))
    np.testing.assert_array_equal(training.predict(IDS, verbose=0), model(IDS))


def test_state_for_checkpoints():
    lookup = lookup_model()
    model = keras.Model(lookup.input, keras.layers.Dropout(0.1)(lookup.output))
    training = TrainingModel(model)
    assert [id(weight) for weight in training.weights] == [id(weight) for weight in model.weights]
    *_, seed, skipped = training.variables
    assert "seed_generator" in seed.path
    assert skipped is training.skipped_in_a_row
    training.compile("adam", LabelSmoothedCrossEntropy())
    assert training.optimizer.built


def test_counts_the_skipped_steps_of_an_epoch_that_was_resumed_for_its_last_batch(tmp_path):
    weights = np.ones((4, *IDS.shape), "float32")
    weights[0] = np.inf

    def train(stop_at):
        training = TrainingModel(lookup_model())
        training.compile("adam", LabelSmoothedCrossEntropy())
        checkpoints = Checkpoints(tmp_path, training)
        batches = tf.data.Dataset.from_tensor_slices((np.stack([IDS] * 4), np.stack([IDS] * 4), weights))

        def stop(batch, logs=None):
            if batch == stop_at:
                checkpoints.save(temporary=True)
                raise InterruptedError

        return training.fit(
            batches.skip(checkpoints.restore_latest()),
            steps_per_epoch=4,
            shuffle=False,
            callbacks=[ResumeEpoch(checkpoints, 4), keras.callbacks.LambdaCallback(on_train_batch_begin=stop)],
            verbose=0,
        ).history

    with pytest.raises(InterruptedError):
        train(stop_at=3)
    assert train(stop_at=None)["skipped_steps"] == [1]


def test_a_step_with_a_frozen_layer():
    model = lookup_model()
    model.layers[1].trainable = False
    table, kernel, _ = model.get_weights()
    training = TrainingModel(model)
    training.compile("adam", LabelSmoothedCrossEntropy())
    training.fit(IDS, IDS, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0], table)
    assert np.abs(model.get_weights()[1] - kernel).max() > 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_micro_batches": 0}, "`num_micro_batches` must be a positive integer. Received: num_micro_batches=0"),
        ({"num_micro_batches": 1.5}, "num_micro_batches=1.5"),
        ({"num_micro_batches": None}, "num_micro_batches=None"),
        ({"max_skipped_steps": True}, "`max_skipped_steps` must be a positive integer. Received: max_skipped_steps="),
        ({"model": keras.Sequential()}, "`model` must be a built functional keras.Model. Received: model=<Sequential"),
        ({"model": "model"}, "Received: model='model'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        TrainingModel(**{"model": lookup_model(), **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "mse"}, "`loss` must be a LabelSmoothedCrossEntropy. Received: loss='mse'"),
        (
            {"optimizer": keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)},
            "`optimizer` must not have `gradient_accumulation_steps`.*Received: gradient_accumulation_steps=2",
        ),
        ({"optimizer": keras.optimizers.SGD(0.1, loss_scale_factor=8.0)}, "Received: loss_scale_factor=8.0"),
    ],
)
def test_bad_arguments_of_compile(arguments, message):
    training = TrainingModel(lookup_model())
    with pytest.raises(ValueError, match=message):
        training.compile(**{"optimizer": "sgd", "loss": LabelSmoothedCrossEntropy(), **arguments})


def test_optimizer_and_metrics_belong_into_the_scope():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    outside = {"optimizer": keras.optimizers.SGD(0.1), "metrics": [keras.metrics.SparseCategoricalAccuracy()]}
    for name, value in outside.items():
        with strategy.scope():
            training = TrainingModel(lookup_model())
            arguments = {"optimizer": keras.optimizers.SGD(0.1), "loss": LabelSmoothedCrossEntropy(), name: value}
        with pytest.raises(ValueError, match=f"`{name}` must be made inside of the scope of the model's strategy"):
            training.compile(**arguments)
