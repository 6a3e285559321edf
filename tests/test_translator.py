"""The whole path on a toy language: train on reversed word order, translate, export, translate without us."""

import itertools
import json
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data.batches import Batches
from keras_transformer.data.token_store import TokenStore
from keras_transformer.data.tokenizers import END_ID, Tokenizer
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.transformer import Transformer
from keras_transformer.translator import Translator

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


@pytest.fixture(scope="module")
def export(translator, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "reversing" / "1"
    translator.export(path)
    # Moved, renamed, with a space and letters beyond ASCII: nothing in an export may know where it was written.
    moved = tmp_path_factory.mktemp("moved") / "über setzung" / "7"
    moved.parent.mkdir()
    path.rename(moved)
    return moved


def test_overfits_a_reversing_task_to_the_last_token(translator):
    sources, targets = zip(*PAIRS, strict=True)
    assert translator.translate(sources) == list(targets)


def test_search_reports_finished_and_agrees_with_the_full_forward_pass(translator):
    tokenizer, model = translator.tokenizer, translator.model
    rows = [[*ids, END_ID] for ids in tokenizer.encode([source for source, _ in PAIRS])]
    source_ids = tf.ragged.constant(rows, tf.int32).to_tensor()
    result = translator.search(source_ids, tf.fill([len(rows)], 60))
    assert result.finished.numpy().all()
    target_ids = tf.pad(result.ids, [[0, 0], [1, 0]], constant_values=2)[:, :-1]
    logits = model({"source_ids": source_ids, "target_ids": target_ids})
    losses = keras.ops.sparse_categorical_crossentropy(result.ids, logits, from_logits=True)
    scores = -tf.reduce_sum(tf.where(result.ids != 0, losses, 0.0), axis=1)
    np.testing.assert_allclose(result.scores, scores, atol=2e-5)
    np.testing.assert_array_equal(tf.reduce_sum(tf.cast(result.ids == END_ID, tf.int32), axis=1), 1)


def test_translations_do_not_depend_on_company_or_order(translator):
    sentences = [source for source, _ in PAIRS] + HOSTILE
    together = translator.translate_with_scores(sentences)
    alone = [translator.translate_with_scores([sentence])[0] for sentence in sentences]
    backwards = translator.translate_with_scores(sentences[::-1])[::-1]
    for one, two, three in zip(together, alone, backwards, strict=True):
        assert one[0] == two[0] == three[0]
        np.testing.assert_allclose([one[1], three[1]], two[1], atol=1e-4)


def test_blank_sentences_stay_blank_and_move_nobody(translator):
    assert translator.translate([]) == []
    assert translator.translate([""]) == [""]
    source, target = PAIRS[0]
    assert translator.translate([source, "", "  \t ", source]) == [target, "", "", target]


def test_one_string_is_refused(translator):
    with pytest.raises(TypeError, match="`sentences` must be a list of strings"):
        translator.translate("mela toru")


def test_output_is_limited_to_the_source_length_and_more(translator):
    short = Translator(translator.model, translator.tokenizer, max_extra_tokens=0)
    text = "fapo " * 30
    num_tokens = len(translator.tokenizer.encode([text])[0])
    source_ids = tf.constant([[*translator.tokenizer.encode([text])[0], END_ID]])
    result = short.search(source_ids, tf.constant([num_tokens + 1]))
    assert int(result.lengths[0]) <= num_tokens + 1
    assert len(short.tokenizer.encode(short.translate([text]))[0]) <= num_tokens + 1
    with pytest.raises(ValueError, match="`max_extra_tokens` must not be negative"):
        Translator(translator.model, translator.tokenizer, max_extra_tokens=-1)


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
    with pytest.raises(ValueError, match=r"16 learned positions.* in sentence 2"):
        limited.translate(["mela", "mela toru " * 20])


def test_one_trace_serves_every_shape(translator):
    generator = np.random.default_rng(1)
    translator.translate(["mela"])
    for _ in range(20):
        count = int(generator.integers(1, 9))
        translator.translate([" ".join(generator.choice(WORDS, size=generator.integers(1, 12))) for _ in range(count)])
    assert translator._graph.experimental_get_tracing_count() == 1


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
    assert translator._graph.experimental_get_tracing_count() == 1


def test_a_long_line_is_translated_in_a_batch_of_its_own(translator):
    assert len(translator.translate(["mela", "toru " * 900, "kibo"])) == 3


def test_save_and_load(translator, tmp_path):
    translator.save(tmp_path / "run")
    loaded = Translator.load(tmp_path / "run")
    sentences = [source for source, _ in PAIRS] + HOSTILE
    assert loaded.translate_with_scores(sentences) == translator.translate_with_scores(sentences)
    (tmp_path / "run" / "tokenizer.model").unlink()
    with pytest.raises(FileNotFoundError, match=r"`directory` must hold tokenizer\.model"):
        Translator.load(tmp_path / "run")


def test_export_never_overwrites(translator, export):
    with pytest.raises(FileExistsError, match="`path` must not exist yet"):
        translator.export(export)


def test_a_failed_export_leaves_nothing(translator, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_transformer.translator.os.rename", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        translator.export(tmp_path / "model" / "1")
    assert list((tmp_path / "model").iterdir()) == []


FRESH_PROCESS = """
    import json, sys
    import tensorflow as tf
    import tensorflow_text
    path, sentences, invalid = sys.argv[1], json.loads(sys.argv[2]), [bytes.fromhex(h) for h in json.loads(sys.argv[3])]
    signature = tf.saved_model.load(path).signatures["serving_default"]
    outputs = {}
    for name, batch in {"33": (sentences * 33)[:33], "2": sentences[:2], "1": sentences[:1], "0": []}.items():
        result = signature(text=tf.constant(batch, tf.string))
        assert sorted(result) == ["score", "translation"], result
        outputs[name] = [t.decode("utf-8") for t in result["translation"].numpy()]
    repeated = {tuple(signature(text=tf.constant(sentences))["translation"].numpy()) for _ in range(5)}
    outputs["repeated"] = len(repeated)
    outputs["all"] = [t.decode("utf-8") for t in signature(text=tf.constant(sentences))["translation"].numpy()]
    outputs["scores"] = signature(text=tf.constant(sentences))["score"].numpy().tolist()
    outputs["invalid"] = [t.decode("utf-8") for t in signature(text=tf.constant(invalid))["translation"].numpy()]

    # The loader and the session that TensorFlow Serving uses: a SavedModel may load in Python and fail there.
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta = tf.compat.v1.saved_model.loader.load(session, ["serve"], path)
        names = meta.signature_def["serving_default"]
        fetched = session.run(
            {name: info.name for name, info in names.outputs.items()}, {names.inputs["text"].name: sentences}
        )
        outputs["session"] = [t.decode("utf-8") for t in fetched["translation"]]
        outputs["session_scores"] = fetched["score"].tolist()
    nodes = [node for function in meta.graph_def.library.function for node in function.node_def]
    outputs["operations"] = sorted({node.op for node in [*nodes, *meta.graph_def.node]})
    outputs["modules"] = sorted(name for name in sys.modules if name.startswith("keras_transformer"))
    shapes = {**names.inputs, **names.outputs}
    outputs["shapes"] = {name: [d.size for d in info.tensor_shape.dim] for name, info in shapes.items()}
    print("RESULT" + json.dumps(outputs))
"""


def test_the_export_translates_in_a_process_without_the_package(translator, export):
    sentences = [source for source, _ in PAIRS] + HOSTILE
    arguments = [str(export), json.dumps(sentences), json.dumps([text.hex() for text in INVALID_BYTES])]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FRESH_PROCESS), *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    outputs = json.loads(done.stdout.split("RESULT", 1)[1])
    expected = translator.translate_with_scores(sentences)
    translations = [translation for translation, _ in expected]
    assert translations[: len(PAIRS)] == [target for _, target in PAIRS]
    assert outputs["all"] == outputs["session"] == translations
    np.testing.assert_allclose(outputs["scores"], [score for _, score in expected], atol=1e-4)
    np.testing.assert_allclose(outputs["session_scores"], [score for _, score in expected], atol=1e-4)
    assert outputs["33"] == (translations * 33)[:33]
    assert (outputs["2"], outputs["1"], outputs["0"]) == (translations[:2], translations[:1], [])
    assert len(outputs["invalid"]) == len(INVALID_BYTES)
    assert outputs["repeated"] == 1
    assert outputs["modules"] == []
    assert outputs["shapes"] == {"text": [-1], "translation": [-1], "score": [-1]}
    refused = ("PyFunc", "Random", "Xla", "XLA", "Dropout")
    assert [name for name in outputs["operations"] if any(word in name for word in refused)] == []


def test_the_export_stores_each_weight_once(translator, export):
    size = sum(path.stat().st_size for path in (export / "variables").iterdir())
    assert size < 1.1 * 4 * translator.model.count_params() + 2e5
