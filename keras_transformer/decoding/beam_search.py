"""Beam search in the TensorFlow graph."""

import dataclasses

import tensorflow as tf

from keras_transformer.decoding.beam_records import Continuations, RowInputs, State, best_possible_score, length_penalty
from keras_transformer.decoding.constraints import IMPOSSIBLE, Constraints, SpecialIds, log_normalizer
from keras_transformer.decoding.loop import run_blocks, search_limits
from keras_transformer.decoding.search import Search, SearchResult


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
    def width(self) -> int:
        """Number of hypotheses that the next-token function is asked for, K."""
        return self.beam_size

    @property
    def needs_attention(self) -> bool:
        """Whether the next-token function must return attention."""
        return self.coverage_penalty > 0

    @property
    def needs_seeds(self) -> bool:
        """Whether the search draws random numbers."""
        return False

    def containing(self, num_phrase_tokens: int) -> Search:
        """The search for sequences that contain phrases of so many tokens in all; see `ConstrainedBeamSearch`."""
        from keras_transformer.decoding.constrained_beam_search import ConstrainedBeamSearch

        return ConstrainedBeamSearch(**dataclasses.asdict(self), num_constraint_tokens=num_phrase_tokens)

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
        constraint_ids=None,
    ):
        """Search. `Search` says what the arguments are that are not told here.

        Args:
            min_lengths: int32 [B], for each row in place of `min_length`.
            length_penalties: float32 [B], for each row in place of `length_penalty`.
            source_mask: boolean [B, S], the source's real tokens; required by a coverage penalty.
            constraint_ids: for a `ConstrainedBeamSearch`.

        Returns:
            A `SearchResult`, best hypothesis first.
        """
        if self.needs_attention != (source_mask is not None):
            raise ValueError("`source_mask` must be given with a coverage penalty, and only with one.")
        max_lengths, max_length, num_steps = search_limits(max_lengths, max_length, grow_cache, block_length)
        if length_penalties is None:
            length_penalties = tf.fill(tf.shape(max_lengths), tf.cast(self.length_penalty, tf.float32))
        phrases = self._phrases(constraint_ids, padding_id)
        rows = RowInputs(max_lengths, length_penalties, prefix_ids, min_lengths, source_mask, phrases)
        special = SpecialIds(start_id, end_id, padding_id)

        def step(state, room, rows):
            return self._step(next_logits, state, room, rows, special)

        state = run_blocks(
            step, self._start(cache, rows, num_steps, special), num_steps, grow_cache, block_length, rows
        )
        return self._result(self._fillers(state), rows, padding_id, max_length)

    # === The steps of a step ===

    def _phrases(self, constraint_ids, padding_id):
        """What each row must contain; nothing without banks."""
        if constraint_ids is not None:
            raise ValueError("`constraint_ids` need a `ConstrainedBeamSearch`. Received: a `BeamSearch`")

    def _start(self, cache, rows, num_steps, special):
        """The state before the first step."""
        batch_size, num_live, num_hypotheses = tf.shape(rows.max_lengths)[0], self.width, self.num_hypotheses
        coverage = ()
        if rows.source_mask is not None:
            coverage = tf.zeros([batch_size, num_live, tf.shape(rows.source_mask)[1]])
        return State(
            index=tf.constant(0),
            settled=rows.max_lengths <= 0,
            last_ids=tf.fill([batch_size, num_live], special.start),
            ids=tf.fill([batch_size, num_live, num_steps], special.padding),
            ancestry=tf.fill([batch_size, num_live, num_steps], -1),
            # All hypotheses would begin alike, so there is one at first.
            totals=tf.tile([[0.0] + [IMPOSSIBLE] * (num_live - 1)], [batch_size, 1]),
            log_probabilities=tf.zeros([batch_size, num_live]),
            coverage=coverage,
            progress=(),
            texts=(),
            finished_ids=tf.fill([batch_size, num_hypotheses, num_steps], special.padding),
            finished_lengths=tf.zeros([batch_size, num_hypotheses], tf.int32),
            finished_log_probabilities=tf.fill([batch_size, num_hypotheses], IMPOSSIBLE),
            finished_scores=tf.fill([batch_size, num_hypotheses], IMPOSSIBLE),
            cache=cache,
        )

    def _step(self, next_logits, state, room, rows, special):
        """The state with all hypotheses one token longer."""
        length = state.index + 1
        ancestry, logits, cache, coverage = self._look(next_logits, state, room, rows)
        found = self._continuations(state, logits, rows, special)
        here = tf.range(_size(state.ids, 2)) == state.index  # [L]

        def write(found):
            return tf.where(here, found.tokens[:, :, None], tf.gather(state.ids, found.parents, batch_dims=1))

        # === Finished hypotheses: those that end among the first K join them ===
        ending = self._ending(found, rows)  # [B, K]
        scores = ending.totals / length_penalty(length, rows.length_penalties)[:, None]
        if self.needs_attention:
            scores += self._coverage_score(tf.gather(coverage, ending.parents, batch_dims=1), rows.source_mask)
        ends = (ending.tokens == special.end) & ~state.settled[:, None]
        finished = self._finish(state, tf.where(ends, scores, IMPOSSIBLE), ending.log_probabilities, write(ending))

        # === Live hypotheses: the K best of each bank that do not end ===
        live = self._living(found, special)  # [B, H]
        if self.needs_attention:
            coverage = tf.gather(coverage, live.parents, batch_dims=1)
        # A settled row keeps its live hypotheses as they were: its result may need them.
        kept = {
            "ids": write(live),
            "totals": live.totals,
            "log_probabilities": live.log_probabilities,
            "coverage": coverage,
            "texts": live.texts,
        }
        kept = {name: _where_active(state.settled, new, getattr(state, name)) for name, new in kept.items()}
        return finished._replace(
            index=length,
            settled=self._settled(finished, kept["totals"], length, rows),
            last_ids=live.tokens,
            ancestry=tf.gather(ancestry, live.parents, batch_dims=1),
            progress=live.progress,
            cache=cache,
            **kept,
        )

    def _look(self, next_logits, state, room, rows):
        """Ask for the next tokens: `(ancestry [B, H, L], logits [B, H, V], cache, coverage [B, H, S] or ())`."""
        here = tf.range(_size(state.ids, 2)) == state.index  # [L]
        ancestry = tf.where(here, tf.range(self.width)[:, None], state.ancestry)
        logits, cache, *attention = next_logits(state.last_ids, state.cache, state.index, ancestry[:, :, :room])
        if bool(attention) != self.needs_attention:
            raise ValueError("`next_logits` must return attention with a coverage penalty, and only with one.")
        return ancestry, logits, cache, state.coverage + attention[0] if attention else ()

    def _continuations(self, state, logits, rows, special):
        """The 2K best continuations, [B, 2K]."""
        guiding = self._penalize(logits, state.ids, state.index)  # [B, K, V]
        best, tokens = self._best(  # [B, K, C]
            guiding, 2 * self.beam_size, state.ids, state.index, special, rows.prefix_ids, rows.min_lengths
        )
        found = self._continue(state.totals, best, tokens)
        return self._with_log_probabilities(found, state, logits, guiding)

    def _ending(self, found, rows):
        """Those of the continuations that may finish, if they end: the first K."""
        return tf.nest.map_structure(lambda values: values[:, : self.beam_size], found)

    def _living(self, found, special):
        """Those that live on: the K best that do not end."""
        totals = tf.where(found.tokens == special.end, IMPOSSIBLE, found.totals)
        totals, chosen = tf.math.top_k(totals, self.beam_size)  # [B, K]
        return found.take(chosen)._replace(totals=totals)

    def _settled(self, state, totals, length, rows):
        """Whether no further step can change a row's result, [B]."""
        best_live = self._best_live(totals)  # [B]
        best_live = best_possible_score(best_live, length, rows.max_lengths, rows.length_penalties)
        beaten = state.finished_scores[:, -1] >= best_live
        if self.beam_size == 1:
            beaten |= self._stops_at_first_end(rows) & (state.finished_scores[:, 0] > IMPOSSIBLE)
        return state.settled | beaten | (length >= rows.max_lengths)

    def _best_live(self, totals):
        """The greatest total of the live hypotheses, [B]; the first one's, as they stand best first."""
        return totals[:, 0]

    def _stops_at_first_end(self, rows):
        """Whether the first end mark settles a row that has a beam of one, as greedy search defines."""
        return True

    def _fillers(self, state):
        """The state with the live hypotheses in the order in which they fill places that finished ones leave empty."""
        return state

    def _continue(self, totals, best, tokens):
        """The 2K best continuations of K live hypotheses, best first.

        Args:
            totals: float32 [B, K].
            best: float32 [B, K, C], log-probabilities of the hypotheses' best continuations.
            tokens: int32 [B, K, C], what they are continued by.

        Returns:
            `Continuations` [B, 2K].
        """
        beam_size, num_candidates = self.beam_size, best.shape[-1]
        # A log-probability is at most 0, so no rounding makes a total greater than its parent's, which the stopping
        # bound relies on.
        totals = tf.reshape(totals[:, :, None] + best, [-1, beam_size * num_candidates])  # [B, K C]
        totals, chosen = tf.math.top_k(totals, min(2, num_candidates) * beam_size)  # [B, 2K]
        tokens = tf.gather(tf.reshape(tokens, [-1, beam_size * num_candidates]), chosen, batch_dims=1)
        return Continuations(totals, chosen // num_candidates, tokens)

    def _with_log_probabilities(self, found, state, logits, guiding):
        """The continuations with the model's log-probabilities, which differ from the totals under a penalty only."""
        if guiding is logits:
            return found._replace(log_probabilities=found.totals)
        size = logits.shape[-1]
        flat = tf.reshape(logits, [-1, logits.shape[1] * size])  # [B, H V]
        before = tf.gather(state.log_probabilities - log_normalizer(logits), found.parents, batch_dims=1)
        return found._replace(
            log_probabilities=before + tf.gather(flat, found.parents * size + found.tokens, batch_dims=1)
        )

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

    def _result(self, end, rows, padding_id, max_length):
        """The result of the last state: finished hypotheses first, then the live ones."""
        num_hypotheses = self.num_hypotheses
        num_finished = tf.reduce_sum(tf.cast(end.finished_scores > IMPOSSIBLE, tf.int32), 1, keepdims=True)  # [B, 1]
        place = tf.range(num_hypotheses)  # [N]
        finished = place < num_finished  # [B, N]
        chosen = tf.where(finished, place, num_hypotheses + place - num_finished)  # [B, N]
        exists = end.totals > IMPOSSIBLE  # [B, K]
        lengths = tf.where(exists, rows.max_lengths[:, None], 0)
        scores = end.totals / length_penalty(rows.max_lengths, rows.length_penalties)[:, None]
        if self.needs_attention:
            scores += self._coverage_score(end.coverage, rows.source_mask)

        def rank(finished, live):
            return tf.gather(tf.concat([finished, live], 1), chosen, batch_dims=1)

        return SearchResult(
            ids=rank(end.finished_ids, tf.where(exists[:, :, None], end.ids, padding_id))[:, :, :max_length],
            lengths=rank(end.finished_lengths, lengths),
            log_probabilities=rank(end.finished_log_probabilities, tf.where(exists, end.log_probabilities, IMPOSSIBLE)),
            scores=rank(end.finished_scores, scores),
            finished=finished,
        )

    def _coverage_score(self, coverage, source_mask):
        """GNMT's coverage penalty of [B, K', S] attention, [B, K']: beta times the logarithms of what lacks."""
        lacking = tf.math.log(tf.clip_by_value(coverage, 1e-9, 1.0))
        return self.coverage_penalty * tf.reduce_sum(tf.where(source_mask[:, None], lacking, 0.0), axis=2)


def _size(tensor, axis):
    """The size of a dimension: static if it is known."""
    size = tensor.shape[axis]
    return tf.shape(tensor)[axis] if size is None else size


def _where_active(settled, new, old):
    """What is new where a row is not settled; `()` for what is not there."""

    def choose(new, old):
        return tf.where(tf.reshape(settled, [-1] + [1] * (new.shape.rank - 1)), old, new)

    return tf.nest.map_structure(choose, new, old)
