"""What a search may not write, options that every search shares, and the best of what it may."""

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

IMPOSSIBLE = float("-inf")
# As many forbidden tokens at most are sought out among the best, rather than marked in all logits.
_FEW = 16
# Below this many columns the plain operation is as fast.
_SMALL = 1024
# Columns of a block: so few that the winning blocks are soon searched, so many that blocks are few.
_BLOCK = 64


class SpecialIds(NamedTuple):
    """The ids that a search gives a meaning to."""

    start: int
    end: int
    padding: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constraints:
    """Options of every search; not a search by itself.

    What is forbidden gets no chance, and what is allowed keeps the probability that the model gives it: nothing is
    spread over the rest, so the scores stay the model's own. Padding and start ids are never written.

    Args:
        min_length: number of tokens before the end mark at least; a row whose limit leaves no room for them is cut
            there. Defaults to 0.
        no_repeat_ngram_size: no sequence of this many tokens is written twice in a row's hypothesis, its prefix
            counted. Defaults to 0, no such rule.
        repetition_penalty: tokens already written have their logit divided by this if it is positive and multiplied
            if not, and the probabilities are made anew; it guides the search, while log-probabilities remain the
            model's. Defaults to 1, no penalty.
        blocked_ids: tokens never written, such as the unknown id. Defaults to none.

    Raises:
        ValueError: if an argument is out of its range.

    Reference:
        Repetition penalty: [Keskar et al., 2019](https://arxiv.org/abs/1909.05858), section 4.1
    """

    min_length: int = 0
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    blocked_ids: tuple[int, ...] = ()

    def __post_init__(self):
        for name in ("min_length", "no_repeat_ngram_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative. Received: {name}={getattr(self, name)}")
        if not self.repetition_penalty > 0:
            raise ValueError(
                f"`repetition_penalty` must be positive. Received: repetition_penalty={self.repetition_penalty}"
            )
        object.__setattr__(self, "blocked_ids", tuple(int(token) for token in self.blocked_ids))  # hashable
        if any(token < 0 for token in self.blocked_ids):
            raise ValueError(f"`blocked_ids` must not be negative. Received: blocked_ids={self.blocked_ids}")

    def _penalize(self, logits, ids, index):
        """The logits that the search goes by, [B, K, V]; the model's own without a repetition penalty."""
        if self.repetition_penalty == 1.0:
            return logits
        written = tf.broadcast_to(tf.range(tf.shape(ids)[2]) < index, tf.shape(ids))
        seen = tf.tensor_scatter_nd_max(
            tf.zeros(tf.shape(logits), tf.int32), _places(ids), tf.cast(written, tf.int32)
        )  # [B, K, V]
        penalized = tf.where(logits > 0, logits / self.repetition_penalty, logits * self.repetition_penalty)
        return tf.where(seen > 0, penalized, logits)

    def _forbid(self, logits, ids, index, special, prefix_ids, min_lengths=None):
        """The logits with minus infinity for all that may not come next, [B, K, V]."""
        size = logits.shape[-1]
        never = np.zeros([size], "float32")
        never[self._never(size, special)] = IMPOSSIBLE
        allowed = logits + never
        too_short = self._too_short(index, min_lengths)
        if too_short is not None:
            allowed = tf.where(too_short & (tf.range(size) == special.end), IMPOSSIBLE, allowed)
        if self.no_repeat_ngram_size:
            allowed = _forbid_repeated_ngrams(allowed, ids, index, self.no_repeat_ngram_size)
        if prefix_ids is not None:
            wanted = prefix_token(prefix_ids, index, special.padding)[:, None, None]  # [B, 1, 1]
            forced = tf.where(tf.range(size) == wanted, logits, IMPOSSIBLE)  # [B, K, V]
            allowed = tf.where(wanted == special.padding, allowed, forced)
        return allowed

    def _too_short(self, index, min_lengths):
        """Whether a hypothesis may not end at `index` yet, [] or [B, 1, 1]; None if it always may."""
        if min_lengths is not None:
            return index < min_lengths[:, None, None]
        return index < self.min_length if self.min_length else None

    def _never(self, size, special):
        """The tokens that are never written, a list."""
        for token in self.blocked_ids:
            if token >= size or token == special.end:
                raise ValueError(
                    f"`blocked_ids` must lie in the vocabulary of {size} and spare the end id. Received: {token}"
                )
        return sorted({special.padding, special.start, *self.blocked_ids})

    def _best(self, logits, num_tokens, ids, index, special, prefix_ids, min_lengths=None):
        """The best `num_tokens` allowed tokens of each hypothesis, perhaps among a few that are not.

        Args:
            logits: float32 [B, K, V], as `_penalize` gives them.
            num_tokens: number of tokens; no more than the vocabulary has are returned.
            ids, index, special, prefix_ids, min_lengths: as for `_forbid`.

        Returns:
            `(log_probabilities, tokens)`, each [B, K, C]; minus infinity marks a token that is forbidden.
        """
        size = logits.shape[-1]
        forbidden = self._never(size, special)
        too_short = self._too_short(index, min_lengths)
        num_forbidden = len(forbidden) + (too_short is not None)
        if prefix_ids is not None or self.no_repeat_ngram_size or num_forbidden > _FEW:
            allowed = self._forbid(logits, ids, index, special, prefix_ids, min_lengths)
            best, tokens = top_k(allowed, min(num_tokens, size))
            return best - log_normalizer(logits)[:, :, None], tokens

        # The usual case. Few tokens are forbidden, the same for all: look at as many more, and leave those out. It
        # saves three of six passes over the vocabulary, which take a good part of a step's time.
        best, tokens = top_k(logits, min(num_tokens + num_forbidden, size))
        # Of the most probable token, both logit and probability are exact: see `log_normalizer`.
        top = tf.gather(tf.nn.softmax(logits), tokens[:, :, :1], batch_dims=2)  # [B, K, 1]
        log_probabilities = best - (best[:, :, :1] - tf.math.log(top))
        refused = tf.reduce_any(tokens[..., None] == forbidden, axis=-1)
        if too_short is not None:
            refused |= (tokens == special.end) & too_short
        return tf.where(refused, IMPOSSIBLE, log_probabilities), tokens


