"""Stores and batches against a plain reading: every pair, every token, every epoch, and where its budget goes."""

import functools
import itertools
import json
import random
import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.data.batches import Batches
from keras_transformer.data.token_store import NO_TOKENS, TOO_LONG, StoreReport, TokenStore
from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.vocabulary import END_ID, PAD_ID, START_ID


@pytest.fixture(scope="module")
def tokenizer():
    """One piece for each letter, so that the number of tokens is the number of words."""
    return Tokenizer.train([" ".join("abcdefghijklmnop")], vocabulary_size=260 + 17 + 16)


def make_pairs(num_pairs, seed=0, longest=20):
    """Pairs of one token a word, at least one a side."""
    generator = random.Random(seed)

    def side(length):
        return " ".join(generator.choices("abcdefghijklmnop", k=length))

    lengths = [generator.randint(1, longest) for _ in range(num_pairs)]
    return [(side(length), side(max(1, length + generator.randint(-2, 2)))) for length in lengths]


def store_of_lengths(source_lengths, target_lengths):
    """A store of given lengths, end mark counted, whose ids tell the pair."""
    ids, offsets = {}, {}
    for side, lengths in (("source", source_lengths), ("target", target_lengths)):
        lengths = np.asarray(lengths)
        offsets[side] = np.concatenate([[0], np.cumsum(lengths)])
        ids[side] = np.repeat(10 + np.arange(len(lengths), dtype=np.int32), lengths)
        ids[side][offsets[side][1:] - 1] = END_ID
    report = StoreReport(num_read=len(lengths), num_pairs=len(lengths))
    return TokenStore(ids, offsets, report, "0" * 64, "0" * 64)


def multi30k_lengths(num_pairs=29_000):
    """Lengths as in Multi30k English-German with 10,000 pieces: mean 15.0 and 15.5, deviation 4.4 and 5.1."""
    generator = np.random.default_rng(0)
    base = generator.gamma(11.5, 15.0 / 11.5, num_pairs)
    source = np.clip(np.rint(base), 4, 45)
    target = np.clip(np.rint(base * 1.03 * generator.lognormal(0.0, 0.17, num_pairs)), 3, 55)
    return source.astype(int), target.astype(int)


def rows_of(batch):
    """The real (source ids, target ids, labels) of each row that is not all padding."""
    features, labels, weights = (tf.nest.map_structure(np.asarray, part) for part in batch)
    for source, target, label, weight in zip(
        features["source_ids"], features["target_ids"], labels, weights, strict=True
    ):
        if (source != PAD_ID).any():
            yield tuple(tuple(side[side != PAD_ID].tolist()) for side in (source, target, label))
        else:
            assert not target.any()
            assert not label.any()
            assert not weight.any()


# The store


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_store_holds_what_the_tokenizer_gives(tokenizer, tmp_path, kind):
    pairs = make_pairs(50)
    if kind == "memory":
        store = TokenStore.from_pairs(pairs, tokenizer)
    else:
        store = TokenStore.write(tmp_path / "deep" / "store", iter(pairs), tokenizer, max_length=100)
        assert [path.name for path in (tmp_path / "deep").iterdir()] == ["store"]  # nothing temporary is left
    assert len(store) == store.report.num_pairs == store.report.num_read == 50
    for side, (name, lengths) in enumerate((("source", store.source_lengths), ("target", store.target_lengths))):
        expected = [[*ids, END_ID] for ids in tokenizer.encode([pair[side] for pair in pairs])]
        assert lengths.tolist() == list(map(len, expected))
        for pair, ids in enumerate(expected):
            assert store.ids(name, pair).tolist() == ids


