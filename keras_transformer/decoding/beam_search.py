"""Beam search in the TensorFlow graph."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from keras_transformer.decoding.constraints import Constraints
from keras_transformer.decoding.length_penalty import best_possible_score, length_penalty
from keras_transformer.decoding.loop import run_blocks, search_limits
from keras_transformer.decoding.search_result import SearchResult
from keras_transformer.decoding.top_k import log_normalizer

_IMPOSSIBLE = float("-inf")


class _State(NamedTuple):
    index: tf.Tensor  # int32 []: number of steps taken
    settled: tf.Tensor  # bool [B]: rows whose result no further step can change
    # Live hypotheses, best first; one that does not exist has a total of -inf.
    last_ids: tf.Tensor  # int32 [B, K]: what the next step reads
    ids: tf.Tensor  # int32 [B, K, L]
    ancestry: tf.Tensor  # int32 [B, K, L]: the slot that each position of a hypothesis was in, -1 where there is none
    totals: tf.Tensor  # float32 [B, K]: what the search adds up
    log_probabilities: tf.Tensor  # float32 [B, K]: what the model says; differs under a repetition penalty only
    coverage: object  # float32 [B, K, S]: attention that each source position got; () without a penalty
    # Finished hypotheses, best first; one that does not exist has a score of -inf.
    finished_ids: tf.Tensor  # int32 [B, N, L]
    finished_lengths: tf.Tensor  # int32 [B, N]
    finished_log_probabilities: tf.Tensor  # float32 [B, N]
    finished_scores: tf.Tensor  # float32 [B, N]
    cache: object  # nested tensors that belong to the next-token function


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearch(Constraints):
    """Search for the most probable sequences, a beam of hypotheses at a time; with `beam_size=1`, greedily.

    Each step extends all live hypotheses by all tokens and looks at the `2 * beam_size` best results. Those among the
    first `beam_size` that end are finished and leave the beam; the `beam_size` best that do not end live on. Finished
    hypotheses are ranked by

        score = log_probability / ((5 + length) / 6) ** length_penalty + coverage penalty

    with their end mark counted. A row is settled when no live hypothesis can reach a better score than its
    `num_hypotheses` finished ones (`best_possible_score` has the bound and its proof), so stopping never changes a
    result: it is that of a search that goes on to the limit. At the limit, live hypotheses fill the places that
    finished ones leave empty. With a beam of one the row is settled by the first end mark, as greedy search defines.

    A row depends on nothing but itself; the loop ends with the last row that is not settled.

    Args:
        beam_size: number of live hypotheses K. Defaults to 4 (paper, section 6.1).
        length_penalty: alpha, of any sign. Defaults to 0.6 (paper, section 6.1).
        num_hypotheses: how many results N to return for each row, at most `beam_size`. Defaults to 1.
        coverage_penalty: beta of GNMT's coverage penalty, added to the scores of finished hypotheses; it needs a
            next-token function that returns attention. Defaults to 0.
        min_length, no_repeat_ngram_size, repetition_penalty, blocked_ids: see `Constraints`.

    Raises:
        ValueError: if an argument is out of its range.

    Reference:
        [Wu et al., 2016, section 7](https://arxiv.org/abs/1609.08144)
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    num_hypotheses: int = 1
    coverage_penalty: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        if self.beam_size < 1:
            raise ValueError(f"`beam_size` must be positive. Received: beam_size={self.beam_size}")
        if not 1 <= self.num_hypotheses <= self.beam_size:
            raise ValueError(
                "`num_hypotheses` must be positive and at most `beam_size`. "
                f"Received: num_hypotheses={self.num_hypotheses}, beam_size={self.beam_size}"
            )
        if self.coverage_penalty < 0:
            raise ValueError(
                f"`coverage_penalty` must not be negative. Received: coverage_penalty={self.coverage_penalty}"
            )

    @property
    def width(self):
        """Number of hypotheses that the next-token function is asked for, K."""
        return self.beam_size

    @tf.autograph.experimental.do_not_convert
    def __call__(
        self,
        next_logits,
        cache,
        max_lengths,
        *,
        start_id,
        end_id,
        padding_id=0,
        prefix_ids=None,
        min_lengths=None,
        length_penalties=None,
        max_length=None,
        grow_cache=None,
        block_length=None,
        source_mask=None,
    ):
        """Search.

        Shapes: B rows, K `beam_size`, N `num_hypotheses`, V vocabulary, L the longest limit, S source positions.

        Args:
            next_logits: function `(ids, cache, index, ancestry) -> (logits, cache)`: from the ids [B, K] at position
                `index` and the cache of the positions before, the float32 logits [B, K, V] of the next tokens and the
                new cache. Row b's hypothesis k had its position t in slot `ancestry[b, k, t]` (int32 [B, K, C], C the
                positions that the cache has room for; -1 from `index` + 1 on). Nothing in the cache is ever moved, so
                the function has to read position t of the hypothesis from that slot. With a coverage penalty it
                returns the attention [B, K, S] as a third value.
            cache: what `next_logits` needs at index 0, a nested structure of tensors; without room, if it can grow.
                If it can, the first dimension of all its tensors must be the rows, of which fewer remain as rows are
                settled: all that `next_logits` knows of its rows must then be in the cache.
            max_lengths: int32 [B], the most tokens of each row, the end id counted; a row of 0 stays empty.
            start_id: the id read at index 0.
            end_id: the id that ends a hypothesis.
            padding_id: the id that fills up results. Defaults to 0.
            prefix_ids: int32 [B, P], tokens that each row must begin with, padded; their log-probabilities count.
            min_lengths: int32 [B], for each row in place of `min_length`.
            length_penalties: float32 [B], for each row in place of `length_penalty`.
            max_length: L, if it is known; XLA needs it to be static. Greater `max_lengths` are cut to it. Defaults to
                the greatest of `max_lengths`.
            grow_cache: function from a cache to one with room for `block_length` more positions. Without it, the cache
                must have room for L positions from the start.
            block_length: number of positions that the cache grows by; comes with `grow_cache`.
            source_mask: boolean [B, S], the source's real tokens; required by a coverage penalty.

        Returns:
            A `SearchResult`, best hypothesis first.
        """
        beam_size, num_hypotheses = self.beam_size, self.num_hypotheses
        if bool(self.coverage_penalty) != (source_mask is not None):
            raise ValueError("`source_mask` must be given with a coverage penalty, and only with one.")
        batch_size = tf.shape(max_lengths)[0]
        if length_penalties is None:
            length_penalties = tf.fill([batch_size], tf.cast(self.length_penalty, tf.float32))
        max_lengths, max_length, width = search_limits(max_lengths, max_length, grow_cache, block_length)
        beam = tf.range(beam_size)

        def step(state, room, row_inputs):
            max_lengths, alphas = row_inputs["max_lengths"], row_inputs["length_penalties"]
            source_mask = row_inputs.get("source_mask")
            # === The model ===
            here = tf.range(width) == state.index  # [L]
            ancestry = tf.where(here, beam[:, None], state.ancestry)  # [B, K, L]
            logits, cache, *attention = next_logits(state.last_ids, state.cache, state.index, ancestry[:, :, :room])
            if bool(attention) != (source_mask is not None):
                raise ValueError("`next_logits` must return attention with a coverage penalty, and only with one.")
            coverage = state.coverage + attention[0] if attention else state.coverage  # [B, K, S]

            # === The 2K best continuations, best first ===
            guiding = self._penalize(logits, state.ids, state.index)  # [B, K, V]
            best, tokens = self._best(  # [B, K, C]
                guiding,
                2 * beam_size,
                state.ids,
                state.index,
                row_inputs.get("prefix_ids"),
                row_inputs.get("min_lengths"),
                start_id=start_id,
                end_id=end_id,
                padding_id=padding_id,
            )
            totals, parents, tokens = self._continue(state.totals, best, tokens)  # [B, 2K]
            log_probabilities = totals
            if guiding is not logits:
                log_probabilities = self._add_log_probabilities(state.log_probabilities, logits, parents, tokens)
            ids = tf.where(here, tokens[:, :, None], tf.gather(state.ids, parents, batch_dims=1))  # [B, 2K, L]
            ends = tokens == end_id  # [B, 2K]

            # === Finished hypotheses: those that end among the first K join them ===
            active = ~state.settled  # [B]
            length = state.index + 1
            scores = totals / length_penalty(length, alphas)[:, None]
            if attention:
                scores += self._coverage_score(tf.gather(coverage, parents, batch_dims=1), source_mask)
            scores = tf.where(ends & active[:, None], scores, _IMPOSSIBLE)[:, :beam_size]  # [B, K]
            state = self._finish(state, scores, log_probabilities[:, :beam_size], ids[:, :beam_size])

            # === Live hypotheses: the K best that do not end ===
            totals, chosen = tf.math.top_k(tf.where(ends, _IMPOSSIBLE, totals), beam_size)  # [B, K]
            parents = tf.gather(parents, chosen, batch_dims=1)
            # A settled row keeps its live hypotheses as they were: its result may need them.
            ids = tf.where(active[:, None, None], tf.gather(ids, chosen, batch_dims=1), state.ids)
            totals = tf.where(active[:, None], totals, state.totals)
            log_probabilities = tf.gather(log_probabilities, chosen, batch_dims=1)
            log_probabilities = tf.where(active[:, None], log_probabilities, state.log_probabilities)
            if attention:
                kept_coverage = tf.gather(coverage, parents, batch_dims=1)
                coverage = tf.where(active[:, None, None], kept_coverage, state.coverage)

            best_live = best_possible_score(totals[:, 0], length, max_lengths, alphas)  # [B]
            beaten = state.finished_scores[:, -1] >= best_live
            if beam_size == 1:
                beaten |= state.finished_scores[:, 0] > _IMPOSSIBLE
            return state._replace(
                index=length,
                settled=state.settled | beaten | (length >= max_lengths),
                last_ids=tf.gather(tokens, chosen, batch_dims=1),
                ids=ids,
                ancestry=tf.gather(ancestry, parents, batch_dims=1),
                totals=totals,
                log_probabilities=log_probabilities,
                coverage=coverage,
                cache=cache,
            )

        start = _State(
            index=tf.constant(0),
            settled=max_lengths <= 0,
            last_ids=tf.fill([batch_size, beam_size], start_id),
            ids=tf.fill([batch_size, beam_size, width], padding_id),
            ancestry=tf.fill([batch_size, beam_size, width], -1),
            # All hypotheses would begin alike, so there is one at first.
            totals=tf.tile([[0.0] + [_IMPOSSIBLE] * (beam_size - 1)], [batch_size, 1]),
            log_probabilities=tf.zeros([batch_size, beam_size]),
            coverage=() if source_mask is None else tf.zeros([batch_size, beam_size, tf.shape(source_mask)[1]]),
            finished_ids=tf.fill([batch_size, num_hypotheses, width], padding_id),
            finished_lengths=tf.zeros([batch_size, num_hypotheses], tf.int32),
            finished_log_probabilities=tf.fill([batch_size, num_hypotheses], _IMPOSSIBLE),
            finished_scores=tf.fill([batch_size, num_hypotheses], _IMPOSSIBLE),
            cache=cache,
        )
        row_inputs = {
            "max_lengths": max_lengths,
            "length_penalties": length_penalties,
            "prefix_ids": prefix_ids,
            "min_lengths": min_lengths,
            "source_mask": source_mask,
        }
        row_inputs = {name: rows for name, rows in row_inputs.items() if rows is not None}
        end = run_blocks(step, start, width, grow_cache, block_length, row_inputs)
        return self._result(end, max_lengths, length_penalties, source_mask, padding_id, max_length)

    def _continue(self, totals, best, tokens):
        """The 2K best continuations of K live hypotheses, best first.

        Args:
            totals: float32 [B, K].
            best: float32 [B, K, C], log-probabilities of the hypotheses' best continuations.
            tokens: int32 [B, K, C], what they are continued by.

        Returns:
            `(totals, parents, tokens)`, each [B, 2K].
        """
        beam_size, num_candidates = self.beam_size, best.shape[-1]
        # A log-probability is at most 0, so no rounding makes a total greater than its parent's, which the stopping
        # bound relies on.
        totals = tf.reshape(totals[:, :, None] + best, [-1, beam_size * num_candidates])  # [B, K C]
        totals, chosen = tf.math.top_k(totals, min(2, num_candidates) * beam_size)  # [B, 2K]
        tokens = tf.gather(tf.reshape(tokens, [-1, beam_size * num_candidates]), chosen, batch_dims=1)
        return totals, chosen // num_candidates, tokens

    def _add_log_probabilities(self, log_probabilities, logits, parents, tokens):
        """The model's log-probabilities [B, M] of continuations of hypotheses that had these [B, K]."""
        size = logits.shape[-1]
        flat = tf.reshape(logits, [-1, logits.shape[1] * size])  # [B, K V]
        before = tf.gather(log_probabilities - log_normalizer(logits), parents, batch_dims=1)
        return before + tf.gather(flat, parents * size + tokens, batch_dims=1)

    def _finish(self, state, scores, log_probabilities, ids):
        """The state with new hypotheses among the finished ones, of which the N best stay.

        Args:
            state: the state, `index` tokens long.
            scores, log_probabilities: float32 [B, K]; a score of minus infinity means that there is none.
            ids: int32 [B, K, L], `index` + 1 tokens long.
        """
        finished_scores, kept = tf.math.top_k(tf.concat([state.finished_scores, scores], 1), self.num_hypotheses)

        def keep(finished, new):
            return tf.gather(tf.concat([finished, new], 1), kept, batch_dims=1)

        return state._replace(
            finished_ids=keep(state.finished_ids, ids),
            finished_lengths=keep(state.finished_lengths, tf.fill(tf.shape(scores), state.index + 1)),
            finished_log_probabilities=keep(state.finished_log_probabilities, log_probabilities),
            finished_scores=finished_scores,
        )

    def _result(self, end, max_lengths, length_penalties, source_mask, padding_id, max_length):
        """The result of the last state: finished hypotheses first, then the live ones."""
        num_hypotheses = self.num_hypotheses
        num_finished = tf.reduce_sum(tf.cast(end.finished_scores > _IMPOSSIBLE, tf.int32), 1, keepdims=True)  # [B, 1]
        place = tf.range(num_hypotheses)  # [N]
        finished = place < num_finished  # [B, N]
        chosen = tf.where(finished, place, num_hypotheses + place - num_finished)  # [B, N]
        exists = end.totals > _IMPOSSIBLE  # [B, K]
        lengths = tf.where(exists, max_lengths[:, None], 0)
        scores = end.totals / length_penalty(max_lengths, length_penalties)[:, None]
        if source_mask is not None:
            scores += self._coverage_score(end.coverage, source_mask)

        def rank(finished, live):
            return tf.gather(tf.concat([finished, live], 1), chosen, batch_dims=1)

        return SearchResult(
            ids=rank(end.finished_ids, tf.where(exists[:, :, None], end.ids, padding_id))[:, :, :max_length],
            lengths=rank(end.finished_lengths, lengths),
            log_probabilities=rank(
                end.finished_log_probabilities, tf.where(exists, end.log_probabilities, _IMPOSSIBLE)
            ),
            scores=rank(end.finished_scores, scores),
            finished=finished,
        )

    def _coverage_score(self, coverage, source_mask):
        """GNMT's coverage penalty of [B, K', S] attention, [B, K']: beta times the logarithms of what lacks."""
        lacking = tf.math.log(tf.clip_by_value(coverage, 1e-9, 1.0))
        return self.coverage_penalty * tf.reduce_sum(tf.where(source_mask[:, None], lacking, 0.0), axis=2)
