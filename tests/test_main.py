"""The command line in a process of its own, on a run directory and on an export."""

import subprocess
import sys

import pytest

from keras_transformer.translator import Translator

LINES = ["one two", "", "three four five", "   ", "\u2028 fünf", "one"]


@pytest.fixture(scope="module")
def saved(untrained_translator, tmp_path_factory):
    """A run directory, its export, and what both must print."""
    folder = tmp_path_factory.mktemp("run")
    untrained_translator.save(folder)
    translator = Translator.load(folder)
    translator.export(folder / "export" / "1")
    expected = [translation.replace("\n", " ") for translation in translator.translate(LINES)]
    return folder, folder / "export" / "1", expected


def translate(*arguments, text=b""):
    command = [sys.executable, "-m", "keras_transformer", "translate", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, timeout=300)


@pytest.mark.parametrize("which", [0, 1], ids=["run", "export"])
def test_translates_line_by_line(saved, which):
    done = translate("--model", saved[which], "--chunk-lines", "4", text="\r\n".join([*LINES, ""]).encode())
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    lines = done.stdout.decode("utf-8").split("\n")
    assert lines == [*saved[2], ""]
    assert lines[1] == lines[3] == ""


def test_a_missing_model_is_named(tmp_path):
    done = translate("--model", tmp_path / "nothing")
    assert done.returncode != 0
    assert "must hold model.keras" in done.stderr.decode()
