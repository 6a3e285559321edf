"""Fixtures for several test modules: a fresh process, the whole Keras life of a layer, weights for PyTorch's layers."""

import contextlib
import fcntl
import inspect
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

# As the commands and the recipe set it, before TensorFlow is imported anywhere: else a child process that a test starts
# could compute with other kernels than the test.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
import pytest
from hypothesis import settings

# The same examples each time, so that a failure is the code's and not the draw's. For others: run
# `pytest --hypothesis-profile=explore`.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def seeded():
    """Make every test draw the same numbers; Keras takes its own seeds from `random`.

    Not `keras.utils.set_random_seed`: it destroys the SentencePiece tokenizers that other tests hold.
    """
    random.seed(20)
    np.random.seed(20)


class FreshProcess:
    """Sends work to one process that only ever loads files; started on first use."""

    def __init__(self):
        self._process = None

    def evaluate(self, model, directory, inputs, /, **sources):
        """What a fresh process makes of `sources` (see fresh_process.py) must be `model`, bit for bit."""
        import keras

        directory = Path(directory)
        np.savez(directory / "inputs.npz", **inputs)
        answer = self._ask({"inputs": str(directory / "inputs.npz"), "results": str(directory / "out.npz"), **sources})
        results = np.load(directory / "out.npz")
        outputs = model(inputs)
        np.testing.assert_array_equal(
            results["outputs"], keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32"))
        )
        mask = getattr(outputs, "_keras_mask", None)
        assert ("mask" in results) == (mask is not None)
        if mask is not None:
            np.testing.assert_array_equal(results["mask"], keras.ops.convert_to_numpy(mask))
        assert answer["paths"] == [weight.path for weight in model.weights]
        for index, weight in enumerate(model.weights):
            if "seed_generator" not in weight.path or "checkpoint" not in sources:
                np.testing.assert_array_equal(results[f"weight_{index}"], keras.ops.convert_to_numpy(weight))

    def _ask(self, request):
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("fresh_process.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer

    def close(self):
        if self._process is not None:
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait(timeout=30)


@pytest.fixture(scope="session")
def fresh_process():
    process = FreshProcess()
    yield process
    process.close()


def _first_and_rest(inputs):
    first, *rest = inputs
    return inputs[first], {name: inputs[name] for name in rest}


def _call(layer, inputs, **arguments):
    first, rest = _first_and_rest(inputs)
    return layer(first, **rest, **arguments)


def _functional(layer, inputs, arguments, dynamic):
    import keras

    symbols = {}
    for name, value in inputs.items():
        shape = value.shape[1:]
        if dynamic:
            last = shape[-1:] if value.dtype.kind == "f" else (None,)
            shape = (None,) * (len(shape) - 1) + last
        symbols[name] = keras.Input(shape, dtype=str(value.dtype), name=name)
    return keras.Model(symbols, _call(layer, symbols, **arguments))


def _floats(x):
    import keras

    return keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))