def test_chunks_make_no_difference(tokenizer, tmp_path, monkeypatch):
    pairs = [*make_pairs(40), ("", "a"), ("a " * 100, "a"), *make_pairs(40, seed=1), ("a", " ")]
    whole = TokenStore.write(tmp_path / "whole", pairs, tokenizer, max_length=30)
    monkeypatch.setattr("keras_transformer.data.token_store._CHUNK_PAIRS", 7)
    chunked = TokenStore.write(tmp_path / "chunked", pairs, tokenizer, max_length=30)
    assert whole.report == chunked.report
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "chunked" / path.name).read_bytes(), path.name


def test_what_is_left_out_is_counted_with_its_number(tokenizer):
    pairs = [("a b", "c"), ("a", ""), ("a " * 9, "b"), (" ", "\n"), ("a", "b " * 50), ("a " * 8, "b")]
    store = TokenStore.from_pairs(pairs, tokenizer, max_length=9)
    limit = [len(tokenizer.encode([source])[0]) + 1 for source, _ in pairs]
    assert (limit[2], limit[5]) == (10, 9)  # the limit counts the end mark
    assert store.report.counts == {NO_TOKENS: 2, TOO_LONG: 2}
    assert store.report.rows == {NO_TOKENS: [2, 4], TOO_LONG: [3, 5]}
    assert (len(store), store.report.num_read) == (2, 6)
    text = str(store.report)
    assert "2 of 6 pairs stored" in text
    assert "dropped 2: longer than max_length 9 (pair 3, 5)" in text


def test_report_keeps_only_the_first_numbers(tokenizer, monkeypatch):
    monkeypatch.setattr("keras_transformer.data.token_store._CHUNK_PAIRS", 3)
    store = TokenStore.from_pairs([("", "a")] * 20 + [("a", "a")], tokenizer)
    assert store.report.counts == {NO_TOKENS: 20}
    assert "(pair 1, 2, 3, 4, 5, ...)" in str(store.report)


def test_no_pair_left_is_an_error(tokenizer, tmp_path):
    for pairs in ([], [("", "a")], [("a " * 50, "b")]):
        with pytest.raises(ValueError, match="at least one pair"):
            TokenStore.from_pairs(pairs, tokenizer, max_length=10)
        with pytest.raises(ValueError, match="at least one pair"):
            TokenStore.write(tmp_path / "store", pairs, tokenizer, max_length=10)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="max_length must be at least 2"):
        TokenStore.write(tmp_path / "store", [("a", "b")], tokenizer, max_length=1)


def test_existing_store_is_reused_only_if_it_matches(tokenizer, tmp_path, monkeypatch):
    pairs, path = make_pairs(20), tmp_path / "store"
    TokenStore.write(path, pairs, tokenizer, max_length=50)
    before = (path / "index.json").stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "encode", lambda *_: pytest.fail("encoded again"))
        assert len(TokenStore.write(path, pairs, tokenizer, max_length=50)) == 20
    assert (path / "index.json").stat().st_mtime_ns == before
    other = Tokenizer.train(["a b c d e f"], vocabulary_size=270)
    for arguments, difference in (
        ((pairs, tokenizer, 51), "max_length=50, not 51"),
        ((pairs[:-1], tokenizer, 50), "other pairs"),
        ((pairs[::-1], tokenizer, 50), "other pairs"),
        (([*pairs[:-1], (pairs[-1][0] + " a", pairs[-1][1])], tokenizer, 50), "other pairs"),
        ((pairs, other, 50), "another tokenizer"),
    ):
        with pytest.raises(ValueError, match=rf"{difference}.*overwrite=True"):
            TokenStore.write(path, arguments[0], arguments[1], max_length=arguments[2])
    store = TokenStore.write(path, pairs[:5], other, max_length=50, overwrite=True)
    assert (len(store), store.tokenizer_sha256) == (5, other.sha256)
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]


def test_files_of_others_are_never_deleted(tokenizer, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="directory must be empty or a token store"):
        TokenStore.write(tmp_path, make_pairs(3), tokenizer, max_length=50, overwrite=True)
    assert (tmp_path / "thesis.txt").exists()


