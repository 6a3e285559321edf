"""The command line: `python -m keras_transformer translate --model RUN_OR_EXPORT < source > translation`."""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tyro

# Lines read before any is translated: enough to sort by length, few enough to answer soon.
_CHUNK_LINES = 2048


def translate(model: Path, chunk_lines: int = _CHUNK_LINES):
    """Translate standard input to standard output, line by line; a blank line stays blank.

    Args:
        model: run directory of a recipe (or any folder that `Translator.save` wrote), or an exported SavedModel.
        chunk_lines: lines read before any is translated, a number of lines.
    """
    run = _load(model)
    lines = sys.stdin.buffer
    while chunk := [line for _, line in zip(range(chunk_lines), lines, strict=False)]:
        for translation in run([line.rstrip(b"\r\n").decode("utf-8", errors="replace") for line in chunk]):
            sys.stdout.buffer.write(translation.replace("\n", " ").encode("utf-8") + b"\n")
        sys.stdout.flush()


def _load(path):
    """A function from a list of strings to their translations."""
    if not (path / "saved_model.pb").is_file():
        from keras_transformer.translator import Translator

        return Translator.load(path).translate

    import tensorflow as tf
    import tensorflow_text  # noqa: F401 - registers the tokenizer's operations

    serve = tf.saved_model.load(path).signatures["serving_default"]

    def run(sentences, rows=64):
        order = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
        results = [""] * len(sentences)
        for start in range(0, len(order), rows):
            batch = order[start : start + rows]
            outputs = serve(text=tf.constant([sentences[index] for index in batch]))["translation"].numpy()
            for index, translation in zip(batch, outputs, strict=True):
                results[index] = translation.decode("utf-8")
        return results

    return run


def main():
    """Run the command line."""
    tyro.extras.subcommand_cli_from_dict({"translate": translate}, prog="keras_transformer")


if __name__ == "__main__":
    main()
