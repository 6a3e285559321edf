import re

import keras
import numpy as np
import pytest

from keras_transformer.training.checkpoints import Checkpoints
from keras_transformer.training.fine_tuning import freeze, load_weights_from
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.transformer import Transformer

INPUTS = {"source_ids": np.array([[5, 6, 3, 0], [7, 3, 0, 0]]), "target_ids": np.array([[2, 5, 6], [2, 7, 0]])}
LABELS = np.array([[5, 6, 3], [7, 3, 0]])


def transformer(num_layers=1, feed_forward_dim=12, vocabulary_size=20):
    return Transformer(
        vocabulary_size,
        num_encoder_layers=num_layers,
        num_decoder_layers=1,
        d_model=8,
        num_heads=2,
        feed_forward_dim=feed_forward_dim,
        dropout=0.1,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run directory, and the weights of its model and of its newest checkpoint, which differ."""
    run = tmp_path_factory.mktemp("run")
    model = transformer()
    model.compile(keras.optimizers.Adam(0.1), LabelSmoothedCrossEntropy())
    checkpoints = Checkpoints(run / "checkpoints", model)
    saved = []
    for _ in range(2):
        model.train_on_batch(INPUTS, LABELS)
        checkpoints.save()
        saved.append(model.get_weights())
    model.train_on_batch(INPUTS, LABELS)
    model.save(run / "model.keras")
    return run, model.get_weights(), saved


def assert_equal(weights, others):
    for ours, theirs in zip(weights, others, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_loads_models_runs_and_checkpoints(trained):
    run, final, saved = trained
    model = transformer()
    model.compile(keras.optimizers.Adam(0.1), LabelSmoothedCrossEntropy())
    for source, read, weights in (
        (run, "model.keras", final),
        (run / "checkpoints", "checkpoints/ckpt-2", saved[1]),
        (run / "model.keras", "model.keras", final),
        (str(run / "checkpoints" / "ckpt-1"), "checkpoints/ckpt-1", saved[0]),
    ):
        assert load_weights_from(model, source) == str(run / read)
        assert_equal(model.get_weights(), weights)
    assert int(model.optimizer.iterations) == 0


def test_a_run_without_a_model_yet_gives_its_newest_checkpoint(trained, tmp_path):
    run, _, saved = trained
    (tmp_path / "checkpoints").symlink_to(run / "checkpoints")
    model = transformer()
    assert load_weights_from(model, tmp_path) == str(tmp_path / "checkpoints" / "ckpt-2")
    assert_equal(model.get_weights(), saved[1])


@pytest.mark.parametrize("name", ["model.keras", "checkpoints"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"feed_forward_dim": 16},
            "encoder/layer_0/feed_forward/hidden/kernel has shape (8, 16), there (8, 12); "
            "encoder/layer_0/feed_forward/hidden/bias has shape (16,), there (12,)",
        ),
        ({"vocabulary_size": 21}, "does not fit the model: embedding/embeddings has shape (21, 8), there (20, 8)"),
        ({"num_layers": 2}, "31 weights there, 43 here; encoder/layer_1/self_attention/query/kernel is only here"),
    ],
)
def test_what_does_not_fit_is_named(trained, name, arguments, message):
    run, _, _ = trained
    model = transformer(**arguments)
    before = model.get_weights()
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        load_weights_from(model, run / name)
    assert str(run / name) in str(error.value)
    assert_equal(model.get_weights(), before)


def test_what_the_model_lacks_is_named(trained):
    run, _, _ = trained
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3, name="dense")])
    for source in (run, run / "checkpoints"):
        message = r"31 weights there, 2 here; .*dense/kernel is only here; .*embeddings is only there; .*; and 26 more"
        with pytest.raises(ValueError, match=message):
            load_weights_from(model, source)


def test_nothing_there(tmp_path):
    for source in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileNotFoundError, match=f"`source` must be a .keras file.*source='{source}'"):
            load_weights_from(transformer(), source)


def test_frozen_weights_stay(trained):
    model = transformer()
    frozen = freeze(model, ["encoder", "decoder/layer_0/feed_forward/"])
    assert frozen == sorted(
        weight.path
        for weight in model.weights
        if weight.path.startswith("encoder/") or weight.path.startswith("decoder/layer_0/feed_forward/")
    )
    assert len(frozen) > 10
    model.compile(keras.optimizers.Adam(0.1), LabelSmoothedCrossEntropy())
    before = dict(zip([weight.path for weight in model.weights], model.get_weights(), strict=True))
    model.fit(INPUTS, LABELS, epochs=2, verbose=0)
    for weight in model.weights:
        same = np.array_equal(weight, before[weight.path])
        assert same == (weight.path in frozen), weight.path


def test_a_prefix_ends_with_a_name():
    model = keras.Sequential(
        [keras.layers.Input((2,)), keras.layers.Dense(2, name="a_1"), keras.layers.Dense(2, name="a_10")]
    )
    start = model.weights[0].path.removesuffix("a_1/kernel")
    assert freeze(model, [start + "a_1"]) == [start + "a_1/bias", start + "a_1/kernel"]


def test_bad_prefixes():
    model = transformer()
    message = r"which begin with \['decoder', 'embedding', 'encoder'\]. Received: 'encode'"
    with pytest.raises(ValueError, match=message):
        freeze(model, ["encoder", "encode"])
    with pytest.raises(ValueError, match=r"`prefixes` must be a list of strings. Received: prefixes='encoder'"):
        freeze(model, "encoder")
    with pytest.raises(ValueError, match="must leave weights to train"):
        freeze(model, ["encoder", "decoder", "embedding"])
    assert len(model.trainable_weights) == len(model.weights)
