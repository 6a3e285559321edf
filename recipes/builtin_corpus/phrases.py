"""Noun phrases, pronouns and adverbials: the parts of a clause, each able to say itself in both languages.

Every part has `english(case)` and `german(case)`; a part that can be a subject or object also has `english_person` and
`german_person` (see `german.PERSONS`). Cases are the German ones: English only tells the nominative from the others.
"""

from dataclasses import dataclass

from builtin_corpus import english, german
from builtin_corpus.german import RELATIVE_PRONOUN, decline_adjective, decline_determiner, join_preposition, noun_form


@dataclass(frozen=True, slots=True)
class Pronoun:
    """A personal pronoun with its possessive: `PRONOUNS["he"]`."""

    subject: str
    object: str
    possessive: str
    german_forms: tuple
    german_possessive: str
    english_person: str
    german_person: str

    def english(self, case):
        return self.subject if case == "nominative" else self.object

    def german(self, case):
        return self.german_forms[("nominative", "accusative", "dative").index(case)]


PRONOUNS = {
    "I": Pronoun("I", "me", "my", ("ich", "mich", "mir"), "mein", "1s", "1s"),
    "he": Pronoun("he", "him", "his", ("er", "ihn", "ihm"), "sein", "3s", "3s"),
    "she": Pronoun("she", "her", "her", ("sie", "sie", "ihr"), "ihr", "3s", "3s"),
    "we": Pronoun("we", "us", "our", ("wir", "uns", "uns"), "unser", "1p", "1p"),
    "they": Pronoun("they", "them", "their", ("sie", "sie", "ihnen"), "ihr", "3p", "3p"),
    # "you" is always the polite address.
    "you": Pronoun("you", "you", "your", ("Sie", "Sie", "Ihnen"), "Ihr", "3p", "3p"),
}


