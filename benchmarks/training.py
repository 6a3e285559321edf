"""Training next to other systems: target tokens a second on the same shapes.

    python benchmarks/training.py                        tiny, small and base (half an hour)
    python benchmarks/training.py --quick                tiny next to Marian only (two minutes)

Ours and Keras's own run inside stock `fit`, PyTorch's in the usual loop. All train on one batch of random ids without
padding, over and over, with dropout 0.1, label smoothing 0.1 and Adam, each in a process and in the environment that
its users have. Two systems are timed at a time, in turns, since others slow some down even while they wait; medians of
the time of a step. The process that is started first can be a tenth slower, so the two are started twice, the second
time in the reverse order. Ratio > 1 means that ours is faster, or needs less memory: the growth of the process from
before the model is made to its peak. Also: the share of the machine's measured peak of matrix products that is reached,
and how many times faster than training the input pipeline makes batches. Install what is compared with:
`pip install -e '.[bench]'`; systems that are not installed are left out.
"""

import dataclasses
import importlib.metadata
import importlib.util
import itertools
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
import tyro
from keras import ops

from keras_transformer.data.batches import Batches
from keras_transformer.data.token_store import TokenStore
from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.training.optimizers import Adam
from keras_transformer.transformer import Transformer

DROPOUT = 0.1
SMOOTHING = 0.1
# Layers of each stack, width, heads, hidden width, vocabulary; rows and tokens of a batch.
SIZES = {
    "tiny": ((4, 128, 4, 256, 10_000), (96, 24)),
    "small": ((6, 256, 4, 1024, 16_000), (96, 24)),
    "base": ((6, 512, 8, 2048, 37_000), (32, 32)),
}
# Seconds between two timings: threads of the system before may keep a core busy while they wait for more work.
_REST = 0.25


@dataclasses.dataclass
class Config:
    """Time training next to other systems."""

    quick: bool = False
    """The tiny size next to Marian only."""
    json: Path | None = None
    """File for the results, a list of records."""
    sizes: tuple[str, ...] = tuple(SIZES)
    """Sizes of models to time."""
    peers: tuple[str, ...] = ("marian", "torch", "keras", "keras-hub")
    """Systems to compare with; also torch-compiled, which compiles for minutes, and keras-without-onednn, which is what
    Keras does by itself on processors for which TensorFlow leaves oneDNN off."""
    repetitions: int = 3
    """Timings of each of a system's two processes."""
    steps: int = 6
    """Steps of each timing."""


def main(config):
    sizes, peers = (("tiny",), ("marian",)) if config.quick else (config.sizes, config.peers)
    records = []
    for size in sizes:
        records += compare(size, peers, config.repetitions, config.steps)
    records += input_pipeline(records)
    if config.json is not None:
        config.json.write_text(json.dumps({"machine": machine(), "records": records}, indent=2) + "\n", "utf-8")
    return records


def compare(size, peers, repetitions, steps):
    """Time ours and one peer after the other at one size; records of our ratios."""
    shape, (num_rows, num_tokens) = SIZES[size]
    print(f"\n{size}: {num_rows} x {num_tokens} tokens; target tokens a second, MB; ours, theirs, ratio", flush=True)
    records = []
    for peer in peers:
        package = SYSTEMS[peer].package
        if importlib.util.find_spec(package) is None:
            print(f"  {peer}: left out, {package} is not installed")
            continue
        seconds, memory = time_pair(peer, size, repetitions, steps)
        tokens = {name: num_rows * num_tokens / seconds[name] for name in seconds}
        for kind, unit, values, ratio in (
            ("training", "target tokens a second", tokens, tokens["ours"] / tokens[peer]),
            ("memory of training", "MB", memory, memory[peer] / memory["ours"]),
        ):
            case = {"name": kind, "case": f"{size}, {peer}", "ours": values["ours"], "peer": values[peer]}
            records.append({**case, "unit": unit, "ratio": ratio})
        speed, size_of_process = records[-2:]
        print(
            f"  {peer:20} {speed['ours']:8,.0f} {speed['peer']:8,.0f} {speed['ratio']:6.2f}"
            f"   {size_of_process['ours']:8,.0f} {size_of_process['peer']:8,.0f} {size_of_process['ratio']:6.2f}",
            flush=True,
        )
    speeds = [record["ours"] for record in records if record["name"] == "training"]
    if speeds:
        peak = matrix_product_peak()
        seconds = num_rows * num_tokens / statistics.median(speeds)
        share = training_flops(shape, num_rows, num_tokens) / seconds / peak
        print(f"  ours reaches {share:.0%} of the machine's peak of {peak / 1e9:,.0f} GFLOP/s")
    return records


