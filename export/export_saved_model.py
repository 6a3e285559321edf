"""Write a trained run as a TensorFlow SavedModel, tokenizer inside.

    python export/export_saved_model.py --run-directory runs/translation --output served/en-de

The model goes into the next free version folder, served/en-de/1, then 2, as TensorFlow Serving expects. Its signature
`serving_default` takes `text`, string [batch], and gives `translation`, string [batch], and `score`, float32 [batch].
"""

import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tyro

from keras_transformer.translator import Translator


def export_saved_model(run_directory: Path, output: Path, max_extra_tokens: int = 50) -> Path:
    """Write a trained run as a TensorFlow SavedModel, tokenizer inside.

    Args:
        run_directory: folder of a recipe's run, or any that `Translator.save` wrote.
        output: folder of the served model; the SavedModel becomes its next version folder.
        max_extra_tokens: longest translation, in tokens beyond the length of its source.
    """
    translator = Translator.load(run_directory, max_extra_tokens=max_extra_tokens)
    versions = [int(path.name) for path in output.glob("*") if path.name.isdecimal()]
    path = output / str(max(versions, default=0) + 1)
    translator.export(path)
    print(f"Exported to {path}. Translate with:\n  python -m keras_transformer translate --model {path} < text")
    return path


if __name__ == "__main__":
    tyro.cli(export_saved_model, description=__doc__)
