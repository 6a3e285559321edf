"""Sampling in the TensorFlow graph."""

import dataclasses
import math
from typing import NamedTuple

import tensorflow as tf

from keras_transformer.decoding.constraints import IMPOSSIBLE, Constraints, SpecialIds, log_normalizer, top_k
from keras_transformer.decoding.loop import run_blocks, search_limits
from keras_transformer.decoding.random_numbers import uniform
from keras_transformer.decoding.search import Search, SearchResult

# A trained model's nucleus mostly lies within this many tokens, which are much faster to find than a whole order.
_HEAD = 64
# Columns of a block, when a place in wide rows is looked for; below so many blocks of them there is no gain.
_BLOCK = 128
_FEW_BLOCKS = 8


class _RowInputs(NamedTuple):
    """What a step reads of the rows and never changes."""

    max_lengths: tf.Tensor  # int32 [B]
    random: tf.Tensor  # float32 [B, N, L]
    prefix_ids: tf.Tensor | None  # int32 [B, P]


class _State(NamedTuple):
    index: tf.Tensor  # int32 []: number of steps taken
    settled: tf.Tensor  # bool [B]: rows whose samples are all complete
    complete: tf.Tensor  # bool [B, N]: samples that ended, reached their limit or came to a dead end
    last_ids: tf.Tensor  # int32 [B, N]: what the next step reads
    ids: tf.Tensor  # int32 [B, N, L]
    lengths: tf.Tensor  # int32 [B, N]
    log_probabilities: tf.Tensor  # float32 [B, N]; -inf at a dead end
    finished: tf.Tensor  # bool [B, N]: whether the end id was drawn
    cache: object  # nested tensors that belong to the next-token function


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling(Constraints):
    """Draw sequences at random, token by token, with the probabilities that the model gives or sharper ones.

    At each step the model's logits go, in this order, through the repetition penalty, the constraints, the temperature,
    top-k and top-p (as in Hugging Face's `generate`); what is left is drawn in proportion to its probability. Each
    filter sees the probabilities that the one before left, scaled to a sum of one. `log_probabilities` stay the model's
    own, untempered and over the whole vocabulary, and `scores` equal them.

    Samples come in the order drawn, not best first: the first one is then a fair draw, and stays the same however many
    are asked for. The samples of a row are independent of each other, so some may be equal. A sample with no token
    left that it may write does not exist (see `SearchResult`).

    What a row gets depends on its seed, its limit and its logits alone: not on the other rows, their order, padding or
    the longest limit. The random numbers are the same on every device, with XLA or without; where the logits differ in
    rounding, though, a draw at the very border between two tokens can fall to the other side.

    Args:
        temperature: what logits are divided by; below 1, likely tokens become likelier. Near 0 the most probable
            token is taken, as `BeamSearch(beam_size=1)` does without any chance. Defaults to 1.
        top_k: number of most probable tokens to draw from; among equals at the border, some are kept. Defaults to 0,
            all of them.
        top_p: draw from the smallest set of most probable tokens that has at least this probability together (the
            nucleus). Defaults to 1, all tokens. A nucleus of more than 64 tokens costs sorting the vocabulary, unless
            `top_k` is given.
        num_hypotheses: number of samples N for each row. Defaults to 1.
        min_length, no_repeat_ngram_size, repetition_penalty, blocked_ids: see `Constraints`.

    Raises:
        ValueError: if an argument is out of its range.

    Reference:
        top-k: [Fan et al., 2018](https://arxiv.org/abs/1805.04833), section 5.4;
        top-p: [Holtzman et al., 2020](https://arxiv.org/abs/1904.09751), section 3.1
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    num_hypotheses: int = 1

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.temperature < math.inf:
            raise ValueError(
                "`temperature` must be positive and finite; for no chance at all use `BeamSearch(beam_size=1)`. "
                f"Received: temperature={self.temperature}"
            )
        if self.top_k < 0:
            raise ValueError(f"`top_k` must not be negative. Received: top_k={self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"`top_p` must be positive and at most 1. Received: top_p={self.top_p}")
        if self.num_hypotheses < 1:
            raise ValueError(f"`num_hypotheses` must be positive. Received: num_hypotheses={self.num_hypotheses}")

    @property
    def width(self) -> int:
        """Number of hypotheses that the next-token function is asked for, N."""
        return self.num_hypotheses

    @property
    def needs_attention(self) -> bool:
        """Whether the next-token function must return attention."""
        return False

    @property
    def needs_seeds(self) -> bool:
        """Whether the search draws random numbers."""
        return True

    def containing(self, num_phrase_tokens: int) -> Search:
        """There is no sampling of sequences that contain phrases.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"`constraints` need a `BeamSearch`. Received: search={self}")

    @tf.autograph.experimental.do_not_convert
    def __call__(
        self,
        next_logits,
        cache,
        max_lengths,
        *,
        seeds,
        start_id,
        end_id,
        padding_id=0,
        prefix_ids=None,
        max_length=None,
        grow_cache=None,
        block_length=None,
    ):
        """Draw samples. `Search` says what the arguments are that are not told here.

        Args:
            next_logits: a sample keeps its slot, so `ancestry[b, n, t]` is n up to `index`; a third value is not looked
                at. Logits of complete samples are not looked at either.
            seeds: int32 [B, 2], a seed for each row. Rows with equal seeds draw equal numbers.

        Returns:
            A `SearchResult`, samples in the order drawn.
        """
        seeds = tf.convert_to_tensor(seeds)
        if seeds.dtype != tf.int32 or not seeds.shape.is_compatible_with([max_lengths.shape[0], 2]):
            raise ValueError(
                "`seeds` must be int32 and two numbers for each row. "
                f"Received: seeds of shape {seeds.shape} and dtype {seeds.dtype.name}"
            )
        max_lengths, max_length, num_steps = search_limits(max_lengths, max_length, grow_cache, block_length)
        rows = _RowInputs(max_lengths, uniform(seeds, self.num_hypotheses, num_steps), prefix_ids)
        special = SpecialIds(start_id, end_id, padding_id)

        def step(state, room, rows):
            return self._step(next_logits, state, room, rows, special)

        start = self._start(cache, max_lengths, num_steps, special)
        end = run_blocks(step, start, num_steps, grow_cache, block_length, rows)
        exists = end.log_probabilities > IMPOSSIBLE  # [B, N]
        return SearchResult(
            ids=tf.where(exists[:, :, None], end.ids, padding_id)[:, :, :max_length],
            lengths=tf.where(exists, end.lengths, 0),
            log_probabilities=end.log_probabilities,
            scores=end.log_probabilities,
            finished=end.finished,
        )

    def _start(self, cache, max_lengths, num_steps, special):
        """The state before the first step."""
        shape = [tf.shape(max_lengths)[0], self.num_hypotheses]
        return _State(
            index=tf.constant(0),
            settled=max_lengths <= 0,
            complete=tf.tile((max_lengths <= 0)[:, None], [1, self.num_hypotheses]),
            last_ids=tf.fill(shape, special.start),
            ids=tf.fill([*shape, num_steps], special.padding),
            lengths=tf.zeros(shape, tf.int32),
            log_probabilities=tf.zeros(shape),
            finished=tf.fill(shape, False),
            cache=cache,
        )

    def _step(self, next_logits, state, room, rows, special):
        """The state with a token more in each sample."""
        random = rows.random[:, :, state.index]  # [B, N]
        ancestry = tf.where(tf.range(room) <= state.index, tf.range(self.num_hypotheses)[:, None], -1)  # [N, C]
        ancestry = tf.tile(ancestry[None], [tf.shape(rows.max_lengths)[0], 1, 1])
        logits, cache, *_ = next_logits(state.last_ids, state.cache, state.index, ancestry)

        guiding = self._penalize(logits, state.ids, state.index)  # [B, N, V]
        allowed = self._forbid(guiding, state.ids, state.index, special, rows.prefix_ids)
        tokens = self._draw(allowed, random, state.complete)  # [B, N]
        exists = tf.gather(allowed, tokens, batch_dims=2) > IMPOSSIBLE
        log_probabilities = tf.gather(logits, tokens, batch_dims=2) - log_normalizer(logits)
        log_probabilities = tf.where(exists, state.log_probabilities + log_probabilities, IMPOSSIBLE)

        length = state.index + 1
        ends = exists & (tokens == special.end)
        complete = state.complete | ends | ~exists | (length >= rows.max_lengths)[:, None]
        here = tf.range(tf.shape(state.ids)[2]) == state.index  # [L]
        return _State(
            index=length,
            settled=tf.reduce_all(complete, axis=1),
            complete=complete,
            last_ids=tf.where(state.complete, state.last_ids, tokens),
            ids=tf.where(here & ~state.complete[:, :, None], tokens[:, :, None], state.ids),
            lengths=tf.where(state.complete, state.lengths, length),
            log_probabilities=tf.where(state.complete, state.log_probabilities, log_probabilities),
            finished=tf.where(state.complete, state.finished, ends),
            cache=cache,
        )

    def _draw(self, logits, random, complete):
        """One token for each sample: from logits [B, N, V] and random numbers [B, N], int32 [B, N]."""
        size = logits.shape[-1]
        if self.top_k:
            best, tokens = top_k(logits, min(self.top_k, size))
            return tf.gather(tokens, _invert(self._nucleus(self._probabilities(best)), random), batch_dims=2)
        probabilities = self._probabilities(logits)
        if self.top_p == 1:
            return _invert(probabilities, random)

        def draw(num_candidates):
            best, tokens = top_k(probabilities, num_candidates)
            return tf.gather(tokens, _invert(self._nucleus(best), random), batch_dims=2), best

        if size <= _HEAD:
            return draw(size)[0]
        drawn, best = draw(_HEAD)
        # A sample takes the one way or the other by itself, lest rounding lets it depend on the rest of the batch.
        within = complete | (tf.reduce_sum(best, axis=2) >= self.top_p)  # [B, N]
        return tf.cond(tf.reduce_all(within), lambda: drawn, lambda: tf.where(within, drawn, draw(size)[0]))

    def _probabilities(self, logits):
        # Beyond these limits float32 makes 0 / 0 of a temperature that means "the first" or "all alike" anyway.
        temperature = min(max(self.temperature, 1e-30), 1e30)
        return tf.nn.softmax(logits if temperature == 1 else logits / temperature)

    def _nucleus(self, probabilities):
        """The probabilities, largest first, with 0 for those outside of the nucleus."""
        if self.top_p == 1:
            return probabilities
        before = tf.cumsum(probabilities, axis=-1, exclusive=True)
        return tf.where(before < self.top_p, probabilities, 0.0)


