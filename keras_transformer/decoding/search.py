"""What every search is, for whoever runs one."""

from typing import Protocol

from keras_transformer.decoding.search_result import SearchResult


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

    def __call__(self, next_logits, cache, max_lengths, *, start_id, end_id, padding_id=0, **options) -> SearchResult:
        """Search; `BeamSearch` says what the arguments are."""
