"""The command: options, formats and reports in this process; pipes and signals in processes of their own."""

import bz2
import dataclasses
import gzip
import inspect
import io
import json
import lzma
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from keras_transformer.__main__ import main
from keras_transformer.commands.translate import Translate
from keras_transformer.data.corpora import NotTextError
from keras_transformer.decoding import BeamSearch, Sampling
from keras_transformer.saved_model.writer import write_saved_model
from keras_transformer.translation.translator import Hypothesis, Translator

LINES = ["one two", "", "three four five", "   ", "\u2028 fünf", "one"]
BYTES = "\r\n".join([*LINES, ""]).encode()


def hypothesis(text, **fields):
    known = {"ids": (), "log_probability": -3.0, "score": -1.5, "finished": True, "truncated": False}
    return Hypothesis(**{"text": text, "attention": None, "alignment": ((0, 1), (2, 0)), **known, **fields})


def shout(sentences, on_progress):
    """Stands in for a translator."""
    on_progress(len(sentences))
    return [[hypothesis(sentence.upper())] for sentence in sentences]


@pytest.fixture
def standard_streams(monkeypatch):
    """Replaces the standard streams; the function takes the input and gives the outputs, to be read later."""

    def replace(data):
        outputs = io.BytesIO(), io.StringIO()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(outputs[0], encoding="ascii"))
        monkeypatch.setattr(sys, "stderr", outputs[1])
        return outputs

    return replace


@pytest.fixture
def translate(standard_streams):
    """Function of the input and the options to the output and what is said on standard error."""

    def call(data, hypotheses_of=None, **options):
        output, errors = standard_streams(data)
        options = {"model": (), **options}
        command = Translate(**options)
        command.run(*((hypotheses_of, "9 tokens") if hypotheses_of else command.load()))
        return output.getvalue().decode("utf-8"), errors.getvalue()

    return call


@pytest.fixture(scope="module")
def saved(untrained_translator, tmp_path_factory):
    """Two run directories, and an export of the first."""
    folder = tmp_path_factory.mktemp("runs")
    first = untrained_translator.model
    untrained_translator.save(folder / "first")
    weights = first.get_weights()
    try:
        first.set_weights([-weight for weight in weights])
        untrained_translator.save(folder / "second")
    finally:
        first.set_weights(weights)
    translator = Translator.load(folder / "first", max_extra_tokens=4, max_source_tokens=12)
    signatures = ["serving_default", "n_best", "alignments"]
    write_saved_model(translator, folder / "export" / "1", signatures=signatures, num_hypotheses=3, warm_up=False)
    return folder / "first", folder / "second", folder / "export" / "1"


# === Lines ===


@pytest.mark.parametrize("chunk_lines", [1, 2, 100])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_line_for_line(translate, chunk_lines, end):
    lines = [f"line {number}" * (number % 4) for number in range(11)] + ["last"]
    output, errors = translate("\n".join(lines).encode() + end, shout, chunk_lines=chunk_lines)
    assert output == "".join(line.upper() + "\n" for line in lines)
    assert errors == ""


def test_no_input(translate):
    assert translate(b"", shout) == ("", "")


def test_chunks_are_written_as_they_are_done(translate):
    sizes = []

    def record(sentences, on_progress):
        sizes.append((len(sentences), len(sys.stdout.buffer.getvalue().splitlines())))
        return shout(sentences, on_progress)

    translate(b"a\n" * 7, record, chunk_lines=3)
    assert sizes == [(3, 0), (3, 3), (1, 6)]


def test_a_translation_is_one_line_and_one_field(translate):
    hostile = "a\nb\r\nc\td\u2028e\x85f\vg\x1ch ||| i"
    output, _ = translate(b"x\ny\n", lambda sentences, _: [[hypothesis(hostile)]] * 2, scores=True)
    assert output.splitlines() == ["a b  c d e f g h ||| i\t-1.500000"] * 2


def test_invalid_bytes_are_read_and_reported(translate):
    output, errors = translate(b"ok\n\xff b\n\xc3\xa4\na\xe2\x82\n", shout, chunk_lines=2)
    assert output == "OK\n\ufffd B\nÄ\nA\ufffd\n"
    assert errors == "keras-transformer: invalid UTF-8, read as U+FFFD: 2 lines (2, 4)\n"


