"""Token ids to batches for `fit`: a pure function of (seed, epoch, step).

The features of a batch, drawn once; for the pair "x y" -> "u v" and one padding position:

    source_ids     x      y      END    0
    target_ids     START  u      v      0      what the decoder reads
    labels         u      v      END    0      what it must say: target_ids moved by one token, here and nowhere else
    sample_weight  1      1      1      0
"""

import dataclasses
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.data.tokenizers import END_ID, PAD_ID, START_ID, Tokenizer

# Pairs encoded at a time: enough to keep all threads busy, little enough to stay in tens of megabytes.
_CHUNK_PAIRS = 20_000
# Pair numbers that a report keeps of each kind.
_NUM_REPORTED_PAIRS = 5
# Chance can leave a small epoch unbalanced: below so many pairs up to so many shuffles are tried for a balanced one.
_FEW_PAIRS = 10_000
_NUM_DEALS = 64
_BALANCED = 0.08
_FORMAT = 1
_INDEX_FILE = "index.json"
_SIDES = ("source", "target")
_FILES = {_INDEX_FILE} | {f"{side}_{content}.bin" for side in _SIDES for content in ("ids", "offsets")}

TOO_LONG = "longer than max_length"
NO_TOKENS = "without a token on one side"


@dataclasses.dataclass
class StoreReport:
    """What preparing a store left out.

    Attributes:
        num_read: pairs read.
        num_pairs: pairs in the store.
        max_length: the length limit, tokens with the end mark; `None` without one.
        counts: number of dropped pairs by kind.
        rows: numbers of the first few dropped pairs by kind, from 1, as the corpus gave them.
    """

    num_read: int = 0
    num_pairs: int = 0
    max_length: int | None = None
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    rows: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    def add(self, kind: str, numbers: np.ndarray) -> None:
        """Counts dropped pairs of one kind."""
        if len(numbers):
            self.counts[kind] = self.counts.get(kind, 0) + len(numbers)
            rows = self.rows.setdefault(kind, [])
            rows.extend(int(number) for number in numbers[: _NUM_REPORTED_PAIRS - len(rows)])

    def __str__(self):
        lines = [f"{self.num_pairs:,} of {self.num_read:,} pairs stored"]
        for kind, count in self.counts.items():
            rows = ", ".join(map(str, self.rows[kind])) + (", ..." if count > len(self.rows[kind]) else "")
            limit = f" {self.max_length}" if kind == TOO_LONG else ""
            lines.append(f"  dropped {count:,}: {kind}{limit} (pair {rows})")
        return "\n".join(lines)


