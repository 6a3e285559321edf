"""Token ids of a corpus, encoded once and kept beside the run."""

import dataclasses
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.files import replaced
from keras_transformer.vocabulary import END_ID, PAD_ID

# Pairs encoded at a time: enough to keep all threads busy, little enough to stay in tens of megabytes.
_CHUNK_PAIRS = 20_000
# Pair numbers that a report keeps of each kind.
_NUM_REPORTED_PAIRS = 5
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
        """Count dropped pairs of one kind."""
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
        pairs_sha256: hash of the text of all pairs, in their order.
    """

    def __init__(
        self,
        ids: dict[str, np.ndarray],
        offsets: dict[str, np.ndarray],
        report,
        tokenizer_sha256: str,
        pairs_sha256: str,
    ):
        self._ids = ids
        self._offsets = offsets
        self.report = report
        self.tokenizer_sha256 = tokenizer_sha256
        self.pairs_sha256 = pairs_sha256
        self.source_lengths, self.target_lengths = (np.diff(offsets[side]).astype(np.int32) for side in _SIDES)

    def __len__(self):
        return len(self.source_lengths)

    @classmethod
    def from_pairs(
        cls, pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer, *, max_length: int | None = None
    ) -> "TokenStore":
        """A store in memory, for development sets and experiments. See `write`; `max_length=None` sets no limit."""
        report = StoreReport(max_length=max_length)
        digest = hashlib.sha256()
        chunks = list(_encoded_chunks(pairs, tokenizer, max_length, report, digest))
        _require_pairs(report)
        ids, offsets = {}, {}
        for index, side in enumerate(_SIDES):
            ids[side] = np.concatenate([chunk[index][0] for chunk in chunks])
            offsets[side] = _offsets([chunk[index][1] for chunk in chunks])
        return cls(ids, offsets, report, tokenizer.sha256, digest.hexdigest())

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
        """Encode a corpus into a directory and open it; an existing store of the same content is opened as it is.

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
        with replaced(directory) as temporary:
            temporary.mkdir()
            _write_files(temporary, pairs, tokenizer, max_length)
            if directory.exists():
                shutil.rmtree(directory)
        return cls.open(directory, tokenizer)

    @classmethod
    def open(cls, directory: str | os.PathLike, tokenizer: Tokenizer | None = None) -> "TokenStore":
        """Open a store that `write` made.

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
        return cls(ids, offsets, StoreReport(**index["report"]), index["tokenizer_sha256"], index["pairs_sha256"])

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


def _encoded_chunks(pairs, tokenizer: Tokenizer, max_length: int | None, report: StoreReport, digest) -> Iterator:
    """Encode pairs a chunk at a time, drop and count; yield ((source ids, lengths), (target ids, lengths))."""
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
