"""The decoder and its layer."""

import keras
from keras import ops

from keras_transformer.layers.encoder import Stack, TransformerLayer, split_mask
from keras_transformer.masks import causal_mask


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderLayer(TransformerLayer):
    """Causal self-attention, attention to the memory, a feed-forward network (paper, section 3.1).

    The constructor is that of `TransformerLayer`: `num_heads`, `feed_forward_dim`, and the rest by keyword.

    Shapes: B batch, T target positions, S source positions, D width (d_model).

    Call arguments:
        inputs: tensor [B, T, D].
        memory: the encoder's output [B, S, D'], or what `project_memory` made of it.
        inputs_mask: real target tokens [B, T], or for each query [B, T, T], True = may be attended to; the causal
            mask is always added. Keras fills it in from an implicit mask of `inputs`; an explicit argument wins.
            With a cache of length L it may be [B, T, L], the cached positions that each query attends to, and then
            stands in place of the causal mask.
        memory_mask: real source tokens [B, S], or for each query [B, T, S]; likewise.
        cache: keys and values of earlier positions, as `start_cache` makes them. `inputs` are then the positions
            from `cache_index` on.
        cache_index: integer, the position of the first of `inputs`. Required with `cache`.
        return_attention_scores: whether to return the weights of the attention to the memory too.
        training: whether to drop.

    Returns:
        A tensor [B, T, D]; then, if asked for, the weights [B, H, T, S]; then, with a cache, the new cache.

    Raises:
        ValueError: on a bad size; D must be divisible by `num_heads` unless `key_dim` is given.
    """

    def build(self, inputs_shape, memory_shape):
        self._build_attention("self_attention", inputs_shape, inputs_shape)
        self._build_attention("cross_attention", inputs_shape, memory_shape)
        self._build_feed_forward(inputs_shape)

    def call(
        self,
        inputs,
        memory,
        inputs_mask=None,
        memory_mask=None,
        cache=None,
        cache_index=None,
        return_attention_scores=False,
        training=None,
    ):
        target_mask, self_attention_mask = split_mask(inputs_mask)
        source_mask, cross_attention_mask = split_mask(memory_mask)

        def attend_to_self(x):
            return self.self_attention(
                x,
                x,
                value_mask=target_mask,
                attention_mask=self_attention_mask,
                use_causal_mask=cache is None or self_attention_mask is None,
                cache=cache,
                cache_index=cache_index,
                training=training,
            )

        def attend_to_memory(x):
            return self.cross_attention(
                x,
                memory,
                value_mask=source_mask,
                attention_mask=cross_attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
            )

        def feed_forward(x):
            return self.feed_forward(x, training=training)

        outputs = self.self_attention_residual(inputs, sublayer=attend_to_self, training=training)
        extras = []
        if cache is not None:
            outputs, cache = outputs
            extras = [cache]
        outputs = self.cross_attention_residual(outputs, sublayer=attend_to_memory, training=training)
        if return_attention_scores:
            outputs, scores = outputs
            extras = [scores, *extras]
        outputs = self.feed_forward_residual(outputs, sublayer=feed_forward, training=training)
        return (outputs, *extras) if extras else outputs

    def project_memory(self, memory):
        """Project the memory's keys and values once for all steps; `call` takes the result as `memory`."""
        return self.cross_attention.project(memory)

    def start_cache(self, batch_size, num_positions, num_hypotheses=None):
        """Make an empty cache for so many positions of `batch_size` rows, or of `num_hypotheses` hypotheses each."""
        return self.self_attention.start_cache(batch_size, num_positions, num_hypotheses)


@keras.saving.register_keras_serializable("keras_transformer")
class Decoder(Stack):
    """A stack of `num_layers` decoder layers (paper, section 3.1).

    Args:
        layer: an unbuilt `DecoderLayer`, the pattern of them all. A pre-norm stack ends in one more norm, a post-norm
            stack does not.
        num_layers: number of layers, N in the paper (6 in its base model).

    Call arguments:
        inputs: tensor [B, T, D], embedded tokens, shifted right by one.
        memory: the encoder's output [B, S, D'], or what `project_memory` made of it.
        inputs_mask, memory_mask: as for `DecoderLayer`.
        cache: list of one cache a layer, as `start_cache` makes it.
        cache_index: integer, the position of the first of `inputs`. Required with `cache`.
        return_attention_scores: whether to return the weights of every layer's attention to the memory too.
        training: whether to drop.

    Returns:
        A tensor [B, T, D]; then, if asked for, the list of the layers' weights [B, H, T, S], the first layer's first;
        then, with a cache, the new cache.
    """

    def build(self, inputs_shape, memory_shape):
        super().build(inputs_shape, memory_shape)

    def call(
        self,
        inputs,
        memory,
        inputs_mask=None,
        memory_mask=None,
        cache=None,
        cache_index=None,
        return_attention_scores=False,
        training=None,
    ):
        outputs, scores, new_cache = inputs, [], []
        if cache is not None and cache_index is not None and split_mask(inputs_mask)[1] is None:
            # Once for all layers.
            inputs_mask = causal_mask(ops.shape(inputs)[1], ops.shape(cache[0]["key"])[2], cache_index)
        for index, layer in enumerate(self.layers):
            outputs = layer(
                outputs,
                memory[index] if isinstance(memory, list) else memory,
                inputs_mask=inputs_mask,
                memory_mask=memory_mask,
                cache=None if cache is None else cache[index],
                cache_index=cache_index,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            if cache is not None:
                *outputs, layer_cache = outputs
                new_cache.append(layer_cache)
            if return_attention_scores:
                *outputs, layer_scores = outputs
                scores.append(layer_scores)
            if isinstance(outputs, list):
                (outputs,) = outputs
        if self.norm_first:
            outputs = self.final_norm(outputs)
        extras = ([scores] if return_attention_scores else []) + ([new_cache] if cache is not None else [])
        return (outputs, *extras) if extras else outputs

    def project_memory(self, memory):
        """Project the memory's keys and values once for all steps, a mapping a layer."""
        return [layer.project_memory(memory) for layer in self.layers]

    def start_cache(self, batch_size, num_positions, num_hypotheses=None):
        """Make the empty caches of the layers, see `DecoderLayer`."""
        return [layer.start_cache(batch_size, num_positions, num_hypotheses) for layer in self.layers]