class LayerLife:
    """Takes a layer through everything that Keras may do with it.

    Args:
        make: function of `dtype=` that makes the layer; it must not drop, or results would differ.
        inputs: arrays by call argument, the first one first: vectors [B, T, D], ids or masks.
        arguments: further call arguments, Python values.
    """

    def __init__(self, fresh_process, directory):
        self.fresh_process = fresh_process
        self.directory = directory

    def __call__(self, make, inputs, **arguments):
        layer = make()
        outputs = _floats(_call(layer, inputs, **arguments))
        self.check_registration(layer)
        self.check_config_and_build(layer, inputs, arguments, outputs)
        self.check_shapes(layer, inputs, arguments, outputs)
        self.check_fit(make, inputs, arguments, outputs)
        self.check_saving(layer, inputs, arguments)
        for policy, tolerance in (("mixed_float16", 2e-2), ("mixed_bfloat16", 1e-1)):
            self.check_precision(make, layer, inputs, arguments, policy, tolerance)

    def check_registration(self, layer):
        import keras

        name = keras.saving.get_registered_name(type(layer))
        assert name == f"keras_transformer>{type(layer).__name__}"
        assert keras.saving.get_registered_object(name) is type(layer)

    def check_config_and_build(self, layer, inputs, arguments, outputs):
        text = json.dumps(layer.get_config())
        config = json.loads(text)
        copy = type(layer).from_config(config)
        assert json.dumps(config) == text, "from_config changed the mapping it was given"
        assert json.dumps(copy.get_config()) == text
        constructor = inspect.signature(type(layer).__init__).parameters
        missing = set(constructor) - {"self", "kwargs"} - set(config)
        assert not missing, f"get_config leaves out {missing}"

        shapes = {}
        for name in inspect.signature(layer.build).parameters:
            array = _first_and_rest(inputs)[0] if name == "input_shape" else inputs.get(name.removesuffix("_shape"))
            if array is not None:
                shapes[name] = (None, None, array.shape[-1]) if array.ndim == 3 else (None, None)
        copy.build(**shapes)
        assert [w.path.split("/", 1)[-1] for w in copy.weights] == [w.path.split("/", 1)[-1] for w in layer.weights]
        copy.set_weights(layer.get_weights())
        np.testing.assert_array_equal(_floats(_call(copy, inputs, **arguments)), outputs)

    def check_shapes(self, layer, inputs, arguments, outputs):
        for dynamic in (True, False):
            model = _functional(layer, inputs, arguments, dynamic)
            for known, size in zip(model.output_shape, outputs.shape, strict=True):
                assert known in (None, size)
            assert model.output_shape[-1] == outputs.shape[-1]
            np.testing.assert_allclose(model.predict(inputs, verbose=0), outputs, rtol=1e-5, atol=1e-5)

    def check_fit(self, make, inputs, arguments, outputs):
        import keras

        layer = make()
        model = _functional(layer, inputs, arguments, dynamic=True)
        start = model.get_weights()
        losses = {}
        for jit_compile in (False, True):
            model.set_weights(start)
            model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=jit_compile)
            history = model.fit(inputs, np.ones_like(outputs), batch_size=len(outputs), epochs=3, verbose=0)
            losses[jit_compile] = history.history["loss"]
        assert losses[False][2] < losses[False][0]
        np.testing.assert_allclose(losses[True], losses[False], rtol=1e-4)

    def check_saving(self, layer, inputs, arguments):
        import tensorflow as tf

        model = _functional(layer, inputs, arguments, dynamic=True)
        model.save(self.directory / "model.keras")
        model.save_weights(self.directory / "model.weights.h5")
        checkpoint = tf.train.Checkpoint(model=model).save(str(self.directory / "checkpoint"))
        self.fresh_process.evaluate(model, self.directory, inputs, model=str(self.directory / "model.keras"))
        self.fresh_process.evaluate(
            model,
            self.directory,
            inputs,
            config=model.to_json(),
            weights=str(self.directory / "model.weights.h5"),
        )
        self.fresh_process.evaluate(model, self.directory, inputs, config=model.to_json(), checkpoint=checkpoint)

    def check_precision(self, make, layer, inputs, arguments, policy, tolerance):
        import keras
        import tensorflow as tf

        low = make(dtype=policy)
        with tf.GradientTape() as tape:
            outputs = _call(low, inputs, **arguments)
            loss = tf.reduce_mean(tf.cast(outputs, "float32"))
        policy = keras.dtype_policies.get(policy)
        for child in low._flatten_layers():
            assert child.dtype_policy.name == policy.name, child.path
        for weight in low.trainable_variables:
            assert weight.dtype == policy.variable_dtype, weight.path
        symbolic = _functional(low, inputs, arguments, dynamic=True).outputs[0]
        assert symbolic.dtype == keras.backend.standardize_dtype(outputs.dtype) == policy.compute_dtype
        for gradient in tape.gradient(loss, [weight.value for weight in low.trainable_variables]):
            assert np.isfinite(_floats(tf.convert_to_tensor(gradient))).all()
        low.set_weights(layer.get_weights())
        reference = _floats(_call(layer, inputs, **arguments))
        np.testing.assert_allclose(
            _floats(_call(low, inputs, **arguments)), reference, atol=tolerance * np.abs(reference).max()
        )


@pytest.fixture
def layer_life(fresh_process, tmp_path):
    return LayerLife(fresh_process, tmp_path)


def _randomize(layer):
    """Give every weight, norms and biases too, a random value, so that no term can hide behind a 0 or a 1."""
    generator = np.random.default_rng(7)
    for weight in layer.trainable_variables:
        center = 1.0 if weight.path.endswith("gamma") else 0.0
        weight.assign(center + 0.3 * generator.normal(size=weight.shape))


def _kernel(dense):
    import torch

    return torch.tensor(dense.kernel.numpy().T)


def _copy_dense(dense, linear):
    import torch

    linear.weight.copy_(_kernel(dense))
    linear.bias.copy_(torch.tensor(dense.bias.numpy()))


def _copy_norm(norm, torch_norm):
    import torch

    torch_norm.weight.copy_(torch.tensor(norm.gamma.numpy()))
    torch_norm.bias.copy_(torch.tensor(norm.beta.numpy()))
    torch_norm.eps = norm.epsilon


