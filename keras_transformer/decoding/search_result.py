"""What every search returns."""

from typing import NamedTuple

import tensorflow as tf


class SearchResult(NamedTuple):
    """Hypotheses of each row, best first (samples: as drawn); B rows, N hypotheses, L the longest limit among the rows.

    A hypothesis that does not exist (a search may find fewer than N) has length 0 and a score of minus infinity.
    """

    ids: tf.Tensor  # int32 [B, N, L]: the tokens, the end id last if it was reached, then padding
    lengths: tf.Tensor  # int32 [B, N]: number of tokens, the end id counted
    log_probabilities: tf.Tensor  # float32 [B, N]: sum over the tokens, the end id's included, as the model gives them
    scores: tf.Tensor  # float32 [B, N]: what the hypotheses are ranked by
    finished: tf.Tensor  # bool [B, N]: whether the end id was reached within the limit