@dataclass(frozen=True, slots=True)
class Name:
    """A first name, "Mr. Weber" or "Mrs. Weber"; `pronoun` is "he" or "she"."""

    name: str
    pronoun: str
    title: bool = False
    english_person = german_person = "3s"

    def english(self, case):
        title = ("Mr. " if self.pronoun == "he" else "Mrs. ") if self.title else ""
        return title + self.name

    def german(self, case):
        if not self.title:
            return self.name + ("s" if case == "genitive" else "")
        if self.pronoun == "she":
            return f"Frau {self.name}"
        return f"{'Herr' if case == 'nominative' else 'Herrn'} {self.name}"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two names joined by "and"."""

    first: Name
    second: Name
    pronoun = "they"
    english_person = german_person = "3p"

    def english(self, case):
        return f"{self.first.english(case)} and {self.second.english(case)}"

    def german(self, case):
        return f"{self.first.german(case)} und {self.second.german(case)}"


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """A noun with its determiner, adjectives and modifiers.

    Args:
        noun: A `nouns.Noun`.
        number: "singular" or "plural".
        determiner: "the", "a", "this", "every", "which", "how many" or None; "no", and "not a" for the "a" or "any" of
            a negated English clause, both "kein" in German.
        possessor: A `Pronoun` in place of the determiner, or a `Name`: "my brother", "Anna's brother".
        adjectives: `modifiers.Adjective`s, joined by blanks in English and by commas in German.
        count: A number from 2 on, in place of the determiner or after "the".
        owner: A `NounPhrase` in the genitive: "the teacher's car" is "das Auto des Lehrers".
        attribute: An `Adverbial` behind the noun: "the man with the hat".
        relative: A `clauses.RelativeClause` behind the noun.
    """

    noun: object
    number: str = "singular"
    determiner: str | None = "the"
    possessor: object = None
    adjectives: tuple = ()
    count: int | None = None
    owner: object = None
    attribute: object = None
    relative: object = None

    @property
    def slot(self):
        return "p" if self.number == "plural" else self.noun.gender

    @property
    def pronoun(self):
        return "they" if self.number == "plural" else self.noun.pronoun

    @property
    def english_person(self):
        return "3p" if self.number == "plural" else "3s"

    german_person = english_person

    @property
    def is_indefinite(self):
        return self.possessor is None and self.owner is None and self.determiner in ("a", None)

    def english(self, case):
        noun = self.noun.english_plural if self.number == "plural" else self.noun.english
        words = [adjective.english for adjective in self.adjectives] + [noun]
        if self.count is not None:
            words.insert(0, english.cardinal(self.count))
        determiner = self._english_determiner(words[0])
        text = " ".join(([determiner] if determiner else []) + words)
        if self.attribute is not None:
            text += " " + self.attribute.english(case)
        return text + (" " + self.relative.english() if self.relative is not None else "")

    def _english_determiner(self, following):
        if self.owner is not None:
            owner = self.owner.english("genitive")
            return owner + ("'" if owner.endswith("s") and self.owner.number == "plural" else "'s")
        if isinstance(self.possessor, Name):
            return self.possessor.english("genitive") + "'s"
        if self.possessor is not None:
            return self.possessor.possessive
        if self.determiner == "a" or (
            self.determiner == "not a" and self.number == "singular" and not self.noun.is_mass
        ):
            return english.indefinite_article(following)
        if self.determiner == "this":
            return "these" if self.number == "plural" else "this"
        return {"not a": "any"}.get(self.determiner, self.determiner)

    def german(self, case):
        stem = self._german_stem()
        adjectives = ", ".join(decline_adjective(word.german, stem, case, self.slot) for word in self.adjectives)
        words = [
            self._german_determiner(stem, case),
            "" if self.count is None else german.cardinal(self.count),
            adjectives,
            noun_form(self.noun, case, self.number),
            "" if self.owner is None else self.owner.german("genitive"),
            "" if self.attribute is None else self.attribute.german(case),
        ]
        text = " ".join(filter(None, words))
        return text if self.relative is None else f"{text}, {self.relative.german()},"

    def _german_stem(self):
        """The word that decides the endings of the adjectives; None for no article, a number or a name."""
        if isinstance(self.possessor, Name):
            return None
        if self.possessor is not None:
            return self.possessor.german_possessive
        stems = {
            "the": "der",
            "a": "ein",
            "no": "kein",
            "not a": "kein",
            "this": "dies",
            "every": "jed",
            "which": "welch",
        }
        return stems.get(self.determiner)

    def _german_determiner(self, stem, case):
        if isinstance(self.possessor, Name):
            return self.possessor.german("genitive")
        if self.determiner == "how many" and self.possessor is None:
            return "wie viele"
        return "" if stem is None else decline_determiner(stem, case, self.slot)

    def pronoun_form(self, case):
        """The relative pronoun that stands for this noun."""
        return RELATIVE_PRONOUN[case, self.slot]


@dataclass(frozen=True, slots=True)
class Question:
    """The question words "who" and "what" as a subject or an object."""

    word: str
    english_person = german_person = "3s"

    def english(self, case):
        return self.word

    def german(self, case):
        if self.word == "what":
            return "was"
        return {"nominative": "wer", "accusative": "wen", "dative": "wem"}[case]


@dataclass(frozen=True, slots=True)
class RelativePronoun:
    """Stands for a `NounPhrase` inside its relative clause."""

    antecedent: NounPhrase
    after_preposition: bool = False

    @property
    def english_person(self):
        return self.antecedent.english_person

    german_person = english_person

    def english(self, case):
        person = "person" in self.antecedent.noun.tags
        if self.after_preposition:
            return "whom" if person else "which"
        return "who" if person and case == "nominative" else "that"

    def german(self, case):
        return self.antecedent.pronoun_form(case)


@dataclass(frozen=True, slots=True)
class Adverbial:
    """A fixed expression, an adverb or a phrase that says the same in every case: ("today", "heute")."""

    english_text: str
    german_text: str
    comma: bool = False

    def english(self, case=None):
        return self.english_text

    def german(self, case=None):
        return self.german_text


def prepositional(english_preposition, german_preposition, case, phrase):
    """A prepositional phrase as an `Adverbial`; the German article contracts with its preposition where it can."""
    words = phrase.german(case)
    contracts = isinstance(phrase, NounPhrase) and phrase.determiner == "the" and phrase.possessor is None
    after = join_preposition(german_preposition, words) if contracts else f"{german_preposition} {words}"
    before = "" if english_preposition == "_" else english_preposition + " "
    return Adverbial(before + phrase.english(case), after, comma=True)