def test_open_checks_the_store(tokenizer, tmp_path):
    path = tmp_path / "store"
    with pytest.raises(FileNotFoundError, match=r"index\.json"):
        TokenStore.open(path)
    TokenStore.write(path, make_pairs(20), tokenizer, max_length=50)
    assert len(TokenStore.open(path)) == len(TokenStore.open(path, tokenizer)) == 20
    with pytest.raises(ValueError, match="tokenizer must be the one that made"):
        TokenStore.open(path, Tokenizer.train(["a b c d e f"], vocabulary_size=270))
    content = (path / "target_ids.bin").read_bytes()
    (path / "target_ids.bin").write_bytes(content[:-2])
    with pytest.raises(ValueError, match=r"target_ids\.bin must have .* broken"):
        TokenStore.open(path)
    (path / "target_ids.bin").unlink()
    with pytest.raises(ValueError, match=r"target_ids\.bin must have .* broken"):
        TokenStore.open(path)
    for index in ("{", "[]", json.dumps({"format": 99})):
        (path / "index.json").write_text(index)
        with pytest.raises(ValueError, match="directory must be a token store"):
            TokenStore.open(path)
    # A broken store can be made again.
    assert len(TokenStore.write(path, make_pairs(4), tokenizer, max_length=50, overwrite=True)) == 4


def test_wide_ids_for_large_vocabularies(tokenizer, tmp_path):
    class Wide:
        vocabulary_size = 70_000
        sha256 = "1" * 64

        def encode(self, sentences):
            return [[69_999, 5] for _ in sentences]

    small = TokenStore.write(tmp_path / "small", [("a", "b")], tokenizer, max_length=9)
    wide = TokenStore.write(tmp_path / "wide", [("a", "b")], Wide(), max_length=9)
    assert (small._ids["source"].dtype, wide._ids["source"].dtype) == (np.uint16, np.int32)
    assert wide.ids("target", 0).tolist() == [69_999, 5, END_ID]
    assert Batches(wide, tokens_per_batch=9).batch(0, 0)[1].tolist() == [[69_999, 5, END_ID]]


# One batch


def test_shift_and_weights(tokenizer):
    """The pair ("a b", "c d") as the model and the loss see it."""
    store = TokenStore.from_pairs([("a b", "c d"), ("a b a b a b a b a b", "c")], tokenizer)
    (a, b), (c, d) = tokenizer.encode(["a b", "c d"])
    features, labels, weights = Batches(store, tokens_per_batch=100, row_multiple=3, shuffle=False).batch(0, 0)
    row = int(np.flatnonzero(features["source_ids"][:, 2] == END_ID)[0])
    assert features["source_ids"][row, :4].tolist() == [a, b, END_ID, PAD_ID]
    assert features["target_ids"][row].tolist() == [START_ID, c, d, PAD_ID][: labels.shape[1]]
    assert labels[row].tolist() == [c, d, END_ID, PAD_ID][: labels.shape[1]]
    assert weights[row].tolist() == [1, 1, 1, 0][: labels.shape[1]]
    assert features["source_ids"].dtype == features["target_ids"].dtype == labels.dtype == np.int32
    assert weights.dtype == np.float32
    # The third row fills up to row_multiple.
    assert features["source_ids"].shape[0] == 3
    assert not any(array[2].any() for array in (features["source_ids"], features["target_ids"], labels, weights))


