"""Search over a next-token function; it knows no model and no text."""

from keras_transformer.decoding.beam_search import BeamSearch
from keras_transformer.decoding.constrained_beam_search import ConstrainedBeamSearch
from keras_transformer.decoding.sampling import Sampling
from keras_transformer.decoding.search import Search, SearchResult

__all__ = ["BeamSearch", "ConstrainedBeamSearch", "Sampling", "Search", "SearchResult"]
