import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer.training.losses import LabelSmoothedCrossEntropy


def reference(logits, labels, *, label_smoothing=0.1, weights=None, reduction="mean"):
    """The same loss and its gradient in float64, by way of the one-hot targets that the package never makes."""
    logits = np.asarray(logits, "float64")
    size = logits.shape[-1]
    weights = (np.asarray(labels) != 0) * (1.0 if weights is None else np.asarray(weights, "float64"))
    targets = np.eye(size)[labels] * (1 - label_smoothing) + label_smoothing / size
    shifted = logits - logits.max(-1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    losses = -(targets * log_probabilities).sum(-1)
    divisor = weights.sum() if reduction == "mean" else 1.0
    gradient = (np.exp(log_probabilities) - targets) * weights[..., None] / divisor
    return (losses * weights).sum() / divisor, gradient


def value_and_gradient(loss, labels, logits, sample_weight=None):
    logits = tf.convert_to_tensor(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = loss(labels, logits, sample_weight)
    return value, tape.gradient(value, logits)


@pytest.fixture
def batch():
    random = np.random.default_rng(3)
    labels = random.integers(1, 11, size=(4, 7)).astype("int32")
    labels[0, 5:] = labels[2, 1:] = 0
    return labels, random.normal(scale=3, size=(4, 7, 11)).astype("float32")


@pytest.mark.parametrize("num_pads", [0, 2, 50])
def test_uniform_logits_cost_the_logarithm_of_the_vocabulary(num_pads):
    labels = np.array([[2, 3] + [0] * num_pads])
    logits = np.zeros((1, 2 + num_pads, 4), "float32")
    for label_smoothing in (0.0, 0.1):
        loss = LabelSmoothedCrossEntropy(label_smoothing=label_smoothing)
        np.testing.assert_allclose(loss(labels, logits), 1.386294, rtol=1e-6)


def test_padding_changes_nothing_whatever_its_logits(batch):
    labels, logits = batch
    expected = LabelSmoothedCrossEntropy()(labels, logits)
    for num_pads in (2, 50):
        noise = np.random.default_rng(1).normal(scale=30, size=(4, num_pads, 11)).astype("float32")
        padded = LabelSmoothedCrossEntropy()(
            np.pad(labels, ((0, 0), (0, num_pads))), np.concatenate([logits, noise], axis=1)
        )
        np.testing.assert_allclose(padded, expected, rtol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_no_real_token_costs_nothing(reduction):
    loss = LabelSmoothedCrossEntropy(reduction=reduction)
    for shape in ((2, 3), (0, 3), (2, 0)):
        value, gradient = value_and_gradient(loss, np.zeros(shape, "int32"), np.ones((*shape, 5), "float32"))
        assert value.shape == ()
        assert float(value) == 0.0
        assert not np.any(gradient)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("graph", [False, True])
def test_value_and_gradient_equal_float64(batch, label_smoothing, reduction, graph):
    labels, logits = batch
    weights = np.random.default_rng(2).uniform(0, 3, size=labels.shape).astype("float32")
    loss = LabelSmoothedCrossEntropy(label_smoothing=label_smoothing, reduction=reduction)
    function = tf.function(value_and_gradient) if graph else value_and_gradient
    for sample_weight in (None, weights):
        value, gradient = function(loss, labels, logits, sample_weight)
        expected_value, expected_gradient = reference(
            logits, labels, label_smoothing=label_smoothing, weights=sample_weight, reduction=reduction
        )
        np.testing.assert_allclose(value, expected_value, rtol=2e-6)
        np.testing.assert_allclose(gradient, expected_gradient, atol=2e-6)


def test_equals_keras_on_one_hot_labels(batch):
    labels, logits = batch
    theirs = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1, reduction=None)
    expected = theirs(ops.one_hot(labels, 11), logits)
    np.testing.assert_allclose(LabelSmoothedCrossEntropy().call(labels, logits), expected, rtol=1e-6)


def test_gradient_equals_automatic_differentiation_of_the_formula(batch):
    labels, logits = batch
    _, gradient = value_and_gradient(LabelSmoothedCrossEntropy(reduction="sum"), labels, logits)
    variable = tf.Variable(logits)
    with tf.GradientTape() as tape:
        picked = tf.gather(variable, labels, batch_dims=2)
        losses = tf.reduce_logsumexp(variable, -1) - 0.9 * picked - 0.1 * tf.reduce_mean(variable, -1)
        total = tf.reduce_sum(losses * tf.cast(labels != 0, "float32"))
    np.testing.assert_allclose(gradient, tape.gradient(total, variable), atol=1e-6)


def test_labels_of_almost_no_probability_keep_their_exact_cost():
    logits = np.zeros((1, 4, 6), "float32")
    logits[0, :, 2] = [80, 200, 5000, 3e38]
    labels = np.full((1, 4), 3)
    value, gradient = value_and_gradient(LabelSmoothedCrossEntropy(reduction="sum"), labels[:, :3], logits[:, :3])
    expected_value, expected_gradient = reference(logits[:, :3], labels[:, :3], reduction="sum")
    np.testing.assert_allclose(value, expected_value, rtol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)
    # A confident and correct model costs next to nothing, without the smoothing.
    easy = LabelSmoothedCrossEntropy(label_smoothing=0.0)(np.full((1, 4), 2), logits)
    assert 0 <= float(easy) < 1e-6


def test_sample_weight_by_row_and_by_token(batch):
    labels, logits = batch
    loss = LabelSmoothedCrossEntropy()
    plain = loss(labels, logits)
    np.testing.assert_array_equal(loss(labels, logits, np.ones(4)), plain)
    np.testing.assert_array_equal(loss(labels, logits, np.ones((4, 7))), plain)
    np.testing.assert_allclose(loss(labels, logits, np.full(4, 8.0)), plain, rtol=1e-6)
    np.testing.assert_allclose(loss(labels[:2], logits[:2], [1, 0]), loss(labels[:1], logits[:1]), rtol=1e-6)


def test_any_rank(batch):
    labels, logits = batch
    loss = LabelSmoothedCrossEntropy()
    expected = loss(labels, logits)
    np.testing.assert_allclose(loss(labels.reshape(2, 2, 7), logits.reshape(2, 2, 7, 11)), expected, rtol=1e-6)
    np.testing.assert_allclose(loss(labels.reshape(-1), logits.reshape(-1, 11)), expected, rtol=1e-6)


@pytest.mark.parametrize("ignore_id", [-100, 7, 3000])
def test_ignore_id_may_be_outside_of_the_vocabulary(batch, ignore_id):
    labels, logits = batch
    labels = np.where(labels == 7, 6, labels)
    expected = LabelSmoothedCrossEntropy()(labels, logits)
    moved = np.where(labels == 0, ignore_id, labels)
    np.testing.assert_allclose(LabelSmoothedCrossEntropy(ignore_id=ignore_id)(moved, logits), expected, rtol=1e-6)


def test_without_an_ignore_id_every_label_counts(batch):
    labels, logits = batch
    loss = LabelSmoothedCrossEntropy(ignore_id=None)
    np.testing.assert_allclose(loss(labels, logits), np.mean(loss.call(labels, logits)), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_logits_cost_what_their_float32_values_cost(batch, dtype):
    labels, logits = batch
    logits = tf.cast(logits, dtype)
    value, gradient = value_and_gradient(LabelSmoothedCrossEntropy(), labels, logits)
    expected_value, expected_gradient = reference(tf.cast(logits, "float32"), labels)
    assert value.dtype == "float32"
    assert gradient.dtype == dtype
    np.testing.assert_allclose(value, expected_value, rtol=2e-6)
    np.testing.assert_allclose(tf.cast(gradient, "float32"), expected_gradient, rtol=1e-2, atol=1e-4)


def test_implicit_mask_of_the_logits_is_not_read(batch):
    labels, logits = batch
    loss = LabelSmoothedCrossEntropy()
    plain = loss(labels, logits)
    for mask in (labels != 0, np.zeros(labels.shape, bool), np.arange(7)[None] < np.array([[1]] * 4)):
        masked = tf.convert_to_tensor(logits)
        masked._keras_mask = tf.convert_to_tensor(mask)
        np.testing.assert_array_equal(loss(labels, masked), plain)


def test_fit_with_an_implicit_mask_reports_the_loss_over_real_tokens():
    random = np.random.default_rng(0)
    ids = random.integers(1, 9, size=(6, 5))
    ids[1, 3:] = ids[4, 1:] = 0
    labels = np.where(ids == 0, 0, random.integers(1, 9, size=ids.shape))

    def evaluate(mask_zero, weights):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Embedding(9, 4, mask_zero=mask_zero), keras.layers.Dense(9)])
        model.compile("sgd", LabelSmoothedCrossEntropy())
        reported = model.evaluate(ids, labels, sample_weight=weights, batch_size=6, verbose=0)
        model.fit(ids, labels, sample_weight=weights, batch_size=6, verbose=0)
        return reported, model.get_weights()[0], model.predict(ids, verbose=0)

    reported, weights, _ = evaluate(False, None)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Embedding(9, 4), keras.layers.Dense(9)])
    np.testing.assert_allclose(reported, reference(model.predict(ids, verbose=0), labels)[0], rtol=2e-6)
    for mask_zero, sample_weight in ((True, None), (True, np.ones(6)), (False, (labels != 0).astype("float32"))):
        other, other_weights, _ = evaluate(mask_zero, sample_weight)
        np.testing.assert_allclose(other, reported, rtol=1e-6)
        np.testing.assert_allclose(other_weights, weights, rtol=1e-6)


