"""What every search is and returns, for whoever runs one."""

from typing import NamedTuple, Protocol

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


class Search(Protocol):
    """A search over a next-token function: `BeamSearch`, `ConstrainedBeamSearch` and `Sampling` are some.

    Attributes:
        num_hypotheses: number of results N for each row.
        width: number of hypotheses that the next-token function is asked for.
        needs_attention: whether the next-token function must return attention, and `source_mask` be given.
        needs_seeds: whether `seeds` must be given.
    """

    num_hypotheses: int
    width: int
    needs_attention: bool
    needs_seeds: bool

    def containing(self, num_phrase_tokens: int) -> "Search":
        """Return the search for sequences that contain phrases, which takes `constraint_ids` too.

        Args:
            num_phrase_tokens: the most tokens that the phrases of a row have together.

        Raises:
            ValueError: if there is none.
        """

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
        max_length=None,
        grow_cache=None,
        block_length=None,
        **options,
    ) -> SearchResult:
        """Search.

        Shapes: B rows, K `width`, N `num_hypotheses`, V vocabulary, L the longest limit, S source positions.

        Args:
            next_logits: function `(ids, cache, index, ancestry) -> (logits, cache)`: from the ids [B, K] at position
                `index` and the cache of the positions before, the float32 logits [B, K, V] of the next tokens and the
                new cache. Row b's hypothesis k had its position t in slot `ancestry[b, k, t]` (int32 [B, K, C], C the
                positions that the cache has room for; -1 from `index` + 1 on). Nothing in the cache is ever moved, so
                the function has to read position t of the hypothesis from that slot. Where `needs_attention`, it
                returns the attention [B, K, S] as a third value.
            cache: what `next_logits` needs at index 0, a nested structure of tensors; without room, if it can grow.
                If it can, the first dimension of all its tensors must be the rows, of which fewer remain as rows are
                settled: all that `next_logits` knows of its rows must then be in the cache.
            max_lengths: int32 [B], the most tokens of each row, the end id counted; a row of 0 stays empty.
            start_id: the id read at index 0.
            end_id: the id that ends a hypothesis.
            padding_id: the id that fills up results. Defaults to 0.
            prefix_ids: int32 [B, P], tokens that each row must begin with, padded; their log-probabilities count.
            max_length: L, if it is known; XLA needs it to be static. Greater `max_lengths` are cut to it. Defaults to
                the greatest of `max_lengths`.
            grow_cache: function from a cache to one with room for `block_length` more positions. Without it, the cache
                must have room for L positions from the start.
            block_length: number of positions that the cache grows by; comes with `grow_cache`.
            options: what the kind of search takes besides.
        """
