"""The kinds of sentences: each function draws one, from the parts that a `Sampler` gives it.

`KINDS` says how often each kind is drawn.
"""

from itertools import accumulate

from . import clauses, english, german
from .clauses import Clause, RelativeClause, Sentence, Subordinate
from .lexicon import ADJECTIVES, INTENDING_VERBS, NOUNS, SPEAKING_VERBS, VERBS, nouns_with
from .modifiers import MEN, WOMEN
from .phrases import PRONOUNS, Adverbial, Name, NounPhrase, Pair, Pronoun, Question, RelativePronoun, prepositional
from .sampler import pronoun_of
from .verbs import BE, COST, EXIST, HAVE, RAIN, SNOW

NOUN = {noun.english: noun for noun in NOUNS}
ADJECTIVE = {adjective.english: adjective for adjective in ADJECTIVES}

TRANSITIVE = [verb for verb in VERBS if "acc" in verb.frame]
WITH_ADVERBIAL = [verb for verb in VERBS if not verb.flags & {"definite", "state"}]
VOLUNTARY = [
    verb
    for verb in VERBS
    if not verb.flags & {"state", "chance", "definite"} and {"person", "adult"} & set(verb.subject)
]
RESTING = [verb for verb in VERBS if "loc" in verb.frame and verb.english.base in ("live", "stay")]
COMPARED = [adjective for adjective in ADJECTIVES if adjective.comparative]
# Verbs that can be used of a habit with "like to" and "gern": what one likes to eat, read, play, where one likes to go.
LIKED = [
    verb
    for verb in VOLUNTARY
    if verb.english.base
    in "eat drink read write paint draw cook bake sing dance play swim hike ride travel go work sleep visit photograph".split()
    and "prep" not in verb.frame
]
WEATHER = Adverbial("the weather", "das Wetter")
IT = Pronoun("it", "it", "its", ("es", "es", "ihm"), "sein", "3s", "3s")
ENABLING, HINDERING = ("happy", "hungry"), ("tired", "sick", "sad", "nervous")
# Where one goes, and what for: tags of the place, base forms of the verbs, tags that their objects must have.
PURPOSES = (
    (("supermarket", "market"), ("buy",), "food"),
    (("library",), ("read", "borrow"), "loan"),
    (("city", "department-store"), ("buy",), "clothing"),
    (("eatery",), ("meet",), "person"),
    (("restaurant", "café"), ("eat", "order"), "dish"),
    (("kitchen",), ("bake", "cut", "peel"), "food"),
    (("stop",), ("pick up",), "person"),
    (("hospital", "village"), ("visit",), "person"),
    (("school", "university"), ("learn",), "language"),
    (("garden",), ("pick", "plant"), "plant"),
    (("zoo",), ("observe", "photograph"), "wild"),
    (("bedroom", "balcony"), ("read",), "readable"),
    (("city-hall", "office"), ("sign", "fill out"), "paper"),
)


def _not_before_object(sentence_clause):
    """Whether the object has a relative clause, which no adverbial may follow in English."""
    thing = sentence_clause.parts.get("accusative")
    return isinstance(thing, NounPhrase) and thing.relative is not None


def _predicate(subject, adjective, tense="present", **options):
    return Clause(
        BE, {"subject": subject, "complement": Adverbial(adjective.english, adjective.german)}, tense, **options
    )


# Main clauses ------------------------------------------------------------------------------------------------------


def statement(sampler):
    return Sentence(sampler.clause())


def fronted_time(sampler):
    clause = sampler.clause(verb=sampler.pick(WITH_ADVERBIAL))
    parts = dict(clause.parts)
    parts.pop("frequency", None)
    parts["time"] = parts.get("time") or sampler.time(clause.tense)
    return Sentence(clause.with_(parts=parts, front="time"))


def fronted_place(sampler):
    verbs = [verb for verb in VERBS if "where" in verb.frame]
    clause = sampler.clause(verb=sampler.pick(verbs))
    if "place" not in clause.parts:
        clause.parts["place"] = sampler.place(clause.verb.frame["where"])
    return Sentence(clause.with_(front="place"))


