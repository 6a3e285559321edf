"""The command line as a whole: what it knows, what it refuses, how soon it answers."""

import dataclasses
import subprocess
import sys

import pytest

import keras_transformer
from keras_transformer.__main__ import main
from keras_transformer.commands.serve import Serve
from keras_transformer.commands.translate import Translate

COMMANDS = {"translate": Translate, "serve": Serve}


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "translate", "translate --model RUN --beam-size x", "translate --wrong 1"),
        *("serve", "serve --export DIR --port x", "serve --export DIR --wrong 1", "nothing"),
    ],
)
def test_unusable_command_lines(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())
    assert stopped.value.code == 2
    assert capsys.readouterr().out == ""


# Runs the command line in a fresh process, which must not have imported anything heavy at the end.
LIGHT = """
import sys
from keras_transformer.__main__ import main
try:
    main(sys.argv[1:])
finally:
    assert not {"tensorflow", "keras", "aiohttp", "grpc", "numpy"} & set(sys.modules)
"""


def light(*arguments):
    return subprocess.run([sys.executable, "-c", LIGHT, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_does_not_wait_for_tensorflow(name):
    done = light(name, "--help")
    assert done.returncode == 0, done.stderr
    for field in dataclasses.fields(COMMANDS[name]):
        assert f"--{field.name.replace('_', '-')}" in done.stdout
    assert "None" not in done.stdout


@pytest.mark.parametrize("arguments", [["--version"], ["translate", "--version"], ["serve", "--version"]])
def test_version(arguments):
    done = light(*arguments)
    assert (done.returncode, done.stdout) == (0, f"keras-transformer {keras_transformer.__version__}\n")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["translte"], ["translate", "--modle", "x"], ["serve", "--prot", "1"]]
)
def test_help_and_a_typo_do_not_wait_for_tensorflow(arguments):
    done = light(*arguments)
    assert done.returncode == (0 if arguments == ["--help"] else 2)
    assert "AssertionError" not in done.stderr