def _copy_attention(attention, torch_attention):
    import torch

    projections = (attention.query_projection, attention.key_projection, attention.value_projection)
    torch_attention.in_proj_weight.copy_(torch.cat([_kernel(dense) for dense in projections]))
    torch_attention.in_proj_bias.copy_(torch.cat([torch.tensor(dense.bias.numpy()) for dense in projections]))
    _copy_dense(attention.output_projection, torch_attention.out_proj)


def _copy_encoder_layer(layer, torch_layer):
    _copy_attention(layer.self_attention, torch_layer.self_attn)
    _copy_dense(layer.feed_forward.hidden_dense, torch_layer.linear1)
    _copy_dense(layer.feed_forward.output_dense, torch_layer.linear2)
    _copy_norm(layer.self_attention_residual.norm, torch_layer.norm1)
    _copy_norm(layer.feed_forward_residual.norm, torch_layer.norm2)


def _copy_decoder_layer(layer, torch_layer):
    _copy_attention(layer.self_attention, torch_layer.self_attn)
    _copy_attention(layer.cross_attention, torch_layer.multihead_attn)
    _copy_dense(layer.feed_forward.hidden_dense, torch_layer.linear1)
    _copy_dense(layer.feed_forward.output_dense, torch_layer.linear2)
    _copy_norm(layer.self_attention_residual.norm, torch_layer.norm1)
    _copy_norm(layer.cross_attention_residual.norm, torch_layer.norm2)
    _copy_norm(layer.feed_forward_residual.norm, torch_layer.norm3)


@pytest.fixture
def torch_copy():
    """Functions that write a layer's weights into its PyTorch twin; skips where PyTorch is missing."""
    torch = pytest.importorskip("torch")
    torch.backends.mha.set_fastpath_enabled(False)  # it zeroes padding, so nothing could be compared there
    with torch.no_grad():
        yield SimpleNamespace(
            attention=_copy_attention,
            norm=_copy_norm,
            encoder_layer=_copy_encoder_layer,
            decoder_layer=_copy_decoder_layer,
        )


@pytest.fixture
def randomize():
    return _randomize


@pytest.fixture(scope="session")
def untrained_translator():
    """A translator that babbles, but always the same: for what does not depend on the translations."""
    import keras

    from keras_transformer.data.tokenizers import Tokenizer
    from keras_transformer.transformer import Transformer
    from keras_transformer.translation.translator import Translator

    tokenizer = Tokenizer.train(["one two three four five", "eins zwei drei vier fünf"], vocabulary_size=290)
    model = Transformer.from_preset(
        "tiny", tokenizer.vocabulary_size, num_encoder_layers=1, num_decoder_layers=1, d_model=32, num_heads=2
    )
    generator = np.random.default_rng(5)
    model.set_weights([generator.normal(size=weight.shape, scale=0.3) for weight in model.weights])
    assert keras.ops.all(keras.ops.isfinite(model.weights[0]))
    return Translator(model, tokenizer, max_extra_tokens=4)


@contextlib.contextmanager
def _folder_of_all(factory, name):
    """A folder that all test processes of this session share; one at a time is here."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@pytest.fixture(scope="session")
def exported(untrained_translator, tmp_path_factory):
    """A version folder with an export of `untrained_translator`, of all signatures; no test may change it."""
    from keras_transformer.saved_model.writer import write_saved_model

    with _folder_of_all(tmp_path_factory, "all signatures") as folder:
        moved = folder / "über setzung" / "7"
        if not moved.exists():
            path = folder / "babbling" / "1"
            training = {"source": str(folder / "train.en"), "source_language": "en", "target_language": "de", "x": [1]}
            evaluation = {"test_bleu": 12.345678, "test_bleu_signature": "nrefs:1"}
            write_saved_model(untrained_translator, path, training=training, evaluation=evaluation)
            # Moved, renamed, with a space and letters beyond ASCII: nothing in an export may know where it was written.
            moved.parent.mkdir()
            path.rename(moved)
    return moved


@pytest.fixture(scope="session")
def export_one(untrained_translator, tmp_path_factory):
    """Function to the export of one signature, by other arguments of the translator; no test may change it."""
    from keras_transformer.saved_model.writer import write_saved_model
    from keras_transformer.translation.translator import Translator

    def export(signature, weights="float32", **arguments):
        with _folder_of_all(tmp_path_factory, " ".join([signature, weights, *map(str, arguments.values())])) as folder:
            path = folder / "über setzung" / "1"
            if not path.exists():
                arguments = {"max_extra_tokens": 4, **arguments}
                translator = Translator(untrained_translator.model, untrained_translator.tokenizer, **arguments)
                write_saved_model(translator, path, signatures=[signature], weights=weights)
        return path

    return export
