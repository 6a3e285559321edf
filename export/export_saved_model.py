"""Write a trained run as a TensorFlow SavedModel, tokenizer inside.

    python export/export_saved_model.py --run-directory runs/translation --output served/en-de

The model goes into the next free version folder, served/en-de/1, then 2, as TensorFlow Serving expects. Several run
directories make an ensemble. README.md in this folder has the signatures.
"""

import json
from pathlib import Path
from typing import Literal

import tyro

from keras_transformer.start_up import start_tensorflow


def export_saved_model(
    run_directory: tuple[Path, ...],
    output: Path,
    *,
    beam_size: int | None = None,
    length_penalty: float | None = None,
    num_hypotheses: int | None = None,
    coverage_penalty: float | None = None,
    no_repeat_ngram_size: int | None = None,
    max_extra_tokens: int | None = None,
    max_target_tokens: int | None = None,
    max_source_tokens: int | None = None,
    attention_layer: int = -2,
    signatures: tuple[str, ...] | None = None,
    weights: Literal["float32", "float16", "int8"] = "float32",
) -> Path:
    """Write a trained run as a TensorFlow SavedModel, tokenizer inside.

    Args:
        run_directory: folder of a recipe's run, or any that `Translator.save` wrote; several make an ensemble.
        output: folder of the served model; the SavedModel becomes its next version folder.
        beam_size: live hypotheses of the search; 1 is greedy. Default: that of the run, else 4.
        length_penalty: strength of the length penalty, alpha. Default: that of the run, else 0.6.
        num_hypotheses: translations that `n_best` gives of each sentence. Default: the beam size.
        coverage_penalty: strength of the coverage penalty, beta. Default: 0.
        no_repeat_ngram_size: no sequence of this many tokens is written twice. Default: 0, no such rule.
        max_extra_tokens: longest translation, in tokens beyond the length of its source. Default: that of the run,
            else 50.
        max_target_tokens: longest translation, in tokens. Default: no such limit.
        max_source_tokens: tokens after which a source is cut. Default: 1024.
        attention_layer: decoder layer that `alignments` are made from.
        signatures: names of those to write; `tokens` alone leaves the tokenizer out. Default: all.
        weights: how they are stored: in full, in half, or in a quarter of the bytes.
    """
    start_tensorflow()  # help and errors do not wait for it
    from keras_transformer.pretrained import Pretrained
    from keras_transformer.saved_model.writer import next_version, write_saved_model
    from keras_transformer.translation.translator import Translator

    limits = {
        "max_extra_tokens": max_extra_tokens,
        "max_target_tokens": max_target_tokens,
        "max_source_tokens": max_source_tokens,
    }
    search = Pretrained(run_directory[0]).beam_search(
        beam_size=beam_size,
        length_penalty=length_penalty,
        coverage_penalty=coverage_penalty,
        no_repeat_ngram_size=no_repeat_ngram_size,
    )
    translator = Translator.load(
        *run_directory, search=search, **{name: limit for name, limit in limits.items() if limit is not None}
    )
    path = next_version(output)
    write_saved_model(
        translator,
        path,
        signatures=signatures,
        num_hypotheses=num_hypotheses,
        attention_layer=attention_layer,
        weights=weights,
        training=read_json(run_directory[0] / "config.json"),
        evaluation=scores(read_json(run_directory[0] / "results.json"), run_directory),
    )
    print(f"Exported to {path}. Translate with:\n  python -m keras_transformer translate --model {path} < text")
    print(f"Serve with:\n  python -m keras_transformer serve --export {output}")
    return path


def read_json(path):
    """What a recipe has written there; `None` if it has not."""
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def scores(results, runs):
    """The test scores among a run's results; `None` for an ensemble, which nobody has tested."""
    if results is None or len(runs) > 1:
        return None
    return {name: value for name, value in results.items() if name.startswith("test_")}


if __name__ == "__main__":
    tyro.cli(export_saved_model, description=__doc__)