def check_epoch(batches, epoch, pairs):
    """Every invariant of an epoch; `pairs` are the (source, target) ids without marks."""
    seen = []
    for step in range(batches.num_batches(epoch)):
        batch = batches.batch(epoch, step)
        features, labels, weights = batch
        source_ids, target_ids = features["source_ids"], features["target_ids"]
        assert target_ids.shape == labels.shape == weights.shape
        assert len(source_ids) == len(labels)
        assert len(source_ids) % batches.row_multiple == 0
        assert max(source_ids.size, labels.size) <= batches.tokens_per_batch
        np.testing.assert_array_equal(weights, labels != PAD_ID)
        np.testing.assert_array_equal(target_ids != PAD_ID, labels != PAD_ID)
        for source, target, label in rows_of(batch):
            assert source[-1] == label[-1] == END_ID
            assert target[0] == START_ID
            assert target[1:] == label[:-1]
            assert END_ID not in target
            seen.append((source[:-1], label[:-1]))
    assert sorted(seen) == sorted(pairs)
    return seen


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(2, 40), st.integers(2, 40)), min_size=1, max_size=60),
    slack=st.integers(0, 300),
    row_multiple=st.integers(1, 4),
    growth=st.sampled_from([1.0, 1.125, 1.5, 3.0]),
    num_shapes=st.sampled_from([None, 1, 2, 5]),
    shuffle=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_every_pair_once_within_the_budget(lengths, slack, row_multiple, growth, num_shapes, shuffle, epoch):
    source_lengths, target_lengths = zip(*lengths, strict=True)
    batches = Batches(
        store_of_lengths(source_lengths, target_lengths),
        tokens_per_batch=row_multiple * max(map(max, lengths)) + slack,
        row_multiple=row_multiple,
        shuffle=shuffle,
        bucket_growth=growth,
        num_shapes=num_shapes,
    )
    pairs = [((10 + i,) * (source - 1), (10 + i,) * (target - 1)) for i, (source, target) in enumerate(lengths)]
    check_epoch(batches, epoch, pairs)
    assert batches.statistics(epoch).num_batches == batches.num_batches(epoch)
    if num_shapes is not None:
        shapes = {
            (*features["source_ids"].shape, *features["target_ids"].shape)
            for features, _, _ in map(functools.partial(batches.batch, epoch), range(batches.num_batches()))
        }
        assert len(shapes) == batches.statistics().num_shapes <= num_shapes