def negated(sampler):
    return Sentence(sampler.clause(negated=True))


def modal(sampler):
    kind = sampler.pick(
        (
            *[clauses.CAN, clauses.MUST, clauses.SHOULD, clauses.WANT, clauses.HAVE_TO, clauses.WOULD_LIKE] * 2,
            *(clauses.COULD, clauses.WANTED, clauses.HAD_TO),
        )
    )
    past = kind.german_tense == "preterite"
    clause = sampler.clause(
        verb=sampler.pick(VOLUNTARY), tense="past" if past else "future", negated=sampler.chance(0.25)
    )
    if sampler.chance(0.25) and "time" in clause.parts:
        clause = clause.with_(front="time")
    return Sentence(clause.with_(modal=kind))


def liking(sampler):
    clause = sampler.clause(verb=sampler.pick(LIKED), tense="present", plain=sampler.chance(0.5), generic=True)
    clause.parts.pop("frequency", None)
    return Sentence(clause.with_(modal=clauses.LIKE))


def imperative(sampler):
    clause = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=PRONOUNS["you"], tense="future", plain=True)
    parts = {role: part for role, part in clause.parts.items() if role != "subject"}
    return Sentence(clause.with_(parts=parts, mood="imperative"))


def existence(sampler):
    groups = (
        (("building",), ("city", "village")),
        (("furniture", "device"), ("room", "office")),
        (("animal",), ("zoo", "farm")),
    )
    things, places = sampler.pick(groups)
    if "animal" in things:
        places = sampler.pick((("zoo",), ("forest", "garden"))) if sampler.chance(0.5) else ("farm",)
        things = {"zoo": ("wild",), "farm": ("livestock",)}.get(
            places[0], ("fox", "frog", "bird", "butterfly", "rabbit")
        )
    negative = sampler.chance(0.2)
    thing = sampler.noun_phrase(
        sampler.pick(nouns_with(things)), indefinite=True, adjective=0.5, plural=negative or None
    )
    if negative:
        thing = NounPhrase(thing.noun, thing.number, "no", adjectives=thing.adjectives)
    person = thing.english_person
    there = Pronoun("there", "", "", ("es", "es", ""), "sein", person, "3s")
    place = sampler.place(places)
    front = "place" if sampler.chance(0.5) else None
    return Sentence(
        Clause(EXIST, {"subject": there, "accusative": thing, "place": place}, negated=negative, front=front)
    )


def weather(sampler):
    verb, tense = sampler.pick((RAIN, SNOW)), sampler.pick(("past", "progressive", "future", "present"))
    parts = {"subject": IT, "time": sampler.time(tense)}
    if sampler.chance(0.4):
        parts["place"] = sampler.town()
    return Sentence(Clause(verb, parts, tense, front=sampler.pick((None, "time"))))


# Predicates --------------------------------------------------------------------------------------------------------


def _predicate_parts(sampler):
    """A definite subject and an adjective that fits it."""
    adjective = sampler.pick(ADJECTIVES)
    noun = sampler.pick([noun for noun in NOUNS if adjective.fits(noun)])
    sampler.combinations.add(f"{adjective.english} {noun.english}")
    subject = sampler.noun_phrase(noun, definite=True, adjective=0)
    return subject, adjective


def predicate(sampler):
    subject, adjective = _predicate_parts(sampler)
    clause = _predicate(subject, adjective, sampler.pick(("present", "past")), negated=sampler.chance(0.25))
    draw = sampler.random.random()
    if draw < 0.2:
        return Sentence(clause.with_(mood="question", negated=False), mark="?")
    if draw < 0.3 and "person" in subject.noun.tags:
        clause.parts["frequency"] = sampler.pick((Adverbial("always", "immer"), Adverbial("often", "oft")))
        clause = clause.with_(negated=False)
    return Sentence(clause)


