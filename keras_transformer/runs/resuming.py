"""Keras callbacks for runs that are stopped and go on later: end in order at a signal, and finish a begun epoch."""

import signal

import keras


class TrainingInterrupted(Exception):  # noqa: N818 - nothing went wrong
    """Training ended early because a signal asked for it; its state is saved.

    Attributes:
        signal: name of the signal, such as `"SIGTERM"`.
        step: how many steps were made.
        path: path of the checkpoint.
    """

    def __init__(self, signal, step, path):
        super().__init__(f"training was stopped by {signal} after step {step} and saved as {path}")
        self.signal = signal
        self.step = step
        self.path = path


class StopOnSignal(keras.callbacks.Callback):
    """Saves and leaves `fit` when the process is asked to stop.

    At the end of the running step a temporary checkpoint is saved, and `fit` is left by a `TrainingInterrupted`: no
    evaluation follows, since whoever sends SIGTERM does not wait for long. A signal during the evaluation at the end
    of an epoch takes effect when that is over, so that its results are in the log and belong to a checkpoint.

    A signal counts once: the same one a second time does what it did before, so a second Ctrl+C stops at once.

    `fit` must run in the main thread, since only there can Python receive signals.

    Args:
        checkpoints: a `Checkpoints` of the model that is trained.
        signals: the signals to listen to. Defaults to SIGTERM, SIGINT (Ctrl+C) and SIGHUP (the terminal is gone), the
            last unless the process ignores it, as under `nohup`.
    """

    def __init__(self, checkpoints, *, signals=(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
        super().__init__()
        self.checkpoints = checkpoints
        self.signals = tuple(signals)
        self._previous = {}
        self._received = None

    def on_train_begin(self, logs=None):
        self._stop_listening()  # of a fit that an error has ended
        self._received = None
        for number in self.signals:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            # None stands for a handler that was not set from Python and cannot be set from here.
            self._previous[number] = signal.signal(number, self._receive) or signal.SIG_DFL

    def _receive(self, number, frame):
        self._received = signal.Signals(number).name
        signal.signal(number, self._previous.pop(number))

    # At the beginning of a batch, not at the end of the one before: Keras may call the latter late.
    def on_train_batch_begin(self, batch, logs=None):
        self._stop_if_asked()

    def on_epoch_end(self, epoch, logs=None):
        self._stop_if_asked()

    def _stop_if_asked(self):
        if self._received is not None:
            path = self.checkpoints.save(temporary=True)
            self._stop_listening()
            raise TrainingInterrupted(self._received, self.checkpoints.step, path)

    def on_train_end(self, logs=None):
        self._stop_if_asked()  # while another callback waited for something
        self._stop_listening()

    def _stop_listening(self):
        while self._previous:
            signal.signal(*self._previous.popitem())


class ResumeEpoch(keras.callbacks.Callback):
    """Lets `fit` finish an epoch that an earlier process has begun, as if it had never stopped.

    The epoch ends at the step at which it would have ended, and its metrics go on from where they were saved. Steps
    are counted in batches, so that a skipped step, which is no update of the optimizer, moves neither the end of an
    epoch nor the data. `fit` is given data that begins at the restored step:

        step = checkpoints.restore_latest()
        model.fit(
            batches.dataset(start_step=step),
            initial_epoch=step // steps_per_epoch,
            epochs=train_steps // steps_per_epoch,
            steps_per_epoch=steps_per_epoch,
            callbacks=[ResumeEpoch(checkpoints, steps_per_epoch), ...],
        )

    Make it after the restore.

    Args:
        checkpoints: the `Checkpoints` from which the model was restored.
        steps_per_epoch: length of every epoch.

    Raises:
        ValueError: when `steps_per_epoch` is not positive.
    """

    def __init__(self, checkpoints, steps_per_epoch):
        super().__init__()
        if steps_per_epoch < 1:
            raise ValueError(f"`steps_per_epoch` must be positive. Received: steps_per_epoch={steps_per_epoch!r}")
        self.checkpoints = checkpoints
        self.steps_per_epoch = steps_per_epoch
        self._begin = self._end = checkpoints.step
        self._rest = -self._begin % steps_per_epoch
        # Where a second batch follows, its beginning is early enough to be called after the first step. Else its end
        # has to be, and Keras must not call it late.
        self.async_safe = self._rest != 1

    def on_epoch_begin(self, epoch, logs=None):
        self._begin = self._end = self.checkpoints.step
        self._rest = -self._begin % self.steps_per_epoch

    def on_train_batch_begin(self, batch, logs=None):
        self.checkpoints.batches = self._begin + batch
        self._end = self._begin + batch + self.model.steps_per_execution
        if not self._rest:
            return
        if batch > 0:
            self.checkpoints.add_metrics()
        if self._end >= self._begin + self._rest:
            self.model.stop_training = True  # looked at after the step: this one is the epoch's last

    def on_train_batch_end(self, batch, logs=None):
        if self._rest and not self.async_safe:
            self.checkpoints.add_metrics()

    def on_epoch_end(self, epoch, logs=None):
        self.checkpoints.batches = self._end
        if self._rest:
            self.model.stop_training = False
            self._rest = 0
