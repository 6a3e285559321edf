"""Exports: what is in the folder, and that each signature gives what the translator gives."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import keras_transformer
from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.decoding import BeamSearch, ConstrainedBeamSearch, Sampling
from keras_transformer.saved_model.signatures import Signatures
from keras_transformer.saved_model.warm_up import read_warm_up
from keras_transformer.saved_model.writer import next_version, write_saved_model
from keras_transformer.training.losses import LabelSmoothedCrossEntropy
from keras_transformer.translation.ensemble import Ensemble
from keras_transformer.translation.translator import Translator
from keras_transformer.vocabulary import END_ID

SENTENCES = ["one two three", "five four", "", "two " * 30, "東京 one", "</s> <pad> <0xE4>", "a\tb\nc\x00d"]
INVALID_BYTES = [b"\xff\xfe", b"one \xc3", b"\xed\xa0\x80 two", bytes(range(128, 256))]
LOWEST = float(np.finfo("float32").min)


def make_translator(translator, **arguments):
    return Translator(translator.model, translator.tokenizer, **{"max_extra_tokens": 4, **arguments})


@pytest.fixture(scope="module")
def served(exported):
    """The signatures of the export, in the process that wrote it."""
    return tf.saved_model.load(str(exported)).signatures


def call(function, **inputs):
    return {name: value.numpy() for name, value in function(**{k: tf.constant(v) for k, v in inputs.items()}).items()}


def texts(values):
    return [value.decode("utf-8") for value in values]


def graph(path):
    (meta,) = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs
    nodes = [*meta.graph_def.node, *(node for one in meta.graph_def.library.function for node in one.node_def)]
    return meta, nodes


# === What each signature gives ===


def test_serving_default_is_the_best_hypothesis(served, untrained_translator):
    result = call(served["serving_default"], text=SENTENCES)
    for row, (one, *_) in enumerate(untrained_translator.hypotheses(SENTENCES)):
        assert result["translation"][row].decode() == one.text
        np.testing.assert_allclose(result["score"][row], one.score, rtol=1e-5)
        np.testing.assert_allclose(result["log_probability"][row], one.log_probability, rtol=1e-5)
        assert bool(result["finished"][row]) == one.finished
    assert result["finished"][SENTENCES.index("")]  # nothing was cut
    assert not result["truncated"].any()


def test_n_best_is_all_hypotheses(served, untrained_translator):
    result = call(served["n_best"], text=SENTENCES)
    search = BeamSearch(num_hypotheses=4)
    for row, hypotheses in enumerate(untrained_translator.hypotheses(SENTENCES, search=search)):
        assert result["num_translations"][row] == (1 if not SENTENCES[row] else len(hypotheses))
        missing = 4 - len(hypotheses)
        assert texts(result["translations"][row]) == [one.text for one in hypotheses] + [""] * missing
        for name, attribute in (("scores", "score"), ("log_probabilities", "log_probability")):
            expected = [getattr(one, attribute) for one in hypotheses] + [LOWEST] * missing
            np.testing.assert_allclose(result[name][row], expected, rtol=1e-5)
        assert result["finished"][row].tolist() == [one.finished for one in hypotheses] + [False] * missing
    assert np.isfinite(result["scores"]).all()


def test_score_is_forced_decoding(served, untrained_translator):
    targets = ["drei zwei", "", "eins", "vier", "fünf " * 20, "x", "東"]
    result = call(served["score"], source=SENTENCES, target=targets)
    for row, expected in enumerate(untrained_translator.score(SENTENCES, targets)):
        count = result["num_tokens"][row]
        assert tuple(result["tokens"][row, :count]) == expected.ids
        assert not result["tokens"][row, count:].any()
        assert not result["token_log_probabilities"][row, count:].any()
        np.testing.assert_allclose(
            result["token_log_probabilities"][row, :count], expected.token_log_probabilities, 1e-4
        )
        np.testing.assert_allclose(result["log_probability"][row], expected.log_probability, rtol=1e-5)
    assert result["tokens"].shape[1] == result["num_tokens"].max()


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 0.6, 2.0])
def test_options_of_a_row_are_those_of_the_search(served, untrained_translator, penalty):
    prefixes = ["", "drei", "", "", "zwei drei", "", "ein"]
    count = len(SENTENCES)
    result = call(
        served["options"],
        text=SENTENCES,
        prefix=prefixes,
        max_length=np.zeros([count], "int32"),
        min_length=np.full([count], 3, "int32"),
        length_penalty=np.full([count], penalty, "float32"),
    )
    search = BeamSearch(length_penalty=penalty, min_length=3)
    hypotheses = untrained_translator.hypotheses(SENTENCES, prefixes=prefixes, search=search)
    for row, (one, *_) in enumerate(hypotheses):
        assert result["translation"][row].decode() == one.text
        np.testing.assert_allclose(result["score"][row], one.score, rtol=1e-5)


def test_options_out_of_range_count_as_the_nearest(served, untrained_translator):
    def run(max_length=0, min_length=0, length_penalty=0.6):
        options = {
            "max_length": np.array([max_length], "int32"),
            "min_length": np.array([min_length], "int32"),
            "length_penalty": np.array([length_penalty], "float32"),
        }
        return call(served["options"], text=SENTENCES[:1], prefix=[""], **options)

    default = call(served["serving_default"], text=SENTENCES[:1])
    for options in ({}, {"max_length": 10**9}, {"max_length": -3}, {"min_length": -7}, {"length_penalty": np.nan}):
        assert run(**options) == default
    assert run(length_penalty=np.inf) == run(length_penalty=10.0)
    short = run(max_length=2)
    (expected,) = make_translator(untrained_translator, max_target_tokens=2).hypotheses(SENTENCES[:1])[0]
    assert short["translation"][0].decode() == expected.text
    assert bool(short["finished"][0]) == expected.finished
    long = run(min_length=10**6)
    assert not long["finished"][0]
    assert np.isfinite(long["score"]).all()


def test_tokens_are_ids_in_and_ids_out(served, untrained_translator):
    tokenizer = untrained_translator.tokenizer
    rows = tokenizer.encode(SENTENCES)
    size = tokenizer.vocabulary_size
    width = max(map(len, rows)) + 3
    source_ids = np.zeros([len(rows) + 1, width], "int32")
    for row, ids in enumerate(rows):  # padding in front, between and behind, and marks that count for nothing
        source_ids[row, : len(ids) + 3] = [0, *ids[:1], 0, *ids[1:], END_ID]
    source_ids[-1, :4] = [-5, size, 2**31 - 1, 2]
    result = call(served["tokens"], source_ids=source_ids)
    expected = [one for one, *_ in untrained_translator.hypotheses(SENTENCES)]
    for row, one in enumerate(expected):
        length = len(one.ids)
        assert tuple(result["target_ids"][row, :length]) == one.ids
        assert not result["target_ids"][row, length:].any()
        np.testing.assert_allclose(result["score"][row], one.score, rtol=1e-5)
        assert bool(result["finished"][row]) == one.finished
    unknown = call(served["tokens"], source_ids=np.array([[1, 1, 1]], "int32"))
    assert result["score"][-1] == pytest.approx(unknown["score"][0], rel=1e-5)
    nothing = call(served["tokens"], source_ids=np.zeros([2, 0], "int32"))
    assert nothing["target_ids"].shape == (2, 0)


def test_alignments(served, untrained_translator):
    result = call(served["alignments"], text=SENTENCES)
    for row, (one, *_) in enumerate(untrained_translator.hypotheses(SENTENCES, return_alignments=True)):
        assert result["translation"][row].decode() == one.text
        aligned = [(int(source), target) for target, source in enumerate(result["alignment"][row]) if source >= 0]
        assert aligned == list(one.alignment)
    words = [[word for word in texts(row) if word] for row in result["source_words"]]
    assert words[:4] == [sentence.split() for sentence in SENTENCES[:4]]
    for row, translation in enumerate(texts(result["translation"])):
        num_target, num_source = len(translation.split()), len(words[row])
        assert " ".join(texts(result["target_words"][row])).split() == translation.split()
        attention = result["attention"][row]
        assert not attention[:, num_source:].any()
        assert (attention[:num_target].sum(axis=1) <= 1 + 1e-5).all()


def test_blank_rows_alone(served):
    for name in ("serving_default", "n_best", "alignments"):
        result = call(served[name], text=["", " "])
        assert not any(np.ravel(result.get("translation", result.get("translations"))))
    assert result["attention"].shape == (2, 0, 0)


def test_long_rows_are_cut_and_say_so(untrained_translator, export_one):
    limits = {"max_source_tokens": 48, "max_extra_tokens": 0}
    limited = make_translator(untrained_translator, **limits)
    names = ("serving_default", "score", "options")
    served = {name: tf.saved_model.load(str(export_one(name, **limits))).signatures[name] for name in names}
    sentences = ["one", "one " * 90]
    result = call(served["serving_default"], text=sentences)
    with pytest.warns(UserWarning, match="Cut 1 of 2 sentences"):
        expected = [one for one, *_ in limited.hypotheses(sentences)]
    assert texts(result["translation"]) == [one.text for one in expected]
    assert result["truncated"].tolist() == [one.truncated for one in expected] == [False, True]
    assert result["finished"].tolist() == [one.finished for one in expected]
    long = "x" * 100_000
    assert call(served["score"], source=["one", long, "one"], target=["x", "x", long])["truncated"].tolist() == [
        False,
        True,
        True,
    ]
    zero = np.zeros([2], "int32")
    options = {"max_length": zero, "min_length": zero, "length_penalty": np.ones([2], "float32")}
    prefixed = call(served["options"], text=["one", "one"], prefix=["two", long], **options)
    assert prefixed["truncated"].tolist() == [False, True]


def test_an_export_of_another_search(untrained_translator, tmp_path):
    search = BeamSearch(beam_size=3, num_hypotheses=2, coverage_penalty=0.2, no_repeat_ngram_size=2, blocked_ids=(1,))
    other = make_translator(untrained_translator, search=search)
    write_saved_model(other, tmp_path / "1", signatures=["n_best"], warm_up=False)
    result = call(tf.saved_model.load(str(tmp_path / "1")).signatures["n_best"], text=SENTENCES)
    for row, hypotheses in enumerate(other.hypotheses(SENTENCES)):
        assert texts(result["translations"][row])[: len(hypotheses)] == [one.text for one in hypotheses]
        np.testing.assert_allclose(
            result["scores"][row][: len(hypotheses)], [one.score for one in hypotheses], rtol=1e-5
        )


@pytest.mark.slow
def test_an_export_of_an_ensemble(untrained_translator, tmp_path):
    model = untrained_translator.model
    other = model.from_config(model.get_config())
    generator = np.random.default_rng(8)
    other.set_weights([generator.normal(size=weight.shape, scale=0.3) for weight in other.weights])
    ensemble = make_translator(untrained_translator)
    ensemble = Translator(Ensemble([model, other]), ensemble.tokenizer, max_extra_tokens=4)
    write_saved_model(ensemble, tmp_path / "1", signatures=["serving_default"], warm_up=False)
    served = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    assert texts(call(served, text=SENTENCES)["translation"]) == ensemble.translate(SENTENCES)


def test_two_exports_of_one_process_do_not_mix(untrained_translator, served, tmp_path):
    tokenizer = Tokenizer.train(["rot grün blau", "red green blue"], vocabulary_size=280)
    model = untrained_translator.model.from_config(
        untrained_translator.model.get_config()
        | dict.fromkeys(("source_vocabulary_size", "target_vocabulary_size"), 280)
    )
    generator = np.random.default_rng(8)
    model.set_weights([generator.normal(size=weight.shape, scale=0.3) for weight in model.weights])
    other = Translator(model, tokenizer, max_extra_tokens=4)
    write_saved_model(other, tmp_path / "1", signatures=["serving_default"], warm_up=False)
    other_served = tf.saved_model.load(str(tmp_path / "1")).signatures
    for translator, signatures in ((untrained_translator, served), (other, other_served)):
        translations = texts(call(signatures["serving_default"], text=SENTENCES)["translation"])
        assert translations == translator.translate(SENTENCES)


@pytest.mark.slow
def test_dropout_is_off_right_after_fit(untrained_translator, tmp_path):
    config = untrained_translator.model.get_config() | {"dropout": 0.5}
    model = untrained_translator.model.from_config(config)
    model.set_weights(untrained_translator.model.get_weights())
    model.compile(keras.optimizers.SGD(1e-3), LabelSmoothedCrossEntropy(), jit_compile=False)
    ids = np.random.default_rng(0).integers(4, 280, (8, 6))
    model.fit({"source_ids": ids, "target_ids": ids}, ids, verbose=0)
    translator = Translator(model, untrained_translator.tokenizer, max_extra_tokens=4)
    write_saved_model(translator, tmp_path / "1", signatures=["serving_default"], warm_up=False)
    served = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    answers = {tuple(call(served, text=SENTENCES)["translation"]) for _ in range(20)}
    assert answers == {tuple(text.encode() for text in translator.translate(SENTENCES))}


# === In a process that knows nothing of us ===

FRESH_PROCESS = """
    import json, sys
    import numpy as np
    import tensorflow as tf
    import tensorflow_text
    path, requests = sys.argv[1], json.loads(sys.argv[2])

    def decode(value):
        return bytes.fromhex(value[4:]) if isinstance(value, str) else value

    def encode(value):
        return value.hex() if isinstance(value, bytes) else value

    # The loader and the session that TensorFlow Serving uses: a SavedModel may load in Python and fail there.
    results = []
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta = tf.compat.v1.saved_model.loader.load(session, ["serve"], path)
        for name, inputs in requests:
            signature = meta.signature_def[name]
            feeds = {}
            for argument, values in inputs.items():
                info = signature.inputs[argument]
                dtype = tf.as_dtype(info.dtype).as_numpy_dtype
                rows = np.array([decode(value) for value in values], dtype)
                feeds[info.name] = rows if values else np.zeros([0] * len(info.tensor_shape.dim), dtype)
            found = session.run({key: info.name for key, info in signature.outputs.items()}, feeds)
            results.append(
                {key: [value.shape, [encode(x) for x in value.ravel().tolist()]] for key, value in found.items()}
            )
    modules = sorted(name for name in sys.modules if name.startswith("keras_transformer"))
    print("RESULT" + json.dumps({"results": results, "modules": modules}))