def _invert(weights, random):
    """Where in `weights` [B, N, V] the fraction `random` [B, N] of their sum is reached, int32 [B, N]."""
    num_columns = weights.shape[-1]
    num_blocks = -(-num_columns // _BLOCK)
    if num_blocks < _FEW_BLOCKS:
        return _place(weights, random * tf.reduce_sum(weights, axis=-1))[0]
    # To cumulate is slow, to sum is fast: find the block, then the place within it.
    if num_columns % _BLOCK:
        weights = tf.pad(weights, [[0, 0], [0, 0], [0, -num_columns % _BLOCK]])
    blocks = tf.reshape(weights, [-1, weights.shape[1], num_blocks, _BLOCK])
    sums = tf.reduce_sum(blocks, axis=-1)  # [B, N, V / block]
    block, rest = _place(sums, random * tf.reduce_sum(sums, axis=-1))  # [B, N] each
    return block * _BLOCK + _place(tf.gather(blocks, block, batch_dims=2), rest)[0]


def _place(weights, reached):
    """The last positive weight with no more than `reached` [B, N] before it: its place, and what is left from there.

    However numbers round (in XLA, cumulated sums can fall, and a product differs from one use to the next), this never
    is a weight of 0, of a token that may not come: before the first positive weight there is exactly 0, so it is one
    to choose from.
    """
    before = tf.cumsum(weights, axis=-1, exclusive=True)
    candidates = (weights > 0) & (before <= reached[:, :, None])
    place = tf.reduce_max(tf.where(candidates, tf.range(weights.shape[-1]), 0), axis=-1)
    return place, tf.maximum(reached - tf.reduce_max(tf.where(candidates, before, 0.0), axis=-1), 0.0)
