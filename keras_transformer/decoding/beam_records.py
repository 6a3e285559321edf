"""What beam search keeps, typed records of tensors, and what it ranks hypotheses by.

B rows, K hypotheses of a beam, L the longest limit.
"""

from typing import NamedTuple

import tensorflow as tf


class Phrases(NamedTuple):
    """What must appear in each row, see `ConstrainedBeamSearch`."""

    ids: tf.Tensor  # int32 [B, C, P + 1]: the tokens of each phrase, then padding
    lengths: tf.Tensor  # int32 [B, C]
    twins: tf.Tensor  # bool [B, C, C]: whether the second phrase equals the first and stands before it


class RowInputs(NamedTuple):
    """What a step reads of the rows and never changes; None for what was not given."""

    max_lengths: tf.Tensor  # int32 [B]
    length_penalties: tf.Tensor  # float32 [B]
    prefix_ids: tf.Tensor | None  # int32 [B, P]
    min_lengths: tf.Tensor | None  # int32 [B]
    source_mask: tf.Tensor | None  # bool [B, S]
    phrases: Phrases | None


class State(NamedTuple):
    """The state of the loop. Of H live hypotheses, K are in each bank; plain search has one bank."""

    index: tf.Tensor  # int32 []: number of steps taken
    settled: tf.Tensor  # bool [B]: rows whose result no further step can change
    # Live hypotheses, in each bank best first; one that does not exist has a total of -inf.
    last_ids: tf.Tensor  # int32 [B, H]: what the next step reads
    ids: tf.Tensor  # int32 [B, H, L]
    ancestry: tf.Tensor  # int32 [B, H, L]: the slot that each position of a hypothesis was in, -1 where there is none
    totals: tf.Tensor  # float32 [B, H]: what the search adds up
    log_probabilities: tf.Tensor  # float32 [B, H]: what the model says; differs under a repetition penalty only
    coverage: object  # float32 [B, H, S]: attention that each source position got; () without a penalty
    # With banks, else ():
    progress: object  # int32 [B, H, C]: how many of each phrase's tokens are covered
    texts: object  # int32 [B, H]: a number for the ids; two slots have the same if, and only if, their ids are equal
    # Finished hypotheses, best first; one that does not exist has a score of -inf.
    finished_ids: tf.Tensor  # int32 [B, N, L]
    finished_lengths: tf.Tensor  # int32 [B, N]
    finished_log_probabilities: tf.Tensor  # float32 [B, N]
    finished_scores: tf.Tensor  # float32 [B, N]
    cache: object  # nested tensors that belong to the next-token function


class Continuations(NamedTuple):
    """Hypotheses one token longer: M of each row, or of each bank, best first; [B, M] or [B, banks, M]."""

    totals: tf.Tensor  # float32
    parents: tf.Tensor  # int32: the slot of the hypothesis that is continued
    tokens: tf.Tensor  # int32: what by
    log_probabilities: object = ()  # float32
    progress: object = ()  # int32 [.., C], with banks
    texts: object = ()  # int32, with banks

    def take(self, chosen):
        """Those at some places of the last dimension but the phrases'."""
        return tf.nest.map_structure(lambda values: tf.gather(values, chosen, batch_dims=chosen.shape.rank - 1), self)


def length_penalty(length, alpha):
    """What a sum of log-probabilities is divided by: `((5 + length) / 6) ** alpha` (GNMT, equation 14).

    Args:
        length: integer tensor or number, tokens of the hypothesis with its end mark.
        alpha: strength. 0 compares plain sums, a negative one favours short hypotheses.

    Returns:
        float32 tensor of the shape of `length`, always positive.

    Reference:
        [Wu et al., 2016](https://arxiv.org/abs/1609.08144); alpha 0.6 in the Transformer paper, section 6.1.
    """
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def best_possible_score(total, length, max_length, alpha):
    """The highest score that any continuation of a hypothesis can end with.

    Proof. A continuation ends with some length n, `length` < n <= `max_length`, and a sum of log-probabilities t. Every
    log-probability is at most 0, so t <= `total` <= 0. Its score is t / lp(n) <= `total` / lp(n). As `total` is not
    positive, `total` / lp(n) is greatest where lp(n) is. lp is monotone in n, whatever the sign of alpha, so over
    `length` + 1 .. `max_length` it is greatest at one of the two ends. A coverage penalty is at most 0 and only
    lowers the score.

    Args:
        total: float tensor, the hypothesis's sum of log-probabilities, at most 0.
        length: its number of tokens.
        max_length: the most tokens it may have, the end mark counted.
        alpha: as for `length_penalty`.

    Returns:
        float32 tensor, broadcast over the arguments; the bound is attained if all further tokens are certain.
    """
    return total / tf.maximum(length_penalty(length + 1, alpha), length_penalty(max_length, alpha))