def comparison(sampler):
    adjective = sampler.pick(COMPARED)
    fitting = [noun for noun in NOUNS if adjective.fits(noun) and not noun.is_mass]
    noun = sampler.pick(fitting)
    group = _kind(noun)
    others = [other for other in fitting if other is not noun and _kind(other) == group] or [noun]
    other = sampler.pick(others)
    subject = sampler.noun_phrase(noun, definite=True, adjective=0.1, plural=False)
    standard = sampler.noun_phrase(other, definite=True, adjective=0, plural=False)
    words = adjective.comparative
    than = Adverbial(
        f"{words[0]} than {standard.english('nominative')}", f"{words[1]} als {standard.german('nominative')}"
    )
    if noun is other or subject.noun is standard.noun:
        return predicate(sampler)
    return Sentence(Clause(BE, {"subject": subject, "complement": than}, sampler.pick(("present", "past"))))


def _kind(noun):
    kinds = (
        "person",
        "animal",
        "food",
        "clothing",
        "vehicle",
        "furniture",
        "device",
        "readable",
        "place",
        "event",
        "idea",
    )
    return next((kind for kind in kinds if kind in noun.tags), "thing")


def profession(sampler):
    name = sampler.first_name()
    subject = sampler.pick((name, PRONOUNS[name.pronoun], name))
    job = sampler.pick([noun for noun in nouns_with(("job",)) if noun.pronoun == name.pronoun])
    phrase = sampler.noun_phrase(job, indefinite=True, plural=False, adjective=0.5)
    text = phrase.german("nominative") if phrase.adjectives else job.german
    clause = Clause(BE, {"subject": subject, "complement": Adverbial(phrase.english("nominative"), text)})
    return Sentence(clause.with_(tense=sampler.pick(("present", "present", "past"))))


def age_or_price(sampler):
    number = 2 + int(sampler.random.random() * 98)
    words, german_words = english.cardinal(number), german.cardinal(number)
    if sampler.chance(0.5):
        subject = sampler.subject(("person",), definite=True)
        if isinstance(subject, Pronoun) and subject.english_person != "3s" or pronoun_of(subject) == "they":
            subject = sampler.first_name()
        age = Adverbial(f"{words} years old", f"{german_words} Jahre alt")
        return Sentence(Clause(BE, {"subject": subject, "complement": age}))
    tags = (
        "clothing",
        "readable",
        "ticket",
        "device",
        "furniture",
        "instrument",
        "umbrella",
        "bicycle",
        "dish",
        "watch",
    )
    subject = sampler.noun_phrase(sampler.pick(nouns_with(tags)), definite=True, plural=False, adjective=0.4)
    price = Adverbial(f"{words} euros", f"{german_words} Euro")
    return Sentence(Clause(COST, {"subject": subject, "complement": price}, sampler.pick(("present", "past"))))


def birthday(sampler):
    owner = sampler.first_name()
    day = sampler.time("future")
    while not day.english().startswith("on "):
        day = sampler.time("future")
    subject = Adverbial(f"{owner.english('genitive')}'s birthday", f"{owner.german('genitive')} Geburtstag")
    event = sampler.noun_phrase(sampler.pick(nouns_with(("event",))), definite=True, plural=False, adjective=0.2)
    noun = NounPhrase(event.noun) if sampler.chance(0.5) else event
    subject = _Subject(subject) if sampler.chance(0.5) else noun
    return Sentence(Clause(BE, {"subject": subject, "complement": day}))


class _Subject:
    """Gives an `Adverbial` the person of a subject."""

    english_person = german_person = "3s"

    def __init__(self, text):
        self.english, self.german = text.english, text.german


# Questions ---------------------------------------------------------------------------------------------------------


def yes_no_question(sampler):
    clause = sampler.clause()
    if sampler.chance(0.25):
        verb = sampler.pick(VOLUNTARY)
        clause = sampler.clause(verb=verb, tense="future").with_(modal=sampler.pick((clauses.CAN, clauses.WANT)))
    clause.parts.pop("frequency", None)
    return Sentence(clause.with_(mood="question"), mark="?")


