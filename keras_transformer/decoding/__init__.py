"""Search over a next-token function; it knows no model and no text."""

from keras_transformer.decoding.greedy import SearchResult, greedy_search

__all__ = ["SearchResult", "greedy_search"]
