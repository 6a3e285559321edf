"""Label-smoothed cross-entropy over real tokens."""

import math

import keras
from keras import ops

# Below this probability the logarithm of a float32 softmax stops being trustworthy (it underflows near 1e-38).
_SMALLEST_TRUSTED_PROBABILITY = 1e-30

_REDUCTIONS = {"mean": "mean_with_sample_weight", "sum": "sum"}


def check_ignore_id(ignore_id):
    """Return `ignore_id` as a Python integer or None, and raise a `ValueError` for anything else."""
    if ignore_id is None:
        return None
    try:
        if isinstance(ignore_id, (bool, float)) or ignore_id != int(ignore_id):
            raise ValueError
        return int(ignore_id)
    except (TypeError, ValueError):
        raise ValueError(f"`ignore_id` must be an integer or None. Received: ignore_id={ignore_id!r}") from None


def token_weights(y_true, sample_weight, ignore_id):
    """Weight of every token, float32 of the shape of the integer labels `y_true`: 0 where the label is `ignore_id`.

    Raises:
        ValueError: when `sample_weight` does not have the leading axes of `y_true`.
    """
    labels = ops.convert_to_tensor(y_true)
    weights = ops.ones_like(labels, dtype="float32")
    if ignore_id is not None:
        weights = ops.cast(ops.not_equal(labels, ops.cast(ignore_id, labels.dtype)), "float32")
    if sample_weight is not None:
        sample_weight = ops.cast(ops.convert_to_tensor(sample_weight), "float32")
        if len(sample_weight.shape) > len(labels.shape):
            raise ValueError(
                "`sample_weight` must have the leading axes of `y_true`, for example [B] or [B, T]. "
                f"Received: sample_weight.shape={tuple(sample_weight.shape)}, y_true.shape={tuple(labels.shape)}"
            )
        while len(sample_weight.shape) < len(labels.shape):
            sample_weight = ops.expand_dims(sample_weight, -1)
        weights = weights * sample_weight
    return weights


def flatten_tokens(y_true, y_pred, sample_weight, ignore_id):
    """Bring one batch to one row a token.

    Args:
        y_true: integer labels `[..., T]`.
        y_pred: logits `[..., T, V]` of any float dtype.
        sample_weight: None, or weights whose axes are the leading axes of `y_true` (`[B]` or `[B, T]`).
        ignore_id: label of the positions that count for nothing, or None.

    Returns:
        `(labels [N], logits [N, V], weights [N])` as int32, float32 and float32. Ignored labels come back as 0, so that
        an `ignore_id` outside of the vocabulary is never looked up; their weight is 0. The logits carry no implicit
        Keras mask: a reshaped tensor is a new one.

    Raises:
        ValueError: when the shapes do not belong together.
    """
    labels = ops.convert_to_tensor(y_true)
    logits = ops.convert_to_tensor(y_pred)
    if len(labels.shape) + 1 != len(logits.shape):
        raise ValueError(
            "`y_true` must hold one integer label for each row of logits: shapes [..., T] and [..., T, V]. "
            f"Received: y_true.shape={tuple(labels.shape)}, y_pred.shape={tuple(logits.shape)}"
        )
    for labels_size, logits_size in zip(labels.shape, logits.shape[:-1], strict=True):
        if None not in (labels_size, logits_size) and labels_size != logits_size:
            raise ValueError(
                "`y_true` and `y_pred` must agree on every axis but the vocabulary. "
                f"Received: y_true.shape={tuple(labels.shape)}, y_pred.shape={tuple(logits.shape)}"
            )
    weights = token_weights(labels, sample_weight, ignore_id)
    if ignore_id is not None:
        real = ops.not_equal(labels, ops.cast(ignore_id, labels.dtype))
        labels = ops.where(real, labels, ops.zeros_like(labels))
    if len(logits.shape) != 2:  # flat already: loss and metrics then share one softmax in the graph
        logits = ops.reshape(logits, (-1, logits.shape[-1]))
    logits = ops.cast(logits, "float32")
    return ops.cast(ops.reshape(labels, (-1,)), "int32"), logits, ops.reshape(weights, (-1,))