def _with_question_word(sampler, plain=False, past=False):
    """A clause whose `front` part is a question word, not yet in the order of a question."""
    kind = sampler.pick(("subject", "object", "object", "where", "when", "why", "which"))
    verb = {"object": TRANSITIVE, "which": TRANSITIVE}.get(kind, VERBS)
    clause = sampler.clause(verb=sampler.pick(verb), plain=plain or kind != "subject", past=past)
    tense, parts = clause.tense, dict(clause.parts)
    parts.pop("frequency", None)
    goal = next((role for role in ("dir", "loc") if role in clause.verb.frame), None)
    if kind == "subject" and {"person", "adult"} & set(clause.verb.subject):
        clause = sampler.clause(verb=clause.verb, subject=sampler.first_name(), tense=tense)
        parts = {**clause.parts, "subject": Question("who")}
        parts.pop("frequency", None)
        return clause.with_(parts=parts, front="subject")
    if kind == "object":
        thing = parts["accusative"]
        person = not isinstance(thing, NounPhrase) or "person" in thing.noun.tags
        parts["accusative"] = Question("who" if person else "what")
        return clause.with_(parts=parts, front="accusative")
    if kind == "which" and isinstance(parts["accusative"], NounPhrase) and not parts["accusative"].noun.is_mass:
        thing = parts["accusative"]
        many = thing.number == "plural" and sampler.chance(0.6)
        parts["accusative"] = NounPhrase(thing.noun, thing.number, "how many" if many else "which")
        return clause.with_(parts=parts, front="accusative")
    if kind == "where" and goal is not None:
        parts["complement"] = Adverbial("where", "wohin" if goal == "dir" else "wo")
        return clause.with_(parts=parts, front="complement")
    if kind == "where" and "where" in clause.verb.frame:
        parts["place"] = Adverbial("where", "wo")
        return clause.with_(parts=parts, front="place")
    if kind == "when" and not clause.verb.flags & {"definite", "state"} and tense != "progressive":
        parts["time"] = Adverbial("when", "wann")
        return clause.with_(parts=parts, front="time")
    parts["time"] = Adverbial("why", "warum")
    return clause.with_(parts=parts, front="time")


def wh_question(sampler):
    return Sentence(_with_question_word(sampler).with_(mood="wh-question"), mark="?")


def how_question(sampler):
    names = ("old", "expensive", "big", "heavy", "long", "fast", "dangerous", "difficult", "important", "high", "tall")
    adjective = ADJECTIVE[sampler.pick(names)]
    noun = sampler.pick([noun for noun in NOUNS if adjective.fits(noun)])
    sampler.combinations.add(f"{adjective.english} {noun.english}")
    subject = sampler.noun_phrase(noun, definite=True, adjective=0)
    parts = {"subject": subject, "complement": Adverbial(f"how {adjective.english}", f"wie {adjective.german}")}
    return Sentence(
        Clause(BE, parts, sampler.pick(("present", "past")), front="complement", mood="wh-question"), mark="?"
    )


# Subordinate clauses -----------------------------------------------------------------------------------------------


def _person(sampler):
    """A subject that has a pronoun, so that a second clause can speak of it again."""
    subject = None
    while subject is None or pronoun_of(subject) is None:
        subject = sampler.subject(("person",), definite=True)
    return subject


def _again(subject):
    return PRONOUNS[pronoun_of(subject)]


def _state(sampler, subject, tense, *, helpful):
    """A circumstance that helps or hinders: weather, mood, time."""
    draw = sampler.random.random()
    if draw < 0.25:
        weather = ADJECTIVE["good" if sampler.chance(0.5) else "beautiful"] if helpful else ADJECTIVE["bad"]
        return _predicate(_Subject(WEATHER), weather, tense)
    if draw < 0.4 and not helpful:
        return Clause(sampler.pick((RAIN, SNOW)), {"subject": IT}, "progressive" if tense == "present" else tense)
    if draw < 0.65:
        thing = NounPhrase(NOUN["time"], determiner=None if helpful else "no")
        return Clause(HAVE, {"subject": subject, "accusative": thing}, tense, negated=not helpful)
    return _predicate(subject, ADJECTIVE[sampler.pick(ENABLING if helpful else HINDERING)], tense)


