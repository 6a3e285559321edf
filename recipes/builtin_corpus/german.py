"""German morphology: articles, adjectives, nouns and verbs.

A *gender* is "m", "f" or "n"; a *slot* is a gender or "p" for the plural, because German has no gender in the plural.
A *case* is "nominative", "accusative", "dative" or "genitive". A *person* is "1s", "3s", "1p" or "3p"; the polite
address "Sie" takes the forms of "3p", and the corpus has no "du" and no "ihr".
"""

import re
from dataclasses import dataclass
from functools import cache

CASES = ("nominative", "accusative", "dative", "genitive")
SLOTS = "mfnp"


def _table(rows):
    """Reads one line per case, one word per slot ("-" is the empty ending)."""
    cells = [line.split() for line in rows.strip().splitlines()]
    return {
        (case, slot): cell.strip("-")
        for case, line in zip(CASES, cells, strict=True)
        for slot, cell in zip(SLOTS, line, strict=True)
    }


DEFINITE_ARTICLE = _table("""
    der   die   das   die
    den   die   das   die
    dem   der   dem   den
    des   der   des   der
""")
RELATIVE_PRONOUN = _table("""
    der    die    das    die
    den    die    das    die
    dem    der    dem    denen
    dessen deren  dessen deren
""")
# "dieser", "jeder", "welcher": the endings of the definite article.
DER_WORD_ENDINGS = _table("""
    er  e   es  e
    en  e   es  e
    em  er  em  en
    es  er  es  er
""")
# "ein", "kein", "mein", ...: no ending where the definite article is "der" or "das" of the nominative, or "das".
EIN_WORD_ENDINGS = _table("""
    -   e   -   e
    en  e   -   e
    em  er  em  en
    es  er  es  er
""")
ADJECTIVE_ENDINGS = {
    # After a definite article or a word that declines like it.
    "weak": _table("""
        e   e   e   en
        en  e   e   en
        en  en  en  en
        en  en  en  en
    """),
    # After "ein", "kein" and the possessives.
    "mixed": _table("""
        er  e   es  en
        en  e   es  en
        en  en  en  en
        en  en  en  en
    """),
    # After no article or a number.
    "strong": _table("""
        er  e   es  e
        en  e   es  e
        em  er  em  en
        en  er  en  er
    """),
}
EIN_WORDS = ("ein", "kein", "mein", "sein", "ihr", "unser", "Ihr")


def decline_determiner(stem, case, slot):
    """Declines "der", an ein-word ("ein", "kein", "mein", ...) or the stem of a der-word ("dies", "jed", "welch")."""
    if stem == "der":
        return DEFINITE_ARTICLE[case, slot]
    if stem == "ein" and slot == "p":
        return ""
    return stem + (EIN_WORD_ENDINGS if stem in EIN_WORDS else DER_WORD_ENDINGS)[case, slot]


def adjective_pattern(determiner):
    """Which row of `ADJECTIVE_ENDINGS` follows this determiner (None for no determiner)."""
    if determiner is None:
        return "strong"
    return "mixed" if determiner in EIN_WORDS else "weak"


def decline_adjective(adjective, determiner, case, slot):
    """The attributive form: `decline_adjective("gut", "der", "dative", "m")` is "guten"."""
    stem = adjective
    if stem == "hoch":
        stem = "hoh"
    elif re.search(r"[ae]uer$|el$", stem):  # teuer -> teur-, sauer -> saur-, dunkel -> dunkl-
        stem = stem[:-2] + stem[-1]
    elif stem.endswith("e"):
        stem = stem[:-1]
    pattern = adjective_pattern(None if determiner == "ein" and slot == "p" else determiner)
    return stem + ADJECTIVE_ENDINGS[pattern][case, slot]


def genitive_singular(noun):
    """The regular genitive of a masculine or neuter noun that is not weak: -es after one syllable or a sibilant."""
    syllables = len(re.findall(r"[aeiouyäöüé]+", noun.lower()))
    if noun.endswith("nis"):
        return noun + "ses"
    if noun.endswith(("s", "ß", "x", "z", "sch")) or (syllables == 1 and not re.search(r"([aeioué]|[^c]h)$", noun)):
        return noun + "es"
    return noun + "s"


def noun_form(noun, case, number):
    """One form of a `lexicon.Noun` in German; `number` is "singular" or "plural"."""
    if number == "plural":
        plural = noun.german_plural
        return plural + "n" if case == "dative" and not plural.endswith(("n", "s")) else plural
    if noun.gender == "f" or case == "nominative":
        return noun.german
    if noun.weak:  # der Student, but den, dem, des Studenten
        return noun.german_plural
    return noun.genitive if case == "genitive" else noun.german


CONTRACTIONS = {
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("bei", "dem"): "beim",
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}


def join_preposition(preposition, phrase):
    """Puts a preposition before a noun phrase that begins with its article: "in", "dem Haus" -> "im Haus"."""
    first, _, rest = phrase.partition(" ")
    contraction = CONTRACTIONS.get((preposition, first))
    return f"{contraction} {rest}" if contraction and rest else f"{preposition} {phrase}"


