"""A process with several logical CPU devices, which must be set up before TensorFlow does anything.

Reads one JSON request a line and answers with one JSON line; see `Replicas` in test_distribution.py. The number of
devices is the argument. It trains on one of them without a strategy, or on all under MirroredStrategy.
"""

import functools
import json
import sys
import traceback
import warnings

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.layers import Dropout
from keras_transformer.runs import hosts
from keras_transformer.runs.checkpoints import Checkpoints
from keras_transformer.training.distribution import TrainingModel
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy, TokenCount
from keras_transformer.training.optimizers import Adam
from keras_transformer.transformer import Transformer

NUM_DEVICES = int(sys.argv[1])
VOCABULARY_SIZE = 20
BAD_ID = 19  # its gradient is infinite in the small model; no batch holds it unless asked for


class PerReplicaMean(LabelSmoothedCrossEntropy):
    """The mean as Keras's losses take it: over each replica's own tokens."""

    def __call__(self, y_true, y_pred, sample_weight=None):
        weights = keras.ops.cast(y_true != 0, "float32")
        return keras.losses.Loss.__call__(self, y_true, y_pred, weights if sample_weight is None else sample_weight)


class BadGradient(keras.layers.Layer):
    """Hands its input on, and an infinite gradient back where the id is `BAD_ID`."""

    def call(self, inputs, ids):
        @tf.custom_gradient
        def identity(x):
            factor = tf.where(ids == BAD_ID, np.inf, 1.0)[..., None]
            return tf.identity(x), lambda upstream: upstream * tf.cast(factor, upstream.dtype)

        return identity(inputs)


def small_model(policy, dropout):
    ids = keras.Input((None,), dtype="int32", name="target_ids")
    embedding = keras.layers.ReversibleEmbedding(VOCABULARY_SIZE, 8, dtype=policy)
    hidden = keras.layers.Dense(16, activation="relu", dtype=policy)(embedding(ids))
    hidden = Dropout(dropout, dtype=policy)(hidden)
    hidden = BadGradient(dtype=policy)(keras.layers.Dense(8, dtype=policy)(hidden), ids)
    logits = embedding(hidden, reverse=True)
    model = keras.Model(ids, keras.layers.Activation("linear", dtype="float32")(logits))
    model.dtype_policy = keras.dtype_policies.get(policy)
    return model


def transformer(policy, dropout):
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2, "feed_forward_dim": 32}
    return Transformer(VOCABULARY_SIZE, **sizes, dropout=dropout, dtype=policy)


def make_batches(data, *, num_batches, seed=0, bad=(), leave_out=()):
    """A list of batches as `data.batches.Batches` makes them, with weights of any size."""
    random = np.random.default_rng(seed)
    batches = []
    for index in range(num_batches):
        rows, length = (4, 6) if data in ("even", "full") else (5, int(random.integers(5, 9)))
        if data.startswith("seventeen"):
            rows = (8, 8, 1)[index]
        lengths = random.integers(1, length + 1, size=rows)
        source = random.integers(3, BAD_ID, size=(rows, length + 1))
        labels = random.integers(3, BAD_ID, size=(rows, length))
        weights = random.uniform(0.2, 2, size=(rows, length))
        if data == "even":
            lengths[:2], lengths[2:] = 1, length  # the first of two replicas has far fewer tokens
        elif data == "full":
            lengths[:] = length
        elif data == "seventeen padded":
            lengths[4:] = 0  # in the first two batches all that the last of two replicas has
        elif data == "seventeen":
            pass
        elif index % 5 == 1:
            lengths[3:] = 0  # the last replica has padding only
        elif index % 5 == 3:
            lengths[:] = 0  # so have all
        elif index % 5 == 4:  # fewer rows than replicas
            source, labels, weights, lengths = (array[:1] for array in (source, labels, weights, lengths))
        real = np.arange(length) < lengths[:, None]
        labels = np.where(real, labels, 0)
        target = np.concatenate([np.full((len(labels), 1), 2), labels[:, :-1]], axis=1)
        if index in bad:
            target[-1, 0] = BAD_ID
        if index not in leave_out:
            x = {"source_ids": source.astype("int32"), "target_ids": target.astype("int32")}
            batches.append((x, labels.astype("int32"), (weights * real).astype("float32")))
    return batches


def dataset(batches, model):
    if not isinstance(model.input, dict):
        batches = [(x["target_ids"], y, w) for x, y, w in batches]
    # No generator: TensorFlow takes the memory of the arrays that one yields for its own and writes into it under a
    # strategy, and an iterator that was left halfway can block a later trace for minutes.
    first, *rest = map(tf.data.Dataset.from_tensors, batches)
    return functools.reduce(tf.data.Dataset.concatenate, rest, first)