def test_sum_with_global_weights_is_exact_over_replicas_of_unequal_length(batch):
    labels, logits = batch
    weights = (labels != 0) / np.sum(labels != 0)
    loss = LabelSmoothedCrossEntropy(reduction="sum")
    parts = [loss(labels[rows], logits[rows], weights[rows]) for rows in (slice(0, 1), slice(1, 4))]
    np.testing.assert_allclose(sum(parts), reference(logits, labels)[0], rtol=2e-6)


def test_total_and_total_weight_are_what_the_mean_is_made_of(batch):
    labels, logits = batch
    weights = np.random.default_rng(2).uniform(0, 3, size=4).astype("float32")
    for reduction in ("mean", "sum"):
        loss = LabelSmoothedCrossEntropy(reduction=reduction)
        total, weight = loss.total(labels, logits, weights), loss.total_weight(labels, weights)
        np.testing.assert_allclose(total, reference(logits, labels, weights=weights[:, None], reduction="sum")[0], 2e-6)
        np.testing.assert_allclose(weight, np.sum((labels != 0) * weights[:, None]), rtol=1e-6)
        divisor = {"mean": weight, "sum": 1.0}[reduction]
        np.testing.assert_allclose(loss(labels, logits, weights), total / divisor, rtol=1e-6)
    assert float(LabelSmoothedCrossEntropy(ignore_id=None).total_weight(labels)) == labels.size


