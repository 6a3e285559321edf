import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.training.metrics import PaddingShare, Perplexity, TokenAccuracy, TokenCount

LABELS = np.array([[5, 6, 0, 0]])
LOGITS = np.eye(10, dtype="float32")[[[5, 9, 0, 0]]]


@pytest.fixture
def batch():
    random = np.random.default_rng(3)
    labels = random.integers(1, 11, size=(4, 7)).astype("int32")
    labels[0, 5:] = labels[2, 1:] = 0
    return labels, random.normal(scale=2, size=(4, 7, 11)).astype("float32")


def cross_entropy(labels, logits):
    logits = np.asarray(logits, "float64")
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(log_probabilities, np.asarray(labels)[..., None], -1)[..., 0]


def test_accuracy_leaves_out_padding():
    assert float(TokenAccuracy()(LABELS, LOGITS)) == 0.5
    other_pads = LOGITS.copy()
    other_pads[0, 2:] = np.eye(10)[[7, 3]]
    assert float(TokenAccuracy()(LABELS, other_pads)) == 0.5
    assert float(TokenAccuracy(ignore_id=None)(LABELS, LOGITS)) == 0.75


def test_a_label_that_ties_for_the_highest_logit_is_right():
    logits = np.array([[[1, 7, 7, 0], [1, 7, 7, 0], [1, 7, 7, 8]]], "float32")
    assert float(TokenAccuracy()(np.array([[1, 2, 2]]), logits)) == pytest.approx(2 / 3)


@pytest.mark.parametrize("metric_class", [TokenAccuracy, Perplexity])
def test_batches_count_by_their_tokens(metric_class):
    random = np.random.default_rng(0)
    logits = random.normal(size=(2, 9, 6)).astype("float32")
    labels = random.integers(1, 6, size=(2, 9))
    labels[0, 1:] = 0
    one_by_one, at_once = metric_class(), metric_class()
    for row in range(2):
        one_by_one.update_state(labels[row : row + 1], logits[row : row + 1])
    at_once.update_state(labels, logits)
    np.testing.assert_allclose(one_by_one.result(), at_once.result(), rtol=1e-6)
    real = labels != 0
    if metric_class is TokenAccuracy:
        expected = np.mean((logits.argmax(-1) == labels)[real])
    else:
        expected = np.exp(np.mean(cross_entropy(labels, logits)[real]))
    np.testing.assert_allclose(at_once.result(), expected, rtol=1e-6)


def test_perplexity_is_the_exponential_of_the_unsmoothed_loss(batch):
    labels, logits = batch
    loss = LabelSmoothedCrossEntropy(label_smoothing=0.0)(labels, logits)
    np.testing.assert_allclose(Perplexity()(labels, logits), np.exp(loss), rtol=1e-6)
    np.testing.assert_allclose(Perplexity()(np.ones((2, 3), "int32"), np.zeros((2, 3, 50), "float32")), 50, rtol=1e-6)


@pytest.mark.parametrize("metric_class", [TokenAccuracy, Perplexity])
def test_sample_weight(batch, metric_class):
    labels, logits = batch
    plain = metric_class()(labels, logits)
    np.testing.assert_array_equal(metric_class()(labels, logits, np.ones(4)), plain)
    np.testing.assert_array_equal(metric_class()(labels, logits, np.ones((4, 7))), plain)
    np.testing.assert_allclose(
        metric_class()(labels, logits, [0, 1, 0, 0]), metric_class()(labels[1:2], logits[1:2]), rtol=1e-6
    )


@pytest.mark.parametrize(("metric_class", "nothing"), [(TokenAccuracy, 0), (Perplexity, 1), (TokenCount, 0)])
def test_nothing_seen(metric_class, nothing):
    metric = metric_class()
    assert float(metric.result()) == nothing
    for shape in ((2, 3), (0, 3), (2, 0)):
        metric.update_state(np.zeros(shape, "int32"), np.ones((*shape, 5), "float32"))
        assert float(metric.result()) == nothing


def test_a_token_of_weight_zero_may_have_any_logits(batch):
    labels, logits = batch
    broken = np.where((labels == 0)[..., None], np.float32("nan"), logits)
    np.testing.assert_array_equal(Perplexity()(labels, broken), Perplexity()(labels, logits))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_logits(batch, dtype):
    labels, logits = batch
    logits = tf.cast(logits, dtype)
    for metric_class in (TokenAccuracy, Perplexity):
        np.testing.assert_array_equal(
            metric_class()(labels, logits), metric_class()(labels, tf.cast(logits, "float32"))
        )


