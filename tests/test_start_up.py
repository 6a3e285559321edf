"""TensorFlow starts without its notes, and what is no note stays."""

import os
import subprocess
import sys

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