def test_graph_makes_no_tensor_of_more_than_one_extra_logits():
    """Counts what a training step allocates: tensors of `[tokens, V]`, less those written over their own input."""
    labels = tf.TensorSpec((8, 64), "int32")
    logits = tf.TensorSpec((8, 64, 320), "float32")
    loss = LabelSmoothedCrossEntropy()

    @tf.function
    def step(labels, logits):
        return value_and_gradient(loss, labels, logits)

    graph = step.get_concrete_function(labels, logits).graph
    large = [
        operation
        for operation in graph.get_operations()
        if any(output.shape.num_elements() == 8 * 64 * 320 for output in operation.outputs)
    ]
    # Neither copies: BroadcastTo to the same shape hands on its input. The Fill is the gradient of an unused output.
    views = {"Placeholder", "Reshape", "Identity", "IdentityN", "ExpandDims", "BroadcastTo", "Fill"}
    kinds = sorted(operation.type for operation in large if operation.type not in views)
    # Softmax allocates. Sub, Mul and the scatter have no other reader of their input, so TensorFlow writes in place.
    assert kinds == ["Mul", "Softmax", "Sub", "TensorScatterAdd"]
    assert not any(operation.type == "OneHot" for operation in graph.get_operations())
    for operation in large:
        if operation.type in ("Sub", "Mul"):
            (result,) = operation.outputs
            assert len(result.consumers()) == 1


@pytest.mark.parametrize("jit_compile", [False, True])
def test_compiled_with_unknown_shapes(batch, jit_compile):
    labels, logits = batch
    loss = LabelSmoothedCrossEntropy()

    @tf.function(
        input_signature=[tf.TensorSpec((None, None), "int32"), tf.TensorSpec((None, None, 11))], jit_compile=jit_compile
    )
    def step(labels, logits):
        return value_and_gradient(loss, labels, logits)

    value, gradient = step(labels, logits)
    expected_value, expected_gradient = reference(logits, labels)
    np.testing.assert_allclose(value, expected_value, rtol=2e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=2e-6)


