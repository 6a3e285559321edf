"""TensorFlow starts without its notes, and what is no note stays."""

import os
import signal
import subprocess
import sys

import pytest

from keras_transformer import start_up

START = """
import os, sys
from keras_transformer.start_up import start_tensorflow
class Warns:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            print("a warning of Python", file=sys.stderr)
            os.write(2, b"W0000 00:00:1.1 12 graph.cc:1] a warning of TensorFlow\\n")
sys.meta_path.insert(0, Warns())
start_tensorflow()
print(os.environ["TF_ENABLE_ONEDNN_OPTS"], os.environ["TF_CPP_MIN_LOG_LEVEL"])
import tensorflow as tf
print(float(tf.reduce_sum(tf.ones([3]))))
os.write(2, b"afterwards\\n")
"""


def test_notes_are_held_back_and_all_else_is_written():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "2", "3.0"]
    assert done.stderr.splitlines() == [
        "a warning of Python",
        "W0000 00:00:1.1 12 graph.cc:1] a warning of TensorFlow",
        "afterwards",
    ]


def test_a_failing_import_says_why():
    failing = START.replace("            print(", "            raise ImportError(name)\n            print(", 1)
    done = subprocess.run([sys.executable, "-c", failing], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: tensorflow" in done.stderr


def test_what_is_written_before_the_process_is_aborted_is_seen():
    last = "os.write(2, b'terminate: a library is broken\\n'); os.abort()"
    aborted = START.replace("            os.write(2,", f"            {last}\n            os.write(2,", 1)
    done = subprocess.run([sys.executable, "-c", aborted], capture_output=True, text=True)
    assert done.returncode == -signal.SIGABRT
    assert done.stderr.splitlines() == ["a warning of Python", "terminate: a library is broken"]


NOTE = b"E0000 00:00:1.1 12 cuda_platform.cc:52] failed call to cuInit\n"


@pytest.mark.parametrize("has_driver", [False, True])
def test_a_driver_that_fails_is_news_where_there_is_one(has_driver, tmp_path, monkeypatch):
    monkeypatch.setattr(start_up, "_NVIDIA_DRIVER", tmp_path if has_driver else tmp_path / "none")
    reading, writing = os.pipe()
    os.write(writing, NOTE + b"W0000 00:00:1.1 12 port.cc:1] note\nnews\n")
    os.close(writing)
    with open(tmp_path / "screen", "wb") as screen:
        start_up._pass_on(reading, screen.fileno())
    assert (tmp_path / "screen").read_bytes() == (NOTE if has_driver else b"") + b"news\n"
