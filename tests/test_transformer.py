import json
import os
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers import PositionalEmbedding
from keras_transformer.layers.positional_embedding import sinusoidal_positions
from keras_transformer.transformer import Transformer

SIZES = {"num_encoder_layers": 2, "num_decoder_layers": 2, "d_model": 8, "num_heads": 2, "feed_forward_dim": 16}
SHALLOW = {"num_encoder_layers": 1, "num_decoder_layers": 1}  # where depth adds nothing but time
SOURCE = np.array([[5, 6, 7, 8, 9, 3], [4, 5, 3, 0, 0, 0], [9, 3, 0, 0, 0, 0]], "int32")
TARGET = np.array([[2, 7, 8, 4], [2, 9, 0, 0], [2, 5, 6, 0]], "int32")
INPUTS = {"source_ids": SOURCE, "target_ids": TARGET}
TYINGS = ["three-way", "two-way", "none"]


def make(**arguments):
    return Transformer(11, **{**SIZES, **arguments})


def run(model, source, target):
    return model({"source_ids": np.array(source, "int32"), "target_ids": np.array(target, "int32")}).numpy()


def teach(model, epochs, **arguments):
    """Fit a copying task; returns the loss of every epoch."""
    generator = np.random.default_rng(2)
    source = generator.integers(4, 11, size=(16, 6)).astype("int32")
    source[8:, 4:] = 0
    target = np.concatenate([np.full((16, 1), 2), source[:, :-1]], axis=1).astype("int32")
    model.compile(
        keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True), **arguments
    )
    history = model.fit(
        {"source_ids": source, "target_ids": target},
        source,
        sample_weight=(source != 0).astype("float32"),
        batch_size=16,
        epochs=epochs,
        verbose=0,
    )
    return history.history["loss"]


# === One forward pass ===


def test_inputs_and_outputs():
    model = make(dtype="mixed_float16")
    assert isinstance(model, keras.Model)
    assert set(model.input) == {"source_ids", "target_ids"}
    assert all(x.dtype == "int32" and x.shape == (None, None) for x in model.input.values())
    assert model.output_shape == (None, None, 11)
    logits = model(INPUTS)
    assert logits.dtype == "float32"
    assert logits.shape == (3, 4, 11)