def _tensed(tense):
    return "past" if tense == "past" else "present"


def cause(sampler):
    subject, tense, hindered = (
        _person(sampler),
        sampler.pick(("past", "past", "progressive", "future")),
        sampler.chance(0.5),
    )
    main = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense=tense, negated=hindered)
    reason = _state(sampler, _again(subject), _tensed(tense), helpful=not hindered)
    return Sentence(main, after=Subordinate(reason.with_(mood="embedded"), "because", "weil"))


def concession(sampler):
    subject, tense = _person(sampler), sampler.pick(("past", "past", "progressive", "future"))
    main = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense=tense)
    if sampler.chance(0.4):
        state = _state(sampler, subject, _tensed(tense), helpful=False).with_(mood="embedded")
        main.parts["subject"] = _again(subject)
        return Sentence(main, before=Subordinate(state, "although", "obwohl"))
    state = _state(sampler, _again(subject), _tensed(tense), helpful=False).with_(mood="embedded")
    return Sentence(main, after=Subordinate(state, "although", "obwohl"))


def condition(sampler):
    subject = _person(sampler)
    state = _state(sampler, subject, "present", helpful=True).with_(mood="embedded")
    main = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense="future")
    mentioned = state.parts["subject"] is subject
    main.parts["subject"] = _again(subject) if mentioned else subject
    if sampler.chance(0.3):
        main = main.with_(modal=sampler.pick((clauses.CAN, clauses.WANT, clauses.WOULD_LIKE)))
    return Sentence(main, before=Subordinate(state, "if", "wenn"))


def speech(sampler):
    verb, conjunction = sampler.pick(SPEAKING_VERBS)
    subject = sampler.subject(("person",), definite=True)
    tense = sampler.pick(("present", "past"))
    content = sampler.clause(negated=sampler.chance(0.2), past=tense == "past").with_(mood="embedded")
    if tense == "present" and sampler.chance(0.3):
        modal_kind = sampler.pick((clauses.CAN, clauses.MUST, clauses.WANT))
        content = sampler.clause(verb=sampler.pick(VOLUNTARY), tense="future").with_(modal=modal_kind, mood="embedded")
    doubt = verb.english.base == "know" and sampler.chance(0.5)
    german_conjunction = "ob" if doubt or conjunction == "whether" else "dass"
    main = Clause(verb, {"subject": subject}, tense, negated=doubt)
    link = "whether" if german_conjunction == "ob" else "that"
    return Sentence(main, after=Subordinate(content, link, german_conjunction))


def indirect_question(sampler):
    verb = sampler.pick([verb for verb, _ in SPEAKING_VERBS if verb.english.base in ("know", "ask")])
    tense = sampler.pick(("present", "past"))
    content = _with_question_word(sampler, plain=True, past=tense == "past").with_(mood="embedded")
    subject = sampler.subject(("person",), definite=True)
    negated_main = verb.english.base == "know" and sampler.chance(0.7)
    main = Clause(verb, {"subject": subject}, tense, negated=negated_main)
    return Sentence(main, after=Subordinate(content))


def childhood(sampler):
    name = sampler.first_name()
    role = sampler.pick([NOUN["child"], NOUN["student"] if name.pronoun == "he" else NOUN["girl"]])
    german_role = f"ein{'' if role.gender != 'f' else 'e'} {role.german}" if role.english != "student" else role.german
    complement = Adverbial(f"a {role.english}", german_role)
    if sampler.chance(0.4):
        complement = sampler.town()
    past = Clause(BE, {"subject": name, "complement": complement}, "past", mood="embedded")
    main = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=PRONOUNS[name.pronoun], tense="past", plain=True)
    if sampler.chance(0.5):
        main.parts["frequency"] = Adverbial("often", "oft")
    return Sentence(main, before=Subordinate(past, "when", "als"))


