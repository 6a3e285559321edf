"""Metrics over real tokens. Each sums over tokens and divides once, so a batch counts by its tokens."""

import math

import keras
from keras import ops

from keras_transformer.training.losses import check_ignore_id, flatten_tokens, probabilities_and_cross_entropy


class _TokenMean(keras.metrics.Metric):
    """Weighted mean over tokens of the quantity that a subclass's `token_values(labels [N], logits [N, V])` gives."""

    def __init__(self, *, ignore_id=0, name=None, dtype=None):
        super().__init__(name=name, dtype="float32" if dtype is None else dtype)
        self.ignore_id = check_ignore_id(ignore_id)
        # Metric variables are summed over replicas when read, so both are plain sums.
        self.total = self.add_variable(shape=(), initializer="zeros", name="total")
        self.count = self.add_variable(shape=(), initializer="zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, logits, weights = flatten_tokens(y_true, y_pred, sample_weight, self.ignore_id)
        values = ops.cast(self.token_values(labels, logits), "float32")
        # A weight of 0 silences the token even where its value is not finite.
        values = ops.where(weights != 0, values * weights, ops.zeros_like(weights))
        self.total.assign_add(ops.cast(ops.sum(values), self.total.dtype))
        self.count.assign_add(ops.cast(ops.sum(weights), self.count.dtype))

    def result(self):
        return ops.divide_no_nan(self.total, self.count)

    def get_config(self):
        return {**super().get_config(), "ignore_id": self.ignore_id}


@keras.saving.register_keras_serializable("keras_transformer")
class TokenAccuracy(_TokenMean):
    """Share of real tokens whose label has the highest logit; a label that ties for it counts as right.

    Tokens are weighted as in `LabelSmoothedCrossEntropy`: 0 where the label is `ignore_id`, else `sample_weight` or 1.
    Batches count by their tokens; before the first real token the result is 0.

    Args:
        ignore_id: label of the positions that count for nothing, or None. Defaults to 0, the padding.
        name: defaults to `"token_accuracy"`.

    Call arguments (of `update_state`):
        y_true: integer labels `[B, T]`.
        y_pred: logits or probabilities `[B, T, V]`.
        sample_weight: optional weights, `[B]` or `[B, T]`.

    Returns (of `result`):
        A float32 scalar.
    """

    def __init__(self, *, ignore_id=0, name="token_accuracy", dtype=None):
        super().__init__(ignore_id=ignore_id, name=name, dtype=dtype)

    def token_values(self, labels, logits):
        # One pass for the maximum: an argmax costs several times as much, a tenth of a small model's step.
        label_logits = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)
        return ops.squeeze(label_logits, -1) >= ops.max(
            logits, axis=-1, initial=-math.inf
        )  # initial: no rows is no error


@keras.saving.register_keras_serializable("keras_transformer")
class Perplexity(_TokenMean):
    """Perplexity per token: the exponential of the mean cross-entropy of real tokens, without label smoothing.

    Tokens are weighted as in `LabelSmoothedCrossEntropy`: 0 where the label is `ignore_id`, else `sample_weight` or 1.
    The mean is taken over the tokens of all batches, then the exponential; before the first real token the result
    is 1. Perplexities compare only between models with the same pieces.

    Args:
        ignore_id: label of the positions that count for nothing, or None. Defaults to 0, the padding.
        name: defaults to `"perplexity"`.

    Call arguments (of `update_state`):
        y_true: integer labels `[B, T]`.
        y_pred: logits `[B, T, V]`.
        sample_weight: optional weights, `[B]` or `[B, T]`.

    Returns (of `result`):
        A float32 scalar.
    """

    def __init__(self, *, ignore_id=0, name="perplexity", dtype=None):
        super().__init__(ignore_id=ignore_id, name=name, dtype=dtype)

    def token_values(self, labels, logits):
        # The softmax is the one the loss makes: in a compiled step the graph optimizer keeps a single copy.
        return probabilities_and_cross_entropy(labels, logits)[2]

    def result(self):
        return ops.exp(super().result())


@keras.saving.register_keras_serializable("keras_transformer")
class TokenCount(keras.metrics.Metric):
    """Number of real target tokens seen: labels that are not `ignore_id`, whatever their weight.

    It costs nothing beside the step and needs no look into the input pipeline, also for an epoch that was resumed
    halfway. `MetricsLog` turns it into target tokens a second.

    Args:
        ignore_id: label of the positions that count for nothing, or None. Defaults to 0, the padding.
        name: defaults to `"target_tokens"`.
    """

    def __init__(self, *, ignore_id=0, name="target_tokens", dtype=None):
        super().__init__(name=name, dtype="float32" if dtype is None else dtype)
        self.ignore_id = check_ignore_id(ignore_id)
        self.count = self.add_variable(shape=(), initializer="zeros", name="count")

    def update_state(self, y_true, y_pred=None, sample_weight=None):
        labels = ops.convert_to_tensor(y_true)
        real = ops.ones_like(labels, dtype="bool")
        if self.ignore_id is not None:
            real = ops.not_equal(labels, ops.cast(self.ignore_id, labels.dtype))
        self.count.assign_add(ops.sum(ops.cast(real, self.count.dtype)))

    def result(self):
        return self.count + 0.0  # a copy: Keras keeps the result while validation goes on counting

    def get_config(self):
        return {**super().get_config(), "ignore_id": self.ignore_id}


@keras.saving.register_keras_serializable("keras_transformer")
class PaddingShare(TokenCount):
    """Share of the target positions seen that are padding: labels that are `ignore_id`, whatever their weight.

    It is what the batches that were trained on waste on the target side. Before the first position it is 0.

    Args:
        ignore_id: the label of padding, or None for no padding. Defaults to 0.
        name: defaults to `"target_padding_share"`.
    """

    def __init__(self, *, ignore_id=0, name="target_padding_share", dtype=None):
        super().__init__(ignore_id=ignore_id, name=name, dtype=dtype)
        # Metric variables are summed over replicas when read, so this is a plain sum too.
        self.positions = self.add_variable(shape=(), initializer="zeros", name="positions")

    def update_state(self, y_true, y_pred=None, sample_weight=None):
        super().update_state(y_true, y_pred, sample_weight)
        self.positions.assign_add(ops.cast(ops.size(y_true), self.positions.dtype))

    def result(self):
        return ops.divide_no_nan(self.positions - self.count, self.positions)