class TokenStore:
    """Token ids of a corpus, encoded once: flat arrays with offsets, memory-mapped from a directory or in memory.

    Each side of a pair is stored with its end mark. Pairs with a side over `max_length` tokens (its end mark counted)
    and pairs with a side that holds no token are left out, counted in `report` with their numbers; nothing is ever
    truncated. Made by `write`, `open` and `from_pairs`, not by the constructor.

    Attributes:
        source_lengths, target_lengths: int32 [N], tokens of each pair with the end mark.
        report: `StoreReport`.
        tokenizer_sha256: hash of the tokenizer that made the ids.
    """

    def __init__(self, ids: dict[str, np.ndarray], offsets: dict[str, np.ndarray], report, tokenizer_sha256: str):
        self._ids = ids
        self._offsets = offsets
        self.report = report
        self.tokenizer_sha256 = tokenizer_sha256
        self.source_lengths, self.target_lengths = (np.diff(offsets[side]).astype(np.int32) for side in _SIDES)

    def __len__(self):
        return len(self.source_lengths)

    @classmethod
    def from_pairs(
        cls, pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer, *, max_length: int | None = None
    ) -> "TokenStore":
        """A store in memory, for development sets and experiments. See `write`; `max_length=None` sets no limit."""
        report = StoreReport(max_length=max_length)
        chunks = list(_encoded_chunks(pairs, tokenizer, max_length, report, hashlib.sha256()))
        _require_pairs(report)
        ids, offsets = {}, {}
        for index, side in enumerate(_SIDES):
            ids[side] = np.concatenate([chunk[index][0] for chunk in chunks])
            offsets[side] = _offsets([chunk[index][1] for chunk in chunks])
        return cls(ids, offsets, report, tokenizer.sha256)

    @classmethod
    def write(
        cls,
        directory: str | os.PathLike,
        pairs: Iterable[tuple[str, str]],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        overwrite: bool = False,
    ) -> "TokenStore":
        """Encodes a corpus into a directory and opens it; an existing store of the same content is opened as it is.

        The store is written under a temporary name and renamed when it is whole. Whether an existing store has the
        same content is told from a hash over all pairs, so the corpus is read, but not encoded, again.

        Args:
            directory: where to put the store.
            pairs: (source, target) strings. Never held in memory as a whole.
            tokenizer: makes the ids.
            max_length: most tokens of a side, its end mark counted.
            overwrite: replace an existing store with other content instead of raising. Defaults to `False`.

        Raises:
            ValueError: no pair is left, or the directory holds something else; files that are no store's are never
                replaced.
        """
        directory = Path(directory)
        if max_length < 2:
            raise ValueError(f"max_length must be at least 2, a token and the end mark. Received: {max_length}")
        if directory.exists() and any(directory.iterdir()):
            difference = _difference(directory, pairs, tokenizer, max_length)
            if not difference:
                return cls.open(directory, tokenizer)
            if not {entry.name for entry in directory.iterdir()} <= _FILES:  # somebody's own files: never delete them
                raise ValueError(f"directory must be empty or a token store. Received: {directory}, which is neither")
            if not overwrite:
                raise ValueError(f"directory {directory} {difference}. Pass overwrite=True to replace it.")
        temporary = directory.with_name(f".{directory.name}.{os.getpid()}.partial")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            _write_files(temporary, pairs, tokenizer, max_length)
            if directory.exists():
                shutil.rmtree(directory)
            os.replace(temporary, directory)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return cls.open(directory, tokenizer)

    @classmethod
    def open(cls, directory: str | os.PathLike, tokenizer: Tokenizer | None = None) -> "TokenStore":
        """Opens a store that `write` made.

        Args:
            directory: where it is.
            tokenizer: if given, it must be the one that made the store.

        Raises:
            FileNotFoundError: there is no store.
            ValueError: it is broken, or of another tokenizer.
        """
        directory = Path(directory)
        index = _read_index(directory)
        if tokenizer is not None and index["tokenizer_sha256"] != tokenizer.sha256:
            raise ValueError(
                f"tokenizer must be the one that made {directory}, of hash {index['tokenizer_sha256'][:12]}. "
                f"Received: one of hash {tokenizer.sha256[:12]}"
            )
        ids, offsets = {}, {}
        for side in _SIDES:
            num_ids = index["num_ids"][side]
            ids[side] = _map(directory / f"{side}_ids.bin", np.dtype(index["dtype"]), num_ids)
            offsets[side] = _map(directory / f"{side}_offsets.bin", np.dtype("<i8"), index["report"]["num_pairs"] + 1)
        return cls(ids, offsets, StoreReport(**index["report"]), index["tokenizer_sha256"])

    def ids(self, side: str, pair: int) -> np.ndarray:
        """Ids of one side ("source" or "target") of one pair, with the end mark."""
        start, end = self._offsets[side][pair : pair + 2]
        return np.asarray(self._ids[side][start:end], np.int32)

    def padded(self, side: str, pairs: np.ndarray, num_rows: int, length: int) -> np.ndarray:
        """Ids of one side of several pairs, padded to int32 [num_rows, length]; rows past the pairs are padding."""
        offsets = self._offsets[side]
        starts, lengths = offsets[pairs], offsets[pairs + 1] - offsets[pairs]
        positions = np.arange(length)
        real = positions < lengths[:, None]  # [pairs, length]
        padded = np.full((num_rows, length), PAD_ID, np.int32)
        padded[: len(pairs)][real] = self._ids[side][(starts[:, None] + positions)[real]]
        return padded


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
            which wastes about 5 % of the positions.

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
    ):
        if row_multiple < 1:
            raise ValueError(f"row_multiple must be positive. Received: {row_multiple}")
        if seed < 0:
            raise ValueError(f"seed must not be negative. Received: {seed}")
        if bucket_growth < 1.0:
            raise ValueError(f"bucket_growth must be at least 1. Received: {bucket_growth}")
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
        boundaries = _boundaries(longest, bucket_growth)
        # One number that sorts by target bucket, then source bucket, up and down in turn, so that a batch across two
        # target buckets has sources of one length. 16 bits make numpy's stable sort a radix sort.
        source = np.searchsorted(boundaries, store.source_lengths)
        target = np.searchsorted(boundaries, store.target_lengths)
        source = np.where(target % 2 == 0, source, len(boundaries) - 1 - source)
        keys = target * len(boundaries) + source
        self._keys = keys.astype(np.uint16 if len(boundaries) ** 2 <= 2**16 else np.int64)
        self._starts, self._shapes = self._cut(boundaries)
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

    def _cut(self, boundaries: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Cuts the sorted pairs into batches. It depends on how many pairs each bucket holds, not on which.

        Returns:
            starts int64 [num_batches + 1] and shapes int64 [num_batches, 3].
        """
        sizes, shapes = [], []
        size, source_length, target_length = 0, 0, 0  # the batch being filled

        def room(source_length, target_length):
            rows = self.tokens_per_batch // max(source_length, target_length)
            return rows - rows % self.row_multiple

        def close():
            if size:
                sizes.append(size)
                num_rows = -(-size // self.row_multiple) * self.row_multiple
                shapes.append((num_rows, source_length, target_length))

        for key, count in zip(*np.unique(self._keys, return_counts=True), strict=True):
            target, source = divmod(int(key), len(boundaries))
            source = source if target % 2 == 0 else len(boundaries) - 1 - source
            source, target = boundaries[source], boundaries[target]
            count = int(count)
            while count:
                wider = max(source_length, source), max(target_length, target)
                taken = min(count, room(*wider) - size)
                if taken <= 0:
                    close()
                    size, source_length, target_length = 0, 0, 0
                    continue
                size, count = size + taken, count - taken
                source_length, target_length = wider
        close()
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), np.array(shapes, np.int64)


def _boundaries(longest: int, growth: float) -> list[int]:
    """Lengths to pad to: ascending, the last one exactly `longest`."""
    boundaries = [min(4, longest)]
    while boundaries[-1] < longest:
        boundaries.append(min(longest, max(boundaries[-1] + 1, round(boundaries[-1] * growth))))
    return boundaries


def _dealt_order(num_batches: int, generator: np.random.Generator) -> np.ndarray:
    """A random order of batches that come sorted by length, in which no quarter has longer ones than another.

    Of each four neighbours by length, one goes to a random place in each quarter.
    """
    num_deals, rest = divmod(num_batches, 4)
    quarters = generator.permuted(np.tile(np.arange(4.0), (num_deals, 1)), axis=1).reshape(-1)
    places = quarters + generator.random(4 * num_deals)
    return np.argsort(np.concatenate([places, 4 * generator.random(rest)]))


def _encoded_chunks(pairs, tokenizer: Tokenizer, max_length: int | None, report: StoreReport, digest) -> Iterator:
    """Encodes pairs a chunk at a time, drops and counts; yields ((source ids, lengths), (target ids, lengths))."""
    dtype = _id_dtype(tokenizer)
    iterator = iter(pairs)
    while chunk := list(itertools.islice(iterator, _CHUNK_PAIRS)):
        for pair in chunk:
            _hash_pair(digest, pair)
        encoded = [tokenizer.encode([pair[side] for pair in chunk]) for side in range(2)]
        lengths = np.array([[len(ids) + 1 for ids in side] for side in encoded])  # [2, pairs], with the end mark
        numbers = report.num_read + 1 + np.arange(len(chunk))
        empty = (lengths == 1).any(axis=0)
        long = (lengths > max_length).any(axis=0) & ~empty if max_length else np.zeros_like(empty)
        report.add(NO_TOKENS, numbers[empty])
        report.add(TOO_LONG, numbers[long])
        kept = np.flatnonzero(~(empty | long))
        report.num_read += len(chunk)
        report.num_pairs += len(kept)
        yield tuple(
            (np.fromiter(itertools.chain.from_iterable((*ids[i], END_ID) for i in kept), dtype), lengths[side, kept])
            for side, ids in enumerate(encoded)
        )


def _id_dtype(tokenizer: Tokenizer) -> np.dtype:
    return np.dtype("<u2" if tokenizer.vocabulary_size <= 2**16 else "<i4")


def _hash_pair(digest, pair: tuple[str, str]) -> None:
    for text in pair:
        text = text.encode("utf-8", errors="surrogatepass")
        digest.update(b"%d:" % len(text))
        digest.update(text)


def _offsets(lengths: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype("<i8")


def _require_pairs(report: StoreReport) -> None:
    if not report.num_pairs:
        raise ValueError(f"pairs must leave at least one pair to train on. Received: {report}")


def _write_files(directory: Path, pairs, tokenizer: Tokenizer, max_length: int) -> None:
    report, digest = StoreReport(max_length=max_length), hashlib.sha256()
    lengths = {side: [] for side in _SIDES}
    with open(directory / "source_ids.bin", "wb") as source, open(directory / "target_ids.bin", "wb") as target:
        for chunk in _encoded_chunks(pairs, tokenizer, max_length, report, digest):
            for file, side, (ids, side_lengths) in zip((source, target), _SIDES, chunk, strict=True):
                ids.tofile(file)
                lengths[side].append(side_lengths)
    _require_pairs(report)
    num_ids = {}
    for side in _SIDES:
        offsets = _offsets(lengths[side])
        num_ids[side] = int(offsets[-1])
        offsets.tofile(directory / f"{side}_offsets.bin")
    index = {
        "format": _FORMAT,
        "tokenizer_sha256": tokenizer.sha256,
        "pairs_sha256": digest.hexdigest(),
        "dtype": _id_dtype(tokenizer).str,
        "num_ids": num_ids,
        "report": dataclasses.asdict(report),
    }
    (directory / _INDEX_FILE).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def _read_index(directory: Path) -> dict:
    path = directory / _INDEX_FILE
    if not path.is_file():
        raise FileNotFoundError(f"directory must be a token store; there is no {path}")
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"directory must be a token store. Received: {directory}, whose index is broken") from error
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        raise ValueError(f"directory must be a token store of format {_FORMAT}. Received: {directory}, of another one")
    return index


def _map(path: Path, dtype: np.dtype, count: int) -> np.ndarray:
    size = path.stat().st_size if path.is_file() else 0
    if size != count * dtype.itemsize:
        raise ValueError(f"{path} must have {count * dtype.itemsize} bytes; it has {size}: the token store is broken.")
    return np.memmap(path, dtype, mode="r", shape=(count,))


def _difference(directory: Path, pairs, tokenizer: Tokenizer, max_length: int) -> str:
    """How an existing directory differs from what is about to be written, or nothing."""
    try:
        index = _read_index(directory)
    except (FileNotFoundError, ValueError):
        return "holds something that is no whole token store"
    if index["tokenizer_sha256"] != tokenizer.sha256:
        return "holds a token store made with another tokenizer"
    if index["report"]["max_length"] != max_length:
        return f"holds a token store made with max_length={index['report']['max_length']}, not {max_length}"
    digest = hashlib.sha256()
    for pair in pairs:
        _hash_pair(digest, pair)
    return "" if index["pairs_sha256"] == digest.hexdigest() else "holds a token store made from other pairs"