@pytest.mark.parametrize("norm_first", [False, True])
def test_equals_torch(norm_first, randomize, torch_copy):
    import torch

    model = make(norm_first=norm_first, use_attention_bias=True, layer_norm_epsilon=1e-5)
    randomize(model)
    matrix = torch.tensor(model.source_embedding.embeddings.numpy())

    def embed(ids):
        positions = torch.tensor(sinusoidal_positions(np.arange(ids.shape[1]), 8).numpy())
        return matrix[torch.tensor(ids).long()] * 8**0.5 + positions

    def stack(kind, layers, copy, final_norm, own_norm, **arguments):
        layer = getattr(torch.nn, f"Transformer{kind}Layer")(8, 2, 16, norm_first=norm_first, batch_first=True)
        norm = torch.nn.LayerNorm(8) if final_norm else None
        twin = getattr(torch.nn, f"Transformer{kind}")(layer, len(layers), norm=norm, **arguments).eval()
        for ours, theirs in zip(layers, twin.layers, strict=True):
            copy(ours, theirs)
        if final_norm:
            torch_copy.norm(own_norm, norm)
        return twin

    encoder_norm, decoder_norm = (getattr(x, "final_norm", None) for x in (model.encoder, model.decoder))
    encoder = stack(
        "Encoder",
        model.encoder.layers,
        torch_copy.encoder_layer,
        norm_first,
        encoder_norm,
        enable_nested_tensor=False,
    )
    decoder = stack("Decoder", model.decoder.layers, torch_copy.decoder_layer, norm_first, decoder_norm)
    padding = torch.tensor(SOURCE == 0)
    memory = encoder(embed(SOURCE), src_key_padding_mask=padding)
    vectors = decoder(
        embed(TARGET),
        memory,
        tgt_mask=torch.triu(torch.ones((4, 4), dtype=torch.bool), 1),
        tgt_key_padding_mask=torch.tensor(TARGET == 0),
        memory_key_padding_mask=padding,
    )
    np.testing.assert_allclose(model(INPUTS), vectors @ matrix.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tying", TYINGS)
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_every_tying_gives_the_same_kind_of_logits(tying, policy):
    model = Transformer(11, 11 if tying == "three-way" else 13, **SIZES, tying=tying, dtype=policy)
    logits = model(INPUTS)
    assert logits.dtype == "float32"
    assert logits.shape == (3, 4, model.get_config()["target_vocabulary_size"])
    np.testing.assert_array_equal(logits._keras_mask, TARGET != 0)
    assert (model.source_embedding is model.target_embedding) == (tying == "three-way")
    large = [weight for weight in model.weights if 11 in weight.shape or 13 in weight.shape]
    assert len(large) == {"three-way": 1, "two-way": 2, "none": 3}[tying]


def test_target_vocabulary_defaults_to_the_source_vocabulary():
    assert Transformer(11, **SIZES, tying="none").output_shape[-1] == 11


def test_depths_may_differ():
    model = make(num_encoder_layers=1, num_decoder_layers=3)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (1, 3)


def test_a_post_norm_model_has_no_final_norm():
    assert not any("final_norm" in weight.path for weight in make().weights)
    paths = [weight.path for weight in make(norm_first=True).weights]
    assert sum("final_norm/gamma" in path for path in paths) == 2


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("tying", TYINGS)
def test_every_weight_is_trained(norm_first, tying):
    model = make(norm_first=norm_first, tying=tying)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(INPUTS, training=True) ** 3)
    gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
    for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert np.any(tf.convert_to_tensor(gradient) != 0), weight.path


def test_arguments_reach_the_layers():
    arguments = {
        "key_dim": 3,
        "value_dim": 5,
        "activation": "gelu",
        "dropout": 0.11,
        "attention_dropout": 0.12,
        "activation_dropout": 0.13,
        "norm_first": True,
        "use_attention_bias": True,
        "layer_norm_epsilon": 1e-3,
    }
    model = make(**arguments)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        config = layer.get_config()
        assert {name: config[name] for name in arguments} == arguments
    assert model.source_embedding.dropout == 0.11
    assert make(dropout=0.11, embedding_dropout=0.0).source_embedding.dropout == 0.0
    assert make(embedding_dropout=0.14).get_config()["embedding_dropout"] == 0.14
    assert model.encoder.layers[0].self_attention_residual.norm.epsilon == 1e-3
    assert model.encoder.final_norm.epsilon == 1e-3


# === A row depends on its own real tokens only ===


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_row_does_not_see_batch_mates_padding_or_order(norm_first):
    model = make(norm_first=norm_first)
    full = model(INPUTS).numpy()
    lengths = (SOURCE != 0).sum(1), (TARGET != 0).sum(1)
    for row, (source_length, target_length) in enumerate(zip(*lengths, strict=True)):
        alone = run(model, SOURCE[row : row + 1, :source_length], TARGET[row : row + 1, :target_length])
        np.testing.assert_allclose(full[row, :target_length], alone[0], rtol=1e-5, atol=1e-5)
    wide = run(model, np.pad(SOURCE, ((0, 0), (0, 5))), np.pad(TARGET, ((0, 0), (0, 3))))
    np.testing.assert_allclose(wide[:, :4][TARGET != 0], full[TARGET != 0], rtol=1e-5, atol=1e-5)
    order = [2, 0, 1]
    np.testing.assert_allclose(run(model, SOURCE[order], TARGET[order]), full[order], rtol=1e-5, atol=1e-5)