def probabilities_and_cross_entropy(labels, logits):
    """Softmax of float32 logits `[N, V]`, and what the labels `[N]` pick from it.

    The cross-entropy is read off the softmax, because a second pass over `[N, V]` for the log-sum-exp costs as much as
    the softmax itself; that pass is made only for a batch that holds a label of almost no probability.

    Returns:
        `(probabilities [N, V], label_logits [N], cross_entropy [N])`.
    """
    indices = ops.expand_dims(labels, -1)
    probabilities = ops.softmax(logits)
    label_probabilities = ops.squeeze(ops.take_along_axis(probabilities, indices, axis=-1), -1)
    label_logits = ops.squeeze(ops.take_along_axis(logits, indices, axis=-1), -1)
    cross_entropy = ops.cond(
        ops.any(label_probabilities < _SMALLEST_TRUSTED_PROBABILITY),
        lambda: ops.logsumexp(logits, axis=-1) - label_logits,
        lambda: -ops.log(label_probabilities),
    )
    return probabilities, label_logits, cross_entropy


def _smoothed_cross_entropy(labels, logits, label_smoothing):
    """Loss of each token `[N]`, with a gradient that makes one tensor of the size of the logits in all.

    Left to automatic differentiation the same formula costs two to three times as much: the one-hot form has two more
    tensors of that size, the gathered form scatters into one full of zeros.
    """

    @ops.custom_gradient
    def loss_of(logits):
        probabilities, label_logits, losses = probabilities_and_cross_entropy(labels, logits)
        if label_smoothing:
            # lse - (1 - e) z_y - e mean(z)  =  (lse - z_y) + e (z_y - mean(z))
            losses = losses + label_smoothing * (label_logits - ops.mean(logits, axis=-1))

        def gradient(*args, upstream=None):
            if upstream is None:  # TensorFlow and JAX pass it by position, torch by name
                (upstream,) = args
            upstream_column = ops.expand_dims(upstream, -1)
            # First what needs `upstream`: then both can write over the probabilities, which the forward pass has read.
            result = probabilities * upstream_column
            if label_smoothing:
                result = result - (label_smoothing / logits.shape[-1]) * upstream_column
            rows = ops.arange(ops.shape(labels)[0], dtype="int32")
            # The label's own share is done on N entries, not on a one-hot tensor of N x V.
            return ops.scatter_update(
                result, ops.stack([rows, labels], axis=-1), -(1 - label_smoothing) * upstream, reduction="add"
            )

        return losses, gradient

    return loss_of(logits)


def _sum_over_replicas(values):
    """The number of replicas of the running `tf.distribute` strategy, and scalars summed over them.

    Outside of a replica (no strategy, or the whole batch in its scope) there is nothing to sum.
    """
    if keras.backend.backend() != "tensorflow":
        return 1, values
    import tensorflow as tf

    num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
    context = tf.distribute.get_replica_context()
    if num_replicas > 1 and context is not None:
        values = context.all_reduce(tf.distribute.ReduceOp.SUM, values)
    return num_replicas, values