def two_actions(sampler):
    """ "While ...", "before ..." with two people or twice the same."""
    subject = _person(sampler)
    if sampler.chance(0.5):
        other = sampler.subject(("person",), definite=True)
        if other == subject or isinstance(other, Pronoun):
            other = Name(sampler.pick(MEN), "he")
        first = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense="progressive", plain=True)
        second = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=other, tense="progressive", plain=True)
        return Sentence(second, before=Subordinate(first.with_(mood="embedded"), "while", "während"))
    first = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense="past", plain=True)
    second = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=_again(subject), tense="past", plain=True)
    return Sentence(second, before=Subordinate(first.with_(mood="embedded"), "before", "bevor"))


def purpose(sampler):
    tags, bases, object_tag = sampler.pick(PURPOSES)
    subject, tense = _person(sampler), sampler.pick(("past", "progressive", "future"))
    base = sampler.pick(bases)
    verbs = [verb for verb in VERBS if verb.english.base == base and "acc" in verb.frame]
    go = next(verb for verb in VERBS if verb.english.base == "go")
    main = Clause(go, {"subject": subject, "complement": sampler.place(tags, goal=True)}, tense)
    if sampler.chance(0.4):
        main.parts["time"] = sampler.time(tense)
        main = main.with_(front="time")
    aim = None
    while aim is None or not _has_tag(aim.parts["accusative"], object_tag):
        aim = sampler.clause(verb=sampler.pick(verbs), subject=subject, tense="future", plain=True)
    aim.parts.pop("subject")
    return Sentence(main, after=Subordinate(aim.with_(mood="infinitive"), "in order", "um"))


def _has_tag(thing, tag):
    return tag in thing.noun.tags or "fruit" in thing.noun.tags if isinstance(thing, NounPhrase) else tag == "person"


def intention(sampler):
    verb, *_ = sampler.pick(INTENDING_VERBS)
    subject = sampler.subject(("person",), definite=True)
    act = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense="future", plain=True)
    act.parts.pop("subject")
    tense = "past" if verb.english.base in ("decide", "promise") else sampler.pick(("past", "present", "past"))
    main = Clause(
        verb, {"subject": subject}, "progressive" if (verb.english.base, tense) == ("try", "present") else tense
    )
    return Sentence(main, after=Subordinate(act.with_(mood="infinitive")))


def coordination(sampler):
    if sampler.chance(0.5):
        subject = _person(sampler)
        wish = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense="past", plain=True)
        hindrance = _state(sampler, _again(subject), "past", helpful=False)
        return Sentence(wish.with_(modal=clauses.WANTED), second=hindrance, joint=("but", "aber"))
    tense = sampler.pick(("past", "progressive", "future"))
    first = sampler.clause(verb=sampler.pick(VOLUNTARY), tense=tense, plain=True)
    second = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=sampler.name(), tense=tense, plain=True)
    return Sentence(first, second=second, joint=("and", "und"))


# Relative clauses --------------------------------------------------------------------------------------------------


def _relative(sampler, phrase):
    """A clause about `phrase`, as its subject, its object or the place where someone lives; None if nothing fits."""
    tags = phrase.noun.tags
    draw = sampler.random.random()
    if "lodging" in tags and phrase.noun.rest[1] == "in":
        where = prepositional("in", "in", "dative", RelativePronoun(phrase, after_preposition=True))
        clause = Clause(RESTING[1], {"subject": sampler.subject(("person",), definite=True), "complement": where})
        return RelativeClause(clause.with_(front="complement", mood="embedded"))
    if "person" in tags and draw < 0.6:
        verb = sampler.pick(VOLUNTARY)
        clause = sampler.clause(verb=verb, subject=RelativePerson(phrase), plain=True)
        return RelativeClause(clause.with_(mood="embedded"))
    verbs = [verb for verb in TRANSITIVE if tags & set(verb.frame["acc"]) and not verb.flags & {"definite"}]
    verbs = [verb for verb in verbs if {"person", "adult"} & set(verb.subject) and "prep" not in verb.frame]
    if not verbs:
        return None
    clause = sampler.clause(verb=sampler.pick(verbs), plain=True)
    sampler.combinations.add(f"{clause.verb.english.base} {phrase.noun.english}")
    parts = {**clause.parts, "accusative": RelativePronoun(phrase)}
    return RelativeClause(clause.with_(parts=parts, front="accusative", mood="embedded"))