def test_vectors_under_padding_do_not_matter():
    model = make()
    memory, mask = model.encode(SOURCE)
    noise = tf.where(mask[..., None], memory, 1000.0)
    target = model.target_embedding(TARGET)
    arguments = {"inputs_mask": TARGET != 0, "memory_mask": mask}
    np.testing.assert_array_equal(model.decoder(target, noise, **arguments), model.decoder(target, memory, **arguments))
    before = model(INPUTS).numpy()
    matrix = model.source_embedding.embeddings.numpy()
    matrix[0] = 1000.0  # the vector of the padding id
    model.source_embedding.embeddings.assign(matrix)
    np.testing.assert_allclose(
        model(INPUTS).numpy()[TARGET != 0][:, 1:], before[TARGET != 0][:, 1:], rtol=1e-5, atol=1e-5
    )


def test_logits_never_see_a_later_target():
    model = make()
    full = run(model, SOURCE[:1], [[2, 7, 8, 4]])
    other = run(model, SOURCE[:1], [[2, 7, 10, 10]])
    np.testing.assert_array_equal(other[:, :2], full[:, :2])
    assert np.abs(other[:, 2:] - full[:, 2:]).max() > 1e-3


def test_order_of_source_words_matters():
    model = make()
    assert np.abs(run(model, [[5, 6, 7]], [[2]]) - run(model, [[7, 6, 5]], [[2]])).max() > 1e-3


def test_source_and_target_are_not_swapped():
    model = make()
    source_gradient = np.abs(run(model, [[5, 6]], [[2, 7]]) - run(model, [[5, 8]], [[2, 7]])).max(-1)
    target_gradient = np.abs(run(model, [[5, 6]], [[2, 7]]) - run(model, [[5, 6]], [[2, 8]])).max(-1)
    assert (source_gradient > 1e-4).all(), "every target position sees the whole source"
    np.testing.assert_array_equal(target_gradient > 1e-4, [[False, True]])


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_source_of_padding_only(policy):
    model = make(dtype=policy)
    source = SOURCE.copy()
    source[1] = 0
    logits = run(model, source, TARGET)
    assert np.isfinite(logits).all()
    others = [0, 2]
    tolerance = 1e-5 if policy == "float32" else 2e-2
    np.testing.assert_allclose(logits[others], run(model, SOURCE[others], TARGET[others]), atol=tolerance)


def test_inference_is_deterministic_and_training_is_not():
    model = make(dropout=0.3)
    first = model(INPUTS).numpy()
    for arguments in ({}, {"training": False}):
        np.testing.assert_array_equal(model(INPUTS, **arguments), first)
    noisy = model(INPUTS, training=True)
    assert np.abs(noisy - first).max() > 1e-2
    assert np.any(model(INPUTS, training=True) != noisy)
    memory, _ = model.encode(SOURCE)
    np.testing.assert_array_equal(model.encode(SOURCE)[0], memory)


# === Step by step ===


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("tying", TYINGS)
@pytest.mark.parametrize("cuts", [[0, 1, 2, 3], [0, 3]])
def test_decode_step_equals_the_full_pass(norm_first, tying, cuts):
    check_steps(make(norm_first=norm_first, tying=tying), cuts, 1e-5)


@pytest.mark.parametrize(
    ("arguments", "tolerance"),
    [
        ({"dtype": "mixed_float16"}, 5e-2),
        ({"dtype": "mixed_bfloat16"}, 2e-1),
        ({"positions": "learned", "max_length": 9, "key_dim": 3, "value_dim": 5}, 1e-5),
    ],
)
def test_decode_step_of_other_kinds(arguments, tolerance):
    check_steps(make(**arguments), [0, 1, 2, 3], tolerance)


def check_steps(model, cuts, tolerance):
    target = np.array([[2, 7, 8, 4], [2, 9, 10, 5], [2, 5, 6, 3]], "int32")
    expected = run(model, SOURCE, target)
    memory, mask = model.encode(SOURCE)
    np.testing.assert_array_equal(mask, SOURCE != 0)
    projected, cache = model.start_decoding(memory, 6)
    for start, end in zip(cuts, [*cuts[1:], 4], strict=True):
        logits, cache = model.decode_step(target[:, start:end], projected, mask, cache, start)
        assert logits.dtype == "float32"
        np.testing.assert_allclose(logits, expected[:, start:end], atol=tolerance)


