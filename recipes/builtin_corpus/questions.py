"""Questions that take yes or no, and questions with a question word, direct or inside another clause."""

from builtin_corpus.clauses import CAN, WANT, Clause, Sentence
from builtin_corpus.lexicon import ADJECTIVE, TRANSITIVE, VERBS, VOLUNTARY, nouns_for
from builtin_corpus.phrases import PRONOUNS, Adverbial, NounPhrase, Question
from builtin_corpus.verbs import BE


def _clause(sampler, verbs, **options):
    """A clause with a definite subject that is not "I": nobody asks what he does himself."""
    clause = None
    while clause is None or clause.parts["subject"] is PRONOUNS["I"]:
        clause = sampler.clause(verb=sampler.pick(verbs), definite=True, **options)
    return clause


def yes_no_question(sampler):
    clause = _clause(sampler, VERBS)
    if sampler.chance(0.25):
        verb = sampler.pick(VOLUNTARY)
        clause = sampler.clause(verb=verb, tense="future", definite=True).with_(modal=sampler.pick((CAN, WANT)))
    clause = sampler.without_frequency(clause)
    return Sentence(clause.with_(mood="question"), mark="?")


def with_question_word(sampler, plain=False, past=False):
    """A clause whose `front` part is a question word, not yet in the order of a question."""
    kind = sampler.pick(("subject", "object", "object", "where", "when", "why", "which"))
    verbs = {"object": TRANSITIVE, "which": TRANSITIVE}.get(kind, VERBS)
    clause = _clause(sampler, verbs, plain=plain or kind != "subject", past=past)
    clause = sampler.without_frequency(clause)
    tense, parts = clause.tense, dict(clause.parts)
    goal = next((role for role in ("dir", "loc") if role in clause.verb.frame), None)
    if kind == "subject" and {"person", "adult"} & set(clause.verb.subject):
        clause = sampler.clause(verb=clause.verb, subject=sampler.first_name(), tense=tense)
        clause = sampler.without_frequency(clause)
        parts = {**clause.parts, "subject": Question("who")}
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
    return Sentence(with_question_word(sampler).with_(mood="wh-question"), mark="?")


def how_question(sampler):
    names = ("old", "expensive", "big", "heavy", "long", "fast", "dangerous", "difficult", "important", "high", "tall")
    adjective = ADJECTIVE[sampler.pick(names)]
    noun = sampler.pick(nouns_for(adjective))
    sampler.combine(adjective, noun)
    subject = sampler.noun_phrase(noun, definite=True, adjective=0)
    parts = {"subject": subject, "complement": Adverbial(f"how {adjective.english}", f"wie {adjective.german}")}
    return Sentence(
        Clause(BE, parts, sampler.pick(("present", "past")), front="complement", mood="wh-question"), mark="?"
    )
