"""CTranslate2, given our weights, must give our log-probabilities: its engine is an independent implementation."""

import json
import os
import stat
import subprocess
import sys

import keras
import numpy as np
import pytest
import sentencepiece

from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.formats.ctranslate2 import write_ctranslate2
from keras_transformer.transformer import Transformer
from keras_transformer.vocabulary import END_ID, START_ID

ctranslate2 = pytest.importorskip("ctranslate2")

VARIANTS = {
    "post-norm": {},
    "pre-norm": {"norm_first": True},
    "attention-bias": {"use_attention_bias": True},
    "pre-norm-attention-bias": {"norm_first": True, "use_attention_bias": True},
    "two-way": {"tying": "two-way", "target_vocabulary_size": 303},
    "untied": {"tying": "none", "target_vocabulary_size": 303},
    "more-outputs-than-pieces": {"source_vocabulary_size": 303},
    "learned": {"positions": "learned", "max_length": 20},
    "learned-untied": {"positions": "learned", "max_length": 20, "tying": "none"},
    "large-epsilon": {"layer_norm_epsilon": 0.5},
    "pre-norm-large-epsilon": {"norm_first": True, "layer_norm_epsilon": 0.5},
    "gelu": {"activation": "gelu"},
    "swish": {"activation": "swish"},
    "tanh": {"activation": "tanh"},
    "sigmoid": {"activation": "sigmoid"},
    "narrow-heads": {"key_dim": 5},
    "wide-heads": {"key_dim": 24, "norm_first": True, "use_attention_bias": True},
    "odd-width": {"d_model": 27, "num_heads": 3},
}

# These have every part of the format among them; the others go with the slow tests.
FIRST = (
    "post-norm",
    "two-way",
    "untied",
    "more-outputs-than-pieces",
    "learned-untied",
    "wide-heads",
    "odd-width",
    "gelu",
)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["one two three four five", "eins zwei drei vier fünf"], vocabulary_size=290)


@pytest.fixture
def make_model(tokenizer, randomize):
    def make(**arguments):
        small = {"num_encoder_layers": 2, "num_decoder_layers": 3, "d_model": 32, "num_heads": 4}
        defaults = {"source_vocabulary_size": tokenizer.vocabulary_size, "feed_forward_dim": 48, **small}
        model = Transformer(**{**defaults, **arguments})
        randomize(model)
        return model

    return make


def load(directory, **arguments):
    return ctranslate2.Translator(str(directory), device="cpu", inter_threads=1, intra_threads=1, **arguments)


def vocabularies(directory):
    """Names by id of source and target."""
    shared = directory / "shared_vocabulary.json"
    paths = [shared, shared] if shared.exists() else [directory / f"{s}_vocabulary.json" for s in ("source", "target")]
    return [json.loads(path.read_text("utf-8")) for path in paths]


def log_probabilities(model, pairs):
    """For each pair of ids without marks, log-probabilities [T + 1, V] of our model."""
    sources, targets = [[*source, END_ID] for source, _ in pairs], [[START_ID, *target] for _, target in pairs]
    inputs = {"source_ids": sources, "target_ids": targets}
    inputs = {name: keras.utils.pad_sequences(rows, padding="post") for name, rows in inputs.items()}
    rows = keras.ops.convert_to_numpy(keras.ops.log_softmax(model(inputs), axis=-1))
    return [row[: len(target)] for row, target in zip(rows, targets, strict=True)]


def expected_scores(model, pairs):
    """What `score` must give, if the engine computes as exactly as the model."""
    targets = [[*target, END_ID] for _, target in pairs]
    return [row[np.arange(len(row)), ids] for row, ids in zip(log_probabilities(model, pairs), targets, strict=True)]


def random_pairs(model):
    """Ids of pieces that text is made of, of several lengths: CTranslate2 pads them to one batch."""
    config = model.get_config()
    generator = np.random.default_rng(3)
    for source_length, target_length in ((6, 4), (1, 9), (11, 1), (3, 12)):
        yield (
            generator.integers(END_ID + 1, config["source_vocabulary_size"], source_length).tolist(),
            generator.integers(END_ID + 1, config["target_vocabulary_size"], target_length).tolist(),
        )


