"""The C runner: the export through TensorFlow Serving's loader and session, in a process that holds no Python."""

import itertools
import json
import math
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from keras_transformer.saved_model.signatures import Signatures

SOURCE = Path(__file__).parents[2] / "export" / "run_saved_model.c"
LIBRARY = Path(tensorflow_text.__file__).parent / "python" / "ops" / "_sentencepiece_tokenizer.so"
# Nothing that is Python's, so that the program finds none by accident.
ENVIRONMENT = {"PATH": os.environ.get("PATH", ""), "TF_CPP_MIN_LOG_LEVEL": "3"}

HOSTILE = [
    b"one two three",
    b"",
    b"   ",
    b"\xff\xfe\x80 one \xc3",
    b"one \x00 two",
    b"\x01\x02\x0b\x0c\x1b\x1c\x7f two\rthree",
    "fünf \u2028 ✓ 东京 \ufeff".encode(),
    b"one two three four five " * 40,
    b"<s> </s> <pad> <unk>",
    b'"quoted" \\n \\ {"b64": "b25l"}',
    b"\xed\xa0\x80 \xf4\x90\x80\x80 \xe0\x80\xaf",
]
# The last input of a line may hold tabs.
LAST = [*HOSTILE, b"one\ttwo\t"]


@pytest.fixture(scope="session")
def binary(tmp_path_factory):
    """The program, built by the command in its own top comment, in which every warning is made an error."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    path = tmp_path_factory.mktemp("runner")
    shutil.copy(SOURCE, path)
    lines = [line.strip() for line in SOURCE.read_text("utf-8").split("*/", 1)[0].splitlines()]
    start = next(number for number, line in enumerate(lines) if line.startswith("gcc "))
    command = "\n".join(lines[start : start + 2])
    assert "-std=c11 -Wall -Wextra -O2" in command
    assert not command.endswith("\\")
    environment = {**os.environ, "TENSORFLOW": str(Path(tf.__file__).parent)}
    done = subprocess.run(
        ["bash", "-ec", command.replace("gcc ", "gcc -Werror ", 1)],
        cwd=path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return path / "run_saved_model"


@pytest.fixture(scope="session")
def run(binary):
    """Function that runs the program: command line and lines to its output lines, all bytes."""

    def run(*arguments, lines=(), stdin=None, status=0):
        stdin = b"".join(line + b"\n" for line in lines) if stdin is None else stdin
        done = subprocess.run(
            [binary, *map(str, arguments)], input=stdin, env=ENVIRONMENT, capture_output=True, timeout=300
        )
        assert done.returncode == status, done.stderr.decode()[-4000:]
        if status:
            return done.stderr.decode()
        assert done.stdout.endswith(b"\n") or not done.stdout
        return done.stdout.split(b"\n")[:-1]

    return run


# === The export of a translator ===


# A limit on sources that the tests can pass.
LIMITS = {"max_source_tokens": 48, "max_extra_tokens": 0}


def in_python(export, name):
    return tf.saved_model.load(str(export)).signatures[name]


def _columns(name, num_rows):
    """Values for each input of a signature, as lists."""
    strings = {"source": HOSTILE, "target": LAST, "prefix": [b"", b"one", "fünf".encode(), b"\xff"]}
    numbers = {"max_length": [0, 1, 3, 500], "min_length": [0, 0, 2], "length_penalty": [0.6, 0.0, 1.5, 0.1, -1.0]}
    ids = [[5, 9, 3], [], [0, 7, 0, 0, 8], [4] * 60, [300, 12]]
    columns = {}
    for number, argument in enumerate(Signatures.INPUTS[name]):
        values = ids if argument == "source_ids" else strings.get(argument) or numbers.get(argument) or LAST
        # Another start for each input, so that the same values do not meet again and again.
        columns[argument] = list(itertools.islice(itertools.cycle(values), number, number + num_rows))
    return columns


def _line(*fields):
    texts = []
    for field in fields:
        if isinstance(field, list):
            texts.append(" ".join(map(str, field)).encode())
        else:
            texts.append(field if isinstance(field, bytes) else str(field).encode())
    return b"\t".join(texts)


def _tensor(specification, values):
    if specification.shape.rank == 2:
        width = max(map(len, values), default=0)
        values = np.array([row + [0] * (width - len(row)) for row in values], "int32").reshape(len(values), width)
    return tf.constant(values, specification.dtype)


# The default run takes the one with most inputs; each signature's first run takes many seconds.
@pytest.mark.parametrize(
    "name",
    [name if name == "options" else pytest.param(name, marks=pytest.mark.slow) for name in Signatures.INPUTS],
)
def test_every_signature_gives_what_python_gives(name, run, export_one):
    export = export_one(name, **LIMITS)
    function = in_python(export, name)
    for sizes in ([0], [1], [33, 2]):
        columns = _columns(name, sum(sizes))
        lines = [_line(*fields) for fields in zip(*(columns[key] for key in sorted(columns)), strict=True)]
        rows = run("--library", LIBRARY, "--signature", name, "--batch", sizes[0] or 1, "--json", export, lines=lines)
        rows = [json.loads(row) for row in rows]
        assert len(rows) == sum(sizes)
        start = 0
        for size in sizes:
            batch = {key: values[start : start + size] for key, values in columns.items()}
            outputs = function(**{key: _tensor(Signatures.INPUTS[name][key], batch[key]) for key in batch})
            for row in rows[start : start + size]:
                assert list(row) == sorted(outputs)
            for key, value in outputs.items():
                value = value.numpy()
                assert len(value) == size
                found = [row[key] for row in rows[start : start + size]]
                if value.dtype == object:
                    text = np.vectorize(lambda string: string.decode("utf-8"), otypes=[object])
                    assert found == (text(value) if value.size else value).tolist()
                elif value.dtype.kind == "f":
                    assert np.shape(found)[: value.ndim] == (value.shape if size else (0,))
                    np.testing.assert_allclose(np.reshape(found, value.shape), value, rtol=1e-5, atol=1e-5)
                else:
                    assert found == value.tolist()
            start += size


def test_translations_alone_line_by_line(run, export_one):
    export = export_one("serving_default", **LIMITS)
    outputs = in_python(export, "serving_default")(text=tf.constant(LAST))
    white_space = bytes.maketrans(b"\t\n\v\f\r\x1c\x1d\x1e", b" " * 8)
    expected = [text.translate(white_space) for text in outputs["translation"].numpy()]
    # Four rows a batch: what else is in a batch does not change a row.
    assert run("--library", LIBRARY, "--batch", 4, export, lines=LAST) == expected
    assert [text == b"" for text in expected[:3]] == [False, True, True]
    assert outputs["truncated"].numpy().tolist() == [text.count(b"five") == 40 for text in LAST]


def test_an_export_without_its_library_says_so(run, export_one, tmp_path):
    export = export_one("serving_default", **LIMITS)
    error = run(export, status=1)
    assert "'SentencepieceOp'" in error
    assert "See --library" in error
    error = run("--library", tmp_path / "none.so", export, status=1)
    assert f"cannot load the library {tmp_path / 'none.so'}" in error


def test_from_ids_to_ids_no_library_is_needed(run, export_one):
    export = export_one("tokens")
    (row,) = run("--signature", "tokens", "--json", export, lines=[b"5 9 3"])
    outputs = in_python(export, "tokens")(source_ids=tf.constant([[5, 9, 3]]))
    assert json.loads(row)["target_ids"] == outputs["target_ids"].numpy()[0].tolist()


# === A model without a translator: the program itself ===


class Toy(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def echo(self, text):
        return {"another": tf.strings.upper(text), "translation": text, "wide": tf.stack([text, text], axis=1)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None], tf.string),
        ]
    )
    def numbers(self, real, whole, list, text):
        return {
            "cube": tf.cast(list, tf.int64)[:, :, None, None] + tf.constant([[0, 1 << 40]], tf.int64),
            "inverse": 1.0 / real,
            "real": real,
            "real_list": tf.cast(list, tf.float32) * 0.1,
            "negative": whole < 0,
            "whole": whole,
            "size": tf.strings.length(text),
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def twice(self, text):
        return {"size": tf.strings.length(text), "texts": tf.stack([text, tf.strings.upper(text)], axis=1)}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
    def halves(self, x):
        return {"half": tf.cast(x, tf.float16)}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
    def total(self, x):
        return {"total": tf.reduce_sum(x)}

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def scalar(self, x):
        return {"x": x[None]}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def positive(self, x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, "be positive")]):
            return {"x": tf.identity(x)}

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None, None], tf.float32)])
    def compiled(self, x):
        return {"x": x + 1.0}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    path = tmp_path_factory.mktemp("toy") / "1"
    module = Toy()
    names = ["numbers", "twice", "halves", "total", "scalar", "positive", "compiled"]
    tf.saved_model.save(
        module,
        str(path),
        signatures={"serving_default": module.echo, **{name: getattr(module, name) for name in names}},
    )
    return path


def test_lists_the_signatures(run, toy):
    lines = [line.decode() for line in run("--list", toy)]
    names = [line for line in lines if not line.startswith(" ")]
    assert names == sorted(["serving_default", "numbers", "twice", "halves", "total", "scalar", "positive", "compiled"])
    start = lines.index("numbers") + 1
    assert [line.split(maxsplit=3) for line in lines[start : start + 11]] == [
        ["input", "list", "int32", "[?, ?]"],
        ["input", "real", "float32", "[?]"],
        ["input", "text", "string", "[?]"],
        ["input", "whole", "int64", "[?]"],
        ["output", "cube", "int64", "[?, ?, 1, 2]"],
        ["output", "inverse", "float32", "[?]"],
        ["output", "negative", "bool", "[?]"],
        ["output", "real", "float32", "[?]"],
        ["output", "real_list", "float32", "[?, ?]"],
        ["output", "size", "int32", "[?]"],
        ["output", "whole", "int64", "[?]"],
    ]
    assert [line.split(maxsplit=3) for line in lines[lines.index("total") + 1 :][:2]] == [
        ["input", "x", "float32", "[?, ?]"],
        ["output", "total", "float32", "[]"],
    ]
    halves = lines[lines.index("halves") + 1 :]
    assert halves[1].split(maxsplit=3) == ["output", "half", "other", "[?, ?]"]


@pytest.mark.parametrize(
    ("stdin", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"a\r\n\r\nb\r", [b"a", b"", b"b "]),  # only a line's end is taken off
        (b"a\tb\n \n\x00c\n", [b"a b", b" ", b"\x00c"]),
        (b"x" * 100000 + b"\n" + b"y" * 23, [b"x" * 100000, b"y" * 23]),
        (b"a\n" * 64, [b"a"] * 64),  # whole batches
        (b"a\n" * 65, [b"a"] * 65),
    ],
)
def test_lines_in_and_lines_out(stdin, lines, run, toy):
    assert run(toy, stdin=stdin) == lines


def test_without_json_the_first_strings_are_written(run, toy):
    assert run("--signature", "twice", toy, lines=[b"ab\rc", b""]) == [b"ab c\tAB C", b"\t"]
    error = run("--signature", "numbers", toy, lines=[b"1"], status=2)
    assert "signature `numbers` has no string output: add --json" in error


def test_what_is_not_there_is_named(run, toy, tmp_path):
    assert "no signature `best`" in run("--signature", "best", toy, status=1)
    assert f"cannot load the export {tmp_path / 'none'}: " in run(tmp_path / "none", status=1)
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "saved_model.pb").write_bytes((toy / "saved_model.pb").read_bytes()[:-1000])
    assert f"cannot load the export {tmp_path / 'cut'}: " in run(tmp_path / "cut", status=1)


def test_json_keeps_every_byte_of_text_and_replaces_what_is_none(run, toy):
    every_character = "".join(
        map(chr, [*range(10), *range(11, 0x250), 0x2028, 0xD7FF, 0xE000, 0xFFFD, 0x1F600, 0x10FFFF])
    )
    invalid = [
        bytes([first, *rest, 0x41]) for first in range(0x80, 0x100) for rest in ([], [0x80], [0xBF], [0x80, 0x80])
    ]
    invalid += [
        b"\xed\x9f\xbf\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x8f\xbf\xbf\xf4\x90\x80\x80",
        b"\xe4\xb8",
        b"\xf0\x9f\x98",
    ]
    texts = [every_character.encode(), b'"\\/\b\f', *invalid]
    rows = [json.loads(row.decode("utf-8")) for row in run("--json", toy, lines=texts)]
    for text, row in zip(texts, rows, strict=True):
        found = row["translation"]
        assert row["wide"] == [found, found]
        # Python may put one U+FFFD in the place of several bytes.
        assert found.replace("\ufffd", "") == text.decode("utf-8", "replace").replace("\ufffd", "")
        assert ("\ufffd" in found) == ("\ufffd" in text.decode("utf-8", "replace"))


def test_fields_are_the_inputs_by_name(run, toy):
    def read(*fields):
        return [fields[i] if i < len(fields) else b"" for i in range(4)]

    lines = [
        b"1 -2 3\t0.1\tein Wort\t-9223372036854775808",
        b"\t\t\t9007199254740993",
        b"",
        b"  7  \t 1.00000012 \t \t +5 ",
        b"1\x0b2\t1\t\x00",
    ]
    rows = [json.loads(row) for row in run("--signature", "numbers", "--json", toy, lines=lines)]
    for line, row in zip(lines, rows, strict=True):
        numbers, real, text, whole = read(*line.split(b"\t", 3))
        numbers = [int(number) for number in numbers.split()] + [0] * (3 - len(numbers.split()))
        real = np.float32(real or 0)
        assert row["cube"] == [[[number, number + (1 << 40)]] for number in numbers]
        assert row["real"] == real
        assert np.float32(row["real"]).tobytes() == real.tobytes()
        assert row["inverse"] == (None if real == 0 else pytest.approx(1 / float(real)))
        np.testing.assert_array_equal(np.float32(row["real_list"]), np.float32(numbers) * np.float32(0.1))
        assert row["whole"] == int(whole or 0)
        assert row["negative"] is (int(whole or 0) < 0)
        assert row["size"] == len(text)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (b"1 2x\t0\t\t0", "line 3: `list` must be of type int32. Received: 2x"),
        (b"2147483648\t0\t\t0", "line 3: `list` must be of type int32. Received: 2147483648"),
        (b"1\x002\t0\t\t0", "line 3: `list` must be of type int32"),
        (b"1.5\t0\t\t0", "line 3: `list` must be of type int32. Received: 1.5"),
        (b"1\tzero\t\t0", "line 3: `real` must be of type float32. Received: zero"),
        (b"1\t1e39\t\t0", "line 3: `real` must be of type float32. Received: 1e39"),
        (b"1\t1 2\t\t0", "line 3: `real` must be one number. Received: 1 2"),
        (b"1\t1\t\t9223372036854775808", "line 3: `whole` must be of type int64. Received: 9223372036854775808"),
        (b"1\t1\t\t1\t2", "line 3: `whole` must be one number. Received: 1\t2"),
    ],
)
def test_a_field_that_is_no_number_is_named(fields, expected, run, toy):
    error = run("--signature", "numbers", "--json", "--batch", 2, toy, lines=[b"1", b"2", fields], status=1)
    assert expected in error


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("halves", "output `half` is of a type that cannot be written"),
        ("total", "output `total` must have one row for each line"),
        ("scalar", "input `x` must hold a string, a number or a list of numbers for each row"),
        ("positive", "be positive"),
        # XLA is off, as in the stock server, where this signature loads and fails too.
        ("compiled", "cannot run signature compiled"),
    ],
)
def test_a_signature_that_does_not_fit_or_fails(name, expected, run, toy):
    assert expected in run("--signature", name, "--json", toy, lines=[b"0 1"], status=1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "there must be one EXPORT. Received: 0"),
        (["a", "b"], "there must be one EXPORT. Received: 2"),
        (["--batch", "0", "a"], "`--batch` must be from 1 to 1000000. Received: 0"),
        (["--batch", "many", "a"], "Received: many"),
        (["--batch", "", "a"], "Received: "),
        (["--beam", "a"], "unrecognized option"),
        (["a", "--signature"], "requires an argument"),
    ],
)
def test_a_wrong_command_line(arguments, expected, run):
    assert expected in run(*arguments, status=2)


def test_help_says_how_inputs_are_read(run):
    assert b"in the alphabetical order of the inputs' names" in b"\n".join(run("--help"))


def test_a_full_disk_is_not_ignored(binary, toy):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([binary, toy], input=b"a\n", stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT)
    assert done.returncode == 1
    assert b"cannot write standard output" in done.stderr


def test_holds_no_python_and_answers_each_batch_at_once_in_steady_memory(binary, toy):
    """100 kB in and out of each batch: what a batch leaves behind would show after a thousand."""

    def megabytes():
        status = Path(f"/proc/{process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    line = b"x" * 5000 + b"\n"
    with subprocess.Popen(
        [binary, "--json", "--batch", "10", toy],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    ) as process:
        if not Path(f"/proc/{process.pid}/maps").exists():
            process.kill()
            pytest.skip("needs /proc")
        sizes = []
        for batch in range(1000):
            process.stdin.write(line * 10)
            process.stdin.flush()
            for _ in range(10):
                assert len(process.stdout.readline()) > 4 * 5000
            if batch in (199, 999):
                sizes.append(megabytes())
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        process.stdin.close()
        assert process.wait(timeout=300) == 0
    assert "libtensorflow_cc" in maps
    assert "python3" not in {Path(line.split()[-1]).name[:7] for line in maps.splitlines() if ".so" in line}
    assert "libpython" not in maps
    assert math.fabs(sizes[1] - sizes[0]) < 20, sizes
