"""Keras callbacks: scores of translations by the real decoder, and a log of metrics that survives a kill."""

import contextlib
import sys
import time
from pathlib import Path

import keras
from keras import ops

from keras_transformer.runs import records
from keras_transformer.training.progress import steps_made


@contextlib.contextmanager
def go_on_without(what):
    """Within it, an error is reported and costs no more than what is done there: training is worth more."""
    try:
        yield
    except Exception as error:
        print(f"\n{what} failed, and the run goes on without: {error!r}", file=sys.stderr, flush=True)


class TranslationScores(keras.callbacks.Callback):
    """Translates a development set at the end of an epoch and puts its scores into the logs.

    Training waits. A score or a display that fails is reported on standard error and left out.

    Args:
        translate: callable from a list of source sentences to the list of their translations.
        sources: list of source sentences.
        references: list of reference translations, one for each source.
        scores: dictionary from names in the logs, such as `"val_bleu"`, to callables `(hypotheses, references)` whose
            result has the score as `.value`.
        every: translate after every so many epochs; the other epochs log nothing. Defaults to 1.
        num_examples: how many of the first sentences to show with their translation. Defaults to 0.
        show_examples: callable `(step, examples)` that shows them, each a tuple `(source, reference, translation)`.
            Defaults to None: they are printed.

    Attributes:
        hypotheses: the last translations, or None.
        results: what `scores` returned for them, by name.

    Raises:
        ValueError: when there is nothing to translate, or the two lists differ in length, also when `translate`
            does not give one translation a source.
    """

    def __init__(self, translate, sources, references, scores, *, every=1, num_examples=0, show_examples=None):
        super().__init__()
        sources, references = list(sources), list(references)
        if not sources:
            raise ValueError("`sources` must hold at least one sentence. Received: sources=[]")
        if len(sources) != len(references):
            raise ValueError(
                "`references` must hold one reference for each source. "
                f"Received: {len(sources)} sources, {len(references)} references"
            )
        if every < 1:
            raise ValueError(f"`every` must be a positive number of epochs. Received: every={every!r}")
        if num_examples < 0:
            raise ValueError(f"`num_examples` must not be negative. Received: num_examples={num_examples!r}")
        self.translate = translate
        self.sources = sources
        self.references = references
        self.scores = dict(scores)
        self.every = every
        self.num_examples = num_examples
        self.show_examples = _print_examples if show_examples is None else show_examples
        self.hypotheses = None
        self.results = {}

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every:
            return
        values = self._evaluate(steps_made(self.model), list(self.translate(self.sources)))
        if logs is not None:
            logs.update(values)

    def _evaluate(self, step, hypotheses):
        """The scores of translations, by name; shows the examples."""
        if len(hypotheses) != len(self.sources):
            raise ValueError(
                "`translate` must return one translation for each source. "
                f"Received: {len(hypotheses)} translations of {len(self.sources)} sources"
            )
        self.hypotheses = hypotheses
        self.results = {}
        for name, score in self.scores.items():
            with go_on_without(f"{name} at step {step:,}"):
                self.results[name] = score(hypotheses, self.references)
        if self.num_examples:
            examples = list(zip(self.sources, self.references, hypotheses, strict=True))
            with go_on_without(f"Examples at step {step:,}"):
                self.show_examples(step, examples[: self.num_examples])
        return {name: float(result.value) for name, result in self.results.items()}


def _print_examples(step, examples):
    for source, reference, translation in examples:
        print(f"\n  source      {source}\n  reference   {reference}\n  translation {translation}")


class MetricsLog(keras.callbacks.Callback):
    """Appends one JSON object an epoch to a file, each on a line of its own.

    A record holds `step` (updates made so far), `epoch` (counted from 1), `seconds` (wall time of the epoch's training
    steps, without validation; for the first epoch it includes the compilation of the step), `learning_rate` (of the
    next update) and all logs of the epoch as numbers; a number that is not finite becomes null, since JSON has no word
    for it. Where the logs count target tokens (a metric `TokenCount`), `target_tokens_per_second` is added, also to the
    logs, for the callbacks that follow.

    A record is on the disk before training goes on. When training starts, records of steps that the optimizer has not
    made are removed, and so is a line that was cut off by a kill: after a resume the file reads as if training had
    never stopped. The file is replaced through a temporary name, so that a kill at that moment loses nothing either.
    Give it to `Checkpoints` as one of its `parts` when checkpoints are saved within an epoch: the seconds of that
    epoch then go on too.

    Args:
        path: the file, for example `metrics.jsonl`. Its folder is made when training starts.
        tokens: name of the log that counts target tokens. Defaults to `"target_tokens"`.
    """

    # Only the clock is read at the end of a batch: Keras need not wait for it.
    async_safe = True

    def __init__(self, path, *, tokens="target_tokens"):
        super().__init__()
        self.path = Path(path)
        self.tokens = tokens
        self._start = self._end = self._before = 0.0

    def on_train_begin(self, logs=None):
        records.keep_records(self.path, steps_made(self.model))

    def on_epoch_begin(self, epoch, logs=None):
        self._start = self._end = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self._end = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        optimizer = self.model.optimizer
        seconds = self._before + self._end - self._start
        record = {
            "step": steps_made(self.model),
            "epoch": epoch + 1,
            "seconds": seconds,
            "learning_rate": float(ops.convert_to_numpy(optimizer.learning_rate)),
        }
        logs = {} if logs is None else logs
        if self.tokens in logs and seconds > 0:
            logs[f"{self.tokens}_per_second"] = float(logs[self.tokens]) / seconds
        records.append_record(self.path, record | {name: float(value) for name, value in logs.items()})
        # The epoch's time is in the log; what is saved from here on belongs to the next one.
        self._before = 0.0
        self._start = self._end

    def get_state(self):
        """What `set_state` takes: the seconds of training in the epoch that is under way."""
        return {"seconds": self._before + self._end - self._start}

    def set_state(self, state):
        """Go on within an epoch from a state that `get_state` returned."""
        self._before = state["seconds"]
