"""The whole path on a toy language: train on reversed word order, translate."""

import itertools
import json
import resource
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data.batches import Batches
from keras_transformer.data.token_store import TokenStore
from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.decoding import BeamSearch, Sampling
from keras_transformer.formats.ctranslate2 import write_ctranslate2
from keras_transformer.saved_model.signatures import Signatures
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.transformer import Transformer
from keras_transformer.translation.ensemble import Ensemble
from keras_transformer.translation.translator import Translator
from keras_transformer.vocabulary import END_ID

WORDS = "mela toru kibo sane wuli fapo dige rono".split()
HOSTILE = [
    "",
    "   ",
    "\t\n",
    "mela toru",
    "东京 🙂 مرحبا",
    "</s> <s> <pad> <unk> <0xE4>",
    "a\nb\r\nc",
    "\x00\x01\x1f\x7f",
    "\u2028\u0085\ufeff",
    "mela " * 40,
]
INVALID_BYTES = [b"\xff\xfe", b"mela \xc3", b"\xed\xa0\x80 toru", b"\xf4\x90\x80\x80", bytes(range(128, 256))]


def reversing_pairs(count):
    generator = np.random.default_rng(0)
    pairs = {}
    while len(pairs) < count:
        words = list(generator.choice(WORDS, size=generator.integers(1, 6)))
        pairs[" ".join(words)] = " ".join(reversed(words))
    return list(pairs.items())


PAIRS = reversing_pairs(20)


@pytest.fixture(scope="module")
def translator():
    keras.utils.set_random_seed(3)
    tokenizer = Tokenizer.train(itertools.chain.from_iterable(PAIRS), vocabulary_size=300)
    model = Transformer(
        tokenizer.vocabulary_size,
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_model=64,
        num_heads=4,
        feed_forward_dim=128,
        dropout=0.0,
    )
    model.compile(keras.optimizers.Adam(3e-3), LabelSmoothedCrossEntropy(label_smoothing=0.0), jit_compile=False)
    batches = Batches(TokenStore.from_pairs(PAIRS, tokenizer), tokens_per_batch=512)
    model.fit(batches.dataset(), steps_per_epoch=290, verbose=0, shuffle=False)
    return Translator(model, tokenizer)


def test_overfits_a_reversing_task_to_the_last_token(translator):
    sources, targets = zip(*PAIRS, strict=True)
    assert translator.translate(sources) == list(targets)


GREEDY = BeamSearch(beam_size=1)
NBEST = BeamSearch(num_hypotheses=4)