def test_decode_step_inside_a_loop_of_unknown_shapes():
    model = make()

    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.int32)] * 2)
    def logits(source, target):
        memory, mask = model.encode(source)
        length = tf.shape(target)[1]
        projected, cache = model.start_decoding(memory, length)
        steps = tf.TensorArray(tf.float32, length)
        for index in tf.range(length):
            step, cache = model.decode_step(target[:, index : index + 1], projected, mask, cache, index)
            steps = steps.write(index, step[:, 0])
        return tf.transpose(steps.stack(), (1, 0, 2))

    target = np.array([[2, 7, 8, 4, 6]] * 3, "int32")
    np.testing.assert_allclose(logits(SOURCE, target), run(model, SOURCE, target), atol=1e-5)
    np.testing.assert_allclose(logits(SOURCE[:1], target[:1, :3]), run(model, SOURCE[:1], target[:1, :3]), atol=1e-5)


@pytest.mark.parametrize("arguments", [{}, {"tying": "none", "norm_first": True}, {"key_dim": 3, "value_dim": 5}])
def test_hypotheses_that_share_a_cache_equal_their_full_passes(arguments):
    """Three hypotheses a row live, branch and die at random; nothing in the cache is moved."""
    model = make(**arguments)
    generator = np.random.default_rng(5)
    memory, mask = model.encode(SOURCE)
    projected, cache = model.start_decoding(memory, 6, 3)
    texts = np.zeros([3, 3, 0], "int32")
    ancestry = np.full([3, 3, 6], -1, "int32")
    for index in range(6):
        parents = generator.integers(0, 3, [3, 3]) if index else np.zeros([3, 3], int)
        texts = np.take_along_axis(texts, parents[:, :, None], axis=1)
        ancestry = np.take_along_axis(ancestry, parents[:, :, None], axis=1)
        ids = generator.integers(2, 11, [3, 3]).astype("int32")
        texts = np.concatenate([texts, ids[:, :, None]], axis=2)
        ancestry[:, :, index] = range(3)
        logits, cache, attention = model.decode_step(
            ids, projected, mask, cache, index, ancestry, return_attention_scores=True
        )
        for slot in range(3):
            expected = run(model, SOURCE, texts[:, slot])[:, -1]
            np.testing.assert_allclose(logits[:, slot], expected, atol=1e-5)
            weights = model.cross_attention({"source_ids": SOURCE, "target_ids": texts[:, slot]}, -1)
            np.testing.assert_allclose(attention[:, slot], np.mean(weights, axis=1)[:, -1], atol=1e-6)


def test_learned_positions_end_with_a_named_error():
    model = make(positions="learned", max_length=5)
    with pytest.raises(ValueError, match=r"`max_length`=5.*6 ids from position 0"):
        model(INPUTS)
    assert run(model, SOURCE[:, :5], TARGET).shape == (3, 4, 11)


# === Training ===


@pytest.mark.slow
def test_fit_with_and_without_xla():
    losses = []
    model = make(dropout=0.0, **SHALLOW)
    start = model.get_weights()
    for jit_compile in (False, True):
        model.set_weights(start)
        losses.append(teach(model, 4, jit_compile=jit_compile))
    assert losses[0][3] < losses[0][0]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


@pytest.mark.parametrize("policy", ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)])
def test_twenty_steps_in_mixed_precision(policy):
    model = make(dtype=policy, **SHALLOW)
    losses = teach(model, 20, jit_compile=False)
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) == (policy == "mixed_float16")
    for layer in model._flatten_layers(include_self=False):
        if not isinstance(layer, keras.layers.InputLayer | keras.layers.Activation) and layer.weights:
            assert layer.dtype_policy.name == policy, layer.path


@pytest.mark.parametrize("tying", ["three-way", "none"])
def test_the_masks_of_the_embeddings_are_the_only_ones(tying, monkeypatch):
    """Without them, padding counts as text: in the encoder, in attention to the source, and in encoding by itself."""
    model = make(tying=tying, **SHALLOW)
    longer = {name: np.pad(ids, [[0, 0], [0, 3]]) for name, ids in INPUTS.items()}
    length = INPUTS["target_ids"].shape[1]
    np.testing.assert_allclose(model(longer)[:, :length], model(INPUTS), atol=1e-5)
    memory = model.encode(INPUTS["source_ids"])[0]
    monkeypatch.setattr(PositionalEmbedding, "compute_mask", lambda self, inputs, previous_mask: None)
    blind = make(tying=tying, **SHALLOW)
    blind.set_weights(model.get_weights())
    assert np.abs(blind(longer)[:, :length] - model(INPUTS)).max() > 1e-3
    assert np.abs(blind.encode(INPUTS["source_ids"])[0] - memory)[SOURCE != 0].max() > 1e-3


def test_the_implicit_mask_of_the_logits_gives_one_loss_for_every_tying():
    for tying in TYINGS:
        model = make(tying=tying, dropout=0.0, **SHALLOW)
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        labels = np.where(TARGET == 0, 0, 3)
        wrong_at_padding = np.where(TARGET == 0, 5, 3)
        assert model.evaluate(INPUTS, labels, verbose=0) == pytest.approx(
            model.evaluate(INPUTS, wrong_at_padding, verbose=0)
        )


# === Saving ===


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"tying": "two-way", "norm_first": True, "use_attention_bias": True, "dtype": "mixed_bfloat16"},
        {"tying": "none", "positions": "learned", "max_length": 9, "activation": "gelu", "name": "translator"},
    ],
)
def test_every_format_gives_the_same_model_in_a_fresh_process(arguments, fresh_process, randomize, tmp_path):
    model = make(**arguments)
    randomize(model)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    checkpoint = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    fresh_process.evaluate(model, tmp_path, INPUTS, model=str(tmp_path / "model.keras"))
    config = model.to_json()
    fresh_process.evaluate(model, tmp_path, INPUTS, config=config, weights=str(tmp_path / "model.weights.h5"))
    fresh_process.evaluate(model, tmp_path, INPUTS, config=config, checkpoint=checkpoint)


def test_one_matrix_is_still_one_after_loading(tmp_path):
    model = make()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is Transformer
    assert len(loaded.weights) == len(model.weights)
    assert loaded.source_embedding is loaded.target_embedding
    before = loaded(INPUTS).numpy()
    loaded.target_embedding.embeddings.assign(2 * loaded.target_embedding.embeddings)
    assert np.abs(loaded.encode(SOURCE)[0] - model.encode(SOURCE)[0]).max() > 1e-3
    assert np.abs(loaded(INPUTS) - before).max() > 1e-3


def test_a_compiled_model_trains_on_after_loading(tmp_path):
    model = make(dropout=0.0, **SHALLOW)
    teach(model, 2, jit_compile=False)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == 2
    labels = np.where(TARGET == 0, 0, 3)
    for _ in range(2):
        ours, theirs = model.train_on_batch(INPUTS, labels), loaded.train_on_batch(INPUTS, labels)
        assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_config_is_json_and_complete(policy):
    model = make(tying="none", activation=keras.activations.gelu, dtype=policy, norm_first=True, key_dim=3)
    text = json.dumps(model.get_config())
    copy = Transformer.from_config(json.loads(text))
    assert json.dumps(copy.get_config()) == text
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy(INPUTS), model(INPUTS))
    assert keras.saving.get_registered_object("keras_transformer>Transformer") is Transformer


def test_a_frozen_model_stays_frozen(tmp_path):
    model = make(**SHALLOW)
    model.trainable = False
    model.save(tmp_path / "model.keras")
    assert not keras.models.load_model(tmp_path / "model.keras").trainable_variables


# === Arguments ===


