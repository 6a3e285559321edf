"""Several models that decode as one."""

import math
from collections.abc import Sequence

from keras import ops


class Ensemble:
    """Models with one vocabulary whose probabilities are averaged at every step.

    It has what `Translator` asks of a `Transformer`: `encode`, `start_decoding`, `decode_step`, `cross_attention`,
    `variables` and the call. Its logits are the logarithms of the mean of the models' probabilities, so each model
    counts alike, however sure it is.

    Args:
        models: list of at least two `Transformer`s. They may differ in all but their vocabularies.

    Raises:
        ValueError: if there are fewer than two models, or their vocabularies differ.
    """

    def __init__(self, models: Sequence):
        self.models = list(models)
        if len(self.models) < 2:
            raise ValueError(f"`models` must hold at least two models. Received: {len(self.models)}")
        sizes = [model.output_shape[-1] for model in self.models]
        if len(set(sizes)) > 1:
            raise ValueError(f"`models` must have one vocabulary. Received: vocabularies of sizes {sizes}")
        self.output_shape = self.models[0].output_shape
        limits = [model.max_length for model in self.models if model.max_length is not None]
        self.max_length = min(limits, default=None)
        self.num_decoder_layers = min(model.num_decoder_layers for model in self.models)

    @property
    def variables(self):
        """The variables of all models."""
        return [variable for model in self.models for variable in model.variables]

    def __call__(self, inputs, training=False):
        """As the call of a `Transformer`: log-probabilities [B, T, V]."""
        return _mean_of_probabilities([model(inputs, training=training) for model in self.models])

    def encode(self, source_ids):
        """As `Transformer.encode`, with a list of memories, one a model."""
        encoded = [model.encode(source_ids) for model in self.models]
        return [memory for memory, _ in encoded], encoded[0][1]

    def start_decoding(self, memory, num_positions, num_hypotheses=None):
        """As `Transformer.start_decoding`, with lists, one entry a model."""
        started = [
            model.start_decoding(own, num_positions, num_hypotheses)
            for model, own in zip(self.models, memory, strict=True)
        ]
        return [projected for projected, _ in started], [cache for _, cache in started]

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
        """As `Transformer.decode_step`."""
        steps = [
            model.decode_step(
                target_ids, own_memory, memory_mask, own_cache, cache_index, ancestry, return_attention_scores
            )
            for model, own_memory, own_cache in zip(self.models, projected_memory, cache, strict=True)
        ]
        outputs = [_mean_of_probabilities([step[0] for step in steps]), [step[1] for step in steps]]
        if return_attention_scores:
            outputs.append(sum(step[2] for step in steps) / len(steps))
        return tuple(outputs)

    def cross_attention(self, inputs, layer):
        """As `Transformer.cross_attention`, with the heads of all models side by side."""
        return ops.concatenate([model.cross_attention(inputs, layer) for model in self.models], axis=1)


def _mean_of_probabilities(logits):
    """Logarithm of the mean of the probabilities, [B, T, V]."""
    log_probabilities = ops.stack([ops.log_softmax(one, axis=-1) for one in logits])
    return ops.logsumexp(log_probabilities, axis=0) - math.log(len(logits))