"""


def hexadecimal(text):
    return "hex:" + (text if isinstance(text, bytes) else text.encode("utf-8", "replace")).hex()


def requests_for(name, count):
    rows = [hexadecimal(text) for text in [*SENTENCES, *INVALID_BYTES]]
    rows = (rows * count)[:count]
    if name == "tokens":
        return {"source_ids": [[5 + row, 270, 0, 9] for row in range(count)]}
    inputs = dict.fromkeys(Signatures.INPUTS[name], rows)
    if name == "options":
        inputs |= {"max_length": [row % 3 for row in range(count)], "min_length": [row % 2 for row in range(count)]}
        inputs |= {"length_penalty": [0.25 * (row % 5) for row in range(count)]}
    return inputs


@pytest.mark.slow
def test_every_signature_in_a_session_without_the_package(exported, served):
    requests = [(name, requests_for(name, count)) for name in Signatures.INPUTS for count in (0, 1, 2, 33)]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FRESH_PROCESS), str(exported), json.dumps(requests)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout.split("RESULT", 1)[1])
    assert answer["modules"] == []
    for (name, inputs), result in zip(requests, answer["results"], strict=True):
        count = len(next(iter(inputs.values())))
        values = {}
        for argument, specification in Signatures.INPUTS[name].items():
            rows = [bytes.fromhex(v[4:]) if isinstance(v, str) else v for v in inputs[argument]]
            shape = [0, 0][: specification.shape.rank] if not count else None
            values[argument] = tf.constant(rows, specification.dtype, shape)
        for key, expected in served[name](**values).items():
            shape, found = result[key]
            assert shape == list(expected.shape), (name, count, key)
            assert shape[0] == count
            if expected.dtype == tf.float32:
                np.testing.assert_allclose(found, expected.numpy().ravel(), rtol=1e-5, atol=1e-5)
            else:
                flat = expected.numpy().ravel().tolist()
                assert found == [value.hex() if isinstance(value, bytes) else value for value in flat], (name, key)


ONLY_TENSORFLOW = """
    import sys
    import tensorflow as tf
    known = set(dir(tf.raw_ops))
    print("RESULT" + " ".join(sorted(set(sys.argv[1:]) - known)))