def test_config_round_trip():
    loss = LabelSmoothedCrossEntropy(label_smoothing=0.2, ignore_id=-1, reduction="sum", name="smoothed")
    config = json.loads(json.dumps(loss.get_config()))
    assert config == {"name": "smoothed", "label_smoothing": 0.2, "ignore_id": -1, "reduction": "sum"}
    assert LabelSmoothedCrossEntropy.from_config(config).get_config() == config
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(keras.saving.serialize_keras_object(loss))))
    assert type(again) is LabelSmoothedCrossEntropy
    assert again.get_config() == config
    name = keras.saving.get_registered_name(LabelSmoothedCrossEntropy)
    assert name == "keras_transformer>LabelSmoothedCrossEntropy"
    assert keras.saving.get_registered_object(name) is LabelSmoothedCrossEntropy


def test_arguments_are_keywords():
    with pytest.raises(TypeError):
        LabelSmoothedCrossEntropy(0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"label_smoothing": 1.0}, r"`label_smoothing` must be a number in \[0, 1\). Received: label_smoothing=1.0"),
        ({"label_smoothing": -0.1}, "label_smoothing=-0.1"),
        ({"label_smoothing": "much"}, "label_smoothing='much'"),
        ({"ignore_id": 0.5}, "`ignore_id` must be an integer or None. Received: ignore_id=0.5"),
        ({"reduction": "none"}, '`reduction` must be "mean" or "sum". Received: reduction=\'none\''),
        ({"dtype": "float16"}, '`dtype` must be "float32"'),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        LabelSmoothedCrossEntropy(**arguments)


@pytest.mark.parametrize(
    ("labels", "logits", "weights", "message"),
    [
        ((2, 3, 1), (2, 3, 5), None, r"`y_true` must hold one integer label.*y_true.shape=\(2, 3, 1\)"),
        ((2, 3), (2, 4, 5), None, r"must agree on every axis.*y_pred.shape=\(2, 4, 5\)"),
        ((2, 3), (2, 3, 5), (2, 3, 1), r"`sample_weight` must have the leading axes.*\(2, 3, 1\)"),
    ],
)
def test_shapes_that_do_not_belong_together(labels, logits, weights, message):
    weights = None if weights is None else np.ones(weights)
    with pytest.raises(ValueError, match=message):
        LabelSmoothedCrossEntropy()(np.ones(labels, "int32"), np.ones(logits, "float32"), weights)


OTHER_BACKEND = """
import keras, numpy as np
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy
from keras_transformer.training.optimizers import WarmupSchedule
labels = np.array([[1, 2, 0], [3, 0, 0]], "int32")
logits = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
loss = LabelSmoothedCrossEntropy()
if keras.backend.backend() == "torch":
    tensor = keras.ops.convert_to_tensor(logits).requires_grad_()
    value = loss(labels, tensor)
    value.backward()
    gradient = tensor.grad
else:
    import jax
    value, gradient = jax.jit(jax.value_and_grad(lambda z: loss(labels, z)))(logits)
metric, accuracy = Perplexity(), TokenAccuracy()
metric.update_state(labels, logits)
accuracy.update_state(labels, logits)
numpy = lambda x: np.asarray(keras.ops.convert_to_numpy(x)).tolist()
print([numpy(x) for x in (value, gradient, metric.result(), accuracy.result(), WarmupSchedule(512)(0))])
"""


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_other_backends(backend):
    pytest.importorskip(backend)
    labels = np.array([[1, 2, 0], [3, 0, 0]], "int32")
    logits = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    output = subprocess.run(
        [sys.executable, "-c", OTHER_BACKEND],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    value, gradient, perplexity, accuracy, rate = json.loads(output.splitlines()[-1])
    expected_value, expected_gradient = reference(logits, labels)
    np.testing.assert_allclose(value, expected_value, rtol=2e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=2e-6)
    np.testing.assert_allclose(perplexity, np.exp(reference(logits, labels, label_smoothing=0)[0]), rtol=1e-5)
    np.testing.assert_allclose(accuracy, np.mean((logits.argmax(-1) == labels)[labels != 0]), rtol=1e-6)
    np.testing.assert_allclose(rate, 1.74693e-07, rtol=1e-5)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_counts_for_nothing_counts_for_nothing_even_if_it_is_not_finite(value):
    logits = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    labels = np.array([[1, 2, 0], [3, 0, 0]])
    expected = LabelSmoothedCrossEntropy()(labels, logits)
    broken = np.where((labels == 0)[..., None], value, logits)
    np.testing.assert_array_equal(LabelSmoothedCrossEntropy()(labels, broken), expected)
    logits[0, 0] = value
    assert not np.isfinite(LabelSmoothedCrossEntropy()(labels, logits))