class RelativePerson(RelativePronoun):
    """A relative pronoun as the subject of its clause."""

    @property
    def pronoun(self):
        return self.antecedent.pronoun


def _modified(sampler, noun, plural=None):
    phrase = sampler.noun_phrase(noun, definite=True, adjective=0.2, plural=plural)
    plain = NounPhrase(phrase.noun, phrase.number, "the", adjectives=phrase.adjectives)
    relative = _relative(sampler, plain)
    return (
        plain
        if relative is None
        else NounPhrase(noun, plain.number, "the", adjectives=plain.adjectives, relative=relative)
    )


def relative_subject(sampler):
    noun = sampler.pick(nouns_with(("person", "lodging", "thing", "-kin", "-king")))
    subject = _modified(sampler, noun)
    if "person" in noun.tags and sampler.chance(0.6):
        return Sentence(sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, plain=True))
    fitting = [adjective for adjective in ADJECTIVES if adjective.fits(noun)]
    if not fitting:
        return statement(sampler)
    adjective = sampler.pick(fitting)
    sampler.combinations.add(f"{adjective.english} {noun.english}")
    bare = NounPhrase(subject.noun, subject.number, "the", relative=subject.relative)
    return Sentence(_predicate(bare, adjective, sampler.pick(("present", "past")), negated=sampler.chance(0.15)))


def relative_object(sampler):
    verb = sampler.pick([verb for verb in TRANSITIVE if "prep" not in verb.frame])
    clause = sampler.clause(verb=verb, plain=True)
    thing = clause.parts["accusative"]
    if (
        not isinstance(thing, NounPhrase)
        or thing.noun.is_mass
        or "kin" in thing.noun.tags
        or "complement" in clause.parts
    ):
        return Sentence(clause)
    clause.parts["accusative"] = _modified(sampler, thing.noun, plural=thing.number == "plural")
    if "to" in clause.parts:
        clause.parts.pop("to")
    return Sentence(clause)


def attribute(sampler):
    """ "The man with the red hat", "the woman from Berlin"."""
    noun = sampler.pick(nouns_with(("adult", "child", "-kin", "-king", "-queen")))
    if sampler.chance(0.3):
        town = sampler.town()
        behind = Adverbial(town.english().replace("in ", "from ", 1), town.german().replace("in ", "aus ", 1))
    else:
        thing = sampler.pick(nouns_with(("headwear", "outerwear", "suit", "dress", "umbrella", "bag", "dog")))
        behind = prepositional(
            "with", "mit", "dative", sampler.noun_phrase(thing, definite=True, plural=False, adjective=0.8)
        )
    subject = NounPhrase(noun, attribute=behind)
    return Sentence(sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject))


KINDS = (
    (statement, 16),
    (fronted_time, 8),
    (fronted_place, 3),
    (negated, 7),
    (modal, 8),
    (liking, 3),
    (imperative, 3),
    (existence, 2),
    (weather, 1),
    (predicate, 6),
    (comparison, 2),
    (profession, 2),
    (age_or_price, 3),
    (birthday, 1),
    (yes_no_question, 5),
    (wh_question, 6),
    (how_question, 1),
    (cause, 5),
    (concession, 3),
    (condition, 4),
    (speech, 6),
    (indirect_question, 3),
    (childhood, 2),
    (two_actions, 4),
    (purpose, 3),
    (intention, 3),
    (coordination, 4),
    (relative_subject, 5),
    (relative_object, 4),
    (attribute, 2),
)
_FUNCTIONS = [kind for kind, _ in KINDS]
_CUMULATIVE = list(accumulate(weight for _, weight in KINDS))


def draw(sampler):
    """Draws a `Sentence` of a random kind; `sampler.combinations` then holds the combinations that it uses."""
    sampler.combinations = set()
    (kind,) = sampler.random.choices(_FUNCTIONS, cum_weights=_CUMULATIVE)
    return kind(sampler)
