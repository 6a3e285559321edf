"""Token ids to batches for `fit`: a pure function of (seed, epoch, step).

The features of a batch, drawn once; for the pair "x y" -> "u v" and one padding position:

    source_ids     x      y      END    0
    target_ids     START  u      v      0      what the decoder reads
    labels         u      v      END    0      what it must say: target_ids moved by one token, here and nowhere else
    sample_weight  1      1      1      0
"""

import dataclasses
import itertools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.data.fixed_shapes import boundaries, fixed_lengths
from keras_transformer.data.token_store import TokenStore
from keras_transformer.vocabulary import PAD_ID, START_ID

# Chance can leave a small epoch unbalanced: below so many pairs up to so many shuffles are tried for a balanced one.
_FEW_PAIRS = 10_000
_NUM_DEALS = 64
_BALANCED = 0.08


class Plan(NamedTuple):
    """The batches of one epoch: batch i holds the pairs `order[starts[i]:starts[i + 1]]`, padded to `shapes[i]`.

    Attributes:
        order: int64 [N], every pair once.
        starts: int64 [num_batches + 1].
        shapes: int64 [num_batches, 3]: rows, source length, target length.
    """

    order: np.ndarray
    starts: np.ndarray
    shapes: np.ndarray

    def pairs(self, step: int) -> np.ndarray:
        """Pairs of one batch."""
        return self.order[self.starts[step] : self.starts[step + 1]]


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What an epoch is made of.

    Attributes:
        num_pairs, num_batches: how many of each.
        source_tokens, target_tokens: real tokens, end marks counted.
        source_share, target_share: real tokens among all positions, 0 to 1.
        num_shapes: distinct shapes of batches.
    """

    num_pairs: int
    num_batches: int
    source_tokens: int
    target_tokens: int
    source_share: float
    target_share: float
    num_shapes: int

    def __str__(self):
        return (
            f"{self.num_pairs:,} pairs in {self.num_batches:,} batches of {self.num_shapes} shapes; "
            f"{self.source_tokens:,} source and {self.target_tokens:,} target tokens, "
            f"{self.source_share:.1%} and {self.target_share:.1%} of all positions"
        )


class Batches:
    """Batches of pairs of similar length under a token budget.

    An epoch holds each pair exactly once. Pairs are put in random order, sorted by length bucket (target, then source;
    the random order stays within a bucket), cut where the budget is full, and the batches are shuffled. All of it is a
    function of (seed, epoch), so that a run can go on at any step, and no batch depends on when it is made.

    Lengths are padded to bucket boundaries, each `bucket_growth` times the one before, the last one being the longest
    length in the store, so that there are few distinct shapes. The shapes of an epoch depend only on the lengths in the
    store: each epoch has the same shapes and the same number of batches. The shuffle deals out batches of similar
    length over the quarters of the epoch, so that none has longer sentences than another.

    With `num_shapes` there are no more shapes than that, for XLA, which compiles each of them. They are those that the
    lengths in the store fill best: each pair is padded to the first shape that holds it, and the pairs of a shape are
    spread evenly over its batches. Measured share of padding among all positions:

        num_shapes                                                   4     8    16  None
        Multi30k, 15 tokens a side, tokens_per_batch=4096           22    13     9     6 %, 74 shapes
        WMT test sets, 32 tokens a side, tokens_per_batch=8192      34    20    12     9 %, 90 shapes

    A batch is what `keras.Model.fit` takes: `({"source_ids": int32 [B, S], "target_ids": int32 [B, T]},
    labels int32 [B, T], sample_weight float32 [B, T])` with B rows, S source and T target positions; see the module for
    what they hold. Rows that fill up to `row_multiple` are all padding, with weight 0.

    Args:
        store: `TokenStore`.
        tokens_per_batch: most positions, padding counted, of a batch on either side: B x S and B x T. The paper's
            batches hold about 25,000 tokens on each side. Counted over all replicas together.
        row_multiple: the number of rows is a multiple of this; the number of replicas. Defaults to 1.
        shuffle: `False` gives the same batches in the same order, by length, every epoch. Defaults to `True`.
        seed: of the shuffle. Defaults to 0.
        bucket_growth: factor between length boundaries. Larger means fewer shapes and more padding. Defaults to 1.125,
            which wastes about 5 % of the positions. Without effect where `num_shapes` is given.
        num_shapes: most distinct shapes of batches, a positive integer. Defaults to None: some dozens.

    Raises:
        ValueError: `tokens_per_batch` cannot hold `row_multiple` rows of the longest sentence, or an argument out of
            range.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.1
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        tokens_per_batch: int,
        row_multiple: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        bucket_growth: float = 1.125,
        num_shapes: int | None = None,
    ):
        if row_multiple < 1:
            raise ValueError(f"row_multiple must be positive. Received: {row_multiple}")
        if seed < 0:
            raise ValueError(f"seed must not be negative. Received: {seed}")
        if bucket_growth < 1.0:
            raise ValueError(f"bucket_growth must be at least 1. Received: {bucket_growth}")
        if num_shapes is not None and num_shapes < 1:
            raise ValueError(f"num_shapes must be positive or None. Received: {num_shapes}")
        longest = int(max(store.source_lengths.max(), store.target_lengths.max()))
        if tokens_per_batch < longest * row_multiple:
            rows = (
                "the longest sentence" if row_multiple == 1 else f"row_multiple={row_multiple} of the longest sentence"
            )
            raise ValueError(
                f"tokens_per_batch must be at least {longest * row_multiple} to hold {rows}, {longest} tokens with the "
                f"end mark. Received: {tokens_per_batch}"
            )
        self.store = store
        self.tokens_per_batch = tokens_per_batch
        self.row_multiple = row_multiple
        self.shuffle = shuffle
        self.seed = seed
        if num_shapes is None:
            self._keys, self._starts, self._shapes = self._cut(boundaries(longest, bucket_growth))
        else:
            self._keys, self._starts, self._shapes = self._fill(num_shapes)
        self._cached = (None, None)

    def num_batches(self, epoch: int = 0) -> int:
        """Number of batches of an epoch; the same for each."""
        del epoch
        return len(self._shapes)

    def plan(self, epoch: int) -> Plan:
        """The batches of an epoch."""
        epoch = int(epoch) if self.shuffle else 0
        if self._cached[0] == epoch:
            return self._cached[1]
        if self.shuffle:
            generator = np.random.default_rng([self.seed, epoch])
            order = generator.permutation(len(self.store))
            order = order[np.argsort(self._keys[order], kind="stable")]
            plan = self._balanced(order, generator)
        else:
            plan = Plan(np.argsort(self._keys, kind="stable"), self._starts, self._shapes)
        self._cached = (epoch, plan)
        return plan

    def _deal(self, order: np.ndarray, generator: np.random.Generator) -> Plan:
        """Shuffles the batches of sorted pairs."""
        batches = _dealt_order(len(self._shapes), generator)
        sizes = np.diff(self._starts)[batches]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        # Batch i, of sizes[i] pairs, moves from its place in the sorted order to starts[i].
        moves = np.repeat(self._starts[:-1][batches] - starts[:-1], sizes)
        return Plan(order[np.arange(len(order)) + moves], starts, self._shapes[batches])

    def _balanced(self, order: np.ndarray, generator: np.random.Generator) -> Plan:
        """The first shuffle whose first and last quarter of pairs have about the same source length, or the best."""
        quarter = max(1, len(order) // 4)
        best, least = None, np.inf
        for _ in range(_NUM_DEALS if len(order) < _FEW_PAIRS else 1):
            plan = self._deal(order, generator)
            lengths = self.store.source_lengths[plan.order]
            imbalance = abs(lengths[:quarter].mean() - lengths[-quarter:].mean()) / lengths.mean()
            if imbalance < least:
                best, least = plan, imbalance
            if least < _BALANCED:
                break
        return best

    def batch(self, epoch: int, step: int):
        """One batch of one epoch, as numpy arrays."""
        if not 0 <= step < self.num_batches(epoch):
            raise IndexError(f"step must be from 0 to {self.num_batches(epoch) - 1}. Received: {step}")
        return self._batch(self.plan(epoch), step)

    def _batch(self, plan: Plan, step: int):
        pairs = plan.pairs(step)
        num_rows, source_length, target_length = plan.shapes[step]
        source_ids = self.store.padded("source", pairs, num_rows, source_length)
        labels = self.store.padded("target", pairs, num_rows, target_length)
        real = labels != PAD_ID
        target_ids = np.full_like(labels, PAD_ID)
        target_ids[:, 1:] = np.where(real[:, 1:], labels[:, :-1], PAD_ID)
        target_ids[: len(pairs), 0] = START_ID
        return {"source_ids": source_ids, "target_ids": target_ids}, labels, real.astype(np.float32)

    def dataset(self, start_step: int = 0, repeat: bool = True, prefetch: int = 8) -> tf.data.Dataset:
        """The batches as a `tf.data.Dataset`, in a fixed order, made ahead of their use.

        Args:
            start_step: global step to start at, counted from 0 over all epochs: after n training steps, n goes on
                exactly where they stopped.
            repeat: `True` goes on for ever, for `fit(..., steps_per_epoch=...)`; `False` ends with the epoch of
                `start_step`. Defaults to `True`.
            prefetch: batches made ahead. Defaults to 8.
        """
        if start_step < 0:
            raise ValueError(f"start_step must not be negative. Received: {start_step}")
        first_epoch, first_step = divmod(int(start_step), self.num_batches())

        def batches():
            step = first_step
            for epoch in itertools.count(first_epoch) if repeat else [first_epoch]:
                plan = self.plan(epoch)
                for index in range(step, len(plan.shapes)):
                    yield self._batch(plan, index)
                step = 0

        ids = tf.TensorSpec([None, None], tf.int32)
        signature = ({"source_ids": ids, "target_ids": ids}, ids, tf.TensorSpec([None, None], tf.float32))
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        cardinality = tf.data.INFINITE_CARDINALITY if repeat else self.num_batches() - first_step
        return dataset.apply(tf.data.experimental.assert_cardinality(cardinality)).prefetch(prefetch)

    def statistics(self, epoch: int = 0) -> Statistics:
        """Sizes and shares of real tokens of an epoch; the same for each."""
        shapes = self.plan(epoch).shapes
        source_tokens, target_tokens = int(self.store.source_lengths.sum()), int(self.store.target_lengths.sum())
        return Statistics(
            num_pairs=len(self.store),
            num_batches=len(shapes),
            source_tokens=source_tokens,
            target_tokens=target_tokens,
            source_share=source_tokens / int((shapes[:, 0] * shapes[:, 1]).sum()),
            target_share=target_tokens / int((shapes[:, 0] * shapes[:, 2]).sum()),
            num_shapes=len(np.unique(shapes, axis=0)),
        )

    def _room(self, source_length: int, target_length: int) -> int:
        """Most rows of a batch of these lengths."""
        rows = self.tokens_per_batch // max(source_length, target_length)
        return rows - rows % self.row_multiple

    def _rows(self, size: int) -> int:
        """Rows of a batch of so many pairs."""
        return -(-size // self.row_multiple) * self.row_multiple

    def _cut(self, lengths: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cuts the pairs, sorted by length, into batches. It depends on how many a bucket holds, not on which.

        Args:
            lengths: to pad to, the boundaries of buckets.

        Returns:
            keys to sort by [N], starts int64 [num_batches + 1] and shapes int64 [num_batches, 3].
        """
        # One number that sorts by target bucket, then source bucket, up and down in turn, so that a batch across two
        # target buckets has sources of one length. 16 bits make numpy's stable sort a radix sort.
        source = np.searchsorted(lengths, self.store.source_lengths)
        target = np.searchsorted(lengths, self.store.target_lengths)
        source = np.where(target % 2 == 0, source, len(lengths) - 1 - source)
        keys = target * len(lengths) + source
        keys = keys.astype(np.uint16 if len(lengths) ** 2 <= 2**16 else np.int64)
        sizes, shapes = [], []
        size, source_length, target_length = 0, 0, 0  # the batch being filled

        def close():
            if size:
                sizes.append(size)
                shapes.append((self._rows(size), source_length, target_length))

        for key, count in zip(*np.unique(keys, return_counts=True), strict=True):
            target, source = divmod(int(key), len(lengths))
            source = source if target % 2 == 0 else len(lengths) - 1 - source
            source, target = lengths[source], lengths[target]
            count = int(count)
            while count:
                wider = max(source_length, source), max(target_length, target)
                taken = min(count, self._room(*wider) - size)
                if taken <= 0:
                    close()
                    size, source_length, target_length = 0, 0, 0
                    continue
                size, count = size + taken, count - taken
                source_length, target_length = wider
        close()
        return keys, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), np.array(shapes, np.int64)

    def _fill(self, num_shapes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Spreads the pairs over batches of a few shapes. As `_cut`, which says what is returned."""
        source, target = self.store.source_lengths, self.store.target_lengths
        # Half a batch on either side: so much would be empty if all batches were full but the last one of each shape.
        lengths = fixed_lengths(source, target, num_shapes=num_shapes, shape_cost=self.tokens_per_batch)
        keys = np.maximum(*(np.searchsorted(*side) for side in zip(lengths.T, (source, target), strict=True)))
        sizes, shapes = [], []
        for count, (source_length, target_length) in zip(np.bincount(keys), lengths, strict=True):
            num_batches = -(-count // self._room(source_length, target_length))
            cuts = count * np.arange(num_batches + 1) // num_batches
            sizes.append(np.diff(cuts))
            rows = self._rows(sizes[-1].max())
            shapes.append(np.tile([rows, source_length, target_length], (num_batches, 1)))
        starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        return keys.astype(np.uint16), starts, np.concatenate(shapes)


def _dealt_order(num_batches: int, generator: np.random.Generator) -> np.ndarray:
    """A random order of batches that come sorted by length, in which no quarter has longer ones than another.

    Of each four neighbours by length, one goes to a random place in each quarter.
    """
    num_deals, rest = divmod(num_batches, 4)
    quarters = generator.permuted(np.tile(np.arange(4.0), (num_deals, 1)), axis=1).reshape(-1)
    places = quarters + generator.random(4 * num_deals)
    return np.argsort(np.concatenate([places, 4 * generator.random(rest)]))