def test_a_byte_order_mark_is_no_text(translate):
    assert translate(b"\xef\xbb\xbfa\nb\n", shout) == ("A\nB\n", "")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("a\nb\n".encode("utf-16"), "UTF-16"),
        ("a\nb\n".encode("utf-32"), "UTF-32"),
        (gzip.compress(b"a\nb\n"), "compressed with gzip"),
        (lzma.compress(b"a\nb\n"), "compressed with xz"),
        (bz2.compress(b"a\nb\n"), "compressed with bzip2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_text_is_refused_by_name(translate, data, kind):
    with pytest.raises(NotTextError, match=f"Standard input must be UTF-8 text.*{kind}"):
        translate(data, shout)


def test_reports_show_the_first_lines(translate):
    _, errors = translate(b"\xff\n" * 12, shout)
    assert errors.endswith(": 12 lines (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...)\n")


def test_what_was_cut_is_reported(translate):
    def cut(sentences, _):
        return [
            [hypothesis("", finished=False)],
            [hypothesis("a", finished=False)],
            [hypothesis("a", truncated=True)],
        ]

    assert translate(b"\nb\nc\n", cut)[1].splitlines() == [
        "keras-transformer: translation cut at its limit, see --max-extra-tokens: 1 line (2)",
        "keras-transformer: source longer than 9 tokens, cut there: 1 line (3)",
    ]


# === Formats ===


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "A\n\n"),
        ({"scores": True}, "A\t-1.500000\n\t0.000000\n"),
        ({"alignments": True}, "A\t0-1 2-0\n\t\n"),
        ({"scores": True, "alignments": True}, "A\t-1.500000\t0-1 2-0\n\t0.000000\t\n"),
        (
            {"n_best": 2},
            "0 ||| A ||| log_probability= -3.000000 ||| -1.500000\n"
            "0 ||| B ||| log_probability= -4.000000 ||| -2.000000\n"
            "1 |||  ||| log_probability= 0.000000 ||| 0.000000\n",
        ),
        (
            {"n_best": 2, "scores": True, "alignments": True},
            "0 ||| A ||| log_probability= -3.000000 ||| -1.500000 ||| 0-1 2-0\n"
            "0 ||| B ||| log_probability= -4.000000 ||| -2.000000 ||| 0-0\n"
            "1 |||  ||| log_probability= 0.000000 ||| 0.000000 ||| \n",
        ),
    ],
)
def test_formats(translate, options, expected):
    def run(sentences, _):
        several = [hypothesis("A"), hypothesis("B", log_probability=-4.0, score=-2.0, alignment=((0, 0),))]
        blank = hypothesis("", log_probability=0.0, score=0.0, finished=False, alignment=())
        return [several[: options.get("n_best", 1)], [blank]]

    assert translate(b"a\n\n", run, **options) == (expected, "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal(standard_streams, monkeypatch):
    standard_streams(b"a\n" * 10)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    Translate(model=(), chunk_lines=4).run(shout, "")
    assert "10/10" in terminal.getvalue()


def test_progress_of_a_pipe(standard_streams, monkeypatch):
    standard_streams(b"a\n" * 10)
    monkeypatch.setattr(sys.stdin.buffer, "seekable", lambda: False, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    Translate(model=(), chunk_lines=4).run(shout, "")
    assert "10 lines" in terminal.getvalue()
    assert "10/10" not in terminal.getvalue()


# === Models ===


def test_run_directory(translate, saved):
    output, errors = translate(BYTES, model=saved[:1])
    expected = [text.replace("\n", " ") for text in Translator.load(saved[0]).translate(LINES)]
    lines = output.split("\n")
    assert lines == [*expected, ""]
    assert lines[1] == lines[3] == ""
    assert not errors or re.fullmatch(r"keras-transformer: translation cut at its limit.*\n", errors)


def test_all_options_of_the_search_arrive(translate, saved):
    output, errors = translate(
        b"one two\n\none two three four five one two three\n",
        model=saved[:1],
        beam_size=3,
        length_penalty=1.5,
        n_best=3,
        alignments=True,
        max_extra_tokens=2,
        max_source_tokens=6,
    )
    search = BeamSearch(beam_size=3, length_penalty=1.5, num_hypotheses=3)
    translator = Translator.load(saved[0], search=search, max_extra_tokens=2, max_source_tokens=6)
    assert len(translator.tokenizer.encode(["one two"])[0]) <= 6
    with pytest.warns(UserWarning, match="Cut 1 of 3 sentences"):
        expected = translator.hypotheses(
            ["one two", "", "one two three four five one two three"], return_alignments=True
        )
    assert [len(one) for one in expected] == [3, 1, 3]
    lines = output.splitlines()
    for line, (number, one) in zip(
        lines, [(number, one) for number, several in enumerate(expected) for one in several], strict=True
    ):
        head, text = line.split(" ||| ", 1)
        text, log_probability, score, alignment = text.rsplit(" ||| ", 3)
        assert head == str(number)
        assert text == re.sub(r"\s", " ", one.text)
        assert float(log_probability.removeprefix("log_probability= ")) == pytest.approx(one.log_probability, abs=1e-5)
        assert float(score) == pytest.approx(one.score, abs=1e-5)
        assert alignment == " ".join(f"{source}-{target}" for source, target in one.alignment)
    assert "source longer than 6 tokens, cut there: 1 line (3)\n" in errors


def test_sampling(translate, saved):
    options = {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "seed": 4, "n_best": 2, "max_extra_tokens": 3}
    output, _ = translate(b"one two\n", model=saved[:1], **options)
    search = Sampling(temperature=0.7, top_k=20, top_p=0.9, num_hypotheses=2)
    translator = Translator.load(saved[0], search=search, max_extra_tokens=3)
    (expected,) = translator.hypotheses(["one two"], seed=4)
    assert [line.split(" ||| ", 1)[1].rsplit(" ||| ", 2)[0] for line in output.splitlines()] == [
        re.sub(r"\s", " ", one.text) for one in expected
    ]


def test_ensemble(translate, saved):
    output, _ = translate(BYTES, model=saved[:2], beam_size=1, scores=True)
    expected = Translator.load(*saved[:2], search=BeamSearch(beam_size=1)).hypotheses(LINES)
    assert [float(line.rsplit("\t", 1)[1]) for line in output.splitlines()] == pytest.approx(
        [hypotheses[0].score for hypotheses in expected], abs=1e-5
    )


def test_export(translate, saved):
    long = " ".join(["one two three"] * 9)
    output, errors = translate(BYTES + long.encode() + b"\n", model=saved[2:], scores=True, chunk_lines=5)
    translator = Translator.load(saved[0], max_extra_tokens=4, max_source_tokens=12)
    with pytest.warns(UserWarning, match="Cut 1 of 7 sentences"):
        expected = translator.hypotheses([*LINES, long])
    fields = [line.rsplit("\t", 1) for line in output.split("\n")[:-1]]
    assert [text for text, _ in fields] == [re.sub(r"\s", " ", one[0].text) for one in expected]
    assert [float(score) for _, score in fields] == pytest.approx([one[0].score for one in expected], abs=1e-4)
    assert "source longer than the export's limit, cut there: 1 line (7)\n" in errors


@pytest.mark.slow
def test_export_writes_what_the_run_writes(translate, saved):
    limits = {"max_extra_tokens": 4, "max_source_tokens": 12}
    for options in ({"n_best": 3}, {"alignments": True}, {"alignments": True, "scores": True}):
        outputs = translate(BYTES, model=saved[2:], **options), translate(BYTES, model=saved[:1], **options, **limits)
        lines, expected = ([re.split(r" \|{3} |\t", line) for line in output.splitlines()] for output, _ in outputs)
        for fields, wanted_fields in zip(lines, expected, strict=True):
            for field, wanted in zip(fields, wanted_fields, strict=True):
                if re.fullmatch(r"(log_probability= )?-?\d+\.\d+", wanted):
                    assert float(field.split()[-1]) == pytest.approx(float(wanted.split()[-1]), abs=2e-5)
                else:
                    assert field == wanted


def test_export_with_text_only(translate, tmp_path):
    module = tf.Module()
    serve = tf.function(
        lambda text: {"translation": tf.strings.upper(text)}, [tf.TensorSpec([None], tf.string, "text")]
    )
    tf.saved_model.save(module, tmp_path, signatures=serve)
    lines = [f"line {number}" * (number % 3) for number in range(150)]
    assert translate("\n".join(lines).encode(), model=(tmp_path,))[0] == "".join(f"{line.upper()}\n" for line in lines)
    with pytest.raises(ValueError, match=r"must have an output `score`\. Received: .* with \['translation'\]"):
        Translate(model=(tmp_path,), scores=True).load()
    with pytest.raises(ValueError, match=r"must have the signature `n_best`\. Received: .* with \['serving_default'\]"):
        Translate(model=(tmp_path,), n_best=2).load()


# === Errors, before anything is read ===

FIXED_BY_AN_EXPORT = [
    *("--beam-size 4", "--length-penalty 0.6"),
    *("--temperature 1", "--top-k 0", "--top-p 1", "--seed 0"),
    *("--max-extra-tokens 50", "--max-source-tokens 1024"),
]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "`--model` must name a run directory or an export"),
        (["RUN", "--n-best", "0"], "`--n-best` must be positive. Received: 0"),
        (["RUN", "--chunk-lines", "0"], "`--chunk-lines` must be positive. Received: 0"),
        (["RUN", "--n-best", "5"], "Received: --n-best 5 with --beam-size 4"),
        (["RUN", "--beam-size", "0"], "`beam_size` must be positive"),
        (["RUN", "--top-p", "2"], "`top_p` must be positive and at most 1"),
        (["RUN", "--max-source-tokens", "0"], "`max_source_tokens` must be positive"),
        (["RUN", "--seed", "1"], "`--seed` needs one of --temperature, --top-k, --top-p"),
        (["RUN", "--beam-size", "2", "--top-k", "3"], "without a beam. Received: --beam-size and --top-k"),
        (["RUN", "EXPORT"], "An ensemble needs run directories"),
        (["NOTHING"], "must hold model.keras"),
        (["RUN", "NOTHING"], "must hold model.keras"),
        (["EXPORT", "--n-best", "4"], "`--n-best` must be at most the export's 3 translations. Received: 4"),
        (["EXPORT", "--n-best", "2", "--alignments"], "An export aligns the best translation only"),
        *((["EXPORT", *option.split()], f"Received: {option.split()[0]} with ") for option in FIXED_BY_AN_EXPORT),
    ],
)
def test_errors(standard_streams, saved, tmp_path, options, message):
    places = {"RUN": saved[0], "EXPORT": saved[2], "NOTHING": tmp_path / "nothing"}
    output, _ = standard_streams(b"one\n")
    with pytest.raises(SystemExit) as stopped:
        main(["translate", "--model", *(str(places.get(option, option)) for option in options)])
    assert stopped.value.code.startswith("keras-transformer: error: ")
    assert message in stopped.value.code
    assert sys.stdin.buffer.read() == b"one\n"
    assert output.getvalue() == b""


