"""A synthetic English-German corpus that needs no download: our own lexicon and grammar, drawn by seed.

The sentences are generated, not collected: they are correct and mostly sensible, but they tell nothing of how people
write. The corpus shows that a model, a tokenizer and a training run work, in minutes, and nothing more.
"""

import random
import re
import zlib
from collections import Counter
from functools import lru_cache

from builtin_corpus import sentences
from builtin_corpus.sampler import Sampler

DEFAULT_NUM_PAIRS = {"train": 30_000, "dev": 500, "test": 500}
MAXIMUM_NUM_PAIRS = {"train": 200_000, "dev": 5_000, "test": 5_000}
MAXIMUM_WORDS = 30
# How often the default training split shows every word, English and German, that dev and test use.
MINIMUM_COUNTS = (10, 5)
# One combination of words in so many belongs to dev, and one to test; training never sees either.
_HELD_OUT_SHARE = 25


def _held_out_for(combination):
    """The split that a combination of two words is kept for: "dev", "test", or None."""
    return {0: "dev", 1: "test"}.get(zlib.crc32(combination.encode()) % _HELD_OUT_SHARE)


def _words(text):
    return re.findall(r"[\w'-]+", text)


@lru_cache(maxsize=4)
def _familiar_words(seed):
    """The English and the German words that the training split of default size shows often enough to be learned."""
    counts = Counter(), Counter()
    for pair in BuiltinCorpus("train", seed=seed):
        for counter, text in zip(counts, pair, strict=True):
            counter.update(_words(text))
    return tuple(
        frozenset(word for word, count in counter.items() if count >= minimum)
        for counter, minimum in zip(counts, MINIMUM_COUNTS, strict=True)
    )


def _split_of(combinations):
    reserved = {_held_out_for(combination) for combination in combinations} - {None}
    if not reserved:
        return "train"
    return reserved.pop() if len(reserved) == 1 else None


class BuiltinCorpus:
    """Iterates over the `(english, german)` pairs of one split of the built-in corpus.

    Every pair of words "verb + object" or "adjective + noun" belongs to one split: a sentence of `dev` or `test` has at
    least one such combination that training never shows. Its words are all familiar: the training split of default
    size shows each English word ten times or more, and each German one five times. No source occurs twice, in a split
    or across splits, and each source has one target.

    Args:
        split: "train", "dev" or "test".
        num_pairs: How many pairs. Default: 30,000 for "train", 500 for "dev" and "test". A smaller corpus is the
            beginning of a larger one.
        seed: Seed of the generator. The same seed gives the same pairs on every machine.

    Raises:
        ValueError: If `split` is none of the three or `num_pairs` is not between 1 and 200,000 ("train") or 5,000.
    """

    def __init__(self, split, *, num_pairs=None, seed=2017):
        if split not in DEFAULT_NUM_PAIRS:
            raise ValueError(f'`split` must be "train", "dev" or "test". Received: split={split!r}')
        num_pairs = DEFAULT_NUM_PAIRS[split] if num_pairs is None else num_pairs
        if not 1 <= num_pairs <= MAXIMUM_NUM_PAIRS[split]:
            raise ValueError(
                f"`num_pairs` of the {split} split must lie between 1 and {MAXIMUM_NUM_PAIRS[split]}. "
                f"Received: num_pairs={num_pairs}"
            )
        self.split = split
        self.num_pairs = num_pairs
        self.seed = seed

    def __len__(self):
        return self.num_pairs

    def __iter__(self):
        sampler = Sampler(random.Random(f"{self.split} {self.seed}"))
        seen, count = set(), 0
        while count < self.num_pairs:
            sentence = sentences.draw(sampler)
            if _split_of(sampler.combinations) != self.split:
                continue
            english = sentence.english()
            if english in seen or english.count(" ") >= MAXIMUM_WORDS:
                continue
            seen.add(english)
            pair = english, sentence.german()
            if self.split == "train" or self._is_familiar(pair):
                count += 1
                yield pair

    def _is_familiar(self, pair):
        return all(
            familiar.issuperset(_words(text)) for familiar, text in zip(_familiar_words(self.seed), pair, strict=True)
        )