def score(translator, directory, pairs):
    source_names, target_names = vocabularies(directory)
    return translator.score_batch(
        [[source_names[index] for index in source] for source, _ in pairs],
        [[target_names[index] for index in target] for _, target in pairs],
    )


@pytest.mark.parametrize(
    "variant", [*FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS if name not in FIRST)]
)
def test_scores_and_greedy_search_are_those_of_the_model(make_model, tokenizer, tmp_path, variant):
    model = make_model(**VARIANTS[variant])
    directory = tmp_path / "served"
    write_ctranslate2(model, tokenizer, directory)
    translator = load(directory)
    source_names, target_names = vocabularies(directory)
    assert len(source_names) == len(set(source_names)) == model.get_config()["source_vocabulary_size"]
    assert len(target_names) == len(set(target_names)) == model.output_shape[-1]

    pairs = list(random_pairs(model))
    results = score(translator, directory, pairs)
    for expected, result in zip(expected_scores(model, pairs), results, strict=True):
        np.testing.assert_allclose(result.log_probs, expected, rtol=1e-5, atol=2e-5)

    results = translator.translate_batch(
        [[source_names[index] for index in source] for source, _ in pairs], beam_size=1, max_decoding_length=12
    )
    found = [[target_names.index(name) for name in result.hypotheses[0]] for result in results]
    ours = log_probabilities(model, [(source, ids) for (source, _), ids in zip(pairs, found, strict=True)])
    for ids, row in zip(found, ours, strict=True):
        row[0, END_ID] = -np.inf  # CTranslate2 wants at least one token
        chosen = [*ids, END_ID][:12]
        steps = np.arange(len(chosen))
        # Its choice is the best one, or as good as the best.
        np.testing.assert_allclose(row[steps, chosen], row.max(-1)[steps], atol=1e-4)


def test_a_text_goes_through_what_the_directory_holds(make_model, tokenizer, tmp_path):
    model = make_model()
    write_ctranslate2(model, tokenizer, tmp_path / "served")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "served" / "tokenizer.model"))
    text, translation = "one fünf 漢", "eins five"
    translator = load(tmp_path / "served")
    (result,) = translator.score_batch(*[processor.encode([each], out_type=str) for each in (text, translation)])
    source, target = tokenizer.encode([text, translation])
    (expected,) = expected_scores(model, [(source, target)])
    np.testing.assert_allclose(result.log_probs, expected, rtol=1e-5, atol=2e-5)

    (result,) = translator.translate_batch(processor.encode([text], out_type=str), max_decoding_length=9)
    ids = [processor.PieceToId(piece) for piece in result.hypotheses[0]]
    assert processor.decode(result.hypotheses[0]) == tokenizer.decode(ids)


def test_a_model_is_given_by_its_path_too(make_model, tokenizer, tmp_path):
    model = make_model()
    write_ctranslate2(model, tokenizer, tmp_path / "expected")
    model.save(tmp_path / "model.keras")
    tokenizer.save(tmp_path / "tokenizer.model")
    write_ctranslate2(tmp_path, None, tmp_path / "served")
    for file in (tmp_path / "expected").iterdir():
        assert (tmp_path / "served" / file.name).read_bytes() == file.read_bytes()
    with pytest.raises(FileNotFoundError, match="a trained model must be a run directory"):
        write_ctranslate2(tmp_path / "nothing", None, tmp_path / "other")


