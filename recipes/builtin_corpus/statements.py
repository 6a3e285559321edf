"""Sentences of one main clause: statements, wishes, requests and predicates."""

from builtin_corpus import english, german
from builtin_corpus.clauses import (
    CAN,
    COULD,
    HAD_TO,
    HAVE_TO,
    LIKE,
    MUST,
    SHOULD,
    WANT,
    WANTED,
    WOULD_LIKE,
    Clause,
    Sentence,
)
from builtin_corpus.lexicon import ADJECTIVE, ADJECTIVES, LIKED, VERBS, VOLUNTARY, nouns_for, nouns_with
from builtin_corpus.phrases import PRONOUNS, Adverbial, NounPhrase, Pronoun
from builtin_corpus.verbs import BE, COST, EXIST, RAIN, SNOW

IT = Pronoun("it", "it", "its", ("es", "es", "ihm"), "sein", "3s", "3s")
WITH_ADVERBIAL = [verb for verb in VERBS if not verb.flags & {"definite", "state"}]
COMPARED = [adjective for adjective in ADJECTIVES if adjective.comparative]
# Adjectives for the holder of a profession; "a hungry judge" is a passing state.
LASTING = ("good", "famous", "young", "friendly", "nice", "intelligent", "clever", "polite", "bad", "rich", "poor")


def predicate_clause(subject, adjective, tense="present", **options):
    return Clause(
        BE, {"subject": subject, "complement": Adverbial(adjective.english, adjective.german)}, tense, **options
    )


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
            *[CAN, MUST, SHOULD, WANT, HAVE_TO, WOULD_LIKE] * 2,
            *(COULD, WANTED, HAD_TO),
        )
    )
    past = kind.german_tense == "preterite"
    clause = sampler.clause(
        verb=sampler.pick(VOLUNTARY), tense="past" if past else "future", negated=sampler.chance(0.25), definite=True
    )
    if sampler.chance(0.25) and "time" in clause.parts:
        clause = clause.with_(front="time")
    return Sentence(clause.with_(modal=kind))


def liking(sampler):
    clause = sampler.clause(
        verb=sampler.pick(LIKED), tense="present", definite=True, plain=sampler.chance(0.5), generic=True
    )
    clause.parts.pop("frequency", None)
    return Sentence(clause.with_(modal=LIKE))


def imperative(sampler):
    clause = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=PRONOUNS["you"], tense="present", plain=True)
    parts = {role: part for role, part in clause.parts.items() if role != "subject"}
    return Sentence(clause.with_(parts=parts, mood="imperative"))


def existence(sampler):
    groups = (
        (("building",), ("city", "village")),
        (("furniture", "device"), ("living-room", "bedroom", "office")),
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
    return Sentence(Clause(EXIST, {"subject": there, "accusative": thing, "place": place}, front=front))


def weather(sampler):
    verb, tense = sampler.pick((RAIN, SNOW)), sampler.pick(("past", "progressive", "future", "present"))
    parts = {"subject": IT, "time": sampler.time(tense)}
    if sampler.chance(0.4):
        parts["place"] = sampler.town()
    return Sentence(Clause(verb, parts, tense, front=sampler.pick((None, "time"))))


# Predicates --------------------------------------------------------------------------------------------------------


def _fitting_subject(sampler):
    """A definite subject and an adjective that fits it."""
    adjective = sampler.pick(ADJECTIVES)
    noun = sampler.pick(nouns_for(adjective))
    sampler.combine(adjective, noun)
    subject = sampler.noun_phrase(noun, definite=True, adjective=0)
    return subject, adjective


def predicate(sampler):
    subject, adjective = _fitting_subject(sampler)
    clause = predicate_clause(subject, adjective, sampler.pick(("present", "past")), negated=sampler.chance(0.25))
    draw = sampler.random.random()
    if draw < 0.2:
        return Sentence(clause.with_(mood="question", negated=False), mark="?")
    if draw < 0.3 and "person" in subject.noun.tags:
        clause.parts["frequency"] = sampler.pick((Adverbial("always", "immer"), Adverbial("often", "oft")))
        clause = clause.with_(negated=False)
    return Sentence(clause)


def comparison(sampler):
    """ "The train is faster than the bus", of two things of one kind."""
    adjective = sampler.pick(COMPARED)
    fitting = [noun for noun in nouns_for(adjective) if not noun.is_mass and "idea" not in noun.tags]
    noun = sampler.pick(fitting)
    others = [other for other in fitting if other is not noun and _kind(other) == _kind(noun)]
    if not others:
        return predicate(sampler)
    subject = sampler.noun_phrase(noun, definite=True, adjective=0, plural=False)
    standard = sampler.noun_phrase(sampler.pick(others), definite=True, adjective=0, plural=False)
    comparative, german_comparative = adjective.comparative
    than = Adverbial(
        f"{comparative} than {standard.english('nominative')}",
        f"{german_comparative} als {standard.german('nominative')}",
    )
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
    )
    return next((kind for kind in kinds if kind in noun.tags), "thing")


