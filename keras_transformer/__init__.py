"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017) for TensorFlow and Keras 3.

Everything here runs on any Keras backend but `Tokenizer` and `Translator`, which are TensorFlow's and are imported when
they are first used.
"""

from keras_transformer.layers import (
    Decoder,
    DecoderLayer,
    Dropout,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PositionalEmbedding,
    Residual,
)
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy, TokenCount
from keras_transformer.training.optimizers import Adam
from keras_transformer.training.schedules import WarmupSchedule
from keras_transformer.transformer import Transformer

__version__ = "0.1.0"

__all__ = [
    "Adam",
    "BeamSearch",
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "Ensemble",
    "FeedForward",
    "LabelSmoothedCrossEntropy",
    "MultiHeadAttention",
    "Perplexity",
    "PositionalEmbedding",
    "Residual",
    "Sampling",
    "TokenAccuracy",
    "TokenCount",
    "Tokenizer",
    "Transformer",
    "Translator",
    "WarmupSchedule",
]


def __getattr__(name):
    if name in ("BeamSearch", "Sampling"):
        from keras_transformer import decoding

        return getattr(decoding, name)
    if name == "Ensemble":
        from keras_transformer.translation.ensemble import Ensemble

        return Ensemble
    if name == "Tokenizer":
        from keras_transformer.data.tokenizers import Tokenizer

        return Tokenizer
    if name == "Translator":
        from keras_transformer.translation.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
