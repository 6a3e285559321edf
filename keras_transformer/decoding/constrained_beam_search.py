"""Beam search for sequences that contain given phrases, in the TensorFlow graph."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from keras_transformer.decoding.beam_search import BeamSearch
from keras_transformer.decoding.constraints import prefix_token
from keras_transformer.decoding.length_penalty import best_possible_score, length_penalty
from keras_transformer.decoding.loop import run_blocks, search_limits
from keras_transformer.decoding.top_k import log_normalizer, top_k

_IMPOSSIBLE = float("-inf")


class _State(NamedTuple):
    index: tf.Tensor  # int32 []: number of steps taken
    settled: tf.Tensor  # bool [B]: rows whose result no further step can change
    # Live hypotheses: bank w has the slots w K to (w + 1) K - 1, best first. One that does not exist totals -inf.
    last_ids: tf.Tensor  # int32 [B, H]: what the next step reads
    ids: tf.Tensor  # int32 [B, H, L]
    ancestry: tf.Tensor  # int32 [B, H, L]: the slot that each position of a hypothesis was in, -1 where there is none
    totals: tf.Tensor  # float32 [B, H]: what the search adds up
    log_probabilities: tf.Tensor  # float32 [B, H]: what the model says; differs under a repetition penalty only
    coverage: object  # float32 [B, H, S]: attention that each source position got; () without a penalty
    progress: tf.Tensor  # int32 [B, H, C]: how many of each phrase's tokens are covered
    texts: tf.Tensor  # int32 [B, H]: a number for the ids; two slots have the same if, and only if, their ids are equal
    # Finished hypotheses, best first; one that does not exist has a score of -inf.
    finished_ids: tf.Tensor  # int32 [B, N, L]
    finished_lengths: tf.Tensor  # int32 [B, N]
    finished_log_probabilities: tf.Tensor  # float32 [B, N]
    finished_scores: tf.Tensor  # float32 [B, N]
    cache: object  # nested tensors that belong to the next-token function


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

    @tf.autograph.experimental.do_not_convert
    def __call__(
        self,
        next_logits,
        cache,
        max_lengths,
        *,
        constraint_ids,
        start_id,
        end_id,
        padding_id=0,
        prefix_ids=None,
        max_length=None,
        grow_cache=None,
        block_length=None,
        source_mask=None,
    ):
        """Search.

        Shapes: as in `BeamSearch`, and W `num_constraint_tokens`, H = K (W + 1) live hypotheses, C phrases of P tokens.

        Args:
            next_logits: as for `BeamSearch`, with H hypotheses instead of K.
            cache: what `next_logits` needs at index 0, a nested structure of tensors; without room, if it can grow.
            max_lengths: int32 [B], the most tokens of each row, the end id counted; a row of 0 stays empty.
            constraint_ids: int32 [B, C, P], the phrases of each row, of ordinary tokens, padded at their ends; a phrase
                of padding alone is none. A phrase with the end id can never be completed.
            start_id: the id read at index 0.
            end_id: the id that ends a hypothesis.
            padding_id: the id that fills up results and phrases. Defaults to 0.
            prefix_ids: int32 [B, P'], tokens that each row must begin with, padded. A phrase that stands in the prefix,
                or begins in it, may be covered there; it is then not asked for again.
            max_length, grow_cache, block_length, source_mask: as for `BeamSearch`.

        Returns:
            A `SearchResult`, best hypothesis first.

        Raises:
            ValueError: if an argument has the wrong form.
            tf.errors.InvalidArgumentError: if the phrases of a row have more than `num_constraint_tokens` tokens. XLA
                cannot raise; such a row is not finished.
        """
        beam_size, num_hypotheses = self.beam_size, self.num_hypotheses
        constraint_ids = tf.convert_to_tensor(constraint_ids)
        if constraint_ids.dtype != tf.int32 or constraint_ids.shape.rank != 3:
            raise ValueError(
                "`constraint_ids` must be int32 and of shape [rows, phrases, tokens]. "
                f"Received: constraint_ids of shape {constraint_ids.shape} and dtype {constraint_ids.dtype.name}"
            )
        if bool(self.coverage_penalty) != (source_mask is not None):
            raise ValueError("`source_mask` must be given with a coverage penalty, and only with one.")
        batch_size = tf.shape(max_lengths)[0]
        max_lengths, max_length, length_limit = search_limits(max_lengths, max_length, grow_cache, block_length)
        num_banks, slots = self.num_constraint_tokens + 1, tf.range(self.width)

        # === The phrases ===
        num_phrases = tf.shape(constraint_ids)[1]
        phrases = tf.pad(constraint_ids, [[0, 0], [0, 0], [0, 1]], constant_values=padding_id)  # [B, C, P + 1]
        phrase_lengths = tf.reduce_sum(tf.cast(constraint_ids != padding_id, tf.int32), 2)  # [B, C]
        tf.debugging.assert_less_equal(
            tf.reduce_sum(phrase_lengths, 1),
            self.num_constraint_tokens,
            "The phrases of a row in `constraint_ids` must not have more than `num_constraint_tokens` tokens.",
        )
        # Of equal phrases, the first is written first; else, each order of them would take places in the beam.
        is_earlier = tf.range(num_phrases) < tf.range(num_phrases)[:, None]  # [C, C]
        twins = is_earlier & tf.reduce_all(constraint_ids[:, :, None] == constraint_ids[:, None], 3)  # [B, C, C]

        length_penalties = tf.fill([batch_size], tf.cast(self.length_penalty, tf.float32))  # as in `BeamSearch`
        row_inputs = {
            "max_lengths": max_lengths,
            "length_penalties": length_penalties,
            "phrases": phrases,
            "phrase_lengths": phrase_lengths,
            "twins": twins,
            "prefix_ids": prefix_ids,
            "source_mask": source_mask,
        }
        row_inputs = {name: rows for name, rows in row_inputs.items() if rows is not None}

        def step(state, room, row_inputs):
            max_lengths, alphas, phrases, phrase_lengths, twins = (
                row_inputs[name] for name in ("max_lengths", "length_penalties", "phrases", "phrase_lengths", "twins")
            )
            prefix_ids, source_mask = row_inputs.get("prefix_ids"), row_inputs.get("source_mask")

            # === The model ===
            here = tf.range(length_limit) == state.index  # [L]
            ancestry = tf.where(here, slots[:, None], state.ancestry)  # [B, H, L]
            logits, cache, *attention = next_logits(state.last_ids, state.cache, state.index, ancestry[:, :, :room])
            if bool(attention) != (source_mask is not None):
                raise ValueError("`next_logits` must return attention with a coverage penalty, and only with one.")
            coverage = state.coverage + attention[0] if attention else state.coverage  # [B, H, S]
            guiding = self._penalize(logits, state.ids, state.index)  # [B, H, V]
            normalizer = log_normalizer(guiding)  # [B, H]
            size = logits.shape[-1]

            # === The 2K best free continuations of each bank ===
            missing = state.progress < phrase_lengths[:, None]  # [B, H, C]
            within = tf.reduce_any(missing & (state.progress > 0), 2)[:, :, None]  # [B, H, 1]
            may_end = ~tf.reduce_any(missing, 2)[:, :, None]  # [B, H, 1]
            allowed = self._forbid(
                guiding, state.ids, state.index, prefix_ids, start_id=start_id, end_id=end_id, padding_id=padding_id
            )
            allowed = tf.where(within | (~may_end & (tf.range(size) == end_id)), _IMPOSSIBLE, allowed)
            best, tokens = top_k(allowed, min(2 * beam_size, size))  # [B, H, C]
            best -= normalizer[:, :, None]
            free = self._continue(
                tf.reshape(state.totals, [-1, beam_size]),
                tf.reshape(best, [-1, beam_size, best.shape[-1]]),
                tf.reshape(tokens, [-1, beam_size, best.shape[-1]]),
            )
            totals, parents, tokens = (tf.reshape(values, [-1, num_banks, 2 * beam_size]) for values in free)
            parents += beam_size * tf.range(num_banks)[:, None]

            # === All continuations by a phrase's next token, which lead to the next bank ===
            next_tokens = tf.gather(phrases, tf.transpose(state.progress, [0, 2, 1]), batch_dims=2)  # [B, C, H]
            next_tokens = tf.transpose(next_tokens, [0, 2, 1])  # [B, H, C]: padding after a phrase's end
            may_follow = (next_tokens != padding_id) & (next_tokens != end_id) & (~within | (state.progress > 0))
            may_follow &= ~tf.reduce_any(twins[:, None] & missing[:, :, None], 3)
            if prefix_ids is not None:
                wanted = prefix_token(prefix_ids, state.index, padding_id)[:, None, None]  # [B, 1, 1]
                may_follow &= (wanted == padding_id) | (wanted == next_tokens)
            best = tf.gather(guiding, next_tokens, batch_dims=2) - normalizer[:, :, None]  # [B, H, C]
            phrase_totals = tf.where(may_follow, state.totals[:, :, None] + best, _IMPOSSIBLE)

            def join(free, by_phrase, nothing):
                by_phrase = tf.reshape(by_phrase, [tf.shape(free)[0], num_banks, beam_size * num_phrases])
                raised = tf.pad(by_phrase, [[0, 0], [1, 0], [0, 0]], constant_values=nothing)[:, :-1]
                return tf.concat([free, raised], 2)  # [B, W + 1, M] with M = K (2 + C)

            shape = tf.shape(next_tokens)
            written = join(tf.fill(tf.shape(tokens), -1), tf.where(may_follow, tf.range(num_phrases), -1), -1)
            totals = join(totals, phrase_totals, _IMPOSSIBLE)
            parents = join(parents, tf.broadcast_to(slots[:, None], shape), 0)
            tokens = join(tokens, next_tokens, padding_id)

            # === The 2K best of each bank, each once ===
            progress = tf.gather(state.progress, parents, batch_dims=1)  # [B, W + 1, M, C]
            progress += tf.one_hot(written, num_phrases, dtype=tf.int32)
            texts = tf.gather(state.texts, parents, batch_dims=1) * size + tokens
            repeated = _repeats(texts, totals, progress)
            totals, chosen = tf.math.top_k(tf.where(repeated, _IMPOSSIBLE, totals), 2 * beam_size)  # [B, W + 1, 2K]
            parents, tokens, texts, progress = (
                tf.gather(values, chosen, batch_dims=2) for values in (parents, tokens, texts, progress)
            )
            log_probabilities = totals
            if guiding is not logits:
                log_probabilities = self._add_log_probabilities(state.log_probabilities, logits, parents, tokens)
            ends = tokens == end_id

            # === Finished hypotheses: those that end among the first K of the last bank join them ===
            num_tokens = tf.reduce_sum(phrase_lengths, 1)  # [B]
            last_bank = tf.minimum(num_tokens, self.num_constraint_tokens)  # [B]: the one that covers all

            def best_of_last(values):
                return tf.gather(values, last_bank, batch_dims=1)[:, :beam_size]  # [B, K]

            def write(tokens, parents):
                return tf.where(here, tokens[:, :, None], tf.gather(state.ids, parents, batch_dims=1))

            active = ~state.settled  # [B]
            length = state.index + 1
            last_parents = best_of_last(parents)
            scores = best_of_last(totals) / length_penalty(length, alphas)[:, None]
            if attention:
                scores += self._coverage_score(tf.gather(coverage, last_parents, batch_dims=1), source_mask)
            state = self._finish(
                state,
                tf.where(best_of_last(ends) & active[:, None], scores, _IMPOSSIBLE),
                best_of_last(log_probabilities),
                write(best_of_last(tokens), last_parents),
            )

            # === Live hypotheses: the K best of each bank that do not end ===
            totals, chosen = tf.math.top_k(tf.where(ends, _IMPOSSIBLE, totals), beam_size)  # [B, W + 1, K]

            def keep(values):
                kept = tf.gather(values, chosen, batch_dims=2)  # [B, W + 1, K, ..]
                return tf.reshape(kept, tf.concat([[-1, self.width], tf.shape(kept)[3:]], 0))  # [B, H, ..]

            totals = tf.reshape(totals, [-1, self.width])
            tokens, parents, texts = keep(tokens), keep(parents), keep(texts)
            texts = tf.reduce_min(tf.where(texts[:, :, None] == texts[:, None], slots, self.width), 2)
            if attention:
                kept_coverage = tf.gather(coverage, parents, batch_dims=1)
                coverage = tf.where(active[:, None, None], kept_coverage, state.coverage)

            best_live = best_possible_score(tf.reduce_max(totals, 1), length, max_lengths, alphas)  # [B]
            beaten = state.finished_scores[:, -1] >= best_live
            if beam_size == 1:
                beaten |= (num_tokens == 0) & (state.finished_scores[:, 0] > _IMPOSSIBLE)
            return state._replace(
                index=length,
                settled=state.settled | beaten | (length >= max_lengths),
                last_ids=tokens,
                # A settled row keeps its live hypotheses as they were: its result may need them.
                ids=tf.where(active[:, None, None], write(tokens, parents), state.ids),
                ancestry=tf.gather(ancestry, parents, batch_dims=1),
                totals=tf.where(active[:, None], totals, state.totals),
                log_probabilities=tf.where(active[:, None], keep(log_probabilities), state.log_probabilities),
                coverage=coverage,
                progress=keep(progress),
                texts=tf.where(active[:, None], texts, state.texts),
                cache=cache,
            )

        start = _State(
            index=tf.constant(0),
            settled=max_lengths <= 0,
            last_ids=tf.fill([batch_size, self.width], start_id),
            ids=tf.fill([batch_size, self.width, length_limit], padding_id),
            ancestry=tf.fill([batch_size, self.width, length_limit], -1),
            # All hypotheses would begin alike, so there is one at first.
            totals=tf.tile([[0.0] + [_IMPOSSIBLE] * (self.width - 1)], [batch_size, 1]),
            log_probabilities=tf.zeros([batch_size, self.width]),
            coverage=() if source_mask is None else tf.zeros([batch_size, self.width, tf.shape(source_mask)[1]]),
            progress=tf.zeros([batch_size, self.width, num_phrases], tf.int32),
            texts=tf.zeros([batch_size, self.width], tf.int32),
            finished_ids=tf.fill([batch_size, num_hypotheses, length_limit], padding_id),
            finished_lengths=tf.zeros([batch_size, num_hypotheses], tf.int32),
            finished_log_probabilities=tf.fill([batch_size, num_hypotheses], _IMPOSSIBLE),
            finished_scores=tf.fill([batch_size, num_hypotheses], _IMPOSSIBLE),
            cache=cache,
        )
        end = run_blocks(step, start, length_limit, grow_cache, block_length, row_inputs)

        # === Live hypotheses by the order in which they fill empty places: those of the highest bank first ===
        order = tf.reshape(tf.reverse(tf.reshape(slots, [num_banks, beam_size]), [0]), [-1])  # [H]
        totals, texts = tf.gather(end.totals, order, axis=1), tf.gather(end.texts, order, axis=1)  # [B, H]
        totals = tf.where(_repeats(texts, totals), _IMPOSSIBLE, totals)
        _, chosen = tf.math.top_k(tf.where(totals > _IMPOSSIBLE, -slots, -self.width), num_hypotheses)  # [B, N]
        places = tf.gather(order, chosen)
        end = end._replace(
            totals=tf.gather(totals, chosen, batch_dims=1),
            ids=tf.gather(end.ids, places, batch_dims=1),
            log_probabilities=tf.gather(end.log_probabilities, places, batch_dims=1),
            coverage=() if source_mask is None else tf.gather(end.coverage, places, batch_dims=1),
        )
        return self._result(end, max_lengths, length_penalties, source_mask, padding_id, max_length)


def _repeats(texts, totals, progress=None):
    """Whether an earlier hypothesis has the same text and the same progress: boolean [.., M], as `texts`."""
    place = tf.range(tf.shape(texts)[-1])
    same = (texts[..., None] == texts[..., None, :]) & (place < place[:, None])  # [.., M, M]
    if progress is not None:
        same &= tf.reduce_all(progress[..., None, :] == progress[..., None, :, :], -1)
    return tf.reduce_any(same & (totals > _IMPOSSIBLE)[..., None, :], -1)
