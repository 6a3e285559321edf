"""Decoding next to other systems that run the same weights.

    python benchmarks/decoding.py                        both sizes, fixed output length (an hour)
    python benchmarks/decoding.py --quick                the small size, few repetitions (about two minutes)
    python benchmarks/decoding.py --model RUN --text FILE    a trained model on real sentences, early ends included

At a fixed output length of 32 tokens all systems do equal work, on random weights and random sources of 22 tokens. All
systems are timed in one process, in turns, and compared by their medians; ratio > 1 means that ours is faster, or for
memory smaller. "graph" is what TensorFlow Serving runs, "xla" what `Translator(jit_compile=True)` does in Python.
Install what is compared with: `pip install -e '.[bench]'`.
"""

import dataclasses
import functools
import importlib.metadata
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import peers
import tensorflow as tf
import tyro

from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.decoding import BeamSearch
from keras_transformer.transformer import Transformer
from keras_transformer.translation.translator import Translator
from keras_transformer.vocabulary import END_ID, PAD_ID

NUM_TOKENS = 32
SOURCE_TOKENS = 22
SIZES = {
    "small": {
        "source_vocabulary_size": 16000,
        "d_model": 256,
        "num_heads": 4,
        "feed_forward_dim": 1024,
    },
    "base": {"source_vocabulary_size": 37000},
}
# Seconds between two timings: threads of the system before may keep a core busy while they wait for more work.
_REST = 0.25
# What is timed at each size: (batch size, beam size). The slow peers only where they end soon.
CASES = {
    "small": [(1, 4), (32, 4), (128, 4), (1, 1), (32, 1), (128, 1)],
    "base": [(1, 4), (32, 4), (1, 1), (32, 1)],
}
QUICK_CASES = {"small": [(1, 4), (32, 4), (1, 1), (32, 1)]}


@dataclasses.dataclass
class Config:
    """Time decoding next to other systems."""

    quick: bool = False
    """The small size only, few repetitions."""
    json: Path | None = None
    """File for the results, a list of records."""
    model: Path | None = None
    """Run directory of a trained model, for real sentences; with --text."""
    text: Path | None = None
    """File of sentences, one a line."""
    sizes: tuple[str, ...] = tuple(SIZES)
    """Sizes of models to time."""
    repetitions: int = 7
    """Timings of each system in each case."""
    peers: tuple[str, ...] = ("ctranslate2", "ctranslate2-int8", "marian", "cache-free")
    """Systems to compare with."""
    memory: bool = True
    """Whether to measure the peak memory of a beam of 4 over a batch of 128, in processes of their own."""


def main(config):
    records = []
    if config.model is not None:
        records += real_text(config)
    else:
        for size, cases in (QUICK_CASES if config.quick else CASES).items():
            if size in config.sizes:
                records += fixed_length(config, size, cases)
        if config.memory and not config.quick:
            records += memory()
    if config.json is not None:
        config.json.write_text(json.dumps({"machine": machine(), "records": records}, indent=2) + "\n", "utf-8")
    return records


# === Fixed length ===


def build(size):
    tf.random.set_seed(0)
    model = Transformer(**SIZES[size])
    return model, Tokenizer.train(["one two three four five"], vocabulary_size=290)