INSEPARABLE_PREFIXES = ("be", "emp", "ent", "er", "ge", "miss", "ver", "zer", "über", "unter", "wieder")


@dataclass(frozen=True, slots=True)
class GermanVerb:
    """The principal parts of a verb, without its separable particle where the particle is not named.

    Args:
        infinitive: Infinitive without the particle: "machen" of "aufmachen".
        particle: The separable particle, or "".
        third: Third person singular of the present: "macht".
        participle: The participle with the particle: "aufgemacht".
        auxiliary: "haben" or "sein", the auxiliary of the perfect.
    """

    infinitive: str
    particle: str
    third: str
    participle: str
    auxiliary: str

    @classmethod
    def parse(cls, text):
        """Reads "auf|machen", "lesen liest gelesen", "finden gefunden" or "ab|fahren fährt abgefahren sein"."""
        lemma, *parts = text.split()
        auxiliary = "sein" if parts[-1:] == ["sein"] else "haben"
        parts = [part for part in parts if part != "sein"]
        particle, _, infinitive = lemma.rpartition("|")
        participle = parts.pop() if parts else particle + weak_participle(infinitive)
        third = parts.pop() if parts else present_stem(infinitive, "t") + "t"
        return cls(infinitive, particle, third, participle, auxiliary)

    def full_infinitive(self):
        return self.particle + self.infinitive

    def zu_infinitive(self):
        """The infinitive with "zu": "zu machen", "aufzumachen"."""
        return f"{self.particle}zu{self.infinitive}" if self.particle else f"zu {self.infinitive}"


def present_stem(infinitive, ending=""):
    """The stem of the present, with the linking -e- that "arbeiten", "finden" or "öffnen" need before -t."""
    stem = infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]
    needs_e = re.search(r"([td]|[^aeiouäöülrhmn][mn]|ch[mn])$", stem) is not None
    return stem + "e" if ending == "t" and needs_e else stem


def weak_participle(infinitive):
    """The participle of a weak verb without a particle: "gekauft", but "verkauft" and "repariert"."""
    no_ge = infinitive.endswith("ieren") or infinitive.startswith(INSEPARABLE_PREFIXES)
    return ("" if no_ge else "ge") + present_stem(infinitive, "t") + "t"


# ich, er, wir, sie; all that the rules of `conjugate` cannot give.
IRREGULAR_PRESENT = {
    "sein": ("bin", "ist", "sind", "sind"),
    "haben": ("habe", "hat", "haben", "haben"),
    "werden": ("werde", "wird", "werden", "werden"),
    "wissen": ("weiß", "weiß", "wissen", "wissen"),
    "mögen": ("mag", "mag", "mögen", "mögen"),
    "können": ("kann", "kann", "können", "können"),
    "müssen": ("muss", "muss", "müssen", "müssen"),
    "wollen": ("will", "will", "wollen", "wollen"),
    "dürfen": ("darf", "darf", "dürfen", "dürfen"),
    "sollen": ("soll", "soll", "sollen", "sollen"),
}
# The corpus tells the past in the perfect, but these verbs in the preterite, as spoken and written German both do.
PRETERITE = {
    "sein": ("war", "waren"),
    "haben": ("hatte", "hatten"),
    "mögen": ("mochte", "mochten"),
    "kennen": ("kannte", "kannten"),
    "wissen": ("wusste", "wussten"),
    "können": ("konnte", "konnten"),
    "müssen": ("musste", "mussten"),
    "wollen": ("wollte", "wollten"),
    "dürfen": ("durfte", "durften"),
    "sollen": ("sollte", "sollten"),
}
# "möchte" is asked for as a tense of "mögen".
CONDITIONAL = {"mögen": ("möchte", "möchten"), "sollen": ("sollte", "sollten")}
PERSONS = ("1s", "3s", "1p", "3p")


@cache
def conjugate(verb, person, tense="present"):
    """The finite form, without the particle.

    Args:
        verb: A `GermanVerb`, or the infinitive of an auxiliary or modal verb.
        person: One of `PERSONS`.
        tense: "present", "preterite" or "conditional"; the last two only for auxiliary and modal verbs.
    """
    infinitive = verb if isinstance(verb, str) else verb.infinitive
    if tense != "present":
        forms = {"preterite": PRETERITE, "conditional": CONDITIONAL}[tense][infinitive]
        return forms[person.endswith("p")]
    if infinitive in IRREGULAR_PRESENT:
        return IRREGULAR_PRESENT[infinitive][PERSONS.index(person)]
    if person == "3s":
        return verb.third
    if person != "1s":
        return infinitive
    stem = present_stem(infinitive)
    return stem[:-2] + "le" if infinitive.endswith("eln") else stem + "e"  # ich lächle, ich kaufe


_UNITS = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn"
)
_UNITS = [*_UNITS.split(), "achtzehn", "neunzehn"]
_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]


def cardinal(number):
    """Spells 0 to 100: 21 is "einundzwanzig"."""
    if number < 20:
        return _UNITS[number]
    if number == 100:
        return "hundert"
    tens, unit = divmod(number, 10)
    joined = "" if unit == 0 else ("ein" if unit == 1 else _UNITS[unit]) + "und"
    return joined + _TENS[tens - 2]
