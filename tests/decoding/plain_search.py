"""Toy next-token tables, and searches over them in plain Python, float64 and no hurry: what the graph's are held to.

A table gives every prefix its own logits. Prefixes are numbered like a heap: the empty one is 0, and number n's
children are 5 n + 1 .. 5 n + 5; longer ones than the table knows wrap around.
"""

import functools
import itertools
import math

import numpy as np
import tensorflow as tf

PADDING, START, END = 0, 1, 2
ORDINARY = (3, 4, 5, 6, 7)
VOCABULARY_SIZE = 8
MARKS = {"start_id": START, "end_id": END, "padding_id": PADDING}
# Prefixes of up to 4 tokens: all that a search with room for 5 can read.
NUM_PREFIXES = sum(len(ORDINARY) ** length for length in range(5))


def random_tables(seed, count, num_prefixes=NUM_PREFIXES, scale=1.5):
    """float32 logits [count, prefixes, V]; padding and start are as tempting as all else."""
    logits = np.random.default_rng(seed).normal(size=(count, num_prefixes, VOCABULARY_SIZE), scale=scale)
    return logits.astype("float32")


# === For the graph ===


def start_cache(tables, length, beam_size):
    """What `next_logits` starts with: the tables [B, P, V], and the ids read [B, L, K], where they were read."""
    return {"tables": tf.convert_to_tensor(tables), "ids": tf.zeros([tf.shape(tables)[0], length, beam_size], tf.int32)}


def grow(block_length):
    """A function from the cache to one with more room."""
    return lambda cache: {**cache, "ids": tf.pad(cache["ids"], [[0, 0], [0, block_length], [0, 0]])}


def next_logits(ids, cache, index, ancestry):
    """A next-token function that looks up the whole prefix of every hypothesis."""
    positions = tf.range(tf.shape(cache["ids"])[1])  # [L]
    written = tf.where((positions == index)[:, None], ids[:, None], cache["ids"])  # [B, L, K]
    slots = tf.maximum(tf.transpose(ancestry, [0, 2, 1]), 0)  # [B, L, K]
    read = tf.gather(written, slots, batch_dims=2)  # [B, L, K]
    digit = (positions > 0) & (positions <= index)  # the start id, at 0, is not one of the prefix
    weights = tf.where(digit, len(ORDINARY) ** tf.where(digit, index - positions, 0), 0)  # [L]
    prefixes = tf.reduce_sum((read - ORDINARY[0] + 1) * weights[:, None], axis=1)  # [B, K]
    prefixes %= tf.shape(cache["tables"])[1]
    return tf.gather(cache["tables"], prefixes, batch_dims=1), {**cache, "ids": written}


def hypotheses(result, row):
    """A row's results as `[(tokens, log_probability, score, finished), ...]`; checks their form."""
    found = []
    for ids, length, log_probability, score, finished in zip(
        *(np.asarray(field)[row].tolist() for field in result), strict=True
    ):
        tokens = tuple(ids[:length])
        assert all(token == PADDING for token in ids[length:])
        assert PADDING not in tokens
        assert START not in tokens
        assert tokens.count(END) == finished
        if finished:
            assert tokens[-1] == END
        if score == -math.inf:
            assert (length, log_probability, finished) == (0, -math.inf, False)
            continue
        found.append((tokens, log_probability, score, finished))
    assert len({tokens for tokens, *_ in found}) == len(found)
    return found


# === In Python ===


def log_softmax(logits):
    greatest = max(logits)
    normalizer = greatest + math.log(sum(math.exp(logit - greatest) for logit in logits))
    return [logit - normalizer for logit in logits]


class Table:
    """Logits and log-probabilities of the next token after any prefix."""

    def __init__(self, logits):
        self._logits = np.asarray(logits, "float64").tolist()
        self._log_probabilities = functools.cache(lambda number: log_softmax(self._logits[number]))

    def _number(self, tokens):
        number = 0
        for token in tokens:
            number = len(ORDINARY) * number + token - ORDINARY[0] + 1
        return number % len(self._logits)

    def logits(self, tokens):
        return self._logits[self._number(tokens)]

    def log_probabilities(self, tokens):
        return self._log_probabilities(self._number(tokens))

    def log_probability(self, tokens):
        return sum(self.log_probabilities(tokens[:place])[token] for place, token in enumerate(tokens))


def normalized(total, length, alpha):
    return total / ((5 + length) / 6) ** alpha