@keras.saving.register_keras_serializable("keras_transformer")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy of integer labels with label smoothing, over real tokens only.

    For logits `z` and a label `y` among `V` classes, with `e = label_smoothing`, a token costs

        logsumexp(z) - (1 - e) * z[y] - e * mean(z)

    which is the cross-entropy against a target of `1 - e + e / V` on the label and `e / V` on every other class. It
    is computed in float32 whatever the dtype of the logits. No one-hot tensor is made: forward and backward together
    keep one tensor of the size of the logits.

    Every token has a weight: 0 where the label is `ignore_id`, else 1, times `sample_weight` where one is given. A
    `sample_weight` of shape `[B]` holds for all tokens of a row, one of shape `[B, T]` token by token. With
    `reduction="mean"` the loss is `sum(weight * cost) / sum(weight)`, so weights are relative: doubling all of them
    changes nothing, and padding changes nothing. A batch without a real token costs 0. With `reduction="sum"` it is
    `sum(weight * cost)`.

    Keras's implicit mask on the logits is not read: padding is told by the labels, once.

    Under `tf.distribute` each replica calls the loss on its own rows, and `"mean"` is exactly the loss of the global
    batch all the same: every replica gets the cost of all tokens of all replicas, divided by the weights of all of
    them, and the gradient of its own tokens' share in that. Replicas may hold any number of real tokens, also none,
    and `sample_weight` means what it means on one device. (As all of Keras's mean losses it comes divided by the
    number of replicas; Keras's steps expect that, and add up the gradients of the replicas.) `"sum"` is each replica's
    own sum; with weights that add up to 1 over the global batch it is the exact loss of that too.

    The gradient is given in closed form; second derivatives through it are not supported.

    Args:
        label_smoothing: the probability mass that is spread evenly over all V classes, in [0, 1). Defaults to 0.1
            (section 5.4 of the paper).
        ignore_id: label of the positions that count for nothing, any integer, or None. Defaults to 0, the padding.
        reduction: `"mean"` over the real tokens, or `"sum"`. Defaults to `"mean"`.
        name: optional name of the loss.

    Call arguments:
        y_true: integer labels `[B, T]` (any number of leading axes).
        y_pred: logits `[B, T, V]`, any float dtype.
        sample_weight: optional weights, `[B]` or `[B, T]`.

    Returns:
        A float32 scalar.

    Raises:
        ValueError: for arguments or shapes that break the rules above.

    Reference:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.4
        - [Szegedy et al., 2015](https://arxiv.org/abs/1512.00567), section 7
    """

    def __init__(
        self, *, label_smoothing=0.1, ignore_id=0, reduction="mean", name="label_smoothed_cross_entropy", dtype=None
    ):
        try:
            smoothing = float(label_smoothing)
        except (TypeError, ValueError):
            smoothing = math.nan
        if not 0 <= smoothing < 1:
            raise ValueError(
                f"`label_smoothing` must be a number in [0, 1). Received: label_smoothing={label_smoothing!r}"
            )
        if reduction not in _REDUCTIONS:
            raise ValueError(f'`reduction` must be "mean" or "sum". Received: reduction={reduction!r}')
        if dtype not in (None, "float32"):
            raise ValueError(f'`dtype` must be "float32": the loss is computed in it. Received: dtype={dtype!r}')
        super().__init__(name=name, reduction=_REDUCTIONS[reduction], dtype="float32")
        self.label_smoothing = smoothing
        self.ignore_id = check_ignore_id(ignore_id)

    def __call__(self, y_true, y_pred, sample_weight=None):
        total, weight = self._sums(y_true, y_pred, sample_weight)
        if self.reduction == "sum":
            return total
        num_replicas, (global_total, global_weight) = _sum_over_replicas([total, weight])
        if num_replicas == 1:
            return ops.divide_no_nan(total, weight)
        # Keras's steps divide no gradient by the number of replicas and multiply every loss that they report by it.
        value = ops.divide_no_nan(global_total, global_weight) / num_replicas
        share = ops.divide_no_nan(total, global_weight)
        # The value of the first, the gradient of the second: what others sum up depends on no weight of this replica.
        return ops.stop_gradient(value) + (share - ops.stop_gradient(share))

    def total(self, y_true, y_pred, sample_weight=None):
        """`sum(weight * cost)` of the tokens at hand, a float32 scalar: this replica's own, whatever the reduction."""
        return self._sums(y_true, y_pred, sample_weight)[0]

    def total_weight(self, y_true, sample_weight=None):
        """`sum(weight)` of the tokens at hand, a float32 scalar: the divisor of `"mean"` on one device."""
        return ops.sum(token_weights(y_true, sample_weight, self.ignore_id))

    def _sums(self, y_true, y_pred, sample_weight):
        with keras.name_scope(self.name):
            labels, logits, weights = flatten_tokens(y_true, y_pred, sample_weight, self.ignore_id)
            losses = self.call(labels, logits)
            # A weight of 0 silences the token even where its loss is not finite.
            return ops.sum(ops.where(weights != 0, losses * weights, 0.0)), ops.sum(weights)

    def call(self, y_true, y_pred):
        """Loss of every token, unweighted: labels `[..., T]` and logits `[..., T, V]` give float32 `[..., T]`."""
        labels, logits, _ = flatten_tokens(y_true, y_pred, None, None)
        losses = _smoothed_cross_entropy(labels, logits, self.label_smoothing)
        return ops.reshape(losses, ops.shape(y_true))

    def get_config(self):
        return {
            "name": self.name,
            "label_smoothing": self.label_smoothing,
            "ignore_id": self.ignore_id,
            "reduction": {value: key for key, value in _REDUCTIONS.items()}[self.reduction],
        }
