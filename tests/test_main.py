"""The command line as a whole: what it knows, what it refuses, how soon it answers."""

import dataclasses
import subprocess
import sys
from pathlib import Path

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


# Without the package's own imports.
HELP = """
import sys, types
package = types.ModuleType("keras_transformer")
package.__path__ = [sys.argv[1]]
sys.modules["keras_transformer"] = package
from keras_transformer.__main__ import main
try:
    main(sys.argv[2:])
finally:
    assert not {"tensorflow", "keras", "aiohttp", "grpc"} & set(sys.modules)
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_help_does_not_wait_for_tensorflow(name):
    folder = str(Path(keras_transformer.__file__).parent)
    done = subprocess.run([sys.executable, "-c", HELP, folder, name, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for field in dataclasses.fields(COMMANDS[name]):
        assert f"--{field.name.replace('_', '-')}" in done.stdout
    assert "None" not in done.stdout