def test_from_preset_and_overrides():
    model = Transformer.from_preset("tiny", 30, num_encoder_layers=1, num_decoder_layers=1, dropout=0.4)
    config = model.get_config()
    assert (config["d_model"], config["num_heads"], config["feed_forward_dim"]) == (128, 4, 256)
    assert (config["num_encoder_layers"], config["num_decoder_layers"], config["dropout"]) == (1, 1, 0.4)
    assert config["source_vocabulary_size"] == config["target_vocabulary_size"] == 30


def test_unknown_preset():
    with pytest.raises(ValueError, match=r"must be one of tiny, small, base.*'huge'"):
        Transformer.from_preset("huge", 30)


def test_unknown_arguments_raise():
    with pytest.raises(TypeError, match="num_layers"):
        make(num_layers=2)
    with pytest.raises(TypeError, match="num_layers"):
        Transformer.from_preset("tiny", 30, num_layers=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 3}, r"`d_model` must be divisible by `num_heads`.*d_model=8, num_heads=3"),
        ({"num_heads": 0}, r"`num_heads` must be positive.*num_heads=0"),
        ({"tying": "both"}, r"`tying` must be one of.*'both'"),
        ({"target_vocabulary_size": 12}, r"three-way.*source_vocabulary_size=11, target_vocabulary_size=12"),
        ({"num_encoder_layers": 0}, r"`num_layers` must be positive"),
        ({"feed_forward_dim": 0}, r"must be positive"),
        ({"d_model": 0}, r"must be positive"),
        ({"positions": "learned"}, r"`max_length` is the number of learned positions"),
        ({"dropout": 1.0}, r"`rate` must be in \[0, 1\)"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_heads_need_not_divide_the_width_when_their_width_is_given():
    assert make(num_heads=3, key_dim=4)(INPUTS).shape == (3, 4, 11)


# === Another backend ===

ON_TORCH = textwrap.dedent(
    """
    import sys
    sys.modules["tensorflow"] = None  # any import of it fails
    import keras, numpy as np
    from keras_transformer.transformer import Transformer

    assert keras.backend.backend() == "torch"
    directory, arguments = sys.argv[1], eval(sys.argv[2])
    data = np.load(directory + "/data.npz")
    ids = {"source_ids": data["source_ids"], "target_ids": data["target_ids"]}
    model = Transformer(11, **arguments)
    model.load_weights(directory + "/model.weights.h5")
    to_numpy = keras.ops.convert_to_numpy
    np.testing.assert_allclose(to_numpy(model(ids)), data["logits"], rtol=1e-5, atol=1e-5)
    memory, mask = model.encode(ids["source_ids"])
    projected, cache = model.start_decoding(memory, 5)
    for start, end in ((0, 1), (1, 4)):
        step, cache = model.decode_step(ids["target_ids"][:, start:end], projected, mask, cache, start)
        np.testing.assert_allclose(to_numpy(step), data["logits"][:, start:end], rtol=1e-5, atol=1e-5)
    dropped = [to_numpy(model(ids, training=True)) for _ in range(2)]
    assert abs(dropped[0] - dropped[1]).max() > 1e-3
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = model.get_weights()
    assert np.isfinite(model.train_on_batch(ids, data["target_ids"]))
    assert all((old != new).any() for old, new in zip(before, model.get_weights()))
    print("equal")
    """
)


def test_runs_on_pytorch_without_tensorflow(tmp_path):
    pytest.importorskip("torch")
    model = make()
    target = np.array([[2, 7, 8, 4], [2, 9, 10, 5], [2, 5, 6, 3]], "int32")
    model.save_weights(tmp_path / "model.weights.h5")
    np.savez(tmp_path / "data.npz", source_ids=SOURCE, target_ids=target, logits=run(model, SOURCE, target))
    result = subprocess.run(
        [sys.executable, "-c", ON_TORCH, str(tmp_path), repr(SIZES)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "KERAS_BACKEND": "torch"},
    )
    assert "equal" in result.stdout, result.stderr[-3000:]
