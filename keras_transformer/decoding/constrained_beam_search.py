"""Beam search for sequences that contain given phrases, in the TensorFlow graph."""

import dataclasses

import tensorflow as tf

from keras_transformer.decoding.beam_records import Continuations, Phrases
from keras_transformer.decoding.beam_search import BeamSearch
from keras_transformer.decoding.constraints import IMPOSSIBLE, log_normalizer, prefix_token, top_k


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstrainedBeamSearch(BeamSearch):
    """Beam search for the most probable sequences that contain given phrases, in any order: grid beam search.

    Plain beam search would drop an improbable phrase before its gain shows, so hypotheses compete only with those that
    cover as many phrase tokens as they do: there is a beam of `beam_size`, a bank, for each number of tokens covered,
    from 0 to `num_constraint_tokens`. A hypothesis goes on in one of three ways:

    - freely, by any token, unless it is within a phrase; it stays in its bank. A free token covers nothing, even if it
      looks like a phrase's: the phrase may follow later, and what looks like its beginning may go on otherwise;
    - by the first token of a phrase that it does not cover yet, unless it is within another; it goes up by one bank;
    - by the next token of the phrase that it is within, which is then its only way; it goes up by one bank.

    The end mark is free, and open only to hypotheses that cover all phrases of their row. So finished hypotheses
    contain all phrases, each in a place of its own: overlapping phrases are written one after the other, and a phrase
    given twice is written twice. The same tokens may be reached in several ways. Those that differ in what they cover
    go on side by side; of those that do not, one remains, so results never repeat.

    Finished hypotheses come from one bank and are ranked as in `BeamSearch`; a row is settled when no live hypothesis
    of any bank can reach a better score, as there. A row without phrases gets exactly what `BeamSearch` gives. With a
    beam of one, the first end mark settles such rows only.

    At the limit, live hypotheses fill the places that finished ones leave empty, those that cover more tokens first,
    whatever their scores. A row whose limit has no room for its phrases so gets one that covers as much as can be.

    Args:
        num_constraint_tokens: the most tokens W that the phrases of any row have together. The next-token function is
            asked for `beam_size * (W + 1)` hypotheses.
        beam_size: number of live hypotheses K in each bank. Defaults to 4.
        length_penalty, num_hypotheses, coverage_penalty: see `BeamSearch`.
        min_length, no_repeat_ngram_size, repetition_penalty, blocked_ids: see `Constraints`. A phrase may contain
            blocked tokens and repeat n-grams.

    Raises:
        ValueError: if an argument is out of its range.

    Reference:
        [Hokamp and Liu, 2017](https://arxiv.org/abs/1704.07138)
    """

    num_constraint_tokens: int

    def __post_init__(self):
        super().__post_init__()
        if self.num_constraint_tokens < 0:
            raise ValueError(
                "`num_constraint_tokens` must not be negative. "
                f"Received: num_constraint_tokens={self.num_constraint_tokens}"
            )

    @property
    def width(self):
        """Number of hypotheses that the next-token function is asked for, K (W + 1)."""
        return self.beam_size * (self.num_constraint_tokens + 1)

    @property
    def num_banks(self):
        """Number of banks, W + 1."""
        return self.num_constraint_tokens + 1

    def containing(self, num_phrase_tokens):
        """The same search for phrases of so many tokens."""
        return dataclasses.replace(self, num_constraint_tokens=num_phrase_tokens)

    def _phrases(self, constraint_ids, padding_id):
        """What each row must contain.

        Args:
            constraint_ids: int32 [B, C, P], C phrases of P tokens, of ordinary tokens, padded at their ends; a phrase
                of padding alone is none. A phrase with the end id can never be completed. One that stands in the row's
                prefix, or begins in it, may be covered there; it is then not asked for again.

        Raises:
            ValueError: if it has the wrong form.
            tf.errors.InvalidArgumentError: if the phrases of a row have more than `num_constraint_tokens` tokens. XLA
                cannot raise; such a row is not finished.
        """
        if constraint_ids is None:
            raise ValueError("`constraint_ids` must be given. Received: None")
        constraint_ids = tf.convert_to_tensor(constraint_ids)
        if constraint_ids.dtype != tf.int32 or constraint_ids.shape.rank != 3:
            raise ValueError(
                "`constraint_ids` must be int32 and of shape [rows, phrases, tokens]. "
                f"Received: constraint_ids of shape {constraint_ids.shape} and dtype {constraint_ids.dtype.name}"
            )
        lengths = tf.reduce_sum(tf.cast(constraint_ids != padding_id, tf.int32), 2)  # [B, C]
        tf.debugging.assert_less_equal(
            tf.reduce_sum(lengths, 1),
            self.num_constraint_tokens,
            "The phrases of a row in `constraint_ids` must not have more than `num_constraint_tokens` tokens.",
        )
        # Of equal phrases, the first is written first; else, each order of them would take places in the beam.
        place = tf.range(tf.shape(constraint_ids)[1])
        is_earlier = place < place[:, None]  # [C, C]
        twins = is_earlier & tf.reduce_all(constraint_ids[:, :, None] == constraint_ids[:, None], 3)  # [B, C, C]
        return Phrases(tf.pad(constraint_ids, [[0, 0], [0, 0], [0, 1]], constant_values=padding_id), lengths, twins)

    def _start(self, cache, rows, num_steps, special):
        state = super()._start(cache, rows, num_steps, special)
        shape = tf.shape(state.last_ids)  # [B, H]
        progress = tf.zeros(tf.concat([shape, [tf.shape(rows.phrases.lengths)[1]]], 0), tf.int32)
        return state._replace(progress=progress, texts=tf.zeros(shape, tf.int32))

    # === The steps of a step ===

    def _continuations(self, state, logits, rows, special):
        """The 2K best continuations of each bank, [B, W + 1, 2K]."""
        guiding = self._penalize(logits, state.ids, state.index)  # [B, H, V]
        normalizer = log_normalizer(guiding)[:, :, None]  # [B, H, 1]
        missing = state.progress < rows.phrases.lengths[:, None]  # [B, H, C]
        within = tf.reduce_any(missing & (state.progress > 0), 2)[:, :, None]  # [B, H, 1]
        free = self._freely(state, guiding, normalizer, missing, within, rows, special)
        by_phrase, written = self._by_phrase(state, guiding, normalizer, missing, within, rows, special)
        found = self._joined(free, by_phrase, written, special)

        # === The best of each bank, each once ===
        num_phrases = tf.shape(state.progress)[2]
        progress = tf.gather(state.progress, found.parents, batch_dims=1)  # [B, W + 1, M, C]
        progress += tf.one_hot(found.progress, num_phrases, dtype=tf.int32)
        texts = tf.gather(state.texts, found.parents, batch_dims=1) * logits.shape[-1] + found.tokens
        totals = tf.where(_repeats(texts, found.totals, progress), IMPOSSIBLE, found.totals)
        totals, chosen = tf.math.top_k(totals, 2 * self.beam_size)  # [B, W + 1, 2K]
        found = found._replace(progress=progress, texts=texts).take(chosen)._replace(totals=totals)
        return self._with_log_probabilities(found, state, logits, guiding)

    def _freely(self, state, guiding, normalizer, missing, within, rows, special):
        """The 2K best free continuations of each bank, [B, W + 1, 2K]."""
        beam_size, size = self.beam_size, guiding.shape[-1]
        may_end = ~tf.reduce_any(missing, 2)[:, :, None]  # [B, H, 1]
        allowed = self._forbid(guiding, state.ids, state.index, special, rows.prefix_ids, rows.min_lengths)
        allowed = tf.where(within | (~may_end & (tf.range(size) == special.end)), IMPOSSIBLE, allowed)
        best, tokens = top_k(allowed, min(2 * beam_size, size))  # [B, H, C]
        best, tokens = (tf.reshape(values, [-1, beam_size, values.shape[-1]]) for values in (best - normalizer, tokens))
        free = self._continue(tf.reshape(state.totals, [-1, beam_size]), best, tokens)
        free = tf.nest.map_structure(lambda values: tf.reshape(values, [-1, self.num_banks, values.shape[-1]]), free)
        return free._replace(parents=free.parents + beam_size * tf.range(self.num_banks)[:, None])

    def _by_phrase(self, state, guiding, normalizer, missing, within, rows, special):
        """All continuations by a phrase's next token, [B, H, C], and which phrase that is, -1 where it cannot be."""
        phrases = rows.phrases
        tokens = tf.gather(phrases.ids, tf.transpose(state.progress, [0, 2, 1]), batch_dims=2)  # [B, C, H]
        tokens = tf.transpose(tokens, [0, 2, 1])  # [B, H, C]: padding after a phrase's end
        may_follow = (tokens != special.padding) & (tokens != special.end) & (~within | (state.progress > 0))
        may_follow &= ~tf.reduce_any(phrases.twins[:, None] & missing[:, :, None], 3)
        if rows.prefix_ids is not None:
            wanted = prefix_token(rows.prefix_ids, state.index, special.padding)[:, None, None]  # [B, 1, 1]
            may_follow &= (wanted == special.padding) | (wanted == tokens)
        best = tf.gather(guiding, tokens, batch_dims=2) - normalizer  # [B, H, C]
        totals = tf.where(may_follow, state.totals[:, :, None] + best, IMPOSSIBLE)
        parents = tf.broadcast_to(tf.range(self.width)[:, None], tf.shape(tokens))
        return Continuations(totals, parents, tokens), tf.where(may_follow, tf.range(tf.shape(tokens)[2]), -1)

    def _joined(self, free, by_phrase, written, special):
        """Both kinds, by the bank they lead to, [B, W + 1, K (2 + C)]; `progress` is the phrase written in, or -1."""

        def join(free, by_phrase, nothing):
            num_more = self.beam_size * tf.shape(by_phrase)[2]
            by_phrase = tf.reshape(by_phrase, [tf.shape(free)[0], self.num_banks, num_more])
            raised = tf.pad(by_phrase, [[0, 0], [1, 0], [0, 0]], constant_values=nothing)[:, :-1]
            return tf.concat([free, raised], 2)

        return Continuations(
            totals=join(free.totals, by_phrase.totals, IMPOSSIBLE),
            parents=join(free.parents, by_phrase.parents, 0),
            tokens=join(free.tokens, by_phrase.tokens, special.padding),
            progress=join(tf.fill(tf.shape(free.tokens), -1), written, -1),
        )

    def _ending(self, found, rows):
        """The first K of the bank that covers all of a row's phrases."""
        num_tokens = tf.reduce_sum(rows.phrases.lengths, 1)  # [B]
        bank = tf.minimum(num_tokens, self.num_constraint_tokens)
        found = found._replace(progress=(), texts=())
        return tf.nest.map_structure(lambda values: tf.gather(values, bank, batch_dims=1)[:, : self.beam_size], found)

    def _living(self, found, special):
        """The K best of each bank that do not end, as slots [B, H]."""
        live = super()._living(found, special)  # [B, W + 1, K]

        def as_slots(values):
            return tf.reshape(values, tf.concat([[-1, self.width], tf.shape(values)[3:]], 0))

        live = tf.nest.map_structure(as_slots, live)
        slots = tf.range(self.width)
        same = live.texts[:, :, None] == live.texts[:, None]  # [B, H, H]
        return live._replace(texts=tf.reduce_min(tf.where(same, slots, self.width), 2))

    def _best_live(self, totals):
        return tf.reduce_max(totals, 1)

    def _stops_at_first_end(self, rows):
        return tf.reduce_sum(rows.phrases.lengths, 1) == 0

    def _fillers(self, state):
        """Those of the highest bank first."""
        slots = tf.range(self.width)
        order = tf.reshape(tf.reverse(tf.reshape(slots, [self.num_banks, self.beam_size]), [0]), [-1])  # [H]
        totals, texts = tf.gather(state.totals, order, axis=1), tf.gather(state.texts, order, axis=1)  # [B, H]
        totals = tf.where(_repeats(texts, totals), IMPOSSIBLE, totals)
        _, chosen = tf.math.top_k(tf.where(totals > IMPOSSIBLE, -slots, -self.width), self.num_hypotheses)  # [B, N]
        places = tf.gather(order, chosen)
        return state._replace(
            totals=tf.gather(totals, chosen, batch_dims=1),
            ids=tf.gather(state.ids, places, batch_dims=1),
            log_probabilities=tf.gather(state.log_probabilities, places, batch_dims=1),
            coverage=tf.gather(state.coverage, places, batch_dims=1) if self.needs_attention else (),
        )


def _repeats(texts, totals, progress=None):
    """Whether an earlier hypothesis has the same text and the same progress: boolean [.., M], as `texts`."""
    place = tf.range(tf.shape(texts)[-1])
    same = (texts[..., None] == texts[..., None, :]) & (place < place[:, None])  # [.., M, M]
    if progress is not None:
        same &= tf.reduce_all(progress[..., None, :] == progress[..., None, :, :], -1)
    return tf.reduce_any(same & (totals > IMPOSSIBLE)[..., None, :], -1)