"""


def test_operations_are_those_of_the_stock_server(exported, export_one):
    meta, nodes = graph(exported)
    operations = {node.op for node in nodes} - {one.signature.name for one in meta.graph_def.library.function}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ONLY_TENSORFLOW), *operations],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    sentencepiece = {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}
    assert set(done.stdout.split("RESULT", 1)[1].split()) == sentencepiece
    refused = ("PyFunc", "Random", "Xla", "XLA", "Dropout", "Print", "ReadFile", "WriteFile", "Summary")
    assert [name for name in operations if any(word in name for word in refused)] == []
    functions = meta.graph_def.library.function
    attributes = {name for part in (*nodes, *functions) for name in part.attr}
    assert not [
        name
        for name in attributes
        if "XlaMustCompile" in name and any(p.attr[name].b for p in (*nodes, *functions) if name in p.attr)
    ]

    assert not sentencepiece & {node.op for node in graph(export_one("tokens"))[1]}


def test_signatures_are_batched_and_of_known_rank(exported):
    meta, _ = graph(exported)
    found = {
        name: {
            side: {
                key: (tf.as_dtype(info.dtype).name, [dim.size for dim in info.tensor_shape.dim])
                for key, info in getattr(definition, side).items()
            }
            for side in ("inputs", "outputs")
        }
        for name, definition in meta.signature_def.items()
        if not name.startswith("__")
    }
    rows, matrix, four = [-1], [-1, -1], [-1, 4]
    flags = {"finished": ("bool", rows), "truncated": ("bool", rows)}
    numbers = {"score": ("float32", rows), "log_probability": ("float32", rows), **flags}
    best = {"translation": ("string", rows), **numbers}
    text = {"text": ("string", rows)}
    assert found == {
        "serving_default": {"inputs": text, "outputs": best},
        "n_best": {
            "inputs": text,
            "outputs": {
                "translations": ("string", four),
                "scores": ("float32", four),
                "log_probabilities": ("float32", four),
                "finished": ("bool", four),
                "num_translations": ("int32", rows),
                "truncated": ("bool", rows),
            },
        },
        "score": {
            "inputs": {"source": ("string", rows), "target": ("string", rows)},
            "outputs": {
                "log_probability": ("float32", rows),
                "num_tokens": ("int32", rows),
                "tokens": ("int32", matrix),
                "token_log_probabilities": ("float32", matrix),
                "truncated": ("bool", rows),
            },
        },
        "options": {
            "inputs": {
                **text,
                "prefix": ("string", rows),
                "max_length": ("int32", rows),
                "min_length": ("int32", rows),
                "length_penalty": ("float32", rows),
            },
            "outputs": best,
        },
        "tokens": {
            "inputs": {"source_ids": ("int32", matrix)},
            "outputs": {"target_ids": ("int32", matrix), **numbers},
        },
        "alignments": {
            "inputs": text,
            "outputs": {
                **best,
                "source_words": ("string", matrix),
                "target_words": ("string", matrix),
                "attention": ("float32", [-1, -1, -1]),
                "alignment": ("int32", matrix),
            },
        },
    }


# === The folder ===


def test_the_folder_knows_nothing_of_where_it_was_written(exported):
    words = [str(Path(keras_transformer.__file__).parents[1]), str(Path.home()), sys.prefix, "writing-", "pytest-of"]
    for path in exported.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert [word for word in words if len(word) > 1 and word.encode() in content] == [], path.name


@pytest.mark.slow
def test_loading_and_saving_again(exported, served, tmp_path):
    loaded = tf.saved_model.load(str(exported))
    tf.saved_model.save(loaded, str(tmp_path / "again"), signatures=dict(loaded.signatures))
    again = tf.saved_model.load(str(tmp_path / "again")).signatures["serving_default"]
    assert call(again, text=SENTENCES)["translation"].tolist() == (
        call(served["serving_default"], text=SENTENCES)["translation"].tolist()
    )


def test_each_weight_is_stored_once(exported, untrained_translator):
    size = sum(path.stat().st_size for path in (exported / "variables").iterdir())
    assert size < 1.1 * 4 * untrained_translator.model.count_params() + 2e5
    for path in (exported, *exported.rglob("*")):  # a server is another user
        assert path.stat().st_mode & 0o055 == (0o055 if path.is_dir() else 0o044), path


def test_description_and_card(exported, untrained_translator):
    description = json.loads((exported / "translator.json").read_text("utf-8"))
    assert description["package_version"] == keras_transformer.__version__
    assert description["signatures"] == list(Signatures.INPUTS)
    assert description["search"]["kind"] == "beam"
    assert description["search"]["beam_size"] == description["num_hypotheses"] == 4
    assert description["limits"] == {"max_source_tokens": 1024, "max_extra_tokens": 4, "max_target_tokens": None}
    assert description["tokenizer"]["sha256"] == untrained_translator.tokenizer.sha256
    assert description["models"][0]["num_parameters"] == untrained_translator.model.count_params()
    model = type(untrained_translator.model).from_config(description["models"][0]["config"])
    assert model.get_config() == untrained_translator.model.get_config()
    assert description["training"] == {"source": "train.en", "source_language": "en", "target_language": "de", "x": [1]}
    card = (exported / "README.md").read_text("utf-8")
    for word in ("# Translation from en to de", "beam 4", "12.35", "nrefs:1", description["tokenizer"]["sha256"]):
        assert word in card


def test_warm_up_requests_are_those_that_the_signatures_take(exported, served):
    requests = list(read_warm_up(exported))
    assert {name for name, _ in requests} == set(Signatures.INPUTS)
    assert [len(inputs["text"]) for name, inputs in requests if name == "serving_default"] == [1, 1, 8, 32]
    for name, inputs in requests:
        result = call(served[name], **inputs)
        assert {len(value) for value in result.values()} == {len(next(iter(inputs.values())))}
        if "translation" in result:
            assert all(result["translation"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"signatures": ["best"]}, "`signatures` must be some of serving_default, n_best"),
        ({"signatures": []}, "`signatures` must be some of"),
        ({"num_hypotheses": 5}, "`num_hypotheses` must be positive and at most the beam size, 4"),
        ({"weights": "int4"}, "`weights` must be one of float32, float16, int8"),
        ({"attention_layer": 3}, "`attention_layer` must be one of the 1 decoder layers"),
    ],
)
def test_arguments_out_of_range(untrained_translator, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        write_saved_model(untrained_translator, tmp_path / "1", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_searches_that_cannot_be_exported(untrained_translator, tmp_path):
    for search in (Sampling(), ConstrainedBeamSearch(num_constraint_tokens=2)):
        with pytest.raises(ValueError, match="`search` of an export must be a `BeamSearch`"):
            write_saved_model(make_translator(untrained_translator, search=search), tmp_path / "1")


def test_never_overwrites(untrained_translator, exported):
    with pytest.raises(FileExistsError, match="`path` must not exist yet"):
        write_saved_model(untrained_translator, exported)


def test_a_failed_export_leaves_nothing(untrained_translator, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_transformer.files.os.replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_saved_model(untrained_translator, tmp_path / "model" / "1", signatures=["tokens"], warm_up=False)
    assert list((tmp_path / "model").iterdir()) == []


KILLED = """
    import os, signal, sys
    import tensorflow as tf
    from keras_transformer.saved_model.writer import write_saved_model
    from keras_transformer.translation.translator import Translator

    save = tf.saved_model.save

    def killed(*arguments, **named):
        save(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    tf.saved_model.save = killed
    write_saved_model(Translator.load(sys.argv[1]), sys.argv[2], signatures=["tokens"], warm_up=False)
"""


def test_killed_while_it_writes_an_export_leaves_no_half_version(untrained_translator, tmp_path):
    untrained_translator.save(tmp_path / "run")
    served = tmp_path / "served"
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "run"), str(served / "1")]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in served.iterdir() if path.name.isdecimal()] == []
    assert os.listdir(served) == [".writing-1"]  # no server takes this for a version
    assert next_version(served) == served / "1"
    write_saved_model(untrained_translator, next_version(served), signatures=["tokens"], warm_up=False)
    assert next_version(served) == served / "2"