# === Defaults ===


def test_defaults_have_one_home_and_are_stated_as_they_are():
    stated = {
        name: json.loads(default)
        for name, text in re.findall(r"^        (\w+): (.*?)(?=^        \w+: |\Z)", Translate.__doc__, re.M | re.S)
        for default in re.findall(r"Default[^:]*:\s+([\d.]*\d)\.\s", text)
    }
    homes = {**inspect.signature(Translator.__init__).parameters, **inspect.signature(Translator.hypotheses).parameters}
    homes |= {**inspect.signature(Sampling).parameters, **inspect.signature(BeamSearch).parameters}
    own = {field.name: field.default for field in dataclasses.fields(Translate)}
    assert stated == {name: homes[name].default for name, default in own.items() if default is None}
    assert len(stated) == 8


# The command without the package's own imports.
BARE = """
import hashlib, sys, types
package = types.ModuleType("keras_transformer")
package.__path__ = [sys.argv[1]]
sys.modules["keras_transformer"] = package
from keras_transformer.__main__ import main
from keras_transformer.commands.translate import Translate
"""
FOLDER = str(Path(inspect.getfile(Translate)).parent.parent)


# === Pipes and signals ===


def test_interruption_keeps_what_is_written(standard_streams, monkeypatch):
    def load(self):
        results = iter([shout(["ä", "b\xff"], lambda _: None)])

        def run(sentences, on_progress):
            try:
                return next(results)
            except StopIteration:
                raise KeyboardInterrupt from None

        return run, ""

    output, errors = standard_streams("ä\n".encode() + b"b\xff\nc\n")
    monkeypatch.setattr(Translate, "load", load)
    with pytest.raises(SystemExit) as stopped:
        main(["translate", "--model", "RUN", "--chunk-lines", "2"])
    assert stopped.value.code == 130
    assert output.getvalue().decode() == "Ä\nBŸ\n"
    assert errors.getvalue().endswith("invalid UTF-8, read as U+FFFD: 1 line (2)\n")


