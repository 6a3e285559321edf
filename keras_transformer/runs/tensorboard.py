"""The course of a training run for TensorBoard."""

from pathlib import Path

import keras
import tensorflow as tf

from keras_transformer.files import replaced
from keras_transformer.runs.callbacks import go_on_without
from keras_transformer.training.progress import steps_made


class TensorBoardLog(keras.callbacks.Callback):
    """Writes the logs of each epoch, the learning rate, and example translations, for TensorBoard.

    Points stand at the number of updates made, not of epochs. Logs that begin with `val_` go to the run `validation`
    without it, the others to `train`, so that TensorBoard shows the two in one chart. When training starts, what an
    earlier process wrote of later steps is removed: a resumed run shows no point twice. (A TensorBoard that is running
    meanwhile keeps what it has read until it is started anew.)

    `write_examples` is for `TranslationScores`.

    Args:
        directory: folder of the event files, for `tensorboard --logdir`. It is made when training starts.
    """

    def __init__(self, directory):
        super().__init__()
        self.directory = Path(directory)
        self._writers = {}

    # Before any callback's `on_train_begin`, which may start the thread that writes too.
    def set_model(self, model):
        super().set_model(model)
        for path in self.directory.rglob("events.out.tfevents.*"):
            _remove_later_events(path, steps_made(model))
        for run in ("train", "validation"):
            self._writers[run] = tf.summary.create_file_writer(str(self.directory / run))

    def on_epoch_end(self, epoch, logs=None):
        learning_rate = keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)
        with go_on_without("TensorBoard's log"):
            self.write_scores(steps_made(self.model), {**(logs or {}), "learning_rate": learning_rate})

    def on_train_end(self, logs=None):
        for writer in self._writers.values():
            writer.close()

    def write_scores(self, step, scores):
        """Add numbers, a dictionary by name as in the logs, at a step."""
        for name, value in scores.items():
            writer = self._writers["validation" if name.startswith("val_") else "train"]
            with writer.as_default():  # and flush: nobody closes it when an error or a signal ends training
                tf.summary.scalar(name.removeprefix("val_"), float(value), step)

    def write_examples(self, step, examples):
        """Add a table of `(source, reference, translation)` at a step."""
        with self._writers["validation"].as_default():
            tf.summary.text("translations", [("source", "reference", "translation"), *examples], step)


def _remove_later_events(path, step):
    """Removes from a file what belongs to a later step, and a last event that a kill has cut off."""
    kept = []
    try:
        for event in tf.data.TFRecordDataset(str(path)):
            if tf.compat.v1.Event.FromString(event.numpy()).step <= step:
                kept.append(event.numpy())
    except tf.errors.DataLossError:
        pass
    with replaced(path) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
        for event in kept:
            writer.write(event)
