"""The flags of `train_wmt.py`: in groups, with defaults for each size of model, and which of them go together."""

import dataclasses
import itertools
import json
import sys
from pathlib import Path
from typing import Literal, get_args

import tyro

import keras_transformer as kt
from keras_transformer.files import CONFIG_FILE
from keras_transformer.presets import PRESETS
from keras_transformer.runs.settings import RunSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What size of model, and where everything goes."""

    preset: Literal[("demo", *PRESETS)] = "base"
    """Model size and the schedule that goes with it; it sets the defaults of all flags below. Without it: demo for the
    built-in corpus, tiny for text of your own."""

    run_directory: Path = Path("runs/translation")
    """Folder for everything the run writes."""
    resume: bool = False
    """Go on with the run in run_directory from its last checkpoint, with the flags that it was started with."""
    overwrite: bool = False
    """Start anew in run_directory, deleting what is there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text:
    """What is translated: files, a data set, or neither of them for the built-in corpus."""

    builtin_pairs: int = 100_000
    """Training pairs to make of the built-in corpus."""
    source: Path | None = None
    """Training text of the source language, one sentence a line, UTF-8, plain or gzip."""
    target: Path | None = None
    """Its translation, line by line."""
    dev_source: Path | None = None
    """Development text; without it about 1,000 pairs of the training text are held out."""
    dev_target: Path | None = None
    """Its translation."""
    test_source: Path | None = None
    """Test text; without it about 1,000 more pairs of the training text are held out."""
    test_target: Path | None = None
    """Its translation."""
    dataset: str | None = None
    """Data set of TensorFlow Datasets instead of files, such as wmt14_translate/de-en."""
    data_dir: Path | None = None
    """Folder of prepared TensorFlow Datasets; theirs by default."""
    download: bool = False
    """Download and prepare the data set if it is not there."""
    source_language: str = "en"
    """Code of the source language; chooses the direction of a data set."""
    target_language: str = "de"
    """Code of the target language; also chooses how BLEU splits words."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens:
    """How text is cut up."""

    vocabulary_size: int = 37_000
    """Pieces of the joint tokenizer, with 256 bytes and 4 special ids."""
    normalization: Literal["whitespace", "nfkc", "nmt_nfkc", "identity"] = "whitespace"
    """What happens to text before it is cut into pieces."""
    max_sentence_tokens: int = 256
    """Longest side of a training pair, in tokens with the end mark; longer pairs are dropped and counted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """The size of the model, and what it is made of."""

    num_encoder_layers: int = 6
    """Depth of the encoder."""
    num_decoder_layers: int = 6
    """Depth of the decoder."""
    d_model: int = 512
    """Width of the model."""
    num_heads: int = 8
    """Attention heads."""
    feed_forward_dim: int = 2048
    """Hidden width of the feed-forward networks."""
    key_dim: int | None = None
    """Width of queries and keys per head; d_model / num_heads by default."""
    value_dim: int | None = None
    """Width of values per head; key_dim by default."""
    activation: str = "relu"
    """Activation of the feed-forward networks."""
    dropout: float = 0.1
    """Share dropped from sub-layer outputs, 0 to 1."""
    attention_dropout: float = 0.0
    """Share of attention weights dropped, 0 to 1."""
    activation_dropout: float = 0.0
    """Share of hidden feed-forward units dropped, 0 to 1."""
    embedding_dropout: float | None = None
    """Share dropped from the embeddings, 0 to 1; dropout by default."""
    norm_first: bool = False
    """Pre-norm instead of the paper's post-norm."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Kind of position encoding."""
    max_length: int | None = None
    """Number of learned positions; none for sinusoids."""
    tying: Literal["three-way", "two-way", "none"] = "three-way"
    """Which embeddings and logits share a matrix."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """How the model is trained."""

    tokens_per_batch: int = 25_000
    """Most tokens of a batch on each side, padding counted."""
    warmup_steps: int = 4_000
    """Updates until the learning rate is highest."""
    peak_learning_rate: float | None = None
    """Highest learning rate; by default the paper's, (d_model * warmup_steps) ** -0.5."""
    schedule: Literal["inverse-square-root", "cosine", "constant"] = "inverse-square-root"
    """Learning rate after the warm-up: the paper's decay, a cosine down to final_fraction, or no decay."""
    final_fraction: float = 0.0
    """Learning rate at the end of a cosine, as a share of the highest, 0 to 1."""
    label_smoothing: float = 0.1
    """Probability spread over all pieces, 0 to 1."""
    clip_norm: float | None = None
    """Largest norm of the gradient of all weights together; none by default, as in the paper."""
    max_skipped_steps: int | None = 20
    """Updates in a row that are skipped because gradients are not finite until training fails; None skips none."""
    micro_batches: int = 1
    """Parts that each batch is cut into to save memory; the update is that of the whole batch."""
    strategy: Literal["none", "mirrored", "multi-worker"] = "none"
    """One device; a replica of the model on each GPU of this machine; or on the machines that TF_CONFIG names, each of
    which runs the same command (see launch/). The replicas share each batch."""
    reduction: Literal["auto", "nccl", "ring", "hierarchical-copy", "one-device"] = "auto"
    """How gradients are added up over replicas: by default NCCL between GPUs, else rings. For mirrored also nccl,
    hierarchical-copy or one-device; for multi-worker nccl or ring."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Keras's dtype policy."""
    jit_compile: bool = False
    """Compile the training step with XLA: on each device once for each of batch_shapes, and once more for each where
    micro_batches do not divide a replica's rows evenly."""
    batch_shapes: int | None = None
    """Most shapes of training batches: 8 by default with jit_compile, else some dozens, with less padding."""
    seed: int = 0
    """Seed of initial weights, dropout and the order of batches."""
    init_from: Path | None = None
    """A trained model to begin with, for fine-tuning: run directory or export. Its tokenizer and its model's size are
    kept; of the flags of the model, those of dropout and precision count."""
    freeze: tuple[str, ...] = ()
    """Parts of the model that stay as they are: beginnings of the names of weights, such as encoder/."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
    """How the test set is translated, and what the export does."""

    beam_size: int = 4
    """Live hypotheses of the search that scores the test set and that is exported; 1 is greedy."""
    length_penalty: float = 0.6
    """Strength of the length penalty, alpha."""
    max_extra_tokens: int = 50
    """Longest translation, in tokens beyond the length of its source."""
    lowercase_bleu: bool = False
    """Score without regard to case, sacreBLEU's -lc, beside the cased score."""