BUSY = """
def load(self):
    print("busy", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # minutes of one call in C

Translate.load = load
main(["translate", "--model", "RUN"])
"""


def test_ctrl_c_does_not_wait_for_a_long_computation():
    command = [sys.executable, "-c", BARE + BUSY, FOLDER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"busy\n"
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=20) == 130
        finally:
            process.kill()
        assert process.stderr.read() == b""


def start(*arguments):
    command = [sys.executable, "-m", "keras_transformer", "translate", *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def complaints(process):
    """What a process says at its end, without the greetings of TensorFlow's start."""
    errors = process.stderr.read().decode()
    assert not re.search(r"Traceback|Exception ignored|Warning: ", errors), errors
    return [line for line in errors.splitlines() if line.startswith("keras-transformer: ")]


def test_ctrl_c(saved):
    with start("--model", saved[0], "--chunk-lines", "3", "--max-extra-tokens", "4") as process:
        process.stdin.write("\n".join(["one two", "", "fünf", "not translated yet"]).encode())
        process.stdin.flush()
        lines = [process.stdout.readline().decode() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stdout.read() == b""
        complaints(process)
    translator = Translator.load(saved[0], max_extra_tokens=4)
    assert lines == [text.replace("\n", " ") + "\n" for text in translator.translate(["one two", "", "fünf"])]


def test_a_reader_that_leaves(saved):
    with start("--model", saved[2], "--chunk-lines", "1") as process:
        process.stdin.write(b"\xff\n" + b"one two\n" * 1000)
        process.stdin.close()
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert complaints(process) == []