def test_token_count_ignores_weights(batch):
    labels, logits = batch
    metric = TokenCount()
    metric.update_state(labels, logits, np.full(labels.shape, 0.1))
    metric.update_state(labels)
    assert float(metric.result()) == 2 * np.sum(labels != 0)
    metric.reset_state()
    assert float(metric.result()) == 0


def test_padding_share_is_that_of_all_positions_of_all_batches(batch):
    labels, logits = batch
    metric = PaddingShare()
    metric.update_state(np.zeros((0, 3), "int32"))
    assert float(metric.result()) == 0
    metric.update_state(labels, logits, np.full(labels.shape, 0.1))
    metric.update_state(np.ones((2, 3), "int32"))
    assert float(metric.result()) == pytest.approx(np.sum(labels == 0) / (labels.size + 6), rel=1e-6)
    metric = PaddingShare(ignore_id=None)
    metric.update_state(labels)
    assert float(metric.result()) == 0


REPLICAS = """
import numpy as np
import tensorflow as tf
from keras_transformer.training.metrics import PaddingShare, Perplexity, TokenAccuracy, TokenCount

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
random = np.random.default_rng(3)
labels = random.integers(1, 11, size=(4, 7)).astype("int32")
labels[0, 5:] = labels[2, 1:] = 0
logits = random.normal(scale=2, size=(4, 7, 11)).astype("float32")
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    metrics = [TokenAccuracy(), Perplexity(), TokenCount(), PaddingShare()]
parts = [slice(0, 1), slice(1, 4)]


def per_replica(values):
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(values[parts[context.replica_id_in_sync_group]])
    )


def update(labels, logits):
    for metric in metrics:
        metric.update_state(labels, logits)


strategy.run(update, args=(per_replica(labels), per_replica(logits)))
for metric in metrics:
    alone = type(metric)()
    alone.update_state(labels, logits)
    np.testing.assert_allclose(metric.result(), alone.result(), rtol=1e-6)
"""


def test_replicas_with_unequal_rows_give_the_result_of_one_device():
    # In a process of its own: the number of logical devices cannot be changed once TensorFlow has started.
    done = subprocess.run([sys.executable, "-c", REPLICAS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_in_compile_as_plain_and_as_weighted_metrics(batch):
    labels, logits = batch
    weights = (labels != 0).astype("float32")
    for arguments in ("metrics", "weighted_metrics"):
        model = keras.Sequential([keras.layers.Input((7, 11)), keras.layers.Identity()])
        model.compile(
            loss=LabelSmoothedCrossEntropy(),
            **{arguments: [TokenAccuracy(), Perplexity(), TokenCount(), PaddingShare()]},
        )
        logs = model.evaluate(logits, labels, sample_weight=weights, batch_size=1, verbose=0, return_dict=True)
        np.testing.assert_allclose(logs["token_accuracy"], TokenAccuracy()(labels, logits), rtol=1e-6)
        np.testing.assert_allclose(logs["perplexity"], Perplexity()(labels, logits), rtol=1e-6)
        assert logs["target_tokens"] == weights.sum()
        assert logs["target_padding_share"] == pytest.approx(1 - weights.mean(), rel=1e-6)


@pytest.mark.parametrize("metric_class", [TokenAccuracy, Perplexity, TokenCount, PaddingShare])
def test_config_round_trip(metric_class):
    metric = metric_class(ignore_id=-1, name="mine")
    config = json.loads(json.dumps(metric.get_config()))
    assert config == {"name": "mine", "dtype": "float32", "ignore_id": -1}
    assert metric_class.from_config(config).get_config() == config
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(keras.saving.serialize_keras_object(metric))))
    assert type(again) is metric_class
    name = keras.saving.get_registered_name(metric_class)
    assert name == f"keras_transformer>{metric_class.__name__}"
    assert keras.saving.get_registered_object(name) is metric_class
    with pytest.raises(ValueError, match=r"`ignore_id` must be an integer or None. Received: ignore_id='pad'"):
        metric_class(ignore_id="pad")