def train(
    results,
    *,
    replicas,
    model="small",
    policy="float32",
    dropout=0.0,
    step=None,
    optimizer=("Adam", {"learning_rate": 0.01}),
    loss="exact",
    data=None,
    epochs=1,
    validation=None,
    jit_compile=False,
    restore=None,
    save=None,
    skip_batches=0,
    reduction="auto",
):
    """Run `fit`; store the weights at its end. `step`: the arguments of a `TrainingModel`, or None for Keras's step."""
    keras.utils.set_random_seed(3)
    running = strategy(replicas, reduction)
    with running.scope():
        trained = (small_model if model == "small" else transformer)(policy, dropout)
        training = trained if step is None else TrainingModel(trained, **step)
        name, arguments = optimizer
        if "inner_optimizer" in arguments:
            arguments = {**arguments, "inner_optimizer": keras.optimizers.get(arguments["inner_optimizer"])}
        training.compile(
            optimizer=(Adam if name == "Adam" else getattr(keras.optimizers, name))(**arguments),
            loss=(LabelSmoothedCrossEntropy if loss == "exact" else PerReplicaMean)(),
            metrics=[TokenAccuracy(), TokenCount()],
            weighted_metrics=[Perplexity()],
            jit_compile=jit_compile,
        )
    if restore is not None:
        Checkpoints(restore, training).restore_latest()
    restored_moments = moments(training)
    batches = make_batches(**{"data": "uneven", "num_batches": 10, **(data or {})})[skip_batches:]
    validation_batches = make_batches(**({"data": "uneven", "num_batches": 5, "seed": 1} | (validation or {})))
    history = training.fit(
        dataset(batches, trained).repeat(),
        steps_per_epoch=len(batches),
        epochs=epochs,
        validation_data=dataset(validation_batches, trained) if validation is not None else None,
        shuffle=False,
        verbose=0,
    ).history
    if save is not None:
        Checkpoints(save, training).save()
    optimizer_variables = {
        variable.path.split("/")[-1]: variable.numpy().tolist()
        for variable in training.optimizer.variables
        if variable.shape == ()
    }
    np.savez(results, *[weight.numpy() for weight in trained.weights])
    return {
        "history": history,
        "optimizer": optimizer_variables,
        "skipped_in_a_row": training.skipped_in_a_row.numpy().tolist() if step is not None else None,
        "dtypes": sorted({keras.backend.standardize_dtype(weight.dtype) for weight in trained.trainable_weights}),
        "same_weights": [id(weight) for weight in training.weights] == [id(weight) for weight in trained.weights],
        "evaluate": training.evaluate(dataset(validation_batches, trained), verbose=0, return_dict=True)
        if validation is not None
        else None,
        "restored_moments": restored_moments,
        "moments": moments(training),
        "num_tokens": sum(int((labels != 0).sum()) for _, labels, _ in batches),
        "strategy": hosts.describe(running),
    }


def moments(training):
    """The optimizer's two moments of each weight."""
    return [variable.numpy().tolist() for variable in training.optimizer.variables if variable.shape != ()]


def loss_by_replica(results, *, labels, weights):
    """What the loss returns to each replica and the gradient of the logits there, from rows `labels[replica]`."""
    loss = LabelSmoothedCrossEntropy()
    running = strategy(NUM_DEVICES)
    logits = [np.random.default_rng(replica).normal(size=(*np.shape(y), 7)) for replica, y in enumerate(labels)]

    def value(context):
        return tuple(
            tf.constant(values[context.replica_id_in_sync_group], dtype)
            for values, dtype in ((labels, "int32"), (logits, "float32"), (weights, "float32"))
        )

    @tf.function
    def step(y, z, w):
        with tf.GradientTape() as tape:
            tape.watch(z)
            result = loss(y, z, w)
        return result, tape.gradient(result, z)

    parts = running.experimental_distribute_values_from_function(value)
    values, gradients = map(running.experimental_local_results, running.run(step, args=parts))
    np.savez(results, **{f"logits_{i}": z for i, z in enumerate(logits)})
    return {
        "values": [value.numpy().tolist() for value in values],
        "gradients": [gradient.numpy().tolist() for gradient in gradients],
    }


def dropout_by_replica(results):
    """Output of a model in training on each replica, from the same ids."""
    keras.utils.set_random_seed(5)
    running = strategy(NUM_DEVICES)
    with running.scope():
        model = small_model("float32", 0.5)
        training = TrainingModel(model)
    outputs = running.run(tf.function(lambda: training(tf.ones((2, 5), "int32"), training=True)))
    return {"outputs": [output.numpy().tolist() for output in running.experimental_local_results(outputs)]}


STRATEGIES = {}


def strategy(replicas, reduction="auto"):
    if replicas == 1:
        return tf.distribute.get_strategy()
    if replicas != NUM_DEVICES:
        raise ValueError("TensorFlow's collectives keep the size of their first group in a process")
    if reduction not in STRATEGIES:
        STRATEGIES[reduction] = hosts.replicate([f"CPU:{index}" for index in range(replicas)], reduction=reduction)
    return STRATEGIES[reduction]


def main():
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * NUM_DEVICES)
    warnings.simplefilter("ignore")
    requests = {"train": train, "loss_by_replica": loss_by_replica, "dropout_by_replica": dropout_by_replica}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = requests[request.pop("request")](**request)
        except BaseException as error:
            answer = {"error": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
