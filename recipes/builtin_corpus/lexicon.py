"""The lexicon, read once: nouns, verbs and adjectives with the look-ups that the sampler needs."""

from functools import cache

from builtin_corpus.modifiers import parse_adjectives
from builtin_corpus.nouns import parse_nouns
from builtin_corpus.verbs import INTENDING, SPEAKING, parse_clause_verbs, parse_verbs

NOUNS = tuple(parse_nouns())
VERBS = tuple(parse_verbs())
ADJECTIVES = tuple(parse_adjectives())
SPEAKING_VERBS = tuple(parse_clause_verbs(SPEAKING))
INTENDING_VERBS = tuple(parse_clause_verbs(INTENDING))


@cache
def nouns_with(tags):
    """The nouns that have one of these tags; a tag with a minus excludes."""
    wanted = {tag for tag in tags if not tag.startswith("-")}
    excluded = {tag[1:] for tag in tags if tag.startswith("-")}
    return tuple(noun for noun in NOUNS if wanted & noun.tags and not excluded & noun.tags)


@cache
def nouns_for(adjective):
    """The nouns that an `Adjective` fits."""
    return tuple(noun for noun in NOUNS if adjective.fits(noun))


@cache
def adjectives_for(noun):
    """The adjectives that fit a `Noun`."""
    return tuple(adjective for adjective in ADJECTIVES if adjective.fits(noun))


def _verbs_of(*bases):
    """The entries of `VERBS` with these English base forms."""
    return tuple(verb for verb in VERBS if verb.english.base in bases)


NOUN = {noun.english: noun for noun in NOUNS}
ADJECTIVE = {adjective.english: adjective for adjective in ADJECTIVES}
(NEED,) = _verbs_of("need")
(LIVE,) = _verbs_of("live")
(GO,) = _verbs_of("go")
TRANSITIVE = tuple(verb for verb in VERBS if "acc" in verb.frame and "prep" not in verb.frame)
# What any person may do, and on purpose.
VOLUNTARY = tuple(
    verb
    for verb in VERBS
    if not verb.flags & {"state", "chance", "definite"} and {"person", "adult"} & set(verb.subject)
)
# What one "likes to" do, which German says with "gern".
LIKED = tuple(
    verb
    for verb in _verbs_of(
        *("bake", "cook", "dance", "draw", "drink", "eat", "fly", "go", "hike", "paint", "photograph", "play", "read"),
        *("ride", "sing", "sleep", "swim", "travel", "visit", "watch television", "work", "write"),
    )
    if verb in VOLUNTARY and "prep" not in verb.frame
)
