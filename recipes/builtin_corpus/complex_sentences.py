"""Sentences of two clauses: causes, conditions, reports, purposes, relative clauses."""

from builtin_corpus.clauses import CAN, MUST, WANT, WANTED, WOULD_LIKE, Clause, RelativeClause, Sentence, Subordinate
from builtin_corpus.lexicon import (
    ADJECTIVE,
    GO,
    INTENDING_VERBS,
    LIKED,
    LIVE,
    NEED,
    NOUN,
    SPEAKING_VERBS,
    TRANSITIVE,
    VERBS,
    VOLUNTARY,
    adjectives_for,
    nouns_with,
)
from builtin_corpus.modifiers import MEN
from builtin_corpus.phrases import PRONOUNS, Adverbial, Name, NounPhrase, Pronoun, RelativePronoun, prepositional
from builtin_corpus.questions import with_question_word
from builtin_corpus.sampler import pronoun_of
from builtin_corpus.statements import IT, TextSubject, predicate_clause, statement
from builtin_corpus.verbs import BE, HAVE, RAIN, SNOW

INTENDED = tuple(verb for verb in VOLUNTARY if verb.german.infinitive not in ("stehen", "tragen", "denken"))
WEATHER = TextSubject(Adverbial("the weather", "das Wetter"))
HINDERING = ("tired", "tired", "sick", "sick", "sad", "nervous")
# What makes people do something, by the base form of the verb; then what they do under the open sky.
NEEDS = {
    **dict.fromkeys(("bake", "cook", "cut", "eat", "go shopping", "order", "peel", "taste"), "hungry"),
    **{"drink": "thirsty", "sleep": "tired", "sell": "money", "work": "money"},
}
OUTSIDE = frozenset(
    (
        *("celebrate", "climb", "come", "dance", "drive", "fly", "go", "hike", "jump", "meet", "move", "paint"),
        *("photograph", "pick", "plant", "play", "ride", "run", "sing", "swim", "travel", "visit", "wait", "wash"),
    )
)
# Where one goes, and what for: tags of the place, base forms of the verbs, tags that their objects must have.
PURPOSES = (
    (("supermarket", "market"), ("buy",), "food"),
    (("library",), ("read", "borrow"), "readable"),
    (("city", "department-store"), ("buy",), "clothing"),
    (("eatery",), ("meet",), "person"),
    (("restaurant", "café"), ("eat", "order"), "dish"),
    (("kitchen",), ("bake", "cut", "peel"), "food"),
    (("stop",), ("pick up",), "person"),
    (("hospital", "village"), ("visit",), "person"),
    (("school", "university"), ("learn",), "language"),
    (("garden",), ("plant",), "plant"),
    (("garden",), ("pick",), "fruit"),
    (("zoo",), ("observe", "photograph"), "wild"),
    (("bedroom", "balcony"), ("read",), "readable"),
    (("city-hall", "office"), ("sign", "fill out"), "paper"),
)


def person_with_pronoun(sampler):
    """A subject that has a pronoun, so that a second clause can speak of it again."""
    subject = None
    while subject is None or pronoun_of(subject) is None:
        subject = sampler.subject(("person",), definite=True)
    return subject


def again(subject):
    return PRONOUNS[pronoun_of(subject)]


def _state(sampler, subject, tense, action, *, helpful):
    """A circumstance that helps or hinders someone in `action`, a clause."""
    base, thing = action.verb.english.base, action.parts.get("accusative")
    draw = sampler.random.random()
    if base in OUTSIDE and draw < 0.35:
        if draw < 0.15 and not helpful:
            return Clause(sampler.pick((RAIN, SNOW)), {"subject": IT}, "progressive" if tense == "present" else tense)
        weather = ADJECTIVE[sampler.pick(("good", "beautiful") if helpful else ("bad", "cold"))]
        return predicate_clause(WEATHER, weather, tense)
    need = "thirsty" if _has_tag(thing, "drink") else NEEDS.get(base)
    if not helpful:
        if draw < 0.65 or base == "sleep":
            return Clause(HAVE, {"subject": subject, "accusative": NounPhrase(NOUN["time"], determiner="no")}, tense)
        return predicate_clause(subject, ADJECTIVE[sampler.pick(HINDERING)], tense)
    if need == "money":
        return Clause(NEED, {"subject": subject, "accusative": NounPhrase(NOUN["money"], determiner=None)}, tense)
    if need is not None:
        return predicate_clause(subject, ADJECTIVE[need], tense)
    if draw < 0.8:
        return Clause(HAVE, {"subject": subject, "accusative": NounPhrase(NOUN["time"], determiner=None)}, tense)
    return predicate_clause(subject, ADJECTIVE["happy"], tense)


def _tensed(tense):
    return "past" if tense == "past" else "present"


def cause(sampler):
    subject, tense, hindered = (
        person_with_pronoun(sampler),
        sampler.pick(("past", "past", "progressive", "future")),
        sampler.chance(0.5),
    )
    main = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense=tense, negated=hindered)
    reason = _state(sampler, again(subject), _tensed(tense), main, helpful=not hindered)
    return Sentence(main, after=Subordinate(reason.with_(mood="embedded"), "because", "weil"))


