"""Scores of translations that are made while training goes on."""

import contextlib
import os
import threading
import time
from pathlib import Path

import keras

from keras_transformer.training import files
from keras_transformer.training.averaging import averaged_weights
from keras_transformer.training.callbacks import TranslationScores
from keras_transformer.training.progress import steps_made

# Sentences that are translated at a time: as long a `close` has to wait.
_SENTENCES = 64


class BackgroundTranslationScores(TranslationScores):
    """Translates and scores a development set in a thread of its own, while `fit` goes on.

    At the end of an epoch the weights are copied into a second model, which a thread translates with. Its scores come
    later than the logs of the epoch, so they are in a log of their own, and nothing that decides by the logs of an
    epoch can use them. A record holds

    - `step`: updates made when the weights were copied;
    - the scores, by their names;
    - `seconds`: how long translating and scoring took, beside the training that it slows down;
    - `waited_seconds`: how long training stood still at that step, for the evaluation before it and for the copy;
    - `copy_bytes`: the memory that the second model takes.

    At most one evaluation is under way: the next one waits for it, and so does the end of training. An error in the
    thread is raised by `fit`, before the next step.

    The copied weights are also a file beside the log, until its record is written. When training starts, records of
    steps that the optimizer has not made are removed, and an evaluation that an earlier process did not finish is made
    again from that file: after a resume the log has neither a gap nor a repeat.

    `fit` does not tell callbacks when an error or a signal ends it. So call `close` then:

        with contextlib.closing(scores):
            model.fit(..., callbacks=[scores, ...])

    List it before `CheckpointEvery`: there must be no checkpoint of a step whose evaluation is not on the disk.

    Args:
        translate: callable from a list of source sentences to the list of their translations, by `model_copy`. It is
            called from the thread, with some sentences at a time.
        sources, references, scores: as for `TranslationScores`.
        model_copy: a built model with the same weights in the same order as the one that is trained, made outside of
            any strategy, and used for nothing else.
        path: the log, for example `dev_scores.jsonl`.
        moving_average: whether to evaluate the moving average of the weights, see `averaged_weights`. Defaults to
            False.
        show_scores: optional callable `(step, scores)`, called from the thread with the scores by name.
        **kwargs: `every`, `num_examples` and `show_examples`, as for `TranslationScores`; the last is called from the
            thread.

    Raises:
        ValueError: as `TranslationScores`; by `fit`, when the weights of `model_copy` are not those of the model.
    """

    def __init__(
        self,
        translate,
        sources,
        references,
        scores,
        *,
        model_copy,
        path,
        moving_average=False,
        show_scores=None,
        **kwargs,
    ):
        super().__init__(translate, sources, references, scores, **kwargs)
        self.model_copy = model_copy
        self.path = Path(path)
        self.moving_average = moving_average
        self.show_scores = show_scores
        self._copy_bytes = sum(keras.ops.convert_to_numpy(weight).nbytes for weight in model_copy.weights)
        self._thread = None
        self._error = None
        self._closed = threading.Event()

    # === What `fit` calls ===

    def on_train_begin(self, logs=None):
        self._closed.clear()
        self._error = None
        step = steps_made(self.model)
        scored = files.keep_records(self.path, step)
        for snapshot in self.path.parent.glob(self._snapshot("*").name):
            of_step = int(snapshot.name.removeprefix(f"{self.path.stem}-").split(".")[0])
            if of_step > step or of_step in scored:
                snapshot.unlink()
            else:
                self.model_copy.load_weights(snapshot)
                self._start(of_step, waited=0.0)

    def on_train_batch_begin(self, batch, logs=None):
        self._raise_error()

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every:
            return
        begin = time.perf_counter()
        self._wait()
        step = steps_made(self.model)
        with averaged_weights(self.model) if self.moving_average else contextlib.nullcontext():
            self._copy_weights()
        temporary = self.path.with_name("writing-" + self._snapshot(step).name)
        self.model_copy.save_weights(temporary)
        files.sync(temporary)
        os.replace(temporary, self._snapshot(step))
        self._start(step, waited=time.perf_counter() - begin)

    def on_train_end(self, logs=None):
        begin = time.perf_counter()
        self._wait()
        print(f"Waited {time.perf_counter() - begin:.1f} s for the last evaluation on the development set", flush=True)

    def close(self):
        """Gives up an evaluation that is under way, and returns when the thread has ended."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    # === The evaluation ===

    def _snapshot(self, step):
        return self.path.with_name(f"{self.path.stem}-{step}.weights.h5")

    def _copy_weights(self):
        ours, copies = self.model.weights, self.model_copy.weights
        if [tuple(weight.shape) for weight in ours] != [tuple(weight.shape) for weight in copies]:
            raise ValueError(
                "`model_copy` must have the weights of the model that is trained. "
                f"Received: {len(copies)} weights of other shapes than its {len(ours)}"
            )
        for copy, weight in zip(copies, ours, strict=True):
            copy.assign(keras.ops.convert_to_numpy(weight))

    def _start(self, step, waited):
        # No daemon, which could be in the middle of a computation when the process frees what that uses.
        self._thread = threading.Thread(target=self._run, args=(step, waited), name=f"evaluation of step {step}")
        self._thread.start()

    def _wait(self):
        if self._thread is not None:
            self._thread.join()
        self._raise_error()

    def _raise_error(self):
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self, step, waited):
        try:
            begin = time.perf_counter()
            hypotheses = []
            for start in range(0, len(self.sources), _SENTENCES):
                if self._closed.is_set():
                    return
                hypotheses += self.translate(self.sources[start : start + _SENTENCES])
            scores = self._evaluate(step, hypotheses)
            if self.show_scores is not None:
                self.show_scores(step, scores)
            times = {"seconds": time.perf_counter() - begin, "waited_seconds": waited}
            files.append_record(self.path, {"step": step, **scores, **times, "copy_bytes": self._copy_bytes})
            self._snapshot(step).unlink()
            print(
                f"\nDevelopment set at step {step:,}: "
                + "; ".join(f"{name} {value:.2f}" for name, value in scores.items())
                + f" ({times['seconds']:.1f} s in the background, training waited {waited:.1f} s, "
                f"{self._copy_bytes / 1e6:.1f} MB for a copy of the weights)",
                flush=True,
            )
        except BaseException as error:  # for the thread that trains
            self._error = error
