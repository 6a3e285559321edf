"""English morphology: plurals, articles, verb forms and numbers (American spelling)."""

import re
from dataclasses import dataclass

# Written with a vowel, spoken with a consonant.
_A_BEFORE_VOWEL = ("uni", "use", "eu")
_AN_BEFORE_CONSONANT = ("hour", "honest")


def indefinite_article(following):
    """ "a" or "an", by the word that follows."""
    word = following.lower()
    vowel = (word[0] in "aeiou" and not word.startswith(_A_BEFORE_VOWEL)) or word.startswith(_AN_BEFORE_CONSONANT)
    return "an" if vowel else "a"


def _add_s(word):
    if re.search(r"(s|x|z|ch|sh)$", word):
        return word + "es"
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + "s"


def regular_plural(noun):
    """The plural in -s, -es or -ies."""
    return _add_s(noun)


@dataclass(frozen=True, slots=True)
class EnglishVerb:
    """The forms of a verb, each with its particle: "turn on", "turns on", "turned on", "turning on"."""

    base: str
    third: str
    past: str
    gerund: str

    @classmethod
    def parse(cls, text):
        """Reads "open", "turn on", "buy/bought", "take/took along" or "swim/swam/swimming"."""
        head, _, particle = text.partition(" ")
        base, *irregular = head.split("/")
        past = irregular[0] if irregular else cls._regular_past(base)
        gerund = irregular[1] if len(irregular) > 1 else cls._regular_gerund(base)
        third = {"have": "has", "go": "goes", "do": "does"}.get(base) or _add_s(base)
        return cls(*(f"{form} {particle}".strip() for form in (base, third, past, gerund)))

    @staticmethod
    def _regular_past(base):
        if base.endswith("e"):
            return base + "d"
        return base[:-1] + "ied" if re.search(r"[^aeiou]y$", base) else base + "ed"

    @staticmethod
    def _regular_gerund(base):
        if base.endswith("ie"):
            return base[:-2] + "ying"
        return base[:-1] + "ing" if re.search(r"[^e]e$", base) else base + "ing"


_BE = {"present": {"1s": "am", "3s": "is"}, "past": {"1s": "was", "3s": "was"}}


def form_of_be(person, tense):
    return _BE[tense].get(person, "are" if tense == "present" else "were")


def form_of_do(person, tense):
    if tense == "past":
        return "did"
    return "does" if person == "3s" else "do"


_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
)
_UNITS = [*_UNITS.split(), "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def cardinal(number):
    """Spells 0 to 100: 21 is "twenty-one"."""
    if number < 20:
        return _UNITS[number]
    if number == 100:
        return "a hundred"
    tens, unit = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_UNITS[unit]}" if unit else "")