def test_order_of_epochs(tokenizer):
    """100 pairs, 3 epochs: each pair once, other order each time, the same again from the same seed."""
    pairs = make_pairs(100)
    store = TokenStore.from_pairs(pairs, tokenizer)
    ids = [tuple(map(tuple, tokenizer.encode(pair))) for pair in pairs]
    epochs = [check_epoch(Batches(store, tokens_per_batch=128, seed=1), epoch, ids) for epoch in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    again = Batches(store, tokens_per_batch=128, seed=1)
    assert [check_epoch(again, epoch, ids) for epoch in (2, 0, 1)] == [epochs[2], epochs[0], epochs[1]]
    assert check_epoch(Batches(store, tokens_per_batch=128, seed=2), 0, ids) != epochs[0]
    # Pairs change their company too, not only the order of fixed batches.
    company = [
        {frozenset(batches.plan(epoch).pairs(step).tolist()) for step in range(batches.num_batches())}
        for batches, epoch in ((again, 0), (again, 1))
    ]
    assert len(company[0] & company[1]) < len(company[0]) / 2
    fixed = Batches(store, tokens_per_batch=128, shuffle=False)
    assert check_epoch(fixed, 0, ids) == check_epoch(fixed, 5, ids)


@pytest.mark.parametrize(("num_pairs", "tokens_per_batch"), [(100, 64), (100, 128), (1000, 256), (10_000, 1024)])
@pytest.mark.parametrize("num_shapes", [None, 4])
def test_no_part_of_an_epoch_has_longer_sentences(num_pairs, tokens_per_batch, num_shapes):
    generator = np.random.default_rng(num_pairs)
    lengths = np.sort(generator.integers(3, 21, num_pairs))  # a corpus sorted by length
    batches = Batches(store_of_lengths(lengths, lengths), tokens_per_batch=tokens_per_batch, num_shapes=num_shapes)
    for epoch in range(10):
        ordered = lengths[batches.plan(epoch).order]
        first, last = ordered[: num_pairs // 4].mean(), ordered[-(num_pairs // 4) :].mean()
        assert abs(first - last) < 0.1 * lengths.mean(), epoch


def test_every_batch_can_come_anywhere():
    """The balance does not fix the order: over many epochs each batch is equally often in each quarter."""
    lengths = np.repeat(np.arange(4, 44), 8)
    batches = Batches(store_of_lengths(lengths, lengths), tokens_per_batch=100, bucket_growth=1.0)
    quarters = np.zeros([len(lengths), 4])
    for epoch in range(1000):
        for quarter, part in enumerate(np.array_split(batches.plan(epoch).order, 4)):
            quarters[part, quarter] += 1
    np.testing.assert_allclose(quarters / 1000, 0.25, atol=0.08)


# The dataset


def take(dataset, count):
    return [tuple(rows_of(batch)) for batch in itertools.islice(dataset, count)]


@pytest.mark.parametrize("num_shapes", [None, 3])
def test_dataset_is_the_plan_and_goes_on_anywhere(num_shapes):
    source_lengths, target_lengths = multi30k_lengths(500)
    batches = Batches(
        store_of_lengths(source_lengths, target_lengths), tokens_per_batch=512, seed=3, num_shapes=num_shapes
    )
    count = batches.num_batches()
    expected = [tuple(rows_of(batches.batch(epoch, step))) for epoch in range(3) for step in range(count)]
    assert take(batches.dataset(), 3 * count) == expected
    for start in (0, 1, count - 1, count, count + 1, 2 * count + 3):
        assert take(batches.dataset(start), 3 * count - start) == expected[start:]
        once = list(batches.dataset(start, repeat=False))
        assert [tuple(rows_of(batch)) for batch in once] == expected[start : start + count - start % count]
        assert batches.dataset(start, repeat=False).cardinality() == len(once)
    assert batches.dataset().cardinality() == tf.data.INFINITE_CARDINALITY
    with pytest.raises(ValueError, match="start_step"):
        batches.dataset(-1)


def test_dataset_can_be_read_again_and_twice_at_once():
    lengths = multi30k_lengths(200)
    dataset = Batches(store_of_lengths(*lengths), tokens_per_batch=256).dataset(repeat=False)
    first = take(dataset, 1000)
    assert take(dataset, 1000) == first
    assert [tuple(rows_of(a)) == tuple(rows_of(b)) for a, b in zip(dataset, dataset, strict=True)] == [True] * len(
        first
    )


def test_dataset_specification():
    batches = Batches(store_of_lengths([4, 5], [6, 7]), tokens_per_batch=64)
    (features, labels, weights) = batches.dataset().element_spec
    for spec, dtype in ((features["source_ids"], tf.int32), (labels, tf.int32), (weights, tf.float32)):
        assert spec == tf.TensorSpec([None, None], dtype)
    assert features["target_ids"] == labels


# Budget


def test_budget_smaller_than_a_sentence_is_an_error():
    store = store_of_lengths([5, 31, 4], [5, 6, 7])
    Batches(store, tokens_per_batch=31)
    with pytest.raises(ValueError, match=r"tokens_per_batch must be at least 31 .*31 tokens.*Received: 30"):
        Batches(store, tokens_per_batch=30)
    Batches(store, tokens_per_batch=62, row_multiple=2)
    with pytest.raises(ValueError, match=r"at least 62 to hold row_multiple=2 .*Received: 61"):
        Batches(store, tokens_per_batch=61, row_multiple=2)


def test_other_arguments_out_of_range():
    store = store_of_lengths([5], [5])
    for arguments in ({"row_multiple": 0}, {"seed": -1}, {"bucket_growth": 0.9}, {"num_shapes": 0}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            Batches(store, tokens_per_batch=10, **arguments)
    with pytest.raises(IndexError, match="step must be from 0 to 0"):
        Batches(store, tokens_per_batch=10).batch(0, 1)


def test_one_endless_development_sentence_is_dropped_counted_and_bounded(tokenizer):
    pairs = [*make_pairs(30), ("a " * 5000, "b " * 5000)]
    store = TokenStore.from_pairs(pairs, tokenizer, max_length=64)
    assert store.report.rows == {TOO_LONG: [31]}
    batches = Batches(store, tokens_per_batch=256, shuffle=False)
    sizes = [labels.shape[0] * labels.shape[1] for _, labels, _ in batches.dataset(repeat=False)]
    assert max(sizes) <= 256


@pytest.mark.parametrize("tokens_per_batch", [2048, 4096, 8192])
@pytest.mark.parametrize("row_multiple", [1, 8])
def test_most_positions_are_real_tokens_on_lengths_of_multi30k(tokens_per_batch, row_multiple):
    batches = Batches(
        store_of_lengths(*multi30k_lengths()), tokens_per_batch=tokens_per_batch, row_multiple=row_multiple
    )
    statistics = batches.statistics()
    assert statistics.target_share > 0.94
    assert statistics.source_share > 0.83
    assert statistics.num_shapes <= 110
    # Counted again from the batches themselves.
    labels, weights = zip(*(batches.batch(1, step)[1:] for step in range(batches.num_batches(1))), strict=True)
    real = sum(weight.sum() for weight in weights)
    assert real == statistics.target_tokens == batches.store.target_lengths.sum()
    assert real / sum(label.size for label in labels) == pytest.approx(statistics.target_share)


@pytest.mark.parametrize("num_shapes", [None, 4])
def test_shapes_are_the_same_every_epoch(num_shapes):
    batches = Batches(store_of_lengths(*multi30k_lengths(3000)), tokens_per_batch=1024, num_shapes=num_shapes)
    first, second = (np.unique(batches.plan(epoch).shapes, axis=0, return_counts=True) for epoch in (0, 1))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("num_shapes", "least_share"), [(4, 0.75), (8, 0.85), (16, 0.89)])
def test_few_shapes_on_lengths_of_multi30k(num_shapes, least_share):
    batches = Batches(store_of_lengths(*multi30k_lengths()), tokens_per_batch=4096, num_shapes=num_shapes)
    statistics = batches.statistics()
    assert statistics.num_shapes <= num_shapes
    assert statistics.source_share > least_share
    assert statistics.target_share > least_share
    # Pairs are spread evenly: no batch has a row without need, none is much smaller than the others.
    plan = batches.plan(0)
    assert (plan.shapes[:, 0] - np.diff(plan.starts)).max() <= 1
    positions = plan.shapes[:, 0] * plan.shapes[:, 1:].max(axis=1)
    assert positions.min() > 4096 / 2


@pytest.mark.parametrize("num_shapes", [None, 8])
def test_millions_of_pairs_are_planned_quickly(num_shapes):
    """4.5 million pairs, the size of WMT14: about a second; the bound only catches a loop over pairs."""
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.lognormal(3.2, 0.6, 4_500_000), 2, 250).astype(np.int32)
    store = TokenStore.__new__(TokenStore)
    store.source_lengths, store.target_lengths = lengths, lengths[::-1].copy()
    start = time.monotonic()
    plan = Batches(store, tokens_per_batch=25_000, num_shapes=num_shapes).plan(1)
    assert time.monotonic() - start < 20
    np.testing.assert_array_equal(np.bincount(plan.order, minlength=len(lengths)), 1)


def test_dataset_is_faster_than_training():
    """At least 200,000 target tokens a second; measured about 6 million."""
    dataset = Batches(store_of_lengths(*multi30k_lengths(10_000)), tokens_per_batch=8192).dataset()
    iterator = iter(dataset)
    next(iterator)
    start = time.monotonic()
    tokens = sum(int(tf.math.count_nonzero(next(iterator)[1])) for _ in range(60))
    assert tokens / (time.monotonic() - start) > 200_000
