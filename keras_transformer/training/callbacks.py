"""Keras callbacks: validation BLEU with the real decoder, and a log of metrics that survives a kill.

Keras hands one dictionary of logs to its callbacks in the order in which they are listed, and its progress bar and
history come last. So `TranslationBleu` is listed before whatever reads `val_bleu`: `MetricsLog`,
`keras.callbacks.TensorBoard`, `keras.callbacks.EarlyStopping`.
"""

import json
import math
import time
from pathlib import Path

import keras
from keras import ops

from keras_transformer.training import files
from keras_transformer.training.progress import steps_made


class TranslationBleu(keras.callbacks.Callback):
    """Translates a validation set at the end of an epoch and puts its score into the logs.

    List it before every callback that reads the score.

    Args:
        translate: callable from a list of source sentences to the list of their translations.
        sources: list of source sentences.
        references: list of reference translations, one for each source.
        score: callable `(hypotheses, references)` whose result has the score as `.value`.
        every: translate after every so many epochs; the other epochs log nothing. Defaults to 1.
        name: name in the logs. Defaults to `"val_bleu"`.
        num_examples: how many of the first sentences to print with their translation. Defaults to 0.

    Attributes:
        hypotheses: the last translations, or None.
        result: what `score` returned for them, or None.

    Raises:
        ValueError: when there is nothing to translate, or the two lists differ in length, also when `translate`
            does not give one translation a source.
    """

    def __init__(self, translate, sources, references, score, *, every=1, name="val_bleu", num_examples=0):
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
        self.score = score
        self.every = every
        self.name = name
        self.num_examples = num_examples
        self.hypotheses = None
        self.result = None

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every:
            return
        hypotheses = list(self.translate(self.sources))
        if len(hypotheses) != len(self.sources):
            raise ValueError(
                "`translate` must return one translation for each source. "
                f"Received: {len(hypotheses)} translations of {len(self.sources)} sources"
            )
        self.hypotheses = hypotheses
        self.result = self.score(hypotheses, self.references)
        if logs is not None:
            logs[self.name] = float(self.result.value)
        examples = zip(self.sources, self.references, hypotheses, strict=True)
        for _, (source, reference, hypothesis) in zip(range(self.num_examples), examples, strict=False):
            print(f"\n  source      {source}\n  reference   {reference}\n  translation {hypothesis}")


class MetricsLog(keras.callbacks.Callback):
    """Appends one JSON object an epoch to a file, each on a line of its own.

    A record holds `step` (updates made so far), `epoch` (counted from 1), `seconds` (wall time of the epoch's training
    steps, without validation; for the first epoch it includes the compilation of the step), `learning_rate` (of the
    next update) and all logs of the epoch as numbers; a number that is not finite becomes null, since JSON has no word
    for it. Where the logs count target tokens (a metric `TokenCount`), `target_tokens_per_second` is added.

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
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            return
        written = self.path.read_text("utf-8")
        step = steps_made(self.model)
        kept = "".join(line + "\n" for line in written.split("\n") if _step_of(line) <= step)
        if kept != written:
            files.replace(self.path, kept)

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
        record.update({name: float(value) for name, value in (logs or {}).items()})
        if self.tokens in record and seconds > 0:
            record[f"{self.tokens}_per_second"] = record[self.tokens] / seconds
        record = {name: value if math.isfinite(value) else None for name, value in record.items()}
        files.write_through(self.path, json.dumps(record) + "\n", "a")
        # The epoch's time is in the log; what is saved from here on belongs to the next one.
        self._before = 0.0
        self._start = self._end

    def get_state(self):
        """What `set_state` takes: the seconds of training in the epoch that is under way."""
        return {"seconds": self._before + self._end - self._start}

    def set_state(self, state):
        """Goes on within an epoch from a state that `get_state` returned."""
        self._before = state["seconds"]


def _step_of(line):
    """Step of a record, or infinity for a line that is none."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf
