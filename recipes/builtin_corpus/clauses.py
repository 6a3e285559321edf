"""Clauses and sentences: the parts of a clause put into the order of each language.

A `Clause` names its parts by role, not by position. English puts them into subject - verb - object order; German has
one order of the middle field and three places for the finite verb: second, first and last.
"""

import re
from dataclasses import dataclass, replace

from builtin_corpus import english, german
from builtin_corpus.phrases import NounPhrase, Pronoun
from builtin_corpus.verbs import Verb

# The order of the parts behind the verb, by role. English reads "... object - with whom - where - when", German
# "... when - to whom - what - (not) - how - with whom - where - where to".
ENGLISH_ORDER = ("dative", "accusative", "to", "complement", "manner", "company", "place", "time")
GERMAN_ORDER = ("time", "frequency", "dative", "to", "accusative", "NOT", "manner", "company", "place", "complement")
CASES = {"subject": "nominative", "accusative": "accusative", "dative": "dative", "to": "dative"}


@dataclass(frozen=True, slots=True)
class Modal:
    """A verb with an infinitive. `english` may contain "to"; `adverb` replaces the German verb ("gern")."""

    english: str
    german: str | None
    german_tense: str = "present"
    english_third: str | None = None
    negative: tuple | None = None
    adverb: str = ""

    @property
    def is_auxiliary(self):
        return self.english_third is None


CAN = Modal("can", "können")
MUST = Modal("must", "müssen", negative=("must not", "dürfen"))
SHOULD = Modal("should", "sollen", "conditional")
COULD = Modal("could", "können", "preterite")
WANT = Modal("want to", "wollen", english_third="wants to")
HAVE_TO = Modal("have to", "müssen", english_third="has to")
WANTED = Modal("wanted to", "wollen", "preterite", english_third="wanted to")
HAD_TO = Modal("had to", "müssen", "preterite", english_third="had to")
WOULD_LIKE = Modal("would like to", "mögen", "conditional")
LIKE = Modal("like to", None, english_third="likes to", adverb="gern")


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause in both languages.

    Args:
        verb: A `verbs.Verb`.
        parts: Role -> part. Roles: "subject", "accusative", "dative", "to" (a dative that English says with "to"),
            "complement", "manner", "company", "place", "time", "frequency".
        tense: "present", "progressive", "past" or "future".
        modal: A `Modal`, or None.
        negated: Whether the clause says "not", "nicht" or "kein".
        front: The role that opens the clause, or None for the subject; a question word or a time, for instance.
        mood: "statement", "question" (yes or no), "wh-question", "imperative", "embedded" (verb last in German),
            or "infinitive" (no subject, "zu" in German).
    """

    verb: Verb
    parts: dict
    tense: str = "present"
    modal: Modal | None = None
    negated: bool = False
    front: str | None = None
    mood: str = "statement"

    def with_(self, **changes):
        return replace(self, **changes)

    def part(self, role, language):
        part = self.parts.get(role)
        return "" if part is None else getattr(part, language)(CASES.get(role))

    # English -------------------------------------------------------------------------------------------------------

    def english(self):
        """The clause without capital letter and final mark."""
        front = self.front or "subject"
        subject = self.part("subject", "english")
        inverted = self.mood == "question" or (self.mood == "wh-question" and front != "subject")
        words = []
        if front != "subject":
            words.append(self.part(front, "english"))
            if self.mood == "statement" and getattr(self.parts[front], "comma", False):
                words[-1] += ","
        auxiliary, main = self._english_verb(inverted)
        frequency = self.part("frequency", "english")
        if self.mood in ("infinitive", "imperative"):
            words += ["to" if self.mood == "infinitive" else "please", main]
        else:
            words += [auxiliary, subject] if inverted else [subject, auxiliary]
            words += [self._english_not(auxiliary), frequency, main]
        if isinstance(self.parts.get("accusative"), Pronoun) and front != "accusative":
            words[-1], particle = _split_particle(words[-1])
        else:
            particle = ""
        for role in ENGLISH_ORDER:
            if role != front:
                words += [self._english_part(role), particle if role == "accusative" else ""]
        return " ".join(filter(None, words)).replace("can not", "cannot")

    def _english_part(self, role):
        text = self.part(role, "english")
        return f"to {text}" if text and role == "to" else text

    def _english_not(self, auxiliary):
        return "not" if self.negated and not auxiliary.endswith(" not") else ""

    def _english_verb(self, inverted):
        """The auxiliary, which a question puts before the subject, and the rest of the verb."""
        verb = self.verb.english
        if self.mood in ("infinitive", "imperative"):
            return "", verb.base
        person = self.parts["subject"].english_person
        support = inverted or self.negated
        if self.modal is not None:
            return self._english_modal(person, support, verb.base)
        if self.tense == "future":
            return "will", verb.base
        if self.tense == "progressive":
            return english.form_of_be(person, "present"), verb.gerund
        if verb.base == "be":
            return english.form_of_be(person, self.tense), ""
        if support:
            return english.form_of_do(person, self.tense), verb.base
        if self.tense == "past":
            return "", verb.past
        return "", verb.third if person == "3s" else verb.base

    def _english_modal(self, person, support, base):
        modal = self.modal
        if modal.is_auxiliary:
            word, _, rest = modal.english.partition(" ")
            return word, f"{rest} {base}".strip()
        if support:
            infinitive = {"wanted to": "want to", "had to": "have to"}.get(modal.english, modal.english)
            tense = "present" if modal.german_tense == "present" else "past"
            return english.form_of_do(person, tense), f"{infinitive} {base}"
        return "", f"{modal.english_third if person == '3s' else modal.english} {base}"

    # German --------------------------------------------------------------------------------------------------------

    def german(self, filled=False):
        """The clause without capital letter and final mark; `filled` says that something stands before the verb."""
        finite, rest = self._german_verb()
        subject = self.part("subject", "german")
        front = self.front or "subject"
        middle, after = self._german_middle(front)
        if self.mood == "infinitive":
            return _join([*middle, self.verb.german.zu_infinitive(), after])
        if self.mood == "embedded":
            opening = [self.part(front, "german")] if front != "subject" else []
            return _join([*opening, subject, *middle, self._verb_last(finite, rest), after])
        if self.mood == "imperative":
            return _join(["bitte", finite, "Sie", *middle, rest, after])
        if self.mood == "question" or filled:
            return _join([finite, subject, *middle, rest, after])
        opening = [subject, finite] if front == "subject" else [self.part(front, "german"), finite, subject]
        return _join([*opening, *middle, rest, after])

    def _german_verb(self):
        """The finite verb and what stands at the end of a main clause: particle, participle or infinitive."""
        verb = self.verb.german
        person = "3p" if "subject" not in self.parts else self.parts["subject"].german_person
        if self.modal is not None and self.modal.german is not None:
            infinitive, tense = self.modal.german, self.modal.german_tense
            if self.negated and self.modal.negative:
                infinitive = self.modal.negative[1]
            return german.conjugate(infinitive, person, tense), verb.full_infinitive()
        if self.tense == "future":
            return german.conjugate("werden", person), verb.full_infinitive()
        if self.tense == "past":
            if verb.infinitive in german.PRETERITE and not verb.particle:
                return german.conjugate(verb.infinitive, person, "preterite"), ""
            return german.conjugate(verb.auxiliary, person), verb.participle
        return german.conjugate(verb, person), verb.particle

    def _verb_last(self, finite, rest):
        # A particle joins its verb again: "macht ... auf", but "weil er die Tür aufmacht".
        return rest + finite if rest and rest == self.verb.german.particle else f"{rest} {finite}".strip()

    def _german_middle(self, front):
        """The middle field in order, and a relative clause that is moved behind the verb."""
        roles = [role for role in GERMAN_ORDER if role != front]
        parts = dict(self.parts)
        after = ""
        last = parts.get("accusative")
        if front != "accusative" and isinstance(last, NounPhrase) and last.relative is not None:
            after = f", {last.relative.german()}"
            parts["accusative"] = replace(last, relative=None)
        pronouns = [role for role in ("accusative", "dative", "to") if isinstance(parts.get(role), Pronoun)]
        roles = [role for role in pronouns if role != front] + [role for role in roles if role not in pronouns]
        words = []
        for role in roles:
            if role == "NOT":
                words.append(self._german_not())
            elif role in parts:
                words.append(parts[role].german(CASES.get(role)))
            if role == "frequency" and self.modal is not None:
                words.append(self.modal.adverb)
        return [word for word in words if word], after

    def _german_not(self):
        has_kein = any(isinstance(part, NounPhrase) and part.determiner == "not a" for part in self.parts.values())
        return "nicht" if self.negated and not has_kein else ""


def _split_particle(verb):
    """ "picking up" -> "picking", "up", for a pronoun goes between; a preposition stays: "looking for" him."""
    head, _, particle = verb.rpartition(" ")
    return (head, particle) if particle in ("up", "on", "off", "away", "along", "back", "out") else (verb, "")


def _join(words):
    text = " ".join(word for word in words if word)
    return text.replace(" ,", ",")


@dataclass(frozen=True, slots=True)
class RelativeClause:
    """A clause whose `front` part is a `RelativePronoun`, or contains one."""

    clause: Clause

    def english(self):
        return self.clause.english()

    def german(self):
        return self.clause.german()


@dataclass(frozen=True, slots=True)
class Subordinate:
    """A clause behind a conjunction ("because", "weil"), or without one where a question word opens it."""

    clause: Clause
    english_conjunction: str = ""
    german_conjunction: str = ""
    following: object = None

    def english(self):
        return " ".join(filter(None, (self.english_conjunction, self.clause.english(), _english(self.following))))

    def german(self):
        words = f"{self.german_conjunction} {self.clause.german()}".strip()
        return words + ("" if self.following is None else f", {self.following.german()}")


def _english(subordinate):
    return "" if subordinate is None else subordinate.english()


@dataclass(frozen=True, slots=True)
class Sentence:
    """A main clause with what stands before and after it.

    Args:
        main: The main clause.
        before, after: `Subordinate`s.
        second: A second main clause, joined by `joint`, a pair like ("but", "aber").
        mark: "." or "?".
    """

    main: Clause
    before: Subordinate | None = None
    after: Subordinate | None = None
    second: Clause | None = None
    joint: tuple = ()
    mark: str = "."

    def english(self):
        text = self.main.english()
        if self.before is not None:
            text = f"{self.before.english()}, {text}"
        if self.after is not None:
            text += f" {self.after.english()}"
        if self.second is not None:
            text += f", {self.joint[0]} {self.second.english()}"
        return _finish(text, self.mark)

    def german(self):
        text = self.main.german(filled=self.before is not None)
        if self.before is not None:
            text = f"{self.before.german()}, {text}"
        if self.after is not None:
            text += f", {self.after.german()}"
        if self.second is not None:
            comma = "" if self.joint[1] == "und" else ","
            text += f"{comma} {self.joint[1]} {self.second.german()}"
        return _finish(text, self.mark)


def _finish(text, mark):
    """Capital letter, one comma where a clause ends beside another, final mark."""
    text = re.sub(r",+(?=,|$)", "", text)
    return text[0].upper() + text[1:] + mark
