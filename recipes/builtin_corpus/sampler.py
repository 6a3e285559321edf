"""Draws clauses that make sense: which nouns a verb takes, which times, places and adverbs go with it.

`Sampler` holds the random generator and, for the sentence being drawn, the combinations of words that it uses
("verb object" and "adjective noun"), by which the corpus keeps some of them out of training.
"""

from dataclasses import replace

from builtin_corpus import clauses
from builtin_corpus.clauses import Clause
from builtin_corpus.lexicon import VERBS, adjectives_for, nouns_with
from builtin_corpus.modifiers import (
    COUNTRIES,
    DAYS,
    FAMILIES,
    FREQUENCY,
    MANNER,
    MEN,
    MONTHS,
    NEVER,
    TIMES,
    TOWNS,
    WOMEN,
)
from builtin_corpus.phrases import PRONOUNS, Adverbial, Name, NounPhrase, Pair, Pronoun, prepositional
from builtin_corpus.tables import read_rows

TIME_ADVERBS = {tense: [Adverbial(*pair) for pair in read_rows(table)] for tense, table in TIMES.items()}
FREQUENCY_ADVERBS = [Adverbial(*pair) for pair in read_rows(FREQUENCY)]
MANNER_ADVERBS = {pair[0]: Adverbial(*pair) for pair in read_rows(MANNER)}
HOME = Adverbial("at home", "zu Hause")
# Furniture that does not take "on", "auf".
SPOT_OF = {"shelf": ("on", "in"), "armchair": ("in", "in"), "cupboard": ("in", "in"), "kitchen cupboard": ("in", "in")}
# Nobody does this to what is his own already.
ACQUIRING = ("buy", "rent", "borrow", "order", "pick")
CLOCK_HOURS = range(6, 13)
YEARS = (1987, 1990, 1995, 1998, 2001, 2004, 2008, 2012, 2015, 2019)


