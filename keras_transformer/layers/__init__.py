"""The layers of the paper; each behaves as any Keras layer."""

from keras_transformer.layers.decoder import Decoder, DecoderLayer
from keras_transformer.layers.encoder import Encoder, EncoderLayer
from keras_transformer.layers.multi_head_attention import MultiHeadAttention
from keras_transformer.layers.position_wise import Dropout, FeedForward, LayerNormalization, Residual
from keras_transformer.layers.positional_embedding import PositionalEmbedding

__all__ = [
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "LayerNormalization",
    "MultiHeadAttention",
    "PositionalEmbedding",
    "Residual",
]