# `RunSettings` has the rest: the length of the run, evaluations, checkpoints and the weights at the end.
GROUPS = {
    "run": Run,
    "text": Text,
    "tokens": Tokens,
    "model": Model,
    "training": Training,
    "evaluation": RunSettings,
    "decoding": Decoding,
}
Flags = dataclasses.make_dataclass("Flags", GROUPS.items(), frozen=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(*GROUPS.values()):
    """All flags together."""


MODEL_FIELDS = [field.name for field in dataclasses.fields(Model)]

# How each size is trained, where it departs from the paper's base model. Small models train for few steps, and with
# pre-norm they learn more in them.
SCHEDULES = {
    # Minutes on two cores. No dropout: the built-in corpus is read less than three times, too little to learn by heart.
    "demo": {
        **PRESETS["tiny"],
        "norm_first": True,
        "dropout": 0.0,
        "vocabulary_size": 4_000,
        "train_steps": 1_250,
        "average_checkpoints": 2,  # more would reach back to where it still learned fast
        "tokens_per_batch": 2_048,
        "warmup_steps": 250,
        "peak_learning_rate": 4e-3,
        "evaluation_steps": 250,
        "dev_bleu_sentences": 100,
        "max_sentence_tokens": 128,
    },
    "tiny": {
        "norm_first": True,
        "vocabulary_size": 8_000,
        "train_steps": 5_000,
        "tokens_per_batch": 4_096,
        "warmup_steps": 800,
        "peak_learning_rate": 3e-3,
        "evaluation_steps": 250,
        "dev_bleu_sentences": 200,
        "max_sentence_tokens": 128,
    },
    "small": {
        "vocabulary_size": 16_000,
        "train_steps": 20_000,
        "tokens_per_batch": 8_192,
        "evaluation_steps": 1_000,
    },
    "big": {"train_steps": 300_000, "average_checkpoints": 20, "checkpoints_to_keep": 20},
}


def preset_config(preset):
    """The defaults that a preset gives to the flags."""
    return Config(preset=preset, **PRESETS.get(preset, {}), **SCHEDULES.get(preset, {}))


def saved_config(directory):
    """The flags that the run in a directory was started with; without a run, those of the preset "demo"."""
    try:
        saved = json.loads((directory / CONFIG_FILE).read_text("utf-8"))
    except FileNotFoundError:
        return preset_config("demo")
    values = {}
    for field in dataclasses.fields(Config):
        value = saved.get(field.name)
        if isinstance(value, list):  # JSON has neither tuples nor paths
            value = tuple(value)
        elif isinstance(value, str) and Path in (field.type, *get_args(field.type)):
            value = Path(value)
        if field.name in saved:
            values[field.name] = value
    return dataclasses.replace(preset_config(saved.get("preset", "demo")), run_directory=directory, **values)


def in_groups(config):
    """The same flags as the command line has them."""
    return Flags(
        **{
            name: group(**{field.name: getattr(config, field.name) for field in dataclasses.fields(group)})
            for name, group in GROUPS.items()
        }
    )


def parse_config(arguments, description=None):
    """Read the flags; `--preset` is found first, since it decides what the defaults of the others are."""
    if "--version" in arguments:
        print(f"keras_transformer {kt.__version__}")
        sys.exit()
    values = {}
    for flag, following in itertools.pairwise([*arguments, ""]):
        name, _, value = flag.partition("=")
        values[name] = value or following
    directory = Path(values.get("--run-directory", Run.run_directory))
    preset = values.get("--preset", "tiny" if {"--source", "--dataset"} & set(values) else "demo")
    if preset != "demo" and preset not in PRESETS:
        preset = "demo"  # the command line will refuse it, with the list of those there are
    flags = tyro.cli(
        tyro.conf.OmitArgPrefixes[Flags],
        default=in_groups(saved_config(directory) if "--resume" in arguments else preset_config(preset)),
        args=arguments,
        description=description,
    )
    return Config(**{name: value for group in GROUPS for name, value in vars(getattr(flags, group)).items()})


def check_config(config):
    """Refuse flags that do not go together, before any long work.

    Raises:
        ValueError: naming the flag, the rule and the value.
        FileNotFoundError: if there is no trained model at `init_from`.
    """
    for first, second in (("source", "target"), ("dev_source", "dev_target"), ("test_source", "test_target")):
        if (getattr(config, first) is None) != (getattr(config, second) is None):
            raise ValueError(f"{first} and {second} go together. Received only one of them")
    if config.source is not None and config.dataset is not None:
        raise ValueError("source and target exclude dataset: choose where the training text comes from")
    if config.source is None and (config.dev_source or config.test_source) and config.dataset is None:
        raise ValueError("dev and test files need training text of the same kind: give source and target too")
    config.check()
    if config.vocabulary_size < 1:
        raise ValueError(f"vocabulary_size must be positive. Received: {config.vocabulary_size}")
    for name in ("clip_norm", "max_skipped_steps", "micro_batches", "batch_shapes"):
        if getattr(config, name) is not None and getattr(config, name) <= 0:
            raise ValueError(f"{name} must be positive. Received: {getattr(config, name)}")
    if config.reduction != "auto" and config.strategy == "none":
        raise ValueError(f"reduction needs a strategy with replicas. Received: reduction={config.reduction}")
    if config.checkpoint_seconds is not None and config.strategy == "multi-worker":
        raise ValueError(
            "checkpoint_seconds is not for several workers, which save at the same step: give checkpoint_steps. "
            f"Received: checkpoint_seconds={config.checkpoint_seconds}, strategy=multi-worker"
        )
    if not 0 <= config.final_fraction <= 1:
        raise ValueError(f"final_fraction must be between 0 and 1. Received: {config.final_fraction}")
    if config.final_fraction and config.schedule != "cosine":
        raise ValueError(f"final_fraction goes with a cosine. Received: schedule={config.schedule}")
    if config.schedule == "cosine" and config.warmup_steps >= config.train_steps:
        raise ValueError(
            "warmup_steps must be below train_steps for a cosine. "
            f"Received: warmup_steps={config.warmup_steps}, train_steps={config.train_steps}"
        )
    if config.init_from is not None:
        kt.Pretrained(config.init_from).load_tokenizer()  # raises if there is none
    if config.max_sentence_tokens > config.tokens_per_batch:
        raise ValueError(
            "tokens_per_batch must hold one sentence of max_sentence_tokens. "
            f"Received: tokens_per_batch={config.tokens_per_batch}, max_sentence_tokens={config.max_sentence_tokens}"
        )
    if (config.positions == "learned") != (config.max_length is not None):
        raise ValueError(
            "max_length goes with learned positions and with nothing else. "
            f"Received: positions={config.positions}, max_length={config.max_length}"
        )
    if config.max_length is not None and config.max_sentence_tokens > config.max_length:
        raise ValueError(
            "max_sentence_tokens must not exceed max_length, the number of learned positions. "
            f"Received: max_sentence_tokens={config.max_sentence_tokens}, max_length={config.max_length}"
        )


def describe(config):
    """The settings that make a run what it is, as JSON data."""
    return {
        name: list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
        for name, value in dataclasses.asdict(config).items()
        if name not in ("resume", "overwrite", "run_directory", "strategy", "reduction")
    }