class Sampler:
    """Draws the parts of sentences with `random`, a `random.Random`."""

    def __init__(self, random):
        self.random = random
        self.combinations = set()

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, items):
        return items[int(self.random.random() * len(items))]

    def combine(self, *words):
        """Notes a combination of a verb or an adjective with a noun; a word alone is none."""
        if len(words) > 1:
            self.combinations.add(" ".join(str(word) for word in words))

    # Noun phrases --------------------------------------------------------------------------------------------------

    def name(self):
        if self.chance(0.25):
            return Name(self.pick(FAMILIES), self.pick(("he", "she")), title=True)
        return self.first_name()

    def first_name(self):
        return Name(self.pick(MEN), "he") if self.chance(0.5) else Name(self.pick(WOMEN), "she")

    def adjectives(self, noun, number="singular", probability=0.3):
        fitting = adjectives_for(noun)
        if not fitting or not self.chance(probability):
            return ()
        adjective = self.pick(fitting)
        self.combine(adjective, noun)
        return (adjective,)

    def noun_phrase(
        self, noun, *, definite=False, indefinite=False, plural=None, adjective=0.3, possessor=None, owned=True
    ):
        """A phrase around `noun`.

        `possessor` is the pronoun of the subject, for "his" or "my"; `owned` allows "Anna's"; `adjective` is the
        probability of one; `plural` is drawn where it is None.
        """
        if plural is None:
            plural = self.chance(0.2)
        plural = plural and not noun.is_mass and not {"unique", "single"} & noun.tags
        number = "plural" if plural else "singular"
        adjectives = self.adjectives(noun, number, adjective)
        if "spouse" in noun.tags and possessor not in ("I", "you", "she" if noun.pronoun == "he" else "he"):
            name = Name(self.pick(WOMEN), "she") if noun.pronoun == "he" else Name(self.pick(MEN), "he")
            return NounPhrase(noun, number, possessor=name, adjectives=adjectives)
        if "kin" in noun.tags or ("friend" in noun.tags and not self.chance(0.15)):
            return NounPhrase(noun, number, possessor=self.possessor(possessor), adjectives=adjectives)
        if "language" in noun.tags:
            return NounPhrase(noun, determiner=None)
        if "unique" in noun.tags:
            return NounPhrase(noun, adjectives=adjectives)
        if noun.is_mass:
            determiner = "the" if definite or (not indefinite and self.chance(0.35)) else None
            return NounPhrase(noun, determiner=determiner, adjectives=adjectives)
        if indefinite or (not definite and self.chance(0.4)):
            if plural and self.chance(0.4):
                return NounPhrase(noun, number, None, adjectives=adjectives, count=self.count(noun))
            return NounPhrase(noun, number, None if plural else "a", adjectives=adjectives)
        if possessor is not None and self.chance(0.3) and self.can_be_owned(noun):
            return NounPhrase(noun, number, possessor=PRONOUNS[possessor], adjectives=adjectives)
        if self.chance(0.08):
            return NounPhrase(noun, number, "this", adjectives=adjectives)
        if (
            owned
            and self.chance(0.12)
            and {"vehicle", "clothing", "bag", "readable", "small", "pet", "device"} & noun.tags
        ):
            if self.chance(0.5):
                return NounPhrase(noun, number, possessor=self.first_name(), adjectives=adjectives)
            owner = self.pick(nouns_with(("person", "-kin")))
            return NounPhrase(noun, number, adjectives=adjectives, owner=NounPhrase(owner))
        return NounPhrase(noun, number, adjectives=adjectives)

    def count(self, noun):
        many = {"animal", "piece", "small", "plant", "readable"} & noun.tags
        return 2 + int(self.random.random() * (11 if many else 4))

    @staticmethod
    def can_be_owned(noun):
        """Whether "my", "his" sound natural before the noun."""
        if "person" in noun.tags:
            return not {"teacher", "doctor", "dentist", "lawyer", "secretary", "guest", "gardener"}.isdisjoint(
                noun.tags
            )
        unowned = {"place", "plant", "wild", "livestock", "weather", "food", "drink", "public", "lesson"}
        return unowned.isdisjoint(noun.tags)

    def possessor(self, subject=None):
        if subject is not None:
            return PRONOUNS[subject]
        if self.chance(0.3):
            return self.first_name()
        return PRONOUNS[self.pick(("I", "I", "we", "he", "she", "they", "you"))]

    def subject(self, tags, *, definite=False):
        """A subject among the nouns with `tags`; names and pronouns for verbs that any person does."""
        if {"person", "adult"} & set(tags):
            draw = self.random.random()
            if draw < 0.22:
                return PRONOUNS[self.pick(("I", "he", "she", "we", "they", "I", "he", "she", "we", "they", "you"))]
            if draw < 0.4:
                return self.name()
            if draw < 0.45:
                return Pair(Name(self.pick(MEN), "he"), Name(self.pick(WOMEN), "she"))
        noun = self.pick(nouns_with(tuple(tags)))
        if definite or not self.chance(0.1):
            return self.noun_phrase(noun, definite=True, adjective=0.25)
        phrase = self.noun_phrase(noun, indefinite=True, adjective=0.25)
        if phrase.number == "plural" and phrase.count is None and phrase.possessor is None:
            return replace(phrase, count=2 + int(self.random.random() * 5))
        return phrase

    def object(self, tags, subject, *, definite=False, indefinite=False, verb=None):
        """An object among the nouns with `tags`, never the subject's own noun."""
        pronoun = pronoun_of(subject)
        if "person" in tags and not indefinite:
            draw = self.random.random()
            if draw < 0.2:
                others = [name for name in ("I", "he", "she", "we", "they", "you") if name != pronoun]
                if pronoun in ("I", "we"):
                    others = [name for name in others if name not in ("I", "we")]
                return PRONOUNS[self.pick(others)]
            if draw < 0.4:
                name = self.name()
                return name if not isinstance(subject, Name | Pair) or (isinstance(name, Name) and name.title) else None
        if {"clothing", "hers", "his"} & set(tags):
            tags = (*tags, "-his" if pronoun == "she" else "-hers")
        nouns = nouns_with(tuple(tags))
        noun = self.pick(nouns)
        if isinstance(subject, NounPhrase) and subject.noun is noun:
            noun = nouns[(nouns.index(noun) + 1) % len(nouns)]
        if indefinite and "kin" not in noun.tags:
            plural = not (noun.is_mass or {"unique", "single"} & noun.tags)
            if plural or noun.is_mass:
                return NounPhrase(noun, "plural" if plural else "singular", None)
        if "person" in noun.tags and not indefinite:
            definite = definite or self.chance(0.85)
        if verb is not None and verb.english.base in ACQUIRING and "kin" not in noun.tags:
            pronoun = None
        return self.noun_phrase(noun, definite=definite, indefinite=indefinite, possessor=pronoun)

    # Adverbials ----------------------------------------------------------------------------------------------------

    def time(self, tense, long=False):
        """An expression of time that goes with a tense; `long` allows months and years."""
        draw = self.random.random()
        day, month = self.pick(DAYS), self.pick(MONTHS)
        if tense in ("past", "future"):
            if draw < 0.1:
                return Adverbial(f"on {day[0]}", f"am {day[1]}")
            if draw < 0.15:
                word, german = ("last", "letzten") if tense == "past" else ("next", "nächsten")
                return Adverbial(f"{word} {day[0]}", f"{german} {day[1]}")
            if draw < 0.2:
                number = 1 + int(self.random.random() * 28)
                return Adverbial(f"on {month[0]} {number}", f"am {number}. {month[1]}", comma=True)
            if draw < 0.22 and long and tense == "past":
                year = self.pick(YEARS)
                return Adverbial(f"in {year}", f"im Jahr {year}", comma=True)
            if draw < 0.25 and long:
                return Adverbial(f"in {month[0]}", f"im {month[1]}", comma=True)
            if draw < 0.32:
                return self.distance(tense, long)
            if draw < 0.38:
                start = Adverbial("tomorrow", "morgen") if tense == "future" else Adverbial("yesterday", "gestern")
                clock = self.clock()
                return Adverbial(f"{start.english()} {clock.english()}", f"{start.german()} {clock.german()}")
        if tense == "present" and draw < 0.2:
            return Adverbial(f"on {day[0]}s", day[1].lower() + "s")
        if long and tense in ("past", "future") and draw < 0.6:
            return self.pick(TIME_ADVERBS[f"{tense} long"])
        return self.pick(TIME_ADVERBS[tense])

    def distance(self, tense, long):
        units = (("days", "Tagen"), ("weeks", "Wochen"), ("months", "Monaten"), ("years", "Jahren"))
        count, unit = 2 + int(self.random.random() * 8), self.pick(units if long else units[:1])
        words, german = clauses.english.cardinal(count), clauses.german.cardinal(count)
        if tense == "past":
            return Adverbial(f"{words} {unit[0]} ago", f"vor {german} {unit[1]}")
        return Adverbial(f"in {words} {unit[0]}", f"in {german} {unit[1]}")

    def clock(self):
        hour = self.pick(CLOCK_HOURS)
        if self.chance(0.25):
            before = clauses.english.cardinal(hour - 1)
            return Adverbial(f"at half past {before}", f"um halb {clauses.german.cardinal(hour)}")
        return Adverbial(f"at {clauses.english.cardinal(hour)} o'clock", f"um {clauses.german.cardinal(hour)} Uhr")

    def town(self, goal=False, tags=("towns",)):
        names = (TOWNS if "towns" in tags else ()) + (COUNTRIES if "countries" in tags else ())
        english, german = self.pick(names)
        return (
            Adverbial(f"to {english}", f"nach {german}") if goal else Adverbial(f"in {english}", f"in {german}", True)
        )

    def place(self, tags, *, goal=False, only_in=False):
        """A place of rest, or with `goal` of motion, among the nouns with `tags`."""
        special = [tag for tag in tags if tag in ("towns", "countries", "home")]
        nouns = nouns_with(tuple(tag for tag in tags if tag not in ("towns", "countries")))
        if special and self.chance(0.5 if nouns else 1.0):
            if special[0] == "home":
                return HOME
            return self.town(goal, special)
        noun = self.pick(nouns)
        phrase = self.noun_phrase(noun, definite=True, plural=False, adjective=0.12)
        if only_in:
            return prepositional("in", "in", "dative", phrase)
        if goal:
            case = "dative" if noun.motion == "zu" else "accusative"
            return prepositional("to", noun.motion, case, phrase)
        return prepositional(*noun.rest, "dative", phrase)

    def spot(self, tags, case):
        """A place on, in or under a piece of furniture, or on the wall."""
        if tags == ("wall",):
            room = self.pick(nouns_with(("room", "office", "-balcony")))
            wall = {"dative": "an der Wand", "accusative": "an die Wand"}[case]
            if self.chance(0.5):
                return Adverbial("on the wall", wall)
            return Adverbial(f"on the wall in the {room.english}", f"{wall} {self._in(room)}")
        noun = self.pick(nouns_with(tags))
        english, german = SPOT_OF.get(noun.english, ("on", "auf"))
        if case == "dative" and "surface" in noun.tags and self.chance(0.3):
            english, german = "under", "unter"
        return prepositional(english, german, case, self.noun_phrase(noun, definite=True, plural=False, adjective=0.15))

    @staticmethod
    def _in(noun):
        return prepositional("in", "in", "dative", NounPhrase(noun)).german()

    # Clauses -------------------------------------------------------------------------------------------------------

    def verb(self, tags=None):
        return self.pick(VERBS)

    def clause(
        self,
        *,
        verb=None,
        subject=None,
        tense=None,
        negated=False,
        plain=False,
        generic=False,
        past=False,
        definite=False,
    ):
        """A statement, from what is given and what is drawn.

        `plain` leaves out the optional parts, `generic` makes the object indefinite, `past` wants the past tense and
        `definite` a definite subject.
        """
        while verb is None or (past and "present" in verb.flags):
            verb = self.verb()
        tense = "past" if past else tense or self.tense(verb, plain)
        definite = definite or negated or "definite" in verb.flags
        subject = subject or self.subject(verb.subject, definite=definite)
        negated = negated and "positive" not in verb.flags
        parts = {"subject": subject}
        self._objects(verb, parts, negated, generic)
        self._goal(verb, parts)
        if not plain:
            self._adverbials(verb, parts, tense, negated)
        return Clause(verb, parts, tense, negated=negated)

    def tense(self, verb, plain=False):
        """A tense for the verb; the simple present of an action wants an adverb, which a plain clause has not."""
        if "present" in verb.flags:
            return "present"
        if "state" in verb.flags:
            return self.pick(("present", "present", "past"))
        if "chance" in verb.flags and "acc" in verb.frame:
            return self.pick(("past", "past", "past", "future"))
        tenses = ("progressive", "progressive", "past", "past", "past", "future", "present")
        return self.pick(tenses[:-1] if plain else tenses)

    def _objects(self, verb, parts, negated, generic):
        frame, subject = verb.frame, parts["subject"]
        if "dat" in frame:
            receiver = None
            while receiver is None or ("acc" in frame and "to" not in verb.flags and receiver is subject):
                receiver = self.object(frame["dat"], subject, definite=negated)
            parts["to" if "to" in verb.flags else "dative"] = receiver
            self._combine(verb, receiver)
        if "acc" in frame:
            thing = None
            while thing is None:
                thing = self.object(frame["acc"], subject, indefinite=generic, definite="the" in verb.flags, verb=verb)
            if negated and isinstance(thing, NounPhrase) and thing.is_indefinite:
                thing = NounPhrase(thing.noun, thing.number, "not a", adjectives=thing.adjectives)
            parts["accusative"] = thing
            self._combine(verb, thing)
        if verb.prepositional is not None:
            parts["complement"] = self.prepositional_object(verb, subject)

    def prepositional_object(self, verb, subject):
        english, german, case = verb.prepositional
        tags = verb.frame["prep"]
        if english == "from":
            if tags[0] == "towns" and self.chance(0.6):
                name = self.pick(TOWNS + COUNTRIES)
                return Adverbial(f"from {name[0]}", f"aus {name[1]}", comma=True)
            tags = tuple(tag for tag in tags if tag not in ("towns", "countries"))
            if not tags:
                name = self.pick(TOWNS + COUNTRIES)
                return Adverbial(f"from {name[0]}", f"aus {name[1]}", comma=True)
            return prepositional(english, german, case, NounPhrase(self.pick(nouns_with(tags))))
        thing = None
        while thing is None:
            thing = self.object(tags, subject, definite=True)
        self._combine(verb, thing)
        return prepositional(english, german, case, thing)

    def _combine(self, verb, phrase):
        if isinstance(phrase, NounPhrase):
            self.combine(verb, phrase.noun)

    def _goal(self, verb, parts):
        frame = verb.frame
        if "dir" in frame:
            if "birthday-party" in frame["dir"]:
                event = NounPhrase(self.pick(nouns_with(frame["dir"])))
                parts["complement"] = prepositional("to", "zu", "dative", event)
            else:
                parts["complement"] = self.place(frame["dir"], goal=True)
        elif "loc" in frame:
            parts["complement"] = self.place(frame["loc"])
        elif "onto" in frame:
            parts["complement"] = self.spot(frame["onto"], "accusative")
        elif "on" in frame:
            parts["complement"] = self.spot(frame["on"], "dative")
        elif "in" in frame:
            parts["place"] = self.place(frame["in"], only_in=True)

    def _adverbials(self, verb, parts, tense, negated):
        frame = verb.frame
        if "where" in frame and self.chance(0.45) and not (negated and "acc" in frame):
            parts["place"] = self.place(frame["where"])
        if "how" in frame and self.chance(0.3):
            parts["manner"] = MANNER_ADVERBS[self.pick(frame["how"])]
        if "with" in verb.flags and self.chance(0.3) and "manner" not in parts:
            parts["company"] = self.company(parts["subject"])
        if "clock" in verb.flags and ("definite" in verb.flags or self.chance(0.6)):
            parts["time"] = self.clock()
        elif verb.flags & {"definite"} or "state" in verb.flags:
            return
        elif tense == "present":
            self._habit(parts, negated)
        elif self.chance(0.7):
            parts["time"] = self.time(tense, "long" in verb.flags)

    @staticmethod
    def without_frequency(clause):
        """The clause without "often" and the like, and not in the simple present of an action."""
        clause.parts.pop("frequency", None)
        if clause.tense == "present" and "time" not in clause.parts and not clause.verb.flags & {"state", "definite"}:
            return clause.with_(tense="progressive")
        return clause

    def _habit(self, parts, negated):
        """The simple present of an action wants a frequency or a time that repeats."""
        if negated or self.chance(0.5):
            parts["time"] = self.time("present")
        elif self.chance(0.15):
            parts["frequency"] = Adverbial(*NEVER)
        else:
            parts["frequency"] = self.pick(FREQUENCY_ADVERBS)

    def company(self, subject):
        pronoun = pronoun_of(subject)
        if pronoun is None or (self.chance(0.3) and not isinstance(subject, Name | Pair | Pronoun)):
            return prepositional("with", "mit", "dative", self.first_name())
        friend = self.pick(nouns_with(("kin", "friend", "dog")))
        phrase = NounPhrase(friend, "singular", possessor=PRONOUNS[pronoun])
        return prepositional("with", "mit", "dative", phrase)


def pronoun_of(phrase):
    """The key in `PRONOUNS` of the pronoun for a subject, or None where German and English would differ."""
    if isinstance(phrase, Pronoun):
        return next(key for key, pronoun in PRONOUNS.items() if pronoun is phrase)
    return phrase.pronoun