def test_an_empty_source_gives_an_empty_translation(make_model, tokenizer, tmp_path):
    write_ctranslate2(make_model(), tokenizer, tmp_path / "served")
    (result,) = load(tmp_path / "served").translate_batch([[]])
    assert result.hypotheses == [[]]


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16"])
def test_quantization(make_model, tokenizer, tmp_path, quantization):
    model = make_model()
    write_ctranslate2(model, tokenizer, tmp_path / "plain")
    write_ctranslate2(model, tokenizer, tmp_path / "small", quantization=quantization)
    plain, small = ((tmp_path / name / "model.bin").stat().st_size for name in ("plain", "small"))
    assert small < 0.9 * plain
    check_scores(model, load(tmp_path / "small", compute_type="float32"), tmp_path / "small")

    # In its own arithmetic: processors without VNNI add products of int8 in pairs, which saturate at 16 bits. No pair
    # does where every second input counts for nothing.
    for weight in model.trainable_variables:
        array = weight.numpy()
        if weight.path.endswith("kernel"):
            array[1::2] = 0
        elif weight.path.endswith("embeddings"):
            array[:, 1::2] = 0
        weight.assign(array)
    write_ctranslate2(model, tokenizer, tmp_path / "halved", quantization=quantization)
    check_scores(model, load(tmp_path / "halved"), tmp_path / "halved")


def check_scores(model, translator, directory):
    pairs = list(random_pairs(model))
    for expected, result in zip(expected_scores(model, pairs), score(translator, directory, pairs), strict=True):
        np.testing.assert_allclose(result.log_probs, expected, atol=0.5)


def test_max_length_is_the_number_of_positions(make_model, tokenizer, tmp_path):
    write_ctranslate2(make_model(), tokenizer, tmp_path / "served", max_length=8)
    translator = load(tmp_path / "served")
    assert len(translator.translate_batch([["a"] * 7], max_decoding_length=4)) == 1
    with pytest.raises((RuntimeError, ValueError), match="position"):
        translator.translate_batch([["a"] * 8], max_decoding_length=4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"activation": "softplus"}, "activation"),
        ({"key_dim": 8, "value_dim": 4}, "key_dim=8, value_dim=4"),
        ({"source_vocabulary_size": 289}, "source_vocabulary_size=289, 290 pieces"),
        ({"target_vocabulary_size": 289, "tying": "none"}, "target_vocabulary_size=289, 290 pieces"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(make_model, tokenizer, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        write_ctranslate2(make_model(**arguments), tokenizer, tmp_path / "served")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "value"), [("quantization", "int4"), ("max_length", 0)])
def test_bad_arguments(make_model, tokenizer, tmp_path, name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be .*{value}"):
        write_ctranslate2(make_model(), tokenizer, tmp_path / "served", **{name: value})
    assert not list(tmp_path.iterdir())


def test_the_directory_appears_whole_or_not_at_all(make_model, tokenizer, tmp_path, monkeypatch):
    model = make_model()
    monkeypatch.setattr(tokenizer, "save", lambda path: (_ for _ in ()).throw(OSError("disk full")), raising=False)
    with pytest.raises(OSError, match="disk full"):
        write_ctranslate2(model, tokenizer, tmp_path / "deep" / "served")
    assert not list((tmp_path / "deep").iterdir())
    monkeypatch.undo()
    write_ctranslate2(model, tokenizer, tmp_path / "deep" / "served")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["served"]
    assert ctranslate2.contains_model(str(tmp_path / "deep" / "served"))
    (tmp_path / "usual").mkdir()
    modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (tmp_path / "usual", tmp_path / "deep" / "served")]
    assert modes[0] == modes[1]
    with pytest.raises(FileExistsError, match="`directory`"):
        write_ctranslate2(model, tokenizer, tmp_path / "deep" / "served")


def test_without_ctranslate2_the_error_names_the_extra(make_model, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ImportError, match=r"\[ctranslate2\]"):
        write_ctranslate2(make_model(), tokenizer, tmp_path / "served")


def test_serving_needs_no_tensorflow(make_model, tokenizer, tmp_path):
    write_ctranslate2(make_model(), tokenizer, tmp_path / "served")
    program = (
        "import sys, ctranslate2, sentencepiece\n"
        "served = sys.argv[1]\n"
        "processor = sentencepiece.SentencePieceProcessor(model_file=served + '/tokenizer.model')\n"
        "translator = ctranslate2.Translator(served)\n"
        "results = translator.translate_batch(processor.encode(['One sentence.'], out_type=str))\n"
        "assert isinstance(processor.decode(results[0].hypotheses[0]), str)\n"
        "assert not {'tensorflow', 'keras', 'torch'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "served")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