def time_pair(peer, size, repetitions, steps):
    """Median seconds of a step, and megabytes, of ours and of a peer."""
    seconds, memory = {"ours": [], peer: []}, {"ours": 0.0, peer: 0.0}
    for order in (("ours", peer), (peer, "ours")):
        systems = {name: Timed(name, size) for name in order}
        for _ in range(repetitions):
            for name, system in systems.items():
                time.sleep(_REST)
                seconds[name].append(system.run(steps))
        for name, system in systems.items():
            memory[name] = max(memory[name], system.stop())
    return {name: statistics.median(values) for name, values in seconds.items()}, memory


class Timed:
    """A system in a process of its own, which waits between timings."""

    def __init__(self, name, size):
        context = multiprocessing.get_context("spawn")
        self._connection, connection = context.Pipe()
        changed = {"TF_ENABLE_ONEDNN_OPTS": SYSTEMS[name].onednn}
        before = {key: os.environ.get(key) for key in changed}
        _set_environment(changed)
        try:
            self._process = context.Process(target=_serve, args=(connection, name, size), daemon=True)
            self._process.start()
        finally:
            _set_environment(before)
        connection.close()
        self._connection.recv()  # the first steps are done

    def run(self, num_steps):
        """Seconds of a step."""
        self._connection.send(num_steps)
        return self._connection.recv()

    def stop(self):
        """End the process; the MB by which it grew."""
        self._connection.send(None)
        memory = self._connection.recv()
        self._process.join()
        return memory


def _set_environment(values):
    for key, value in values.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value


def _serve(connection, name, size):
    """The life of a process of `Timed`."""
    importlib.import_module(SYSTEMS[name].package)
    before = _peak_memory()
    shape, rows_and_tokens = SIZES[size]
    ids = np.random.default_rng(0).integers(4, shape[-1], (3, *rows_and_tokens)).astype("int32")
    run = SYSTEMS[name].make(shape, ids)
    run(2)  # traces, compiles, fills caches
    connection.send(None)
    while (num_steps := connection.recv()) is not None:
        connection.send(run(num_steps))
    connection.send(_peak_memory() - before)


def _peak_memory():
    """The most memory that this process has had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# === Systems: each gives a function `run(num_steps)` to the seconds of a step ===


class _Clock(keras.callbacks.Callback):
    """When each step ended; what `fit` does before the first and after the last step is not counted."""

    def __init__(self):
        super().__init__()
        self.ends = []

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(time.perf_counter())


def keras_fit(model, ids):
    source, target, labels = ids
    batch = ({"source_ids": source, "target_ids": target}, labels)
    dataset = tf.data.Dataset.from_tensors(batch).repeat().prefetch(2)

    def run(num_steps):
        clock = _Clock()
        model.fit(dataset, steps_per_epoch=num_steps + 1, shuffle=False, verbose=0, callbacks=[clock])
        return (clock.ends[-1] - clock.ends[0]) / num_steps

    return run


def ours(shape, ids):
    num_layers, width, num_heads, hidden, vocabulary_size = shape
    model = Transformer(
        vocabulary_size,
        num_encoder_layers=num_layers,
        num_decoder_layers=num_layers,
        d_model=width,
        num_heads=num_heads,
        feed_forward_dim=hidden,
        dropout=DROPOUT,
    )
    model.compile(Adam(1e-4), LabelSmoothedCrossEntropy(label_smoothing=SMOOTHING), jit_compile=False)
    return keras_fit(model, ids)


def _smoothed_loss(y_true, y_pred):
    """The usual way to smooth labels in Keras: one-hot targets."""
    one_hot = ops.one_hot(y_true, y_pred.shape[-1])
    return keras.losses.categorical_crossentropy(one_hot, y_pred, from_logits=True, label_smoothing=SMOOTHING)


def _stacks(shape, encoder_layer, decoder_layer, embed):
    """A compiled functional model of some layers, with logits by the embedding's matrix."""
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    embedding, position = embed
    memory = keras.layers.Dropout(DROPOUT)(position(embedding(source_ids)))
    for _ in range(shape[0]):
        memory = encoder_layer()(memory)
    vectors = keras.layers.Dropout(DROPOUT)(position(embedding(target_ids)))
    for _ in range(shape[0]):
        vectors = decoder_layer()(vectors, memory)
    model = keras.Model({"source_ids": source_ids, "target_ids": target_ids}, embedding(vectors, reverse=True))
    model.compile(keras.optimizers.Adam(1e-4), _smoothed_loss, jit_compile=False)
    return model


