"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017) for TensorFlow and Keras 3.

The public names are one table, and each is imported when it is first asked for: `import keras_transformer` by itself
imports neither Keras nor TensorFlow. Its classes are known to Keras all the same, see `registration`.
"""

import importlib

from keras_transformer.registration import register_with_keras

__version__ = "0.1.0"

# Public name to the module that defines it, from text to export.
_HOMES = {
    # Text to batches
    "HeldOut": "data.corpora",
    "ParallelFiles": "data.corpora",
    "TfdsPairs": "data.corpora",
    "Tokenizer": "data.tokenizers",
    "TokenStore": "data.token_store",
    "Batches": "data.batches",
    # Layers and the model
    "Decoder": "layers.decoder",
    "DecoderLayer": "layers.decoder",
    "Dropout": "layers.position_wise",
    "Encoder": "layers.encoder",
    "EncoderLayer": "layers.encoder",
    "FeedForward": "layers.position_wise",
    "LayerNormalization": "layers.position_wise",
    "MultiHeadAttention": "layers.multi_head_attention",
    "PositionalEmbedding": "layers.positional_embedding",
    "Residual": "layers.position_wise",
    "Transformer": "transformer",
    "count_parameters": "parameter_count",
    # What `fit` is given
    "Adam": "training.optimizers",
    "ConstantSchedule": "training.optimizers",
    "CosineSchedule": "training.optimizers",
    "WarmupSchedule": "training.optimizers",
    "LabelSmoothedCrossEntropy": "training.losses",
    "PaddingShare": "training.metrics",
    "Perplexity": "training.metrics",
    "TokenAccuracy": "training.metrics",
    "TokenCount": "training.metrics",
    "TrainingModel": "training.distribution",
    "EarlyStopping": "training.early_stopping",
    "copy_weights": "training.fine_tuning",
    "freeze": "training.fine_tuning",
    "average_checkpoints": "training.checkpoint_average",
    "best_checkpoints": "training.checkpoint_average",
    # A run on disk
    "CheckpointEvery": "runs.checkpoints",
    "Checkpoints": "runs.checkpoints",
    "MetricsLog": "runs.callbacks",
    "TranslationScores": "runs.callbacks",
    "ResumeEpoch": "runs.resuming",
    "StopOnSignal": "runs.resuming",
    "TrainingInterrupted": "runs.resuming",
    "RunSettings": "runs.settings",
    "TrainingRun": "runs.training_run",
    "TensorBoardLog": "runs.tensorboard",
    # Text to text
    "BeamSearch": "decoding.beam_search",
    "Sampling": "decoding.sampling",
    "SearchResult": "decoding.search",
    "Ensemble": "translation.ensemble",
    "Hypothesis": "translation.translator",
    "TargetScore": "translation.translator",
    "Translator": "translation.translator",
    "Score": "translation.scores",
    "bleu": "translation.scores",
    "chrf": "translation.scores",
    # Out, and in again
    "Pretrained": "pretrained",
    "next_version": "saved_model.writer",
    "write_saved_model": "saved_model.writer",
    "write_ctranslate2": "formats.ctranslate2",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_HOMES})


register_with_keras()
