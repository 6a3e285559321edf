"""What TensorBoard shows, read back from the event files by TensorBoard's own reader and by TensorFlow's."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keras_transformer.runs.callbacks import MetricsLog, TranslationScores
from keras_transformer.runs.tensorboard import TensorBoardLog
from keras_transformer.training.distribution import TrainingModel
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.training.metrics import PaddingShare, TokenCount

LABELS = np.array([[1, 2, 0], [3, 0, 0], [1, 1, 1], [2, 2, 0]], "int32")


class Score:
    """A score with the value that it was made with."""

    def __init__(self, value):
        self.value = value

    def __call__(self, hypotheses, references):
        return self


def compiled_model():
    keras.utils.set_random_seed(0)
    ids = keras.Input((3,), dtype="int32")
    model = TrainingModel(keras.Model(ids, keras.layers.Embedding(5, 5)(ids)))
    model.compile(keras.optimizers.SGD(0.5), LabelSmoothedCrossEntropy(), metrics=[TokenCount(), PaddingShare()])
    return model


def fit(model, folder, epochs, **arguments):
    tensorboard = TensorBoardLog(folder / "logs")
    scores = TranslationScores(
        lambda sources: [source.upper() for source in sources],
        ["ein", "zwei", "drei"],
        ["EIN", "DREI", "DREI"],
        {"val_bleu": Score(12.0), "val_chrf": Score(34.0)},
        num_examples=2,
        show_examples=tensorboard.write_examples,
    )
    callbacks = [scores, MetricsLog(folder / "metrics.jsonl"), tensorboard]
    return model.fit(
        LABELS,
        LABELS,
        batch_size=2,
        epochs=epochs,
        verbose=0,
        validation_data=(LABELS, LABELS),
        callbacks=callbacks,
        **arguments,
    )


def read(folder):
    """`(scalars, texts)` of a run: points `(step, value)` by tag."""
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    scalars, texts = {}, {}
    for tag in events.Tags()["tensors"]:
        for event in events.Tensors(tag):
            value = tf.make_ndarray(event.tensor_proto)
            kind = texts if value.dtype == object else scalars
            kind.setdefault(tag, []).append((event.step, value.tolist()))
    return scalars, texts


def test_all_that_there_is_to_see(tmp_path):
    history = fit(compiled_model(), tmp_path, epochs=2).history
    train, _ = read(tmp_path / "logs" / "train")
    validation, texts = read(tmp_path / "logs" / "validation")
    for name in ("loss", "gradient_norm", "target_tokens_per_second"):
        np.testing.assert_allclose(train[name], list(zip([2, 4], history[name], strict=True)), rtol=1e-6)
    assert train["learning_rate"] == [(2, 0.5), (4, 0.5)]
    assert [point[1] for point in train["target_padding_share"]] == pytest.approx([4 / 12, 4 / 12])
    assert validation["bleu"] == [(2, 12.0), (4, 12.0)]
    assert validation["chrf"] == [(2, 34.0), (4, 34.0)]
    np.testing.assert_allclose(validation["loss"], list(zip([2, 4], history["val_loss"], strict=True)), rtol=1e-6)
    table = [[b"source", b"reference", b"translation"], [b"ein", b"EIN", b"EIN"], [b"zwei", b"DREI", b"ZWEI"]]
    assert texts == {"translations": [(2, table), (4, table)]}


def test_a_resumed_run_shows_no_point_twice(tmp_path):
    model = compiled_model()
    fit(model, tmp_path, epochs=1)
    weights = model.get_weights()
    fit(model, tmp_path, epochs=3, initial_epoch=1)  # lost: killed before a checkpoint
    lost = [read(tmp_path / "logs" / run)[0]["loss"] for run in ("train", "validation")]
    for path in (tmp_path / "logs").rglob("events*"):
        with open(path, "ab") as file:
            file.write(b"\x10\0\0\0\0\0\0\0 cut off")
    model.set_weights(weights)
    model.optimizer.iterations.assign(2)
    fit(model, tmp_path, epochs=4, initial_epoch=1)
    for run, before in zip(("train", "validation"), lost, strict=True):
        scalars, texts = read(tmp_path / "logs" / run)
        for points in (*scalars.values(), *texts.values()):
            assert [step for step, _ in points] == [2, 4, 6, 8]
        np.testing.assert_allclose(scalars["loss"][:3], before, rtol=1e-6)


def test_what_was_written_is_on_the_disk_when_an_error_ends_training(tmp_path):
    class Fail(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise ZeroDivisionError

    tensorboard = TensorBoardLog(tmp_path)
    with pytest.raises(ZeroDivisionError):
        compiled_model().fit(LABELS, LABELS, epochs=2, verbose=0, callbacks=[tensorboard, Fail()])
    assert [step for step, _ in read(tmp_path / "train")[0]["loss"]] == [1]