def keras_layers(shape, ids):
    """A Transformer as tutorials build it, of `keras.layers` alone."""
    _, width, num_heads, hidden, vocabulary_size = shape

    class Sublayer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.attention = keras.layers.MultiHeadAttention(num_heads, width // num_heads, dropout=DROPOUT)
            self.norm, self.drop = keras.layers.LayerNormalization(), keras.layers.Dropout(DROPOUT)

        def call(self, x, memory=None, causal=False):
            memory = x if memory is None else memory
            return self.norm(x + self.drop(self.attention(x, memory, use_causal_mask=causal)))

    class FeedForward(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.Dense(hidden, activation="relu")
            self.outer = keras.layers.Dense(width)
            self.norm, self.drop = keras.layers.LayerNormalization(), keras.layers.Dropout(DROPOUT)

        def call(self, x):
            return self.norm(x + self.drop(self.outer(self.inner(x))))

    def encoder_layer():
        attention, feed_forward = Sublayer(), FeedForward()
        return lambda x: feed_forward(attention(x))

    def decoder_layer():
        attention, cross_attention, feed_forward = Sublayer(), Sublayer(), FeedForward()
        return lambda x, memory: feed_forward(cross_attention(attention(x, causal=True), memory))

    embed = keras.layers.ReversibleEmbedding(vocabulary_size, width, mask_zero=True), keras.layers.Identity()
    return keras_fit(_stacks(shape, encoder_layer, decoder_layer, embed), ids)


def keras_hub_layers(shape, ids):
    import keras_hub

    _, width, num_heads, hidden, vocabulary_size = shape
    embed = (
        keras.layers.ReversibleEmbedding(vocabulary_size, width, mask_zero=True),
        keras_hub.layers.SinePositionEncoding(),
    )
    return keras_fit(
        _stacks(
            shape,
            lambda: keras_hub.layers.TransformerEncoder(hidden, num_heads, dropout=DROPOUT),
            lambda: keras_hub.layers.TransformerDecoder(hidden, num_heads, dropout=DROPOUT),
            embed,
        ),
        ids,
    )


def marian(shape, ids):
    import torch
    import transformers

    num_layers, width, num_heads, hidden, vocabulary_size = shape
    model = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=vocabulary_size,
            encoder_layers=num_layers,
            decoder_layers=num_layers,
            encoder_attention_heads=num_heads,
            decoder_attention_heads=num_heads,
            encoder_ffn_dim=hidden,
            decoder_ffn_dim=hidden,
            d_model=width,
            dropout=DROPOUT,
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=0,
            eos_token_id=3,
            forced_eos_token_id=None,
            decoder_start_token_id=2,
        )
    ).train()
    source, target, labels = (torch.tensor(rows, dtype=torch.long) for rows in ids)

    def logits():
        mask = (source != 0).long()
        return model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits

    return _torch_loop(model, logits, labels)


