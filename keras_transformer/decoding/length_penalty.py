"""The length penalty of beam search, and what it lets a search know in advance."""

import tensorflow as tf


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
