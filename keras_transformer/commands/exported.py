"""An export as the source of hypotheses, for `keras-transformer translate`."""

from keras_transformer.start_up import start_tensorflow

# Bounds on a batch: rows, and rows times the characters of the longest (memory).
_MAX_ROWS = 64
_MAX_CHARACTERS = 16384


def load_export(path, *, n_best, scores, alignments):
    """Load what an export needs to know to translate.

    Args:
        path: folder with `saved_model.pb`: one of ours, or any whose `serving_default` has `text` and `translation`.
        n_best: number of translations; above 1, the signature `n_best` is used.
        scores: whether scores are wanted.
        alignments: whether word alignments are wanted, which the signature of that name has.

    Returns:
        A function `(sentences, on_progress)` to lists of hypotheses.

    Raises:
        ValueError: if the export does not have what is wanted.
    """
    start_tensorflow()
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 - registers the tokenizer's operations

    from keras_transformer.translation.batching import run_by_length

    if n_best > 1 and alignments:
        raise ValueError("An export aligns the best translation only. Received: --n-best and --alignments")
    signatures = tf.saved_model.load(str(path)).signatures
    name = "n_best" if n_best > 1 else "alignments" if alignments else "serving_default"
    if name not in signatures:
        raise ValueError(f"The export must have the signature `{name}`. Received: {path} with {sorted(signatures)}")
    serve = signatures[name]
    outputs = serve.structured_outputs
    if n_best > 1:
        most, hypotheses_of_row = outputs["translations"].shape[1], _several
        if n_best > most:
            raise ValueError(f"`--n-best` must be at most the export's {most} translations. Received: {n_best}")
    else:
        hypotheses_of_row = _best
        for output in ("translation", *(["score"] if scores else [])):
            if output not in outputs:
                raise ValueError(f"The export must have an output `{output}`. Received: {path} with {list(outputs)}")

    def run(sentences, on_progress):
        def run_batch(rows):
            found = serve(text=tf.constant([sentences[row] for row in rows]))
            columns = {output: values.numpy() for output, values in found.items()}
            return [
                hypotheses_of_row({output: values[place] for output, values in columns.items()})[:n_best]
                for place in range(len(rows))
            ]

        return run_by_length(run_batch, list(map(len, sentences)), _MAX_CHARACTERS, _MAX_ROWS, on_progress)

    return run


def _best(row):
    """The only hypothesis in a row of `serving_default` or `alignments`."""
    alignment = tuple((int(source), target) for target, source in enumerate(row.get("alignment", ())) if source >= 0)
    return [
        _hypothesis(
            row["translation"],
            row.get("log_probability", float("nan")),
            row.get("score", float("nan")),
            row.get("finished", True),
            row.get("truncated", False),
            alignment,
        )
    ]


def _several(row):
    """The hypotheses in a row of `n_best`."""
    columns = (row[name] for name in ("translations", "log_probabilities", "scores", "finished"))
    return [
        _hypothesis(*values, row["truncated"], None)
        for values, _ in zip(zip(*columns, strict=True), range(row["num_translations"]), strict=False)
    ]


def _hypothesis(text, log_probability, score, finished, truncated, alignment):
    from keras_transformer.translation.translator import Hypothesis

    return Hypothesis(
        text=text.decode("utf-8"),
        ids=(),
        log_probability=float(log_probability),
        score=float(score),
        finished=bool(finished),
        truncated=bool(truncated),
        attention=None,
        alignment=alignment,
    )