def concession(sampler):
    subject, tense = person_with_pronoun(sampler), sampler.pick(("past", "past", "progressive", "future"))
    main = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense=tense)
    if sampler.chance(0.4):
        state = _state(sampler, subject, _tensed(tense), main, helpful=False).with_(mood="embedded")
        main.parts["subject"] = again(subject)
        return Sentence(main, before=Subordinate(state, "although", "obwohl"))
    state = _state(sampler, again(subject), _tensed(tense), main, helpful=False).with_(mood="embedded")
    return Sentence(main, after=Subordinate(state, "although", "obwohl"))


def condition(sampler):
    subject = person_with_pronoun(sampler)
    main = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense="future")
    state = _state(sampler, subject, "present", main, helpful=True).with_(mood="embedded")
    mentioned = state.parts["subject"] is subject
    main.parts["subject"] = again(subject) if mentioned else subject
    if sampler.chance(0.3):
        main = main.with_(modal=sampler.pick((CAN, WANT, WOULD_LIKE)))
    return Sentence(main, before=Subordinate(state, "if", "wenn"))


def speech(sampler):
    verb, conjunction = sampler.pick(SPEAKING_VERBS)
    subject = sampler.subject(("person",), definite=True)
    tense = sampler.pick(("present", "past"))
    unsure = conjunction == "whether"
    content = sampler.clause(negated=not unsure and sampler.chance(0.2), past=tense == "past").with_(mood="embedded")
    if tense == "present" and sampler.chance(0.3):
        modal_kind = sampler.pick((CAN, MUST, WANT))
        content = sampler.clause(verb=sampler.pick(VOLUNTARY), tense="future").with_(modal=modal_kind, mood="embedded")
    doubt = verb.english.base == "know" and sampler.chance(0.5)
    german_conjunction = "ob" if doubt or conjunction == "whether" else "dass"
    main = Clause(verb, {"subject": subject}, tense, negated=doubt)
    link = "whether" if german_conjunction == "ob" else "that"
    return Sentence(main, after=Subordinate(content, link, german_conjunction))


def indirect_question(sampler):
    verb = sampler.pick([verb for verb, _ in SPEAKING_VERBS if verb.english.base in ("know", "ask")])
    tense = sampler.pick(("present", "past"))
    content = with_question_word(sampler, plain=True, past=tense == "past").with_(mood="embedded")
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
    main = sampler.clause(verb=sampler.pick(LIKED), subject=PRONOUNS[name.pronoun], tense="past", plain=True)
    if sampler.chance(0.5):
        main.parts["frequency"] = Adverbial("often", "oft")
    return Sentence(main, before=Subordinate(past, "when", "als"))


def two_actions(sampler):
    """ "While ...", "before ..." with two people or twice the same."""
    subject = person_with_pronoun(sampler)
    if sampler.chance(0.5):
        other = sampler.subject(("person",), definite=True)
        if other == subject or isinstance(other, Pronoun):
            other = Name(sampler.pick(MEN), "he")
        first = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense="progressive", plain=True)
        second = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=other, tense="progressive", plain=True)
        return Sentence(second, before=Subordinate(first.with_(mood="embedded"), "while", "während"))
    first = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense="past", plain=True)
    second = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=again(subject), tense="past", plain=True)
    return Sentence(second, before=Subordinate(first.with_(mood="embedded"), "before", "bevor"))


def purpose(sampler):
    tags, bases, object_tag = sampler.pick(PURPOSES)
    subject, tense = person_with_pronoun(sampler), sampler.pick(("past", "progressive", "future"))
    base = sampler.pick(bases)
    verbs = [verb for verb in VERBS if verb.english.base == base and "acc" in verb.frame]
    main = Clause(GO, {"subject": subject, "complement": sampler.place(tags, goal=True)}, tense)
    if sampler.chance(0.4):
        main.parts["time"] = sampler.time(tense)
        main = main.with_(front="time")
    aim = None
    while aim is None or not _has_tag(aim.parts["accusative"], object_tag):
        aim = sampler.clause(verb=sampler.pick(verbs), subject=subject, tense="future", plain=True)
    aim.parts.pop("subject")
    return Sentence(main, after=Subordinate(aim.with_(mood="infinitive"), "in order", "um"))


def _has_tag(thing, tag):
    """Whether a noun phrase has the tag; names and pronouns are persons."""
    return tag in thing.noun.tags if isinstance(thing, NounPhrase) else thing is not None and tag == "person"


def intention(sampler):
    verb, *_ = sampler.pick(INTENDING_VERBS)
    subject = sampler.subject(("person",), definite=True)
    act = sampler.clause(verb=sampler.pick(INTENDED), subject=subject, tense="future", plain=True)
    act.parts.pop("subject")
    tense = "past" if verb.english.base in ("decide", "promise") else sampler.pick(("past", "present", "past"))
    main = Clause(
        verb, {"subject": subject}, "progressive" if (verb.english.base, tense) == ("try", "present") else tense
    )
    return Sentence(main, after=Subordinate(act.with_(mood="infinitive")))


