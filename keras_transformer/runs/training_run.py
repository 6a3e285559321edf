"""One training run on disk, from the first step to the export: who writes what, and when."""

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from keras_transformer.data.batches import Batches
from keras_transformer.decoding import BeamSearch
from keras_transformer.files import (
    CHECKPOINTS_FOLDER,
    CONFIG_FILE,
    EXPORT_FOLDER,
    LOGS_FOLDER,
    METRICS_FILE,
    PICTURE_FILE,
    RESULTS_FILE,
    TOKENIZER_FILE,
    TOKENS_FOLDER,
    TRANSLATIONS_FILE,
    FolderLock,
    empty_folder,
    write_text,
)
from keras_transformer.runs import hosts
from keras_transformer.runs.callbacks import MetricsLog, TranslationScores, go_on_without
from keras_transformer.runs.checkpoints import CheckpointEvery, Checkpoints
from keras_transformer.runs.report import plot_metrics
from keras_transformer.runs.resuming import ResumeEpoch
from keras_transformer.runs.settings import RunSettings
from keras_transformer.runs.tensorboard import TensorBoardLog
from keras_transformer.saved_model.writer import write_saved_model
from keras_transformer.training.checkpoint_average import average_checkpoints
from keras_transformer.training.distribution import TrainingModel
from keras_transformer.training.early_stopping import EarlyStopping
from keras_transformer.training.moving_average import EvaluateAveragedWeights, averaged_weights
from keras_transformer.translation.translator import Translator

_NUM_EXAMPLES = 5
# All that a run holds before it trains.
_PREPARED = {CONFIG_FILE, TOKENIZER_FILE, TOKENS_FOLDER}
# Logs of an evaluation that only the chief of several workers computes.
_CHIEF_SCORES = ("val_bleu", "val_chrf")


