"""The kinds of sentences and how often each is drawn."""

from itertools import accumulate

from builtin_corpus import complex_sentences, questions, statements

KINDS = (
    (statements.statement, 16),
    (statements.fronted_time, 8),
    (statements.fronted_place, 3),
    (statements.negated, 7),
    (statements.modal, 8),
    (statements.liking, 3),
    (statements.imperative, 3),
    (statements.existence, 2),
    (statements.weather, 1),
    (statements.predicate, 6),
    (statements.comparison, 2),
    (statements.profession, 2),
    (statements.age_or_price, 3),
    (statements.birthday, 1),
    (questions.yes_no_question, 5),
    (questions.wh_question, 6),
    (questions.how_question, 1),
    (complex_sentences.cause, 5),
    (complex_sentences.concession, 3),
    (complex_sentences.condition, 4),
    (complex_sentences.speech, 6),
    (complex_sentences.indirect_question, 3),
    (complex_sentences.childhood, 2),
    (complex_sentences.two_actions, 4),
    (complex_sentences.purpose, 3),
    (complex_sentences.intention, 3),
    (complex_sentences.coordination, 4),
    (complex_sentences.relative_subject, 5),
    (complex_sentences.relative_object, 4),
    (complex_sentences.attribute, 2),
)
_KINDS = [kind for kind, _ in KINDS]
_CUMULATIVE = list(accumulate(weight for _, weight in KINDS))


def draw(sampler):
    """Draws a `Sentence` of a random kind; `sampler.combinations` then holds the combinations that it uses."""
    sampler.combinations = set()
    (kind,) = sampler.random.choices(_KINDS, cum_weights=_CUMULATIVE)
    return kind(sampler)