def profession(sampler):
    """ "Paul is a teacher" is "Paul ist Lehrer", but "Paul is a good teacher" has an article."""
    name = sampler.first_name()
    subject = sampler.pick((name, name, PRONOUNS[name.pronoun]))
    job = sampler.pick([noun for noun in nouns_with(("job",)) if noun.pronoun == name.pronoun])
    fitting = [ADJECTIVE[word] for word in LASTING if ADJECTIVE[word].fits(job)]
    phrase = NounPhrase(job, determiner="a", adjectives=(sampler.pick(fitting),) if sampler.chance(0.5) else ())
    sampler.combine(*phrase.adjectives, job)
    text = phrase.german("nominative") if phrase.adjectives else job.german
    complement = Adverbial(phrase.english("nominative"), text)
    return Sentence(Clause(BE, {"subject": subject, "complement": complement}, sampler.pick(("present", "past"))))


def _number(sampler, low, high):
    number = low + int(sampler.random.random() * (high - low + 1))
    return english.cardinal(number), german.cardinal(number)


def age_or_price(sampler):
    return Sentence(_age(sampler) if sampler.chance(0.5) else _price(sampler))


def _age(sampler):
    subject = sampler.first_name()
    if sampler.chance(0.5):
        noun = sampler.pick(nouns_with(("person",)))
        subject = sampler.noun_phrase(noun, definite=True, plural=False, adjective=0.1)
    child = isinstance(subject, NounPhrase) and "child" in subject.noun.tags
    words, german_words = _number(sampler, 2, 19) if child else _number(sampler, 20, 99)
    return Clause(BE, {"subject": subject, "complement": Adverbial(f"{words} years old", f"{german_words} Jahre alt")})


def _price(sampler):
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
    noun = sampler.pick(nouns_with(tags))
    subject = sampler.noun_phrase(noun, definite=True, plural=False, adjective=0.4, owned=False)
    words, german_words = _number(sampler, 2, 19) if {"dish", "readable"} & noun.tags else _number(sampler, 20, 99)
    price = Adverbial(f"{words} euros", f"{german_words} Euro")
    return Clause(COST, {"subject": subject, "complement": price}, sampler.pick(("present", "past")))


def birthday(sampler):
    owner = sampler.first_name()
    day = sampler.time("future")
    while not day.english().startswith("on "):
        day = sampler.time("future")
    subject = Adverbial(f"{owner.english('genitive')}'s birthday", f"{owner.german('genitive')} Geburtstag")
    event = sampler.noun_phrase(sampler.pick(nouns_with(("event",))), definite=True, plural=False, adjective=0.2)
    noun = NounPhrase(event.noun) if sampler.chance(0.5) else event
    subject = TextSubject(subject) if sampler.chance(0.5) else noun
    return Sentence(Clause(BE, {"subject": subject, "complement": day}))


class TextSubject:
    """Gives an `Adverbial` the person of a subject."""

    english_person = german_person = "3s"

    def __init__(self, text):
        self.english, self.german = text.english, text.german
