"""Weights in fewer bytes."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.saved_model.stored_weights import StoredWeights


@pytest.fixture
def model(untrained_translator):
    """A copy that may be changed."""
    copy = untrained_translator.model.from_config(untrained_translator.model.get_config())
    copy.set_weights(untrained_translator.model.get_weights())
    return copy


def restored(model, storage):
    """What the model's weights are within the scope of their stored form, by path."""
    with StoredWeights(model, storage).scope():
        return {variable.path: tf.convert_to_tensor(variable).numpy() for variable in model.trainable_variables}


def test_float32_is_exact(model):
    for variable in model.trainable_variables:
        np.testing.assert_array_equal(restored(model, "float32")[variable.path], variable.numpy())


def test_float16_rounds_matrices_to_the_nearest(model):
    found = restored(model, "float16")
    for variable in model.trainable_variables:
        values = variable.numpy()
        expected = values.astype("float16").astype("float32") if values.ndim == 2 else values
        np.testing.assert_array_equal(found[variable.path], expected)


def test_int8_has_a_scale_for_each_output(model):
    kernels = [variable for variable in model.trainable_variables if variable.path.endswith("kernel")]
    embeddings = [variable for variable in model.trainable_variables if variable.path.endswith("embeddings")]
    kernels[0].assign(kernels[0].numpy() * np.logspace(-6, 6, kernels[0].shape[1])[None, :])
    kernels[1].assign(np.where(np.arange(kernels[1].shape[1]) == 3, 0.0, kernels[1].numpy()))
    embeddings[0].assign(embeddings[0].numpy() * np.logspace(-6, 6, embeddings[0].shape[0])[:, None])
    found = restored(model, "int8")
    for variable in model.trainable_variables:
        values = variable.numpy()
        if values.ndim < 2:
            np.testing.assert_array_equal(found[variable.path], values)
            continue
        step = np.abs(values).max(axis=0 if variable.path.endswith("kernel") else 1, keepdims=True) / 127
        error = np.abs(found[variable.path] - values)
        assert (error <= step * (0.5 + 1e-5)).all(), variable.path  # half a step is the best that rounding can do
        assert error.max() > 0


@pytest.mark.parametrize(("storage", "size", "tolerance"), [("float16", 0.5, 2e-3), ("int8", 0.25, 0.06)])
def test_an_export_is_smaller_and_scores_nearly_the_same(
    untrained_translator, export_one, exported, storage, size, tolerance
):
    path = export_one("score", storage)

    def num_bytes(path):
        return sum(file.stat().st_size for file in (path / "variables").iterdir())

    # What is not stored in fewer bytes: vectors, scales, the index.
    assert num_bytes(path) < (size + 0.15) * num_bytes(exported)
    sources, targets = tf.constant(["one two", "three"]), tf.constant(["eins zwei", "vier"])
    scores = [
        tf.saved_model.load(str(one)).signatures["score"](source=sources, target=targets)["token_log_probabilities"]
        for one in (path, exported)
    ]
    difference = np.abs(scores[0].numpy() - scores[1].numpy()).max()
    assert 0 < difference < tolerance * np.abs(scores[1].numpy()).max()


@pytest.mark.parametrize("value", [np.inf, np.nan, 7e4])
def test_weights_that_cannot_be_stored(model, value):
    kernel = next(variable for variable in model.variables if variable.path.endswith("kernel"))
    kernel.assign(np.full(kernel.shape, value))
    with pytest.raises(ValueError, match=r"Weights must be finite and within float16.*kernel"):
        StoredWeights(model, "float16")
    if np.isfinite(value):
        StoredWeights(model, "int8")
