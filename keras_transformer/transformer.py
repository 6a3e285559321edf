"""The Transformer: a functional Keras model from ids to logits, and the same layers step by step."""

import inspect

import keras
from keras import ops

from keras_transformer.keras_internals import batch_specification, builds_without_reading, has_own_strategy
from keras_transformer.layers import Decoder, DecoderLayer, Encoder, EncoderLayer, PositionalEmbedding
from keras_transformer.layers.encoder import TransformerLayer
from keras_transformer.masks import padding_mask
from keras_transformer.presets import preset_arguments

TYINGS = ("three-way", "two-way", "none")
_LAYER_ARGUMENTS = [*list(inspect.signature(TransformerLayer).parameters)[:-1], "dtype"]  # without its `kwargs`


def _batches_under_strategy(model, iterator):
    return batch_specification(iterator) if iterator is not None and has_own_strategy(model) else None


@builds_without_reading(_batches_under_strategy)
@keras.saving.register_keras_serializable("keras_transformer")
class Transformer(keras.Model):
    """The encoder-decoder of "Attention Is All You Need", https://arxiv.org/abs/1706.03762.

    A functional `keras.Model`: `compile`, `fit`, `save` and load it as any other. Id 0 is padding in both inputs;
    masks are made from the ids, once, by the embeddings. All defaults are the paper's base model.

    Shapes: B batch, S source positions, T target positions, V target vocabulary, D d_model.

    Args:
        source_vocabulary_size: number of source ids.
        target_vocabulary_size: number of target ids. Defaults to `source_vocabulary_size`.
        num_encoder_layers: depth of the encoder. Defaults to 6.
        num_decoder_layers: depth of the decoder. Defaults to 6.
        d_model: width D of embeddings and of every sub-layer's output. Defaults to 512.
        num_heads, feed_forward_dim: as for `TransformerLayer`. Default to 8 and 2048.
        key_dim, value_dim, activation, dropout, attention_dropout, activation_dropout, norm_first,
            use_attention_bias, layer_norm_epsilon: as for `TransformerLayer`, with its defaults.
        embedding_dropout: share dropped from the sums of embedding and position. Defaults to `dropout`, as in the
            paper (section 5.4).
        positions: `"sinusoidal"` (default) or `"learned"`; see `PositionalEmbedding`.
        max_length: number of learned positions, for both sides.
        tying: `"three-way"` (default, the paper): one matrix embeds source and target and gives the logits;
            `"two-way"`: target embedding and logits share one; `"none"`: three matrices.
        dtype, name, trainable: as for any Keras layer.

    Call arguments:
        inputs: mapping with `"source_ids"` int32 [B, S] and `"target_ids"` int32 [B, T], the target shifted right
            by one (it begins with the start id).
        training: whether to drop.

    Returns:
        float32 logits [B, T, V].

    Raises:
        ValueError: if a size is not positive, `d_model` is not divisible by `num_heads` while `key_dim` is unset,
            `tying` is unknown, or `"three-way"` tying meets unequal vocabularies.
    """

    def __init__(
        self,
        source_vocabulary_size,
        target_vocabulary_size=None,
        num_encoder_layers=6,
        num_decoder_layers=6,
        d_model=512,
        num_heads=8,
        feed_forward_dim=2048,
        key_dim=None,
        value_dim=None,
        activation="relu",
        dropout=0.1,
        attention_dropout=0.0,
        activation_dropout=0.0,
        embedding_dropout=None,
        norm_first=False,
        use_attention_bias=False,
        layer_norm_epsilon=1e-6,
        positions="sinusoidal",
        max_length=None,
        tying="three-way",
        dtype=None,
        name="transformer",
        trainable=True,
    ):
        # The arguments are the configuration.
        config = {name: value for name, value in locals().items() if name not in ("self", "__class__", "trainable")}
        config["target_vocabulary_size"] = target_vocabulary_size or source_vocabulary_size
        _check_tying(tying, source_vocabulary_size, config["target_vocabulary_size"])

        # === Layers ===
        layer_arguments = {name: config[name] for name in _LAYER_ARGUMENTS}
        source_embedding, target_embedding = _embeddings(config)
        encoder = Encoder(EncoderLayer(**layer_arguments), num_encoder_layers, dtype=dtype, name="encoder")
        decoder = Decoder(DecoderLayer(**layer_arguments), num_decoder_layers, dtype=dtype, name="decoder")
        output_dense, output_cast = _outputs(config)

        # === Functional graph: the embeddings make the masks, from the ids, and they travel on with the vectors ===
        source_ids = keras.Input((None,), dtype="int32", name="source_ids")
        target_ids = keras.Input((None,), dtype="int32", name="target_ids")
        outputs = decoder(target_embedding(target_ids), encoder(source_embedding(source_ids)))
        super().__init__(
            inputs={"source_ids": source_ids, "target_ids": target_ids},
            outputs=_logits(outputs, target_embedding, output_dense, output_cast),
            name=name,
            trainable=trainable,
        )
        self.dtype_policy = encoder.dtype_policy  # tells `compile` whether the loss must be scaled

        # === Config ===
        self.source_embedding, self.target_embedding = source_embedding, target_embedding
        self.encoder, self.decoder = encoder, decoder
        self.output_dense, self.output_cast = output_dense, output_cast
        self.max_length, self.num_decoder_layers = max_length, num_decoder_layers
        self._config = {
            **config,
            "activation": keras.activations.serialize(keras.activations.get(activation)),
            "dtype": keras.dtype_policies.serialize(encoder.dtype_policy),
        }

    @classmethod
    def from_preset(cls, preset, source_vocabulary_size, **overrides):
        """Build an untrained model of a size from the paper.

        Args:
            preset: `"tiny"`, `"small"`, `"base"`, `"big"`, or a row of Table 3; see `presets.PRESETS`.
            source_vocabulary_size: number of source ids.
            overrides: any argument of the constructor; it wins over the preset.

        Raises:
            ValueError: if there is no such preset.
        """
        return cls(source_vocabulary_size, **{**preset_arguments(preset), **overrides})

    def encode(self, source_ids):
        """Run the encoder, without dropout.

        Args:
            source_ids: int32 [B, S].

        Returns:
            The memory [B, S, D] and the mask of its real tokens, boolean [B, S].
        """
        vectors = self.source_embedding(source_ids, training=False)
        return self.encoder(vectors, training=False), padding_mask(source_ids)

    def start_decoding(self, memory, num_positions, num_hypotheses=None):
        """Prepare what `decode_step` needs: the projected memory and an empty cache.

        Args:
            memory: the encoder's output [B, S, D].
            num_positions: integer, the number of target positions that the cache has room for.
            num_hypotheses: number K of hypotheses that each row has, static; `None` (default) for one, without
                `ancestry`.

        Returns:
            `(projected_memory, cache)`: the keys and values of cross-attention, computed once and shared by all
            hypotheses of a row, and a cache for self-attention: for each layer a mapping with `"key"` and `"value"`,
            [B, H, L, d] or [B, H, L, K, d].
        """
        batch_size = ops.shape(memory)[0]
        cache = self.decoder.start_cache(batch_size, num_positions, num_hypotheses)
        return self.decoder.project_memory(memory), cache

    def decode_step(
        self,
        target_ids,
        projected_memory,
        memory_mask,
        cache,
        cache_index,
        ancestry=None,
        return_attention_scores=False,
    ):
        """Run the decoder on the next positions only, without dropout.

        Args:
            target_ids: int32 [B, t], the ids at positions `cache_index` to `cache_index` + t - 1; usually t = 1.
            projected_memory: from `start_decoding`.
            memory_mask: boolean [B, S], from `encode`.
            cache: from `start_decoding` or from the step before.
            cache_index: integer, the number of positions decoded so far.
            ancestry: for K hypotheses a row, int32 [B, K, L] with L the positions of the cache: the slot that
                hypothesis k was in at each position so far, this one included, and -1 at those to come.
                `target_ids` [B, K] are then the hypotheses' ids at the one position `cache_index`.
            return_attention_scores: whether to return the attention to the source too.

        Returns:
            `(logits, cache)`: float32 logits [B, t, V], equal to the full forward pass at these positions, and the
            new cache. If asked for, then the last layer's attention, the mean of its heads, float32 [B, t, S].
        """
        if ancestry is None:
            mask = None
            vectors = self.target_embedding(target_ids, start_index=cache_index, training=False)
        else:
            num_hypotheses = target_ids.shape[1]
            vectors = self.target_embedding(ops.reshape(target_ids, (-1, 1)), start_index=cache_index, training=False)
            vectors = ops.reshape(vectors, (-1, num_hypotheses, vectors.shape[-1]))  # [B, K, D]
            mask = ancestry[..., None] == ops.arange(num_hypotheses, dtype="int32")  # [B, K, L, K]
            mask = ops.reshape(mask, (-1, num_hypotheses, ops.shape(ancestry)[2] * num_hypotheses))
        outputs, *scores, cache = self.decoder(
            vectors,
            projected_memory,
            inputs_mask=mask,
            memory_mask=memory_mask,
            cache=cache,
            cache_index=cache_index,
            return_attention_scores=return_attention_scores,
            training=False,
        )
        logits = _logits(outputs, self.target_embedding, self.output_dense, self.output_cast)
        return (logits, cache, ops.mean(scores[0][-1], axis=1)) if scores else (logits, cache)

    def cross_attention(self, inputs, layer):
        """Look up what a decoder layer attends to in the source at each target position.

        Args:
            inputs: as for the call: at position t, the layer attends to what the token after t is made from.
            layer: number of the decoder layer; negative ones count from the last.

        Returns:
            float32 weights [B, H, T, S]. Padded source positions get none; the rows of padded targets mean nothing.
        """
        memory, _ = self.encode(inputs["source_ids"])
        vectors = self.target_embedding(inputs["target_ids"], training=False)
        _, scores = self.decoder(vectors, memory, return_attention_scores=True, training=False)
        return scores[layer]

    def get_config(self):
        return {**self._config, "trainable": self.trainable}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def _check_tying(tying, source_vocabulary_size, target_vocabulary_size):
    if tying not in TYINGS:
        raise ValueError(f"`tying` must be one of {TYINGS}. Received: tying={tying!r}")
    if tying == "three-way" and source_vocabulary_size != target_vocabulary_size:
        raise ValueError(
            "`tying='three-way'` shares one matrix, so both vocabularies must have one size. Received: "
            f"source_vocabulary_size={source_vocabulary_size}, target_vocabulary_size={target_vocabulary_size}"
        )


def _embeddings(config):
    """The embeddings of source and target: one layer if all three matrices are one."""

    def embedding(side, name):
        return PositionalEmbedding(
            config[f"{side}_vocabulary_size"],
            config["d_model"],
            positions=config["positions"],
            max_length=config["max_length"],
            dropout=config["dropout"] if config["embedding_dropout"] is None else config["embedding_dropout"],
            dtype=config["dtype"],
            name=name,
        )

    if config["tying"] == "three-way":
        return (embedding("source", "embedding"),) * 2
    return embedding("source", "source_embedding"), embedding("target", "target_embedding")


def _outputs(config):
    """The layers that make logits of vectors, None where the target embedding does."""
    if config["tying"] != "none":
        return None, None
    dense = keras.layers.Dense(config["target_vocabulary_size"], use_bias=False, dtype=config["dtype"], name="logits")
    # A layer, because `ops.cast` would lose the mask that the logits carry.
    return dense, keras.layers.Activation("linear", dtype="float32", name="float32_logits")


def _logits(outputs, target_embedding, output_dense, output_cast):
    if output_dense is None:
        return target_embedding(outputs, reverse=True)
    return output_cast(output_dense(outputs))