def coordination(sampler):
    if sampler.chance(0.5):
        subject = person_with_pronoun(sampler)
        wish = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, tense="past", plain=True)
        hindrance = _state(sampler, again(subject), "past", wish, helpful=False)
        return Sentence(wish.with_(modal=WANTED), second=hindrance, joint=("but", "aber"))
    tense = sampler.pick(("past", "progressive", "future"))
    first = sampler.clause(verb=sampler.pick(VOLUNTARY), tense=tense, plain=True)
    second = sampler.clause(verb=sampler.pick(VOLUNTARY), subject=sampler.name(), tense=tense, plain=True)
    return Sentence(first, second=second, joint=("and", "und"))


def _relative(sampler, phrase, but=None):
    """A clause about `phrase`, as its subject, its object or the place where someone lives; None if nothing fits."""
    tags = phrase.noun.tags
    draw = sampler.random.random()
    if "lodging" in tags and phrase.noun.rest[1] == "in":
        where = prepositional("in", "in", "dative", RelativePronoun(phrase, after_preposition=True))
        clause = Clause(LIVE, {"subject": sampler.subject(("person",), definite=True), "complement": where})
        return RelativeClause(clause.with_(front="complement", mood="embedded"))
    if "person" in tags and draw < 0.6:
        verb = sampler.pick(VOLUNTARY)
        clause = sampler.clause(verb=verb, subject=RelativePerson(phrase), plain=True)
        return RelativeClause(clause.with_(mood="embedded"))
    verbs = [verb for verb in TRANSITIVE if tags & set(verb.frame["acc"]) and not verb.flags & {"definite"}]
    verbs = [verb for verb in verbs if {"person", "adult"} & set(verb.subject) and "prep" not in verb.frame]
    verbs = [verb for verb in verbs if verb.english.base not in ("have", but)]
    if not verbs:
        return None
    clause = sampler.clause(verb=sampler.pick(verbs), plain=True)
    sampler.combine(clause.verb, phrase.noun)
    parts = {**clause.parts, "accusative": RelativePronoun(phrase)}
    return RelativeClause(clause.with_(parts=parts, front="accusative", mood="embedded"))


class RelativePerson(RelativePronoun):
    """A relative pronoun as the subject of its clause."""

    @property
    def pronoun(self):
        return self.antecedent.pronoun


def _modified(sampler, noun, plural=None, but=None):
    plural = False if "lodging" in noun.tags else plural
    phrase = sampler.noun_phrase(noun, definite=True, adjective=0.2, plural=plural)
    plain = NounPhrase(phrase.noun, phrase.number, "the", adjectives=phrase.adjectives)
    relative = _relative(sampler, plain, but)
    return (
        plain
        if relative is None
        else NounPhrase(noun, plain.number, "the", adjectives=plain.adjectives, relative=relative)
    )


def relative_subject(sampler):
    noun = sampler.pick(nouns_with(("person", "lodging", "thing", "-kin", "-friend")))
    subject = _modified(sampler, noun)
    if "person" in noun.tags and sampler.chance(0.6):
        return Sentence(sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject, plain=True))
    fitting = adjectives_for(noun)
    if not fitting:
        return statement(sampler)
    adjective = sampler.pick(fitting)
    sampler.combine(adjective, noun)
    bare = NounPhrase(subject.noun, subject.number, "the", relative=subject.relative)
    past = subject.relative is None or subject.relative.clause.tense == "past"
    tense = sampler.pick(("present", "past")) if past else "present"
    return Sentence(predicate_clause(bare, adjective, tense, negated=sampler.chance(0.15)))


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
    clause.parts["accusative"] = _modified(sampler, thing.noun, plural=thing.number == "plural", but=verb.english.base)
    if "to" in clause.parts:
        clause.parts.pop("to")
    return Sentence(clause)


def attribute(sampler):
    """ "The man with the red hat", "the woman from Berlin"."""
    noun = sampler.pick(nouns_with(("adult", "child", "-kin", "-king", "-queen", "-friend")))
    if sampler.chance(0.3):
        town = sampler.town()
        behind = Adverbial(town.english().replace("in ", "from ", 1), town.german().replace("in ", "aus ", 1))
    else:
        others = "-hers" if noun.pronoun == "he" else "-his"
        thing = sampler.pick(nouns_with(("headwear", "outerwear", "suit", "dress", "umbrella", "bag", "dog", others)))
        behind = prepositional(
            "with", "mit", "dative", sampler.noun_phrase(thing, definite=True, plural=False, adjective=0.8, owned=False)
        )
    subject = NounPhrase(noun, attribute=behind)
    return Sentence(sampler.clause(verb=sampler.pick(VOLUNTARY), subject=subject))
