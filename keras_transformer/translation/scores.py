"""Corpus scores of translations against references: BLEU and chrF by sacreBLEU, each with its signature.

Scores are of plain, detokenised text: the hypotheses as a user would read them and the references as published.
"""

import dataclasses
from collections.abc import Sequence

from sacrebleu.metrics import BLEU, CHRF

# Below this many sentences a corpus score depends strongly on the choice of the sentences.
MIN_RELIABLE_SENTENCES = 100
# How many endings in " ." make text look tokenised; sacreBLEU warns from the same number on.
NUM_TOKENIZED_ENDINGS = 100

# Languages written without spaces between words, or whose words sacreBLEU cuts up with a morphological analyser.
_BLEU_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
_DEFAULT_BLEU_TOKENIZER = "13a"


@dataclasses.dataclass(frozen=True)
class Score:
    """A score with what is needed to compare it.

    Attributes:
        value: the score, 0 to 100.
        signature: sacreBLEU's signature; scores compare only if it is the same.
        notes: what the reader of the score should know, one sentence each; often empty.
        name: "BLEU" or "chrF2".
    """

    value: float
    signature: str
    notes: tuple[str, ...] = ()
    name: str = "BLEU"

    def __str__(self):
        return "\n".join(
            [f"{self.name} {self.value:.2f} ({self.signature})", *(f"  note: {note}" for note in self.notes)]
        )


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    target_language: str | None = None,
    lowercase: bool = False,
) -> Score:
    """Corpus BLEU.

    Args:
        hypotheses: translations, detokenised.
        references: one reference for each, detokenised, never normalised.
        target_language: language code of the text, such as "de" or "zh-CN". It chooses how sacreBLEU splits words:
            Chinese by character, Japanese and Korean with MeCab, every other language, or `None`, with "13a".
        lowercase: whether to ignore case (sacreBLEU's `-lc`). Defaults to `False`.

    Raises:
        ValueError: no sentence, or not as many hypotheses as references.
        ImportError: Japanese or Korean without the extra packages that sacreBLEU needs for it.

    Reference:
        [Post, 2018](https://arxiv.org/abs/1804.08771)
    """
    _check(hypotheses, references)
    language = (target_language or "").replace("_", "-").split("-")[0].lower()
    tokenizer = _BLEU_TOKENIZERS.get(language, _DEFAULT_BLEU_TOKENIZER)
    try:
        # force: the same check is made below and its result is part of the score, not a line in a log.
        metric = BLEU(tokenize=tokenizer, lowercase=lowercase, force=True)
    except RuntimeError as error:
        raise ImportError(
            f"target_language {target_language!r} needs a word splitter that is not installed: "
            f"pip install 'sacrebleu[{language}]'. chrF needs none."
        ) from error
    result = metric.corpus_score(list(hypotheses), [list(references)])
    return _score("BLEU", result.score, metric, hypotheses)


def chrf(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    target_language: str | None = None,
    lowercase: bool = False,
) -> Score:
    """Corpus chrF2, an F-score of character n-grams. Arguments as for `bleu`; the language makes no difference.

    Reference:
        [Popović, 2015](https://aclanthology.org/W15-3049/)
    """
    del target_language
    _check(hypotheses, references)
    metric = CHRF(lowercase=lowercase)
    result = metric.corpus_score(list(hypotheses), [list(references)])
    return _score("chrF2", result.score, metric, hypotheses)


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    for argument, value in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(value, str):
            raise ValueError(f"{argument} must be a list of strings. Received: one string")
    if len(hypotheses) != len(references):
        raise ValueError(
            "hypotheses and references must be as many. "
            f"Received: {len(hypotheses)} hypotheses and {len(references)} references"
        )
    if not hypotheses:
        raise ValueError("hypotheses must hold at least one sentence. Received: none")


def _score(name: str, value: float, metric: BLEU | CHRF, hypotheses: Sequence[str]) -> Score:
    notes = []
    if len(hypotheses) < MIN_RELIABLE_SENTENCES:
        notes.append(
            f"only {len(hypotheses)} sentences: below {MIN_RELIABLE_SENTENCES} a corpus score says little about others."
        )
    num_tokenized = sum(hypothesis.rstrip().endswith(" .") for hypothesis in hypotheses)
    if num_tokenized >= NUM_TOKENIZED_ENDINGS or num_tokenized > len(hypotheses) / 2:
        notes.append(
            f'{num_tokenized} of {len(hypotheses)} hypotheses end in " .": they look tokenised; score detokenised text.'
        )
    # Identical text gives 100.00000000000004.
    return Score(min(value, 100.0), str(metric.get_signature()), tuple(notes), name)
