"""Write a trained run as a TensorFlow SavedModel, tokenizer inside.

    python export/export_saved_model.py --run-directory runs/translation --output served/en-de

The model goes into the next free version folder, served/en-de/1, then 2, as TensorFlow Serving expects. Its signature
`serving_default` takes `text`, string [batch], and gives for each row `translation`, `score`, `log_probability`,
`finished` and `truncated`; with --num-hypotheses above 1 also `translations` and `scores`, [batch, hypotheses].
"""

import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tyro

from keras_transformer.decoding import BeamSearch
from keras_transformer.translator import Translator


def export_saved_model(
    run_directory: Path,
    output: Path,
    beam_size: int = BeamSearch.beam_size,
    length_penalty: float = BeamSearch.length_penalty,
    num_hypotheses: int = BeamSearch.num_hypotheses,
    max_extra_tokens: int = 50,
    max_source_tokens: int = 1024,
) -> Path:
    """Write a trained run as a TensorFlow SavedModel, tokenizer inside.

    Args:
        run_directory: folder of a recipe's run, or any that `Translator.save` wrote.
        output: folder of the served model; the SavedModel becomes its next version folder.
        beam_size: live hypotheses of the search; 1 is greedy.
        length_penalty: strength of the length penalty, alpha.
        num_hypotheses: translations of each sentence, at most `beam_size`.
        max_extra_tokens: longest translation, in tokens beyond the length of its source.
        max_source_tokens: tokens after which a source is cut.
    """
    translator = Translator.load(
        run_directory,
        search=BeamSearch(beam_size=beam_size, length_penalty=length_penalty, num_hypotheses=num_hypotheses),
        max_extra_tokens=max_extra_tokens,
        max_source_tokens=max_source_tokens,
    )
    versions = [int(path.name) for path in output.glob("*") if path.name.isdecimal()]
    path = output / str(max(versions, default=0) + 1)
    translator.export(path)
    print(f"Exported to {path}. Translate with:\n  python -m keras_transformer translate --model {path} < text")
    return path


if __name__ == "__main__":
    tyro.cli(export_saved_model, description=__doc__)