def torch_transformer(shape, ids, compiled=False):
    import torch

    num_layers, width, num_heads, hidden, vocabulary_size = shape

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(vocabulary_size, width, padding_idx=0)
            self.dropout = torch.nn.Dropout(DROPOUT)
            self.transformer = torch.nn.Transformer(
                width, num_heads, num_layers, num_layers, hidden, DROPOUT, batch_first=True
            )
            self.register_buffer("positions", torch.randn(ids.shape[-1], width))

        def forward(self, source, target):
            source_padding, target_padding = source == 0, target == 0
            length = target.shape[1]
            causal = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
            encoder_inputs, decoder_inputs = (
                self.dropout(self.embedding(rows) * width**0.5 + self.positions) for rows in (source, target)
            )
            outputs = self.transformer(
                encoder_inputs,
                decoder_inputs,
                tgt_mask=causal,
                src_key_padding_mask=source_padding,
                tgt_key_padding_mask=target_padding,
                memory_key_padding_mask=source_padding,
            )
            return outputs @ self.embedding.weight.T

    model = Model().train()
    forward = torch.compile(model) if compiled else model
    source, target, labels = (torch.tensor(rows, dtype=torch.long) for rows in ids)
    return _torch_loop(model, lambda: forward(source, target), labels)


def _torch_loop(model, logits, labels):
    import torch

    optimizer = torch.optim.Adam(model.parameters(), 1e-4)

    def run(num_steps):
        start = time.perf_counter()
        for _ in range(num_steps):
            optimizer.zero_grad()
            outputs = logits()
            torch.nn.functional.cross_entropy(
                outputs.flatten(0, 1), labels.flatten(), ignore_index=0, label_smoothing=SMOOTHING
            ).backward()
            optimizer.step()
        return (time.perf_counter() - start) / num_steps

    return run


class System(NamedTuple):
    """How to make a system, the package that it needs, and its TF_ENABLE_ONEDNN_OPTS; None leaves it to TensorFlow."""

    make: Callable
    package: str
    onednn: str | None = None


SYSTEMS = {
    "ours": System(ours, "keras_transformer", "1"),  # as the recipe sets it
    "marian": System(marian, "transformers"),
    "torch": System(torch_transformer, "torch"),
    "torch-compiled": System(lambda shape, ids: torch_transformer(shape, ids, compiled=True), "torch"),
    "keras": System(keras_layers, "keras"),
    "keras-without-onednn": System(keras_layers, "keras", "0"),
    "keras-hub": System(keras_hub_layers, "keras_hub"),
}


# === The machine ===


def matrix_product_peak():
    """FLOP/s of a large float32 matrix product."""
    size = 2048
    left, right = tf.random.normal([size, size]), tf.random.normal([size, size])
    product = tf.function(lambda: tf.reduce_sum(tf.matmul(left, right)))
    product()
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        product().numpy()
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def training_flops(shape, num_rows, num_tokens):
    """Floating-point operations of a step: three times those of the forward pass."""
    num_layers, width, _, hidden, vocabulary_size = shape
    attention = 4 * width * width + 2 * num_tokens * width
    a_token = num_layers * (3 * attention + 2 * 2 * width * hidden) + width * vocabulary_size
    return 3 * 2 * a_token * num_rows * num_tokens


def input_pipeline(records):
    """How many times faster than training batches are made; of a corpus of random ids of the usual lengths."""
    generator = np.random.default_rng(0)
    words = [f"w{number}" for number in range(400)]
    sentences = [" ".join(generator.choice(words, size)) for size in generator.integers(4, 30, 20_000)]
    tokenizer = Tokenizer.train(sentences[:2_000], vocabulary_size=600)
    with tempfile.TemporaryDirectory() as directory:
        store = TokenStore.write(
            Path(directory) / "tokens", zip(sentences, sentences, strict=True), tokenizer, max_length=256
        )
        batches = Batches(store, tokens_per_batch=4_096)
        num_tokens = 0
        start = time.perf_counter()
        for _, labels, _ in itertools.islice(batches.dataset(), 300):
            num_tokens += int(np.count_nonzero(labels))
        speed = num_tokens / (time.perf_counter() - start)
    fastest = max((record["ours"] for record in records if record["name"] == "training"), default=1.0)
    print(f"\ninput pipeline: {speed:,.0f} target tokens/s, {speed / fastest:.0f} times what the fastest model takes")
    return [
        {
            "name": "input pipeline",
            "case": "against training",
            "ours": speed,
            "peer": fastest,
            "unit": "target tokens a second",
            "ratio": speed / fastest,
        }
    ]


def machine():
    """What the figures depend on."""
    versions = {}
    for name in ("tensorflow", "keras", "torch", "transformers", "keras-hub"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {"cores": os.cpu_count(), **versions}


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