def allowed_tokens(tokens, *, prefix=(), min_length=0, no_repeat_ngram_size=0, blocked_ids=()):
    """What may come after `tokens`."""
    place = len(tokens)
    if place < len(prefix):
        return [prefix[place]]
    allowed = [token for token in (END, *ORDINARY) if token not in blocked_ids]
    if place < min_length:
        allowed.remove(END)
    if no_repeat_ngram_size:
        size = no_repeat_ngram_size
        written = {tokens[start : start + size] for start in range(place - size + 1)}
        allowed = [token for token in allowed if (*tokens, token)[-size:] not in written]
    return allowed


def guiding_log_probabilities(table, tokens, repetition_penalty):
    """What the search goes by: the model's, with the logits of tokens already written made worse."""
    if repetition_penalty == 1:
        return table.log_probabilities(tokens)
    logits = list(table.logits(tokens))
    for token in set(tokens):
        logits[token] = logits[token] / repetition_penalty if logits[token] > 0 else logits[token] * repetition_penalty
    return log_softmax(logits)


def beam_search(table, limit, *, beam_size, length_penalty=0.6, num_hypotheses=1, repetition_penalty=1.0, **rules):
    """Beam search to the limit, never stopping early: `[(tokens, log_probability, score, finished), ...]`, best first.

    A beam of one is greedy, which does stop at its first end mark.
    """
    live, finished = [((), 0.0)], []
    for length in range(1, limit + 1):
        candidates = []
        for tokens, total in live:
            guiding = guiding_log_probabilities(table, tokens, repetition_penalty)
            for token in allowed_tokens(tokens, **rules):
                if guiding[token] > -math.inf:
                    candidates.append(((*tokens, token), total + guiding[token]))
        candidates.sort(key=lambda candidate: -candidate[1])
        for tokens, total in candidates[:beam_size]:
            if tokens[-1] == END:
                finished.append((tokens, normalized(total, length, length_penalty), True))
        if beam_size == 1 and finished:
            break
        live = [candidate for candidate in candidates if candidate[0][-1] != END][:beam_size]
    finished.sort(key=lambda hypothesis: -hypothesis[1])
    results = finished + [(tokens, normalized(total, limit, length_penalty), False) for tokens, total in live]
    return [(tokens, table.log_probability(tokens), score, ended) for tokens, score, ended in results[:num_hypotheses]]


def settled_after(table, limit, *, beam_size, length_penalty, num_hypotheses):
    """The first step after which no live hypothesis can end better than the finished ones, by trying all lengths."""
    for length in range(1, limit + 1):
        results = beam_search(
            table, length, beam_size=beam_size, length_penalty=length_penalty, num_hypotheses=2 * beam_size * length
        )
        finished = [score for *_, score, ended in results if ended]
        totals = [total for _, total, _, ended in results if not ended]
        if beam_size == 1 and finished:
            return length
        reach = [normalized(max(totals), longer, length_penalty) for longer in range(length + 1, limit + 1)]
        if len(finished) >= num_hypotheses and all(finished[num_hypotheses - 1] >= score for score in reach):
            return length
    return limit


@functools.cache
def all_sequences(limit):
    """Every sequence that ends within the limit, shortest first, then in the order of their ids."""
    return [(*tokens, END) for length in range(limit) for tokens in itertools.product(ORDINARY, repeat=length)]


def all_log_probabilities(logits, limit):
    """The log-probability that one table's logits [P, V] give to each of `all_sequences`."""
    logits = logits.astype("float64")
    rows = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    live, ended = np.zeros([1]), []
    for _ in range(limit):
        level, rows = rows[: len(live)], rows[len(live) :]  # prefixes of a length are numbered one after the other
        ended.append(live + level[:, END])
        live = (live[:, None] + level[:, ORDINARY]).reshape([-1])
    return np.concatenate(ended)


def exhaustive_search(log_probabilities, limit, length_penalty, num_hypotheses):
    """The best of `all_sequences`, as `beam_search` gives them."""
    sequences = all_sequences(limit)
    lengths = np.array([len(tokens) for tokens in sequences])
    scores = normalized(log_probabilities, lengths, length_penalty)
    best = np.argsort(-scores, kind="stable")[:num_hypotheses]
    return [(sequences[i], float(log_probabilities[i]), float(scores[i]), True) for i in best]


def assert_same(found, wanted, tolerance=1e-6):
    """Same tokens in the same order; numbers within float32's rounding."""
    assert [(tokens, ended) for tokens, _, _, ended in found] == [(tokens, ended) for tokens, _, _, ended in wanted]
    for one, two in zip(found, wanted, strict=True):
        for number, exact in zip(one[1:3], two[1:3], strict=True):
            assert abs(number - exact) <= tolerance * (1 + abs(exact)), (one, two)
