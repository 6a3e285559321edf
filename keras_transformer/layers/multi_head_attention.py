"""Multi-head scaled dot-product attention with an optional key/value cache."""

import keras
import numpy as np
from keras import ops

from keras_transformer.layers.position_wise import Dropout, as_rows
from keras_transformer.masks import causal_mask

# Added to the float32 scores of masked positions: finite, and far enough below any score that exp() gives exactly 0.
_MASKED_SCORE = -1e9

# A decoding step has few queries, static in number. TensorFlow's own operations take longer to set up than such small
# computations last, so they get simpler ones.
_FEW_QUERIES = 8


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Attention of `num_heads` heads over projected queries, keys and values (paper, section 3.2).

    Each head computes `softmax(Q K^T / sqrt(d_k)) V`; the heads are concatenated and projected. Scores and softmax
    are float32 in every precision policy. The call follows `keras.layers.MultiHeadAttention`: masks are boolean (or
    0/1 numbers) and **True means "may attend"**. A query with nothing to attend to gets zero weights and a zero
    weighted sum, never NaN.

    Shapes: B batch, T query positions, S key positions, D widths of the inputs, H heads.

    Args:
        num_heads: number of heads, h in the paper.
        key_dim: width of queries and keys per head, d_k. Defaults to the query's width / `num_heads`.
        value_dim: width of values per head, d_v. Defaults to `key_dim`.
        output_dim: width of the output. Defaults to the query's width.
        dropout: share of the attention weights dropped while training. Defaults to 0, as in the paper.
        use_bias: whether the four projections add a bias. Defaults to `False`, as in the paper.
        kernel_initializer: initializer of the four kernels. Defaults to `"glorot_uniform"`.

    Call arguments:
        query: tensor [B, T, D].
        value: tensor [B, S, D], or what `project` returned for one.
        key: tensor [B, S, D]. Defaults to `value`.
        query_mask: [B, T], passed on to the next layer; it changes no weight.
        value_mask: [B, S], the values that may be attended to. Keras fills it in when `value` carries an implicit
            mask; an explicit argument wins.
        key_mask: [B, S], likewise for `key`.
        attention_mask: [B, T, S] or [B, 1 or H, T, S]; combined with the other masks by logical and. With a cache, S
            is its length L.
        use_causal_mask: whether position t sees only positions up to t. With a cache, t counts from `cache_index`.
        cache: mapping with `"key"` [B, H, L, d_k] and `"value"` [B, H, L, d_v], as made by `start_cache`. The keys
            and values of this call are written at `cache_index` and the queries attend to the cache; positions after
            the last one written must be masked, by `use_causal_mask=True` or by `attention_mask`, and each query's own
            position must not be. `value_mask` and `key_mask` do not apply: every position written counts as real. A
            cache [B, H, L, K, d] is for K
            hypotheses a row: the T = K queries are then all at position `cache_index`, and S is L * K, position by
            position, so that `attention_mask` says which slots a hypothesis descends from.
        cache_index: integer, the position of the first query. Required with `cache`.
        return_attention_scores: whether to return the weights too.
        training: whether to drop weights.

    Returns:
        A tensor [B, T, output_dim]; then, if asked for, the weights [B, H, T, S] (before dropout); then, if a cache
        was given, the new cache.

    Raises:
        ValueError: if a size is not positive, the query's width is not divisible by `num_heads` while `key_dim` is
            unset, a mask has the wrong rank or length, `cache` comes without `cache_index`, or a write does not fit the
            cache (seen only where its index and lengths are Python integers).
    """

    def __init__(
        self,
        num_heads,
        key_dim=None,
        value_dim=None,
        output_dim=None,
        dropout=0.0,
        use_bias=False,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        sizes = {"num_heads": num_heads, "key_dim": key_dim, "value_dim": value_dim, "output_dim": output_dim}
        for name, size in sizes.items():
            if size is not None and size < 1:
                raise ValueError(f"`{name}` must be positive. Received: {name}={size}")
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.output_dim = output_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

    def build(self, query_shape, value_shape, key_shape=None):
        query_dim = query_shape[-1]
        if self.key_dim is None and query_dim % self.num_heads:
            raise ValueError(
                "The query's width `d_model` must be divisible by `num_heads` unless `key_dim` is given. "
                f"Received: d_model={query_dim}, num_heads={self.num_heads}"
            )
        self._key_dim = self.key_dim or query_dim // self.num_heads
        self._value_dim = self.value_dim or self._key_dim
        key_shape = value_shape if key_shape is None else key_shape
        heads_shape = (*query_shape[:-1], self.num_heads * self._value_dim)
        self.query_projection = self._projection("query", self.num_heads * self._key_dim, query_shape)
        self.key_projection = self._projection("key", self.num_heads * self._key_dim, key_shape)
        self.value_projection = self._projection("value", self.num_heads * self._value_dim, value_shape)
        self.output_projection = self._projection("output", self.output_dim or query_dim, heads_shape)
        self.weights_dropout = Dropout(self.dropout, dtype=self.dtype_policy, name="weights_dropout")

    def _projection(self, name, units, input_shape):
        dense = keras.layers.Dense(
            units,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )
        dense.build(input_shape)
        return dense

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        cache=None,
        cache_index=None,
        return_attention_scores=False,
        training=None,
    ):
        if cache is not None and cache_index is None:
            raise ValueError("`cache` needs `cache_index`, the position of the first query. Received: None")
        queries = self._split_heads(self.query_projection, query, self._key_dim)  # [B, H, T, d_k]
        projected = value if isinstance(value, dict) else self.project(value, key)
        if isinstance(value_mask, dict):
            value_mask = None  # Keras fills in a mapping of None for a projected value
        if cache is not None:
            # The length is asked of the mask, which all layers share, so that a graph optimizer sees that they
            # compute the same positions.
            length = ops.shape(cache["key"])[2] if attention_mask is None else ops.shape(attention_mask)[-1]
            cache = {name: _write(cache[name], projected[name], cache_index, length) for name in ("key", "value")}
            projected = {name: _join_slots(cached) for name, cached in cache.items()}
            value_mask = key_mask = None  # they cover this call's positions, not the cache's

        num_keys = projected["key"].shape[2]
        mask = _combine_masks(num_keys, value_mask=value_mask, key_mask=key_mask, attention_mask=attention_mask)
        if use_causal_mask:
            start = 0 if cache is None else cache_index
            causal = causal_mask(ops.shape(queries)[2], ops.shape(projected["key"])[2], start)[:, None]  # [1, 1, T, S]
            mask = causal if mask is None else ops.logical_and(mask, causal)

        # With a cache, a query always attends to its own position.
        may_be_blind = mask is not None and cache is None
        attended, weights = self._attend(queries, projected["key"], projected["value"], mask, may_be_blind, training)
        outputs = [self._join_heads(attended)]  # [B, T, output_dim]
        if return_attention_scores:
            outputs.append(weights if mask is None else ops.where(mask, weights, 0.0))
        if cache is not None:
            outputs.append(cache)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def project(self, value, key=None):
        """Project keys and values once, to attend to them many times.

        Args:
            value: tensor [B, S, D].
            key: tensor [B, S, D]. Defaults to `value`.

        Returns:
            Mapping with `"key"` [B, H, S, d_k] and `"value"` [B, H, S, d_v]; `call` takes it as `value`.
        """
        return {
            "key": self._split_heads(self.key_projection, value if key is None else key, self._key_dim),
            "value": self._split_heads(self.value_projection, value, self._value_dim),
        }

    def start_cache(self, batch_size, num_positions, num_hypotheses=None):
        """Make an empty cache for `num_positions` positions of `batch_size` rows, or of so many hypotheses a row."""
        slots = () if num_hypotheses is None else (num_hypotheses,)

        def empty(width):
            return ops.zeros((batch_size, self.num_heads, num_positions, *slots, width), dtype=self.compute_dtype)

        return {"key": empty(self._key_dim), "value": empty(self._value_dim)}

    def _attend(self, queries, keys, values, mask, may_be_blind, training):
        queries = queries * ops.cast(self._key_dim**-0.5, queries.dtype)
        scores = ops.matmul(queries, ops.swapaxes(keys, 2, 3))  # [B, H, T, S]
        scores = ops.cast(scores, "float32")
        if mask is not None:
            scores = scores + ops.where(mask, 0.0, _MASKED_SCORE)
        weights = _softmax(scores)
        dropped = self.weights_dropout(ops.cast(weights, values.dtype), training=training)
        attended = ops.matmul(dropped, values)  # [B, H, T, d_v]
        if may_be_blind:
            # The softmax of a fully masked row is uniform; such a row has attended to nothing.
            attended = ops.where(ops.any(mask, axis=-1, keepdims=True), attended, 0.0)
        return attended, weights

    def _split_heads(self, projection, x, width):
        rows, length = projection(as_rows(x)), ops.shape(x)[1]  # [B * T, H * d]
        x = ops.reshape(rows, (-1, length, self.num_heads, width))
        return _swap(x, length=x.shape[1])  # [B, H, T, d]

    def _join_heads(self, x):
        length = ops.shape(x)[2]
        rows = ops.reshape(_swap(x, length=x.shape[2]), (-1, self.num_heads * self._value_dim))  # [B * T, H * d_v]
        rows = self.output_projection(rows)  # [B * T, output_dim]
        return ops.reshape(rows, (-1, length, rows.shape[-1]))

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "output_dim": self.output_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def _swap(x, length):
    """Swap the two dimensions in the middle, one of which is the static `length`, or None, of the sequence."""
    if length is None or length > _FEW_QUERIES:
        return ops.transpose(x, (0, 2, 1, 3))
    _, first, second, width = x.shape
    if 1 in (first, second):
        return ops.reshape(x, (-1, second, first, width))
    # A decoding step: taking rows is several times faster than TensorFlow's transposition of small matrices.
    order = np.arange(first * second).reshape(first, second).T.reshape(-1)
    return ops.reshape(ops.take(ops.reshape(x, (-1, first * second, width)), order, axis=1), (-1, second, first, width))


def _softmax(scores):
    """Softmax over the keys of scores [B, H, T, S]."""
    if (scores.shape[2] or _FEW_QUERIES + 1) <= _FEW_QUERIES or scores.shape[3] == 1:
        # Of a single key, which is an ordinary sentence of one word, `ops.softmax` would warn.
        return ops.exp(ops.log_softmax(scores, axis=-1))
    return ops.softmax(scores, axis=-1)


def _combine_masks(num_keys, **masks):
    """Merge the masks, by name, to one boolean tensor that broadcasts to [B, H, T, S], or None."""
    combined = None
    for name, mask in masks.items():
        if mask is None:
            continue
        ranks = (3, 4) if name == "attention_mask" else (2,)
        if len(mask.shape) not in ranks:
            raise ValueError(f"`{name}` must have rank {' or '.join(map(str, ranks))}. Received: shape {mask.shape}")
        if None not in (num_keys, mask.shape[-1]) and mask.shape[-1] not in (1, num_keys):
            raise ValueError(f"`{name}` must cover {num_keys} keys. Received: shape {tuple(mask.shape)}")
        mask = ops.cast(mask, "bool")
        if len(mask.shape) == 2:
            mask = mask[:, None, None, :]
        elif len(mask.shape) == 3:
            mask = mask[:, None]
        combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def _write(cache, update, index, num_keys):
    """Write `update` [B, H, t, d] over positions index .. index + t - 1 of `cache` [B, H, L, d].

    Into [B, H, L, K, d] it writes the t = K slots of position `index`. `num_keys` is L or L * K.

    A select over the whole cache: as fast as a scatter inside a TensorFlow loop, and it runs on every backend.
    """
    if len(cache.shape) == 5:
        num_heads, num_slots, width = cache.shape[1], cache.shape[3], cache.shape[4]
        length = num_keys // num_slots
        written = ops.equal(ops.arange(length, dtype="int32"), ops.cast(index, "int32"))[:, None]  # [L, 1]
        # Few dimensions, or the select is slow.
        update = ops.reshape(update, (-1, 1, num_slots * width))  # [B * H, 1, K * d]
        cache = ops.reshape(cache, (-1, length, num_slots * width))
        return ops.reshape(ops.where(written, update, cache), (-1, num_heads, length, num_slots, width))
    known = isinstance(index, int) and None not in (update.shape[2], cache.shape[2])
    if known and not 0 <= index <= cache.shape[2] - update.shape[2]:
        raise ValueError(
            "`cache_index` and the positions that follow must fit the cache. "
            f"Received: cache_index={index}, {update.shape[2]} positions, a cache of {cache.shape[2]}"
        )
    offsets = ops.arange(num_keys, dtype="int32") - ops.cast(index, "int32")  # [L]
    length = ops.shape(update)[2]
    written = ops.logical_and(offsets >= 0, offsets < length)[None, None, :, None]
    if update.shape[2] != 1:
        update = ops.take(update, ops.clip(offsets, 0, length - 1), axis=2)
    return ops.where(written, update, cache)


def _join_slots(cached):
    """Keys or values for attention, [B, H, S, d]: those of a cache with slots, position by position."""
    if len(cached.shape) == 4:
        return cached
    return ops.reshape(cached, (-1, cached.shape[1], ops.shape(cached)[2] * cached.shape[3], cached.shape[4]))