class TrainingRun:
    """Owns the directory of one run: its configuration, checkpoints, logs, results and export.

    In this order: `open` (on the chief), `fit`, `finish` (on the chief), `close`, which a `with` statement does. A run
    that was stopped goes on where it was, to the bit on a CPU, when it is opened with `resume`.

    Args:
        directory: the run's folder.
        settings: `RunSettings`.

    Attributes:
        directory: the folder, a `pathlib.Path`.
        checkpoints: the `Checkpoints` of the model, after `fit` has begun.

    Raises:
        ValueError: if the settings cannot work.
    """

    def __init__(self, directory: str | Path, settings: RunSettings):
        settings.check()
        self.directory = Path(directory)
        self.settings = settings
        self.checkpoints = None
        self._start = time.perf_counter()
        self._lock = None

    def open(
        self,
        config: Mapping,
        *,
        resume: bool = False,
        overwrite: bool = False,
        defaults: Mapping | None = None,
    ) -> None:
        """Make the run directory, or check that the run in it can go on; own it from now on.

        A run that ended before its first checkpoint loses nothing: it is begun anew unasked.

        Args:
            config: JSON data, the settings that make the run what it is; only `train_steps` may change on resume.
            resume: go on with the run that is there.
            overwrite: delete the run that is there.
            defaults: what stands for settings that an older run does not know.

        Raises:
            FileExistsError: if there is something and neither `resume` nor `overwrite` fits.
            FileNotFoundError: if `resume` finds no run.
            BlockingIOError: if another process is at work in the directory.
            ValueError: if the run to resume has another configuration.
        """
        path, made = self.directory / CONFIG_FILE, self.directory.exists()
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = self._lock or FolderLock(self.directory)
            if resume:
                _check_same_settings(path, config, defaults or {})
            elif any(self.directory.iterdir()):
                self._make_room(config, overwrite, path.is_file())
        except Exception:
            self.close()
            if not made:
                self.directory.rmdir()
            raise
        write_text(path, json.dumps(config, indent=2) + "\n")

    def close(self) -> None:
        """Give the directory up, for other processes, or another `TrainingRun` of this one."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def _make_room(self, config, overwrite, is_run):
        """Empty the directory, if that is asked for or loses nothing."""
        if overwrite and not is_run:
            raise FileExistsError(f"--overwrite deletes runs only, and {self.directory} holds none")
        saved = json.loads((self.directory / CONFIG_FILE).read_text("utf-8")) if is_run else {}
        only_prepared = "train_steps" in saved and {path.name for path in self.directory.iterdir()} <= _PREPARED
        if not overwrite and not only_prepared:
            raise FileExistsError(
                f"run_directory {self.directory} is not empty: pass --resume to go on with the run in it, "
                "--overwrite to delete it, or another --run-directory"
            )
        if overwrite or saved != config:  # else what was prepared of the text is of use
            empty_folder(self.directory)

    # === Training ===

    def fit(
        self,
        training: TrainingModel,
        translator: Translator,
        train_batches: Batches,
        dev_batches: Batches,
        dev_pairs: Sequence[tuple[str, str]],
        scorers: Mapping[str, Callable],
        unchanging: Mapping,
    ) -> None:
        """Train from the last checkpoint, if there is one, to the end.

        Args:
            training: the compiled model.
            translator: a `Translator` of the same weights; the development set is translated greedily with it.
            train_batches, dev_batches: what is trained on, and what the loss of the development set is computed of.
            dev_pairs: the development set; so many are translated as the settings say.
            scorers: callables `(hypotheses, references)` to a `Score`, by name: `"bleu"` is logged as `"val_bleu"`.
            unchanging: JSON data that must be the same when the run goes on, such as a hash of the text.

        Raises:
            ValueError: if the run has made more steps than it is to make.
            TrainingInterrupted: when a signal has stopped it; its state is saved.
        """
        settings, strategy = self.settings, training.distribute_strategy
        log, early_stopping = MetricsLog(self.directory / METRICS_FILE), self._early_stopping()
        parts = {"log": log} | ({} if early_stopping is None else {"early_stopping": early_stopping})
        config = {"model": translator.model.get_config(), "data": dict(unchanging)}
        self.checkpoints = self._checkpoints(training, config, parts)
        step = self.checkpoints.restore_latest()
        hosts.check_same(strategy, step=step, data=config["data"])
        if step > settings.train_steps:
            raise ValueError(
                "train_steps must not be below the step that the run has reached. "
                f"Received: train_steps={settings.train_steps}, a run at step {step}"
            )
        if step:
            print(f"Resuming after step {step:,}")
        scores = (translator, dev_pairs[: settings.dev_bleu_sentences], scorers)
        callbacks = self._callbacks(training, log, early_stopping, scores)
        epoch, epochs = step // settings.evaluation_steps, settings.train_steps // settings.evaluation_steps
        if early_stopping is not None and early_stopping.stopped:
            epochs = epoch
        training.fit(
            hosts.share_rows(train_batches.dataset(start_step=step), strategy),
            validation_data=hosts.share_rows(dev_batches.dataset(repeat=False), strategy),
            validation_steps=dev_batches.num_batches(),
            initial_epoch=epoch,
            epochs=epochs,
            steps_per_epoch=settings.evaluation_steps,
            shuffle=False,  # the batches come shuffled
            callbacks=callbacks,
            verbose=1 if sys.stdout.isatty() else 2,
        )
        if early_stopping is not None and early_stopping.stopped:
            best, where = early_stopping.best, early_stopping.best_step
            print(f"Stopped early: {settings.monitor} was best, {best:.4g}, at {where:,}")

    def _early_stopping(self):
        settings = self.settings
        if settings.early_stopping is None:
            return None
        return EarlyStopping(settings.monitor, mode=settings.monitor_mode, patience=settings.early_stopping)

    def _checkpoints(self, training, config, parts):
        settings = self.settings
        return Checkpoints(
            self.directory / CHECKPOINTS_FOLDER,
            training,
            max_to_keep=settings.checkpoints_to_keep,
            best_to_keep=settings.best_checkpoints_to_keep,
            monitor=settings.monitor,
            mode=settings.monitor_mode,
            config=config,
            parts=parts,
            write=hosts.is_chief(training.distribute_strategy),
        )

    def _callbacks(self, training, log, early_stopping, scores):
        """The callbacks of `fit`, in the order in which each needs what those before it have done."""
        settings, strategy = self.settings, training.distribute_strategy
        is_chief = hosts.is_chief(strategy)  # of several workers the one that writes
        tensorboard = TensorBoardLog(self.directory / LOGS_FOLDER) if is_chief else None
        callbacks = [
            ResumeEpoch(self.checkpoints, settings.evaluation_steps),  # which steps the epoch has
            EvaluateAveragedWeights() if settings.average == "moving" else None,
            self._scores(training, tensorboard, *scores) if is_chief else None,  # writes scores into the logs
            log if is_chief else None,  # reads them, and adds tokens a second
            tensorboard,
            hosts.ChiefLogs(strategy, _CHIEF_SCORES),  # gives them to the other workers
            early_stopping,  # decides by them
            # With all logs of the epoch, and the state of all of the above.
            CheckpointEvery(self.checkpoints, steps=settings.checkpoint_steps, seconds=settings.checkpoint_seconds),
            hosts.FirstStepTime(),
            hosts.StopOnSignalAnywhere(self.checkpoints, strategy),  # leaves when all is written
        ]
        return [callback for callback in callbacks if callback is not None]

    def _scores(self, training, tensorboard, translator, pairs, scorers):
        """The callback that translates the development set and scores it: greedily, since training waits."""
        greedy = Translator(
            translator.model,
            translator.tokenizer,
            search=BeamSearch(beam_size=1),
            max_extra_tokens=translator.max_extra_tokens,
        )

        def translate(sentences):
            with averaged_weights(training) if self.settings.average == "moving" else contextlib.nullcontext():
                return greedy.translate(sentences)

        sources, references = zip(*pairs, strict=True)
        return TranslationScores(
            translate,
            sources,
            references,
            {f"val_{name}": scorer for name, scorer in scorers.items()},
            num_examples=_NUM_EXAMPLES,
            show_examples=tensorboard.write_examples,
        )

    # === The end ===

    def finish(
        self,
        training: TrainingModel,
        translator: Translator,
        test_pairs: Sequence[tuple[str, str]],
        scorers: Mapping[str, Callable],
        *,
        title: str = "",
    ) -> dict:
        """Average the weights, save the model, score the test set, export, and then show what came of it.

        Args:
            training, translator: as for `fit`.
            test_pairs: the test set.
            scorers: as for `fit`; `"bleu"` becomes `"test_bleu"` in the results.
            title: of the picture.

        Returns:
            What `results.json` holds.
        """
        self._average_weights(training)
        translator.save(self.directory)
        hypotheses, results, scores = self._test(translator, test_pairs, scorers)
        export = self.directory / EXPORT_FOLDER / "1"
        if export.exists():  # of an earlier end of this same run
            shutil.rmtree(export)
        config = json.loads((self.directory / CONFIG_FILE).read_text("utf-8"))
        write_saved_model(translator, export, training=config, evaluation=results)
        parameters = translator.model.count_params()
        results |= {"parameters": parameters, "export": str(export), "train_steps": self.checkpoints.step}
        results["seconds"] = time.perf_counter() - self._start
        write_text(self.directory / RESULTS_FILE, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
        # All is on the disk; what follows may fail.
        self._draw(title)
        for (source, reference), hypothesis in list(zip(test_pairs, hypotheses, strict=True))[:_NUM_EXAMPLES]:
            print(f"\n  source       {source}\n  reference    {reference}\n  translation  {hypothesis}")
        print("", *(f"Test {score}" for score in scores), sep="\n")
        return results

    def _average_weights(self, training):
        """Give the model the weights that it is to end with."""
        settings = self.settings
        if settings.average == "moving":
            training.optimizer.finalize_variable_values(training.trainable_weights)
            return
        best = {"monitor": settings.monitor, "mode": settings.monitor_mode} if settings.average == "best" else {}
        average_checkpoints(self.checkpoints.directory, training, count=settings.average_checkpoints, **best)

    def _draw(self, title):
        """Draw the curves of the run, if there is something to draw with."""
        path = self.directory / PICTURE_FILE
        with go_on_without("The picture of the curves"):
            try:
                plot_metrics([self.directory / METRICS_FILE], path, title)
                print(f"Curves: {path}")
            except ImportError:
                print("For a picture of the curves: pip install 'keras-transformer-translation[plots]'")

    def _test(self, translator, pairs, scorers):
        """Translate the test set and write the translations; these, what goes into the results, and the scores."""
        sources, references = zip(*pairs, strict=True)
        start = time.perf_counter()
        hypotheses = translator.translate(sources)
        seconds = time.perf_counter() - start
        lines = "".join(hypothesis.replace("\n", " ") + "\n" for hypothesis in hypotheses)
        write_text(self.directory / TRANSLATIONS_FILE, lines)
        scores = {}
        for name, scorer in scorers.items():
            with go_on_without(f"The test set's {name}"):
                scores[name] = scorer(hypotheses, references)
        results = {f"test_{name}": score.value for name, score in scores.items()}
        results |= {f"test_{name}_signature": score.signature for name, score in scores.items()}
        results |= {"test_sentences": len(sources), "test_sentences_per_second": len(sources) / seconds}
        return hypotheses, results, list(scores.values())


def _check_same_settings(path, config, defaults):
    """Raise an error unless the run whose configuration lies at `path` may go on with `config`."""
    if not path.is_file():
        raise FileNotFoundError(f"--resume needs a run in run_directory. Received: {path.parent}, no run")
    saved = {**defaults, **json.loads(path.read_text("utf-8"))}
    different = [name for name in config if name != "train_steps" and saved[name] != config[name]]
    if different:
        changes = ", ".join(f"{name} was {saved[name]!r}, now {config[name]!r}" for name in different)
        raise ValueError(f"--resume needs the settings of the run (only train_steps may change): {changes}")