def ours(model, tokenizer, beam_size, jit_compile):
    """Our search over ids, at a fixed length: every token but the last must not be an end mark, and the last is cut."""
    search = BeamSearch(beam_size=beam_size, min_length=NUM_TOKENS)
    translator = Translator(model, tokenizer, search=search, max_target_tokens=NUM_TOKENS - 1)
    graph = tf.function(
        functools.partial(translator.pipeline.search_ids, max_length=NUM_TOKENS if jit_compile else None),
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
        autograph=False,
        jit_compile=jit_compile,
    )

    def run(rows):
        width = -(-(max(map(len, rows)) + 1) // 8) * 8
        source_ids = np.full([len(rows), width], PAD_ID, "int32")
        for row, ids in enumerate(rows):
            source_ids[row, : len(ids) + 1] = [*ids, END_ID]
        return graph(source_ids).ids.numpy()[:, 0]

    return run


def fixed_length(config, size, cases):
    model, tokenizer = build(size)
    generator = np.random.default_rng(0)
    records = []
    with tempfile.TemporaryDirectory() as directory:
        for batch_size, beam_size in cases:
            rows = generator.integers(4, SIZES[size]["source_vocabulary_size"], [batch_size, SOURCE_TOKENS]).tolist()
            make = {"num_tokens": NUM_TOKENS, "beam_size": beam_size}
            converted = Path(directory) / "model"
            systems = {
                "graph": ours(model, tokenizer, beam_size, False),
                "xla": ours(model, tokenizer, beam_size, True),
            }
            if "ctranslate2" in config.peers:
                for threads in (1, 2):
                    systems[f"CTranslate2 float32, {threads} threads"] = peers.ctranslate2_translator(
                        model, tokenizer, converted, num_threads=threads, **make
                    )
            if "ctranslate2-int8" in config.peers:
                systems["CTranslate2 int8, 2 threads"] = peers.ctranslate2_translator(
                    model, tokenizer, converted, "int8", num_threads=2, **make
                )
            slow = size == "base" or batch_size > 32 or config.quick
            if "marian" in config.peers and batch_size <= 32:
                systems["Hugging Face generate"] = peers.marian_translator(model, num_threads=2, **make)
            if "cache-free" in config.peers and not slow:
                systems["cache-free Keras loop"] = peers.cache_free_translator(model, **make)
            case = f"{size}, batch {batch_size}, " + ("greedy" if beam_size == 1 else f"beam {beam_size}")
            records += compare(config, case, {name: functools.partial(run, rows) for name, run in systems.items()})
    return records


# === Real text ===


def real_text(config):
    """Sentences a second of a trained model, tokenization included, each system with batches of its own choice."""
    import ctranslate2

    translator = Translator.load(config.model)
    sentences = config.text.read_text("utf-8").splitlines()
    records = []
    with tempfile.TemporaryDirectory() as directory:
        peers.write_ctranslate2(translator.model, translator.tokenizer, Path(directory) / "model")
        names = json.loads((Path(directory) / "model" / "shared_vocabulary.json").read_text("utf-8"))
        ids = {name: index for index, name in enumerate(names)}
        for beam_size in (4, 1):
            search = BeamSearch(beam_size=beam_size)
            systems = {"graph": functools.partial(translator.translate, sentences, search=search)}
            for threads in (1, 2):
                other = ctranslate2.Translator(
                    str(Path(directory) / "model"), compute_type="float32", inter_threads=1, intra_threads=threads
                )

                def run(other=other, beam_size=beam_size):
                    pieces = [[names[token] for token in row] for row in translator.tokenizer.encode(sentences)]
                    results = other.translate_batch(
                        pieces, beam_size=beam_size, max_decoding_length=100, length_penalty=0.6, max_batch_size=32
                    )
                    return [translator.tokenizer.decode([ids[name] for name in one.hypotheses[0]]) for one in results]

                systems[f"CTranslate2 float32, {threads} threads"] = run
            case = f"{len(sentences)} sentences, " + ("greedy" if beam_size == 1 else f"beam {beam_size}")
            records += compare(config, case, systems, per_second=len(sentences))
    return records


# === Measuring ===


def compare(config, case, systems, per_second=None):
    """Time the systems in turns and print and return how ours compare with the others."""
    results = {name: run() for name, run in systems.items()}  # compiles, fills caches
    times = {name: [] for name in systems}
    for _ in range(3 if config.quick else config.repetitions):
        for name, run in systems.items():
            time.sleep(_REST)
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) for name, values in times.items()}
    count = per_second or len(results["graph"])
    print(f"\n{case}")
    for name, seconds in medians.items():
        same = np.mean([np.array_equal(one, two) for one, two in zip(results[name], results["graph"], strict=True)])
        print(
            f"  {name:32} {seconds * 1e3:9.1f} ms {count / seconds:9.2f} sentences/s   {same:6.1%} of rows as graph",
            flush=True,
        )
    return [
        {
            "name": f"decoding {mine} / {peer}",
            "case": case,
            "ours": count / medians[mine],
            "peer": count / medians[peer],
            "unit": "sentences/s",
            "ratio": medians[peer] / medians[mine],
        }
        for mine in ("graph", "xla")
        if mine in systems
        for peer in systems
        if peer not in ("graph", "xla")
    ]


def memory():
    """Peak resident memory of a beam of 4 over 128 sentences at the small size, ours and CTranslate2's."""
    peaks = {}
    for system in ("ours", "ctranslate2", "nothing"):
        done = subprocess.run(
            [sys.executable, __file__, "--measure-memory", system], capture_output=True, text=True, check=True
        )
        peaks[system] = float(done.stdout.split()[-1])
    # Both processes import TensorFlow and hold the Keras model.
    mine, peer = (peaks[system] - peaks["nothing"] for system in ("ours", "ctranslate2"))
    print(f"\nmemory, small, batch 128, beam 4: ours {mine:.0f} MB, CTranslate2 {peer:.0f} MB", flush=True)
    name, case = "memory graph / CTranslate2 float32", "small, batch 128, beam 4"
    return [{"name": name, "case": case, "ours": mine, "peer": peer, "unit": "MB", "ratio": peer / mine}]


def measure_memory(system):
    model, tokenizer = build("small")
    rows = np.random.default_rng(0).integers(4, 16000, [128, SOURCE_TOKENS]).tolist()
    with tempfile.TemporaryDirectory() as directory:
        peers.write_ctranslate2(model, tokenizer, Path(directory) / "model")
        if system == "ours":
            ours(model, tokenizer, 4, False)(rows)
        elif system == "ctranslate2":
            peers.ctranslate2_translator(
                model, tokenizer, Path(directory) / "model", num_tokens=NUM_TOKENS, beam_size=4, num_threads=2
            )(rows)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def machine():
    """What the figures were measured with."""
    packages = ("tensorflow", "keras", "ctranslate2", "transformers", "torch")
    return {
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "default"),
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure-memory"]:
        measure_memory(sys.argv[2])
    else:
        main(tyro.cli(Config, description=__doc__))
