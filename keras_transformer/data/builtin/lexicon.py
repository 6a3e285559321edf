"""The lexicon, read once: nouns, verbs and adjectives with the look-ups that the sampler needs."""

from functools import lru_cache

from .modifiers import parse_adjectives
from .nouns import parse_nouns
from .verbs import INTENDING, SPEAKING, parse_clause_verbs, parse_verbs

NOUNS = tuple(parse_nouns())
VERBS = tuple(parse_verbs())
ADJECTIVES = tuple(parse_adjectives())
SPEAKING_VERBS = tuple(parse_clause_verbs(SPEAKING))
INTENDING_VERBS = tuple(parse_clause_verbs(INTENDING))


@lru_cache(maxsize=None)
def nouns_with(tags):
    """The nouns that have one of these tags; a tag with a minus excludes."""
    wanted = {tag for tag in tags if not tag.startswith("-")}
    excluded = {tag[1:] for tag in tags if tag.startswith("-")}
    return tuple(noun for noun in NOUNS if wanted & noun.tags and not excluded & noun.tags)


@lru_cache(maxsize=None)
def adjectives_for(english_noun):
    """The adjectives that fit the noun with this English name."""
    noun = next(noun for noun in NOUNS if noun.english == english_noun)
    return tuple(adjective for adjective in ADJECTIVES if adjective.fits(noun))
