"""Scores against sacreBLEU's own functions and published facts about it."""

import dataclasses

import pytest
import sacrebleu

from keras_transformer.translation.scores import Score, bleu, chrf

HYPOTHESES = ["The dog sleeps under the old tree.", "Two men walk along the street today.", "a Cat, alone at home"] * 50
REFERENCES = ["The dog is sleeping under the old tree.", "Two men walk down the street.", "A cat, alone at home."] * 50
CHINESE = ["你好，世界。今天天气很好，我们去公园。", "两个人在街上走路。"] * 60
JAPANESE = ["今日は天気がいいので、公園に行きます。"] * 120


@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_those_of_sacrebleu(lowercase):
    score = bleu(HYPOTHESES, REFERENCES, target_language="en", lowercase=lowercase)
    oracle = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=lowercase, tokenize="13a")
    assert score.value == pytest.approx(oracle.score, abs=1e-12)
    assert 30 < score.value < 90
    case = "lc" if lowercase else "mixed"
    assert score.signature == f"nrefs:1|case:{case}|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert score.notes == ()
    score = chrf(HYPOTHESES, REFERENCES, lowercase=lowercase)
    assert score.value == pytest.approx(
        sacrebleu.CHRF(lowercase=lowercase).corpus_score(HYPOTHESES, [REFERENCES]).score
    )
    assert score.signature == f"nrefs:1|case:{case}|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}"


def test_case_counts_only_when_asked():
    upper = [text.upper() for text in REFERENCES]
    assert bleu(upper, REFERENCES).value < 10
    assert bleu(upper, REFERENCES, lowercase=True).value == 100.0
    assert chrf(upper, REFERENCES, lowercase=True).value == 100.0


@pytest.mark.parametrize("target_language", [None, "de", "en-US", "zh", "zh-CN", "zh_TW", "ZH"])
def test_identical_text_scores_100(target_language):
    is_chinese = (target_language or "").lower().startswith("zh")
    text = CHINESE if is_chinese else REFERENCES
    score = bleu(text, list(text), target_language=target_language)
    assert score.value == 100.0
    assert f"tok:{'zh' if is_chinese else '13a'}|" in score.signature
    assert chrf(text, text, target_language=target_language).value == 100.0


def test_chinese_is_scored_by_character():
    """With spaces as the only borders one changed character would cost a whole sentence."""
    changed = [text.replace("今天", "昨天") for text in CHINESE]
    assert bleu(changed, CHINESE).value + 10 < bleu(changed, CHINESE, target_language="zh").value < 100


@pytest.mark.parametrize("target_language", ["ja", "ko"])
def test_japanese_and_korean_are_split_or_refused(target_language):
    try:
        sacrebleu.BLEU(tokenize=f"{target_language}-mecab")
    except RuntimeError:
        with pytest.raises(ImportError, match=rf"target_language '{target_language}'.*sacrebleu\[{target_language}\]"):
            bleu(JAPANESE, JAPANESE, target_language=target_language)
    else:
        score = bleu(JAPANESE, JAPANESE, target_language=target_language)
        assert score.value == 100.0
        assert f"tok:{target_language}-mecab" in score.signature


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_errors(metric):
    with pytest.raises(ValueError, match=r"as many. Received: 2 hypotheses and 3 references"):
        metric(["a", "b"], ["a", "b", "c"])
    with pytest.raises(ValueError, match="at least one sentence"):
        metric([], [])
    with pytest.raises(ValueError, match="hypotheses must be a list of strings"):
        metric("a", ["a"])
    with pytest.raises(ValueError, match="references must be a list of strings"):
        metric(["a"], "a")


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_few_sentences_are_noted(metric):
    (note,) = metric(REFERENCES[:99], REFERENCES[:99]).notes
    assert "only 99 sentences" in note
    assert metric(REFERENCES[:100], REFERENCES[:100]).notes == ()


@pytest.mark.parametrize(
    ("num_tokenized", "num_plain", "noted"),
    [(0, 200, False), (90, 110, False), (101, 900, True), (61, 59, True), (120, 0, True)],
)
def test_text_that_looks_tokenised_is_noted(num_tokenized, num_plain, noted):
    hypotheses = ["a dog sleeps ."] * num_tokenized + ["A dog sleeps."] * num_plain
    notes = bleu(hypotheses, ["A dog sleeps."] * len(hypotheses)).notes
    assert any("look tokenised" in note for note in notes) == noted
    # A tokenised reference alone is no fault of the hypotheses.
    assert not bleu(["A dog sleeps."] * 200, ["A dog sleeps ."] * 200).notes


def test_nothing_is_logged(caplog, capfd):
    bleu(["a dog sleeps ."] * 200, ["a dog sleeps ."] * 200)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_empty_translations_score_0():
    assert bleu([""] * 150, REFERENCES).value == 0.0
    assert chrf([""] * 150, REFERENCES).value == 0.0


def test_hostile_text_is_scored():
    texts = ["a\0b\u2028c", "🙂 \u202e مرحبا", "\ufffd\ufffe", "tab\tand\nline"] * 30
    assert chrf(texts, texts).value == 100.0
    assert 0.0 <= bleu(texts, texts).value <= 100.0


def test_printed_form():
    score = Score(41.256, "nrefs:1|tok:13a", ("be careful.",))
    assert str(score) == "BLEU 41.26 (nrefs:1|tok:13a)\n  note: be careful."
    assert str(chrf(REFERENCES, REFERENCES)).startswith("chrF2 100.00 (nrefs:1|")
    with pytest.raises(dataclasses.FrozenInstanceError):
        score.value = 100.0