@pytest.mark.parametrize("search", [GREEDY, NBEST], ids=["greedy", "beam"])
def test_a_hypothesis_scores_its_own_log_probability(translator, search):
    sources = [source for source, _ in PAIRS] + ["东京 mela", "kibo " * 12]
    found = translator.hypotheses(sources, search=search)
    flat = [(source, one) for source, hypotheses in zip(sources, found, strict=True) for one in hypotheses]
    scores = translator.score([source for source, _ in flat], [one.ids for _, one in flat])
    for (_, one), score in zip(flat, scores, strict=True):
        np.testing.assert_allclose(score.log_probability, one.log_probability, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(score.token_log_probabilities.sum(), score.log_probability, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(score.perplexity, np.exp(-score.log_probability / len(one.ids)), rtol=1e-6)
        expected = one.log_probability / ((5 + len(one.ids)) / 6) ** search.length_penalty
        np.testing.assert_allclose(one.score, expected, rtol=1e-5)
        assert one.finished == (one.ids[-1] == END_ID)
    assert all(len({one.ids for one in hypotheses}) == len(hypotheses) for hypotheses in found)
    for scores in ([one.score for one in hypotheses if one.finished] for hypotheses in found):
        assert scores == sorted(scores, reverse=True)


def test_scores_are_those_of_the_full_forward_pass(translator):
    (source, target), tokenizer = PAIRS[3], translator.tokenizer
    ids = [*tokenizer.encode([target])[0], END_ID]
    inputs = {"source_ids": [[*tokenizer.encode([source])[0], END_ID]], "target_ids": [[2, *ids[:-1]]]}
    logits = translator.model({name: tf.constant(rows) for name, rows in inputs.items()})
    expected = np.take_along_axis(tf.nn.log_softmax(logits).numpy()[0], np.array(ids)[:, None], axis=1)[:, 0]
    for given in (target, ids):
        (score,) = translator.score([source], [given])
        assert score.ids == tuple(ids)
        np.testing.assert_allclose(score.token_log_probabilities, expected, atol=2e-6)
    with pytest.raises(ValueError, match="`targets` must have one entry for each sentence"):
        translator.score([source], [])


@pytest.mark.parametrize("search", [GREEDY, NBEST], ids=["greedy", "beam"])
def test_translations_do_not_depend_on_company_or_order(translator, search):
    sentences = [source for source, _ in PAIRS] + HOSTILE
    together = translator.hypotheses(sentences, search=search)
    alone = [translator.hypotheses([sentence], search=search)[0] for sentence in sentences]
    backwards = translator.hypotheses(sentences[::-1], search=search)[::-1]
    for one, two, three in zip(together, alone, backwards, strict=True):
        assert one[0].ids == two[0].ids == three[0].ids
        np.testing.assert_allclose([one[0].score, three[0].score], two[0].score, atol=1e-4)


def test_the_cache_gives_what_the_whole_prefix_gives(translator):
    """Greedy search by hand, the whole prefix through the model at every step."""
    tokenizer, model = translator.tokenizer, translator.model
    for text in ("mela toru kibo", "toru", "东京 🙂"):
        source_ids = tf.constant([[*tokenizer.encode([text])[0], END_ID]])
        ids = [2]
        while ids[-1] != END_ID and len(ids) < source_ids.shape[1] + 50:
            logits = model({"source_ids": source_ids, "target_ids": tf.constant([ids])}).numpy()[0, -1]
            logits[[0, 2]] = -np.inf
            ids.append(int(logits.argmax()))
        assert translator.hypotheses([text], search=GREEDY)[0][0].ids == tuple(ids[1:])


def test_prefixes_and_constraints(translator):
    sources = [source for source, _ in PAIRS[:3]]
    found = translator.hypotheses(sources, prefixes=["rono sane", None, translator.tokenizer.encode(["fapo"])[0]])
    texts = [hypotheses[0].text for hypotheses in found]
    assert texts[0].startswith("rono sane")
    assert texts[1] == PAIRS[1][1]
    assert texts[2].startswith("fapo")
    long = "rono " * 40
    (hypotheses,) = translator.hypotheses(["mela"], prefixes=[long])
    assert hypotheses[0].text.startswith(long.strip())

    constraints = [["wuli", "dige rono"], None, []]
    found = translator.hypotheses(sources, constraints=constraints)
    assert "wuli" in found[0][0].text.split()
    assert "dige rono" in found[0][0].text
    assert [hypotheses[0].text for hypotheses in found[1:]] == [target for _, target in PAIRS[1:3]]
    assert translator.translate(sources, constraints=[None] * 3) == [target for _, target in PAIRS[:3]]
    with pytest.raises(ValueError, match="`prefixes` must have one entry for each sentence"):
        translator.translate(sources, prefixes=["a"])
    with pytest.raises(ValueError, match="`prefixes` must hold ids"):
        translator.translate(["mela"], prefixes=[[END_ID]])
    with pytest.raises(ValueError, match="`constraints` need a `BeamSearch`"):
        translator.translate(["mela"], constraints=[["wuli"]], search=Sampling())


def test_samples_depend_on_the_seed_and_the_sentence_alone(translator):
    search = Sampling(temperature=3.0, num_hypotheses=3)
    sources = [source for source, _ in PAIRS[:4]]

    def samples(sentences, seed):
        return [
            [one.ids for one in hypotheses] for hypotheses in translator.hypotheses(sentences, search=search, seed=seed)
        ]

    together = samples(sources, 7)
    assert together == samples(sources[::-1], 7)[::-1]
    assert together[2] == samples(sources[2:3], 7)[0]
    assert together != samples(sources, 8)
    assert len(set(together[0])) > 1


def test_attention_and_alignment(translator):
    sources = [source for source, _ in PAIRS[:6]] + [""]
    found = translator.hypotheses(sources, return_alignments=True)
    for (source, target), (one, *_) in zip(PAIRS[:6], found, strict=False):
        assert one.attention.shape == (len(one.ids), len(translator.tokenizer.encode([source])[0]) + 1)
        np.testing.assert_allclose(one.attention.sum(axis=1), 1.0, atol=1e-5)
        assert [word for _, word in one.alignment] == list(range(len(target.split())))
        assert all(0 <= word < len(source.split()) for word, _ in one.alignment)
    assert found[-1][0].alignment == ()
    one_head = translator.hypotheses(sources[:1], return_alignments=True, attention_layer=0, attention_head=1)[0][0]
    assert not np.allclose(one_head.attention, found[0][0].attention)
    with pytest.raises(ValueError, match="`attention_layer` must be one of the 1 decoder layers"):
        translator.hypotheses(sources[:1], return_alignments=True, attention_layer=1)


def test_coverage_penalty_ranks_by_attention(translator):
    """Re-computed from the attention of a forced pass."""
    search = BeamSearch(beam_size=3, num_hypotheses=3, coverage_penalty=0.4)
    sources = [source for source, _ in PAIRS[:4]] + ["mela"]
    for hypotheses in translator.hypotheses(sources, search=search, return_alignments=True, attention_layer=-1):
        for one in hypotheses:
            coverage = np.log(np.minimum(one.attention.sum(axis=0), 1.0)).sum()
            expected = one.log_probability / ((5 + len(one.ids)) / 6) ** 0.6 + 0.4 * coverage
            np.testing.assert_allclose(one.score, expected, rtol=1e-4, atol=1e-4)


def test_an_ensemble_averages_probabilities(translator):
    model, tokenizer = translator.model, translator.tokenizer
    other = Transformer.from_config(model.get_config())
    generator = np.random.default_rng(3)
    other.set_weights([weight + generator.normal(scale=0.02, size=weight.shape) for weight in model.get_weights()])
    sources = [source for source, _ in PAIRS[:5]]
    alone = translator.hypotheses(sources)
    twice = Translator([model, model], tokenizer).hypotheses(sources)
    for one, two in zip(alone, twice, strict=True):
        assert one[0].ids == two[0].ids
        np.testing.assert_allclose(one[0].score, two[0].score, atol=1e-5)
    both = Translator([model, other], tokenizer)
    found = [hypotheses[0] for hypotheses in both.hypotheses(sources, return_alignments=True)]
    scores = both.score(sources, [one.ids for one in found])
    np.testing.assert_allclose(
        [score.log_probability for score in scores], [one.log_probability for one in found], atol=1e-5
    )
    one, two = (Translator(each, tokenizer).score(sources, [one.ids for one in found]) for each in (model, other))
    for score, first, second in zip(scores, one, two, strict=True):
        mean = np.logaddexp(first.token_log_probabilities, second.token_log_probabilities) - np.log(2)
        np.testing.assert_allclose(score.token_log_probabilities, mean, atol=1e-5)
    with pytest.raises(ValueError, match="at least two models"):
        Ensemble([model])


@pytest.mark.parametrize("beam_size", [1, 4])
def test_ctranslate2_finds_the_same(translator, tmp_path, beam_size):
    """The same weights in another engine. Without a length penalty both stop when nothing better can come."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    write_ctranslate2(translator.model, translator.tokenizer, tmp_path / "model")
    other = ctranslate2.Translator(str(tmp_path / "model"), compute_type="float32", intra_threads=1)
    names = json.loads((tmp_path / "model" / "shared_vocabulary.json").read_text("utf-8"))
    generator = np.random.default_rng(4)
    sentences = [" ".join(generator.choice(WORDS, size=generator.integers(1, 9))) for _ in range(200)]
    results = other.translate_batch(
        [[names[token] for token in ids] for ids in translator.tokenizer.encode(sentences)],
        beam_size=beam_size,
        length_penalty=0,
        min_decoding_length=0,  # or the end mark is left out of the first step's probabilities
        max_decoding_length=60,
        return_scores=True,
    )
    ours = Translator(translator.model, translator.tokenizer, max_extra_tokens=60, max_target_tokens=60)
    found = ours.hypotheses(sentences, search=BeamSearch(beam_size=beam_size, length_penalty=0.0))
    # At the limit they differ: CTranslate2 ranks what it cut among what ended.
    ended = [pair for pair in zip(results, found, strict=True) if len(pair[0].hypotheses[0]) < 60]
    assert len(ended) > 100
    for result, (one, *_) in ended:
        assert one.finished
        assert [names[token] for token in one.ids[:-1]] == result.hypotheses[0]
        np.testing.assert_allclose(one.score, result.scores[0], rtol=2e-5, atol=2e-5)


def test_xla_gives_the_same(translator):
    compiled = Translator(translator.model, translator.tokenizer, jit_compile=True)
    sources = ["", *(source for source, _ in PAIRS[:2])]
    for one, two in zip(translator.hypotheses(sources), compiled.hypotheses(sources), strict=True):
        assert one[0].ids == two[0].ids
        np.testing.assert_allclose(one[0].score, two[0].score, atol=1e-5)


def test_long_sources_are_cut_and_flagged(translator):
    """At most 16 source and 20 target tokens; the end marks come on top."""
    limited = Translator(translator.model, translator.tokenizer, max_source_tokens=16, max_target_tokens=20)
    texts = ["Q" * (length - 1) for length in (15, 16, 17, 5000)]  # a space, then bytes
    assert [len(ids) for ids in limited.tokenizer.encode(texts)] == [15, 16, 17, 5000]
    with pytest.warns(UserWarning, match=r"Cut 2 of 4 sentences to `max_source_tokens`=16: number 3, 4"):
        found = [hypotheses[0] for hypotheses in limited.hypotheses(texts)]
    assert [one.truncated for one in found] == [False, False, True, True]
    assert found[2].ids == found[3].ids == found[1].ids
    assert all(len(one.ids) <= 21 and one.finished == (one.ids[-1] == END_ID) for one in found)
    babbler = Translator(translator.model, translator.tokenizer, max_target_tokens=20, search=BeamSearch(min_length=20))
    one = babbler.hypotheses(["mela"])[0][0]
    assert one.finished
    assert len(one.ids) == 21


def test_blank_sentences_stay_blank_and_move_nobody(translator):
    assert translator.translate([]) == []
    assert translator.translate([""]) == [""]
    source, target = PAIRS[0]
    assert translator.translate([source, "", "  \t ", source]) == [target, "", "", target]
    for search in (GREEDY, NBEST, Sampling(num_hypotheses=2)):
        for blank in translator.hypotheses([""], search=search)[0]:
            assert (blank.text, blank.ids, blank.score, blank.finished) == ("", (), 0.0, True)


def test_one_string_is_refused(translator):
    with pytest.raises(TypeError, match="`sentences` must be a list of strings"):
        translator.translate("mela toru")


def test_output_is_limited_to_the_source_length_and_more(translator):
    short = Translator(translator.model, translator.tokenizer, max_extra_tokens=0)
    num_tokens = len(translator.tokenizer.encode(["fapo " * 30])[0])
    one = short.hypotheses(["fapo " * 30])[0][0]
    assert len(one.ids) <= num_tokens + 1
    assert one.finished == (one.ids[-1] == END_ID)
    for name, value in (("max_extra_tokens", -1), ("max_target_tokens", 0), ("max_source_tokens", 0)):
        with pytest.raises(ValueError, match=f"`{name}` must"):
            Translator(translator.model, translator.tokenizer, **{name: value})


def test_a_model_without_an_output_for_every_piece_is_refused(translator):
    model = Transformer.from_preset("tiny", 100, num_encoder_layers=1, num_decoder_layers=1)
    with pytest.raises(ValueError, match="`model` must have an output for every piece"):
        Translator(model, translator.tokenizer)


def test_learned_positions_limit_the_sentence(translator):
    model = Transformer.from_preset(
        "tiny",
        translator.tokenizer.vocabulary_size,
        num_encoder_layers=1,
        num_decoder_layers=1,
        positions="learned",
        max_length=16,
    )
    limited = Translator(model, translator.tokenizer)
    assert len(limited.translate(["mela toru"])) == 1
    with pytest.warns(UserWarning, match=r"Cut 1 of 2 sentences to `max_source_tokens`=15: number 2"):
        one = limited.hypotheses(["mela", "mela toru " * 20])[1][0]
    assert one.truncated
    assert len(one.ids) <= 16
    with pytest.raises(ValueError, match=r"`targets` must fit the model's 16 learned positions.* in number 1"):
        limited.score(["mela"], ["mela toru " * 20])


@pytest.mark.parametrize("max_length", [13, 16])
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_learned_positions_hold_all_that_fits_them(translator, max_length, jit_compile):
    """To the last position, though the ids of a batch are padded to multiples."""
    tokenizer = translator.tokenizer
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2, "feed_forward_dim": 16}
    model = Transformer(tokenizer.vocabulary_size, **sizes, positions="learned", max_length=max_length)
    limited = Translator(model, tokenizer, search=BeamSearch(beam_size=2, min_length=99), jit_compile=jit_compile)
    text = tokenizer.decode(tokenizer.encode(["toru " * 20])[0][: max_length - 1])
    assert len(tokenizer.encode([text])[0]) == max_length - 1
    ((one,),) = limited.hypotheses([text], return_alignments=True)
    assert (len(one.ids), one.truncated) == (max_length, False)
    assert one.attention.shape == (max_length, max_length)
    assert limited.score([text], [one.ids])[0].log_probability == pytest.approx(one.log_probability, rel=1e-4)
    signatures = Signatures(limited.pipeline, 2)
    served = signatures.alignments(tf.constant([text]))
    assert served["translation"].numpy()[0].decode() == one.text
    assert not served["truncated"].numpy().any()
    score = signatures.score(tf.constant([text]), tf.constant([text]))
    assert score["num_tokens"].numpy().tolist() == [max_length]


def test_one_trace_serves_every_shape(translator):
    generator = np.random.default_rng(1)
    translator.translate(["mela"])
    for _ in range(20):
        count = int(generator.integers(1, 9))
        translator.translate([" ".join(generator.choice(WORDS, size=generator.integers(1, 12))) for _ in range(count)])
    assert {graph.experimental_get_tracing_count() for graph in translator._graphs.values()} == {1}


def resident_megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory of the process from /proc")
def test_memory_does_not_grow_with_requests(translator):
    generator = np.random.default_rng(2)
    for request in range(1300):
        if request == 800:  # until then oneDNN fills its cache of kernels, one for each of up to 1,024 shapes
            before = resident_megabytes()
        rows = int(generator.integers(1, 9))
        translator.translate([" ".join(generator.choice(WORDS, size=generator.integers(1, 60))) for _ in range(rows)])
    assert resident_megabytes() - before < 20
    assert {graph.experimental_get_tracing_count() for graph in translator._graphs.values()} == {1}


def test_a_long_line_is_translated_in_a_batch_of_its_own(translator):
    long = translator.tokenizer.decode(translator.tokenizer.encode(["toru " * 900])[0][:1000])
    assert len(translator.translate(["mela", long, "kibo"])) == 3


def test_save_and_load(translator, tmp_path):
    translator.save(tmp_path / "run")
    loaded = Translator.load(tmp_path / "run")
    sentences = [source for source, _ in PAIRS] + HOSTILE
    assert loaded.hypotheses(sentences) == translator.hypotheses(sentences)
    (tmp_path / "run" / "tokenizer.model").unlink()
    with pytest.raises(FileNotFoundError, match=r"`directory` must hold tokenizer\.model"):
        Translator.load(tmp_path / "run")


@pytest.mark.parametrize("value", [None, b"mela", 3])
def test_sentences_that_are_no_strings_are_named(translator, value):
    for call in (translator.translate, lambda sentences: translator.score(sentences, ["a", "b"])):
        with pytest.raises(TypeError, match=f"`sentences` must be a list of strings.*{value!r} as number 2"):
            call(["mela", value])


def test_a_broken_model_says_so(translator):
    model = Transformer.from_config(translator.model.get_config())
    model.set_weights([np.full(weight.shape, np.nan) for weight in model.get_weights()])
    broken = Translator(model, translator.tokenizer, max_extra_tokens=2)
    for search in (GREEDY, NBEST, Sampling()):
        with pytest.raises(FloatingPointError, match="logits of `model` are not finite"):
            broken.translate(["mela toru"], search=search)
    served = Signatures(broken.pipeline, 2)
    for outputs in (served.n_best(tf.constant(["mela"])), served.score(tf.constant(["mela"]), tf.constant(["toru"]))):
        for values in outputs.values():
            assert values.dtype != tf.float32 or np.isfinite(values).all()
