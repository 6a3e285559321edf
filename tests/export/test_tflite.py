"""The program for TensorFlow Lite in export/README.md, and what comes out of it."""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding import BeamSearch
from keras_transformer.translation.translator import Translator
from keras_transformer.vocabulary import END_ID

README = Path(__file__).parents[2] / "export" / "README.md"
SOURCES = [
    "one",
    "two three",
    "five four three",
    "",
    "one two three four five",
    "x",
    "東",
    "two two",
    "four",
    "three one",
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_greedy_ids_are_those_of_tensorflow(untrained_translator, tmp_path, monkeypatch):
    section = README.read_text("utf-8").split("## TensorFlow Lite", 1)[1]
    program = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    untrained_translator.save(tmp_path / "runs" / "translation")
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "export/README.md", "exec"), {})

    interpreter = tf.lite.Interpreter("translator.tflite")
    interpreter.allocate_tensors()
    (argument,), (output,) = interpreter.get_input_details(), interpreter.get_output_details()
    greedy = Translator.load(tmp_path / "runs" / "translation", search=BeamSearch(beam_size=1))
    for source in SOURCES:
        source_ids = np.zeros(argument["shape"], "int32")
        ids = [*greedy.tokenizer.encode([source])[0], END_ID]
        source_ids[0, : len(ids)] = ids
        interpreter.set_tensor(argument["index"], source_ids)
        interpreter.invoke()
        found = interpreter.get_tensor(output["index"])[0]
        # Its limit is the program's 48 tokens.
        (expected,) = greedy.hypotheses([source])[0]
        assert tuple(found[: len(expected.ids)])[:48] == expected.ids[:48]
        assert not found[len(expected.ids) :].any()
