"""What a noun is, and the reading of `noun_table.NOUNS`."""

import re
from dataclasses import dataclass, replace

from builtin_corpus.english import regular_plural
from builtin_corpus.german import genitive_singular
from builtin_corpus.noun_table import NOUNS
from builtin_corpus.tables import read_rows


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun in both languages, with what its meaning allows.

    `pronoun` is "he", "she" or None; `rest` is the English preposition and the German one of rest, `motion` the German
    one of motion ("at", "an", "zu" for "station"); all three matter for places only.
    """

    english: str
    english_plural: str
    german: str
    gender: str
    german_plural: str
    genitive: str
    weak: bool
    tags: frozenset
    pronoun: str | None
    rest: tuple = ("in", "in")
    motion: str = "in"

    @property
    def is_mass(self):
        return "mass" in self.tags

    def __str__(self):
        return self.english


_GENDER = {"der": "m", "die": "f", "das": "n"}
_PRONOUN = {"m": "he", "f": "she", "n": None}


def _parse_row(section, english, german, german_plural, notes=""):
    notes = notes.split()
    english, _, plural = english.partition("/")
    article, german = german.split()
    gender = _GENDER[article]
    options = dict(note.split("=") for note in notes if "=" in note)
    tags = {*section, english.replace(" ", "-"), *(note[1:] for note in notes if note.startswith("+"))}
    if "mass" in notes:
        tags.add("mass")
    pronoun = _PRONOUN[gender] if "person" in tags else None
    for note in notes:
        if note in ("he", "she", "nobody"):
            pronoun = None if note == "nobody" else note
    noun = Noun(
        english=english,
        english_plural=plural or regular_plural(english),
        german=german,
        gender=gender,
        german_plural=german_plural,
        genitive=options.get("genitive") or genitive_singular(german),
        weak="weak" in notes,
        tags=frozenset(tags),
        pronoun=pronoun,
    )
    for note in notes:
        if place := re.fullmatch(r"(\w+)-(\w+)/(\w+)", note):
            noun = replace(noun, rest=place.group(1, 2), motion=place[3])
    return noun


def parse_nouns(table=NOUNS):
    """Reads a table like `NOUNS` into a list of `Noun`."""
    nouns, section = [], ()
    for row in read_rows(table):
        if row[0].startswith("["):
            section = row[0].strip("[]").split()
        else:
            nouns.append(_parse_row(section, *row))
    return nouns
