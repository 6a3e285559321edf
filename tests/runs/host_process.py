"""One worker of several: what test_hosts.py starts, once for each host.

Its argument is a JSON request; it prints one JSON line at its end, after whatever the code under test prints. With
TF_CONFIG in the environment it is one worker of that cluster, without it trains on one device.
"""

import json
import os
import signal
import sys
import time
import warnings

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.runs import hosts
from keras_transformer.runs.checkpoints import CheckpointEvery, Checkpoints
from keras_transformer.runs.resuming import ResumeEpoch, TrainingInterrupted
from keras_transformer.training.distribution import TrainingModel
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy, TokenCount
from keras_transformer.training.optimizers import Adam
from keras_transformer.transformer import Transformer

VOCABULARY_SIZE = 20
NUM_STEPS = 8
STEPS_PER_EPOCH = 4


def make_batch(step):
    """Global batch number `step`: unequal lengths; among them one of a single row and some without any real token."""
    random = np.random.default_rng(step)
    rows, length = (1 if step % 8 == 2 else 5), int(random.integers(5, 9))
    lengths = random.integers(1, length + 1, size=rows)
    if step % 8 == 5:
        lengths[3:] = 0  # all that the second replica has
    if step % 8 == 6:
        lengths[:] = 0
    real = np.arange(length) < lengths[:, None]
    labels = np.where(real, random.integers(3, VOCABULARY_SIZE, size=(rows, length)), 0)
    target_ids = np.where(real, np.concatenate([np.full((rows, 1), 2), labels[:, :-1]], axis=1), 0)
    source_ids = random.integers(3, VOCABULARY_SIZE, size=(rows, length + 1))
    weights = np.where(real, random.uniform(0.2, 2, size=real.shape), 0)
    x = {"source_ids": source_ids.astype("int32"), "target_ids": target_ids.astype("int32")}
    return x, labels.astype("int32"), weights.astype("float32")


def make_dataset(start, stop):
    def batches():
        step = start
        while stop is None or step < stop:
            yield make_batch(step)
            step += 1

    specification = tf.nest.map_structure(lambda array: tf.TensorSpec([None] * array.ndim, array.dtype), make_batch(0))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=specification)
    cardinality = tf.data.INFINITE_CARDINALITY if stop is None else stop - start
    return dataset.apply(tf.data.experimental.assert_cardinality(cardinality))


class SignalAt(keras.callbacks.Callback):
    """Sends its own process a signal after a number of steps."""

    def __init__(self, checkpoints, name, step):
        super().__init__()
        self.checkpoints = checkpoints
        self.number = signal.Signals[name]
        self.step = step

    def on_train_batch_begin(self, batch, logs=None):
        if self.checkpoints.step == self.step:
            os.kill(os.getpid(), self.number)


def train(strategy, *, results, directory, dropout=0.0, signal_at=None):
    """Train to the end, from a checkpoint in the directory if it holds one; store the weights."""
    keras.utils.set_random_seed(3)
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2, "feed_forward_dim": 32}
    with strategy.scope():
        model = Transformer(VOCABULARY_SIZE, **sizes, dropout=dropout)
        training = TrainingModel(model)
        training.compile(
            optimizer=Adam(0.01, global_clipnorm=1.0),
            loss=LabelSmoothedCrossEntropy(),
            metrics=[TokenAccuracy(), TokenCount()],
            weighted_metrics=[Perplexity()],
        )
    checkpoints = Checkpoints(directory, training, write=hosts.is_chief(strategy))
    step = checkpoints.restore_latest()
    hosts.check_same(strategy, step=step)
    signal_at = [] if signal_at is None else [SignalAt(checkpoints, *signal_at)]
    try:
        history = training.fit(
            hosts.share_rows(make_dataset(step, None), strategy),
            validation_data=hosts.share_rows(make_dataset(100, 107), strategy),
            validation_steps=7,
            initial_epoch=step // STEPS_PER_EPOCH,
            epochs=NUM_STEPS // STEPS_PER_EPOCH,
            steps_per_epoch=STEPS_PER_EPOCH,
            shuffle=False,
            callbacks=[
                ResumeEpoch(checkpoints, STEPS_PER_EPOCH),
                CheckpointEvery(checkpoints, steps=3),
                hosts.FirstStepTime(),
                *signal_at,
                hosts.StopOnSignalAnywhere(checkpoints, strategy),
            ],
            verbose=0,
        ).history
    except TrainingInterrupted as interruption:
        return {"signal": interruption.signal, "stopped_at": interruption.step}
    np.savez(results, *[weight.numpy() for weight in model.weights])
    return {"started_at": step, "history": history}


def agree(strategy, *, ours):
    """What each worker sees of those functions that need them all."""
    with hosts.chief_first(strategy):
        begin = time.time()
        if hosts.is_chief(strategy):
            time.sleep(2)
        end = time.time()
    hosts.check_same(strategy, step=3, data={"hash": "a"})
    try:
        hosts.check_same(strategy, step=3, data=ours)
        error = None
    except ValueError as raised:
        error = str(raised)
    logs = {"loss": 1.0, **({"val_bleu": 30.1} if hosts.is_chief(strategy) else {"val_other": 1.0})}
    hosts.ChiefLogs(strategy, ["val_bleu", "val_other"]).on_epoch_end(0, logs)
    return {"marks": [begin, end], "error": error, "line": hosts.describe(strategy), "logs": logs}


def main():
    warnings.simplefilter("ignore")
    request = json.loads(sys.argv[1])
    strategy = hosts.connect(reduction="ring") if "TF_CONFIG" in os.environ else tf.distribute.get_strategy()
    answer = {"train": train, "agree": agree}[request.pop("request")](strategy, **request)
    print(json.dumps({**answer, "chief": hosts.is_chief(strategy)}), flush=True)


if __name__ == "__main__":
    main()