def prefix_token(prefix_ids, index, padding_id):
    """What a row's prefix wants at `index`, [B]; padding where it has come to its end."""
    prefix_ids = tf.pad(prefix_ids, [[0, 0], [0, 1]], constant_values=padding_id)
    return prefix_ids[:, tf.minimum(index, tf.shape(prefix_ids)[1] - 1)]


def _places(ids):
    """Index of each id in logits: [B, K, L, 3]."""
    shape = tf.shape(ids)
    rows, beams, _ = tf.meshgrid(*map(tf.range, tf.unstack(shape, 3)), indexing="ij")
    return tf.stack([rows, beams, ids], axis=-1)


def _forbid_repeated_ngrams(logits, ids, index, size):
    """Minus infinity for every token that would complete a sequence of `size` tokens once more."""
    length = tf.shape(ids)[2]
    padded = tf.pad(ids, [[0, 0], [0, 0], [0, size]], constant_values=-1)
    completes = tf.range(length) + size - 1 < index  # [L]: whether the n-gram from here on is all written
    completes = tf.broadcast_to(completes, tf.shape(ids))
    for offset in range(size - 1):
        last = ids[:, :, tf.maximum(index - (size - 1) + offset, 0)]  # [B, K]
        completes &= padded[:, :, offset : offset + length] == last[:, :, None]
    tokens = padded[:, :, size - 1 : size - 1 + length]  # [B, K, L]
    return tf.tensor_scatter_nd_min(
        logits, _places(tf.maximum(tokens, 0)), tf.where(completes, IMPOSSIBLE, float("inf"))
    )


# === Passes over the vocabulary, which is where a decoding step spends much of its time on the CPU ===


def top_k(values, k):
    """The k largest of each row, largest first; as `tf.math.top_k`, about four times as fast on wide rows.

    The k largest values of a row lie in the k blocks with the largest maxima, so it is enough to find those blocks
    (a plain maximum, which is fast) and to search within them. Equal values may come in another order, and the
    indices of minus infinities are any.

    Args:
        values: float tensor [..., V] with static V.
        k: number of values, at most V.

    Returns:
        `(values, indices)`, each [..., k].
    """
    num_columns = values.shape[-1]
    if num_columns < _SMALL or k * _BLOCK > num_columns // 2:
        return tf.math.top_k(values, k)
    # At most twice the usual size, so that there are k blocks: `k * _BLOCK` is at most half of the columns.
    block = min(
        (size for size in range(_BLOCK // 4, _BLOCK * 2 + 1) if num_columns % size == 0),
        key=lambda size: abs(size - _BLOCK),
        default=None,
    )
    leading = tf.shape(values)[:-1]
    rows = tf.reshape(values, [-1, num_columns])
    if block is None:
        block = _BLOCK
        rows = tf.pad(rows, [[0, 0], [0, -num_columns % block]], constant_values=float("-inf"))
    blocks = tf.reshape(rows, [-1, rows.shape[-1] // block, block])  # [R, V / block, block]
    _, winners = tf.math.top_k(tf.reduce_max(blocks, axis=2), k)  # [R, k]
    finalists = tf.reshape(tf.gather(blocks, winners, batch_dims=1), [-1, k * block])
    best, places = tf.math.top_k(finalists, k)  # [R, k]
    indices = tf.gather(winners, places // block, batch_dims=1) * block + places % block
    indices = tf.minimum(indices, num_columns - 1)  # what fills up the last block may tie with minus infinity
    shape = tf.concat([leading, [k]], 0)
    best, indices = tf.reshape(best, shape), tf.reshape(indices, shape)
    best.set_shape([*values.shape[:-1], k])
    indices.set_shape([*values.shape[:-1], k])
    return best, indices


def log_normalizer(logits):
    """`log(sum(exp(logits)))` over the last axis.

    The largest probability is exp(largest logit - normaliser) and at least 1 / V, so its logarithm is exact; softmax
    and maximum are the two passes over the vocabulary that the CPU is fastest at.

    Args:
        logits: float tensor [..., V].

    Returns:
        A tensor [...].
    """
    return tf.reduce_max(logits, axis=-1) - tf.math.log(tf.reduce_max(tf.nn.softmax(logits), axis=-1))
