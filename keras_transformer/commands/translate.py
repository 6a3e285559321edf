"""`keras-transformer translate --model RUN_OR_EXPORT < source > translation`.

Exit status: 0; 1 if the model or the options are of no use (nothing has been read then), 130 after Ctrl-C (what is
written stays), 141 if whoever reads the output has left.
"""

import contextlib
import dataclasses
import itertools
import os
import signal
import socket
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Annotated

import tqdm
import tyro

from keras_transformer.commands import INTERRUPTED, PROGRAM, Float, Integer, option_name
from keras_transformer.commands.exported import load_export
from keras_transformer.data.corpora import NotTextError, text_start
from keras_transformer.files import exported_versions
from keras_transformer.start_up import start_tensorflow

# TensorFlow, which takes seconds to import, waits until the arguments are known to be right.

_BEAM = ("beam_size", "length_penalty")
_SAMPLING = ("temperature", "top_k", "top_p")
_LIMITS = ("max_extra_tokens", "max_source_tokens")
# All that ends a line for somebody, and the tab that separates fields.
_ONE_LINE = str.maketrans(dict.fromkeys("\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029", " "))
# Seconds that Ctrl-C leaves Python to end in order.
_PATIENCE = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translate:
    """Translate standard input to standard output, line by line.

    There are as many lines in the output as in the input, in the same order; a blank line stays blank. With --scores or
    --alignments, tabs separate the translation, its score and its word alignment. With --n-best above 1, there are as
    many output lines for each input line (fewer where the search finds fewer; one for a blank line), best first, in the
    form that Moses made common: "number ||| translation ||| log_probability= X ||| score", where the number counts
    input lines from 0, and " ||| alignment" follows with --alignments. A translation may hold bars itself; the other
    fields never do. What was cut, and bytes that are not UTF-8, are reported by line number on standard error at the
    end.

    Args:
        model: run directory of a recipe, finished or under way (or any folder that `Translator.save` wrote, a .keras
            file with its tokenizer beside it, or checkpoints); several make an ensemble, whose probabilities are
            averaged. Or one exported SavedModel, or a folder of its versions, in which search and limits are fixed.
        beam_size: live hypotheses of the beam search; 1 is greedy. The (first) run's, if it has one. Default: 4.
        length_penalty: alpha of the beam search's length penalty. The (first) run's, if it has one. Default: 0.6.
        temperature: draw samples, of the model's probabilities sharpened (below 1) or flattened (above), in place of
            the beam search. Default with another sampling option: 1.
        top_k: draw samples, of this many most probable tokens; 0 means all. Default with another sampling option: 0.
        top_p: draw samples, of the most probable tokens that have this probability together. Default with another
            sampling option: 1.
        seed: of the samples. Default: 0.
        n_best: translations of each line: the best of the beam, or so many samples.
        scores: write the score that translations are ranked by: the log-probability, in beam search divided by the
            length penalty.
        alignments: write the word alignment as "0-0 2-1": source word, target word, counted from 0.
        max_extra_tokens: longest translation, in tokens beyond the length of its source. The (first) run's, if it
            has one. Default: 50.
        max_source_tokens: tokens after which a line is cut. Default: 1024.
        chunk_lines: lines read, and sorted by length, before any is translated and written. With 1, each line is
            answered at once.
    """

    model: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PATH [PATH ...]")]
    beam_size: Integer = None
    length_penalty: Float = None
    temperature: Float = None
    top_k: Integer = None
    top_p: Float = None
    seed: Integer = None
    n_best: int = 1
    scores: bool = False
    alignments: bool = False
    max_extra_tokens: Integer = None
    max_source_tokens: Integer = None
    chunk_lines: int = 2048

    def __call__(self):
        """Load and run, or end the process with a word on standard error."""
        with _ends_soon_after_ctrl_c():
            try:
                loaded = self.load()
            except (ValueError, OSError) as error:
                sys.exit(f"{PROGRAM}: error: {error}")
            try:
                self.run(*loaded)
            except NotTextError as error:
                sys.exit(f"{PROGRAM}: error: {error}")

    # === The model ===

    def load(self):
        """A function `(sentences, on_progress)` to lists of hypotheses, and its limit on sentences, in words.

        Raises:
            ValueError, OSError: if the options contradict each other or the model. Nothing has been read then.
        """
        for name in ("n_best", "chunk_lines"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{option_name(name)}` must be positive. Received: {getattr(self, name)}")
        if not self.model:
            raise ValueError("`--model` must name a run directory or an export. Received: nothing")
        exports = [str(versions[max(versions)]) for path in self.model if (versions := exported_versions(path))]
        if not exports:
            return self._load_runs()
        if len(self.model) > 1:
            raise ValueError(f"An ensemble needs run directories. Received: exports {', '.join(exports)}")
        fixed = self._given(*_BEAM, *_SAMPLING, "seed", *_LIMITS)
        if fixed:
            raise ValueError(
                f"An export translates in the way that it was made for; options need the run directory. "
                f"Received: {', '.join(map(option_name, fixed))} with {exports[0]}"
            )
        wanted = {"n_best": self.n_best, "scores": self.scores, "alignments": self.alignments}
        return load_export(exports[0], **wanted), "the export's limit"

    def _load_runs(self):
        beam, sampling, limits = self._given(*_BEAM), self._given(*_SAMPLING), self._given(*_LIMITS)
        if beam and sampling:
            raise ValueError(
                "Samples are drawn without a beam. Received: " + " and ".join(map(option_name, {**beam, **sampling}))
            )
        if self.seed is not None and not sampling:
            raise ValueError("`--seed` needs one of " + ", ".join(map(option_name, _SAMPLING)))

        start_tensorflow()
        from keras_transformer.decoding import Sampling
        from keras_transformer.pretrained import Pretrained
        from keras_transformer.translation.translator import Translator

        if sampling:
            search = Sampling(**sampling, num_hypotheses=self.n_best)
        else:
            search = Pretrained(self.model[0]).beam_search(num_hypotheses=1, **beam)
            if self.n_best > search.beam_size:
                raise ValueError(
                    "`--n-best` must be at most `--beam-size`. "
                    f"Received: --n-best {self.n_best} with --beam-size {search.beam_size}"
                )
            search = dataclasses.replace(search, num_hypotheses=self.n_best)
        translator = Translator.load(*self.model, search=search, **limits)

        def run(sentences, on_progress):
            with warnings.catch_warnings():
                # It counts within a chunk; the lines are reported at the end.
                warnings.filterwarnings("ignore", r"Cut \d+ of \d+ sentences")
                return translator.hypotheses(
                    sentences, return_alignments=self.alignments, on_progress=on_progress, **self._given("seed")
                )

        return run, f"{translator.max_source_tokens} tokens"

    def _given(self, *names):
        """Those of the options that were given, by name."""
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    # === The lines ===

    def run(self, hypotheses_of, limit):
        """Translate; takes what `load` returns."""
        notes = _Notes()
        try:
            with _progress_bar() as progress:
                lines = enumerate(_lines_of(sys.stdin.buffer), 1)
                while chunk := list(itertools.islice(lines, self.chunk_lines)):
                    sentences = [_decode(line, number, notes) for number, line in chunk]
                    # The loop variable's value of now: `update` takes what is new.
                    results = hypotheses_of(
                        sentences, lambda num_done, before=progress.n: progress.update(before + num_done - progress.n)
                    )
                    for (number, _), hypotheses in zip(chunk, results, strict=True):
                        if hypotheses[0].truncated:
                            notes.add(f"source longer than {limit}, cut there", number)
                        if any(hypothesis.text and not hypothesis.finished for hypothesis in hypotheses):
                            notes.add("translation cut at its limit, see --max-extra-tokens", number)
                        sys.stdout.buffer.write(self._format(number, hypotheses).encode("utf-8"))
                    sys.stdout.buffer.flush()
        except KeyboardInterrupt:
            notes.report()
            raise
        notes.report()

    def _format(self, number, hypotheses):
        """The output for the input line of that number, counted from 1."""
        rows = []
        for hypothesis in hypotheses:
            fields = [hypothesis.text.translate(_ONE_LINE)]
            if self.n_best > 1:
                fields = [f"{number - 1}", *fields, f"log_probability= {hypothesis.log_probability:.6f}"]
            if self.scores or self.n_best > 1:
                fields.append(f"{hypothesis.score:.6f}")
            if self.alignments:
                fields.append(" ".join(f"{source}-{target}" for source, target in hypothesis.alignment))
            rows.append((" ||| " if self.n_best > 1 else "\t").join(fields) + "\n")
        return "".join(rows)


class _Notes:
    """What the user should know of single lines, reported on standard error, the first line numbers with it."""

    _NUM_SHOWN = 10

    def __init__(self):
        self._numbers = {}

    def add(self, what, number):
        self._numbers.setdefault(what, []).append(number)

    def report(self):
        for what, numbers in self._numbers.items():
            shown = ", ".join(map(str, numbers[: self._NUM_SHOWN])) + (
                ", ..." if len(numbers) > self._NUM_SHOWN else ""
            )
            count = f"{len(numbers)} lines" if len(numbers) > 1 else "1 line"
            print(f"{PROGRAM}: {what}: {count} ({shown})", file=sys.stderr)


def _lines_of(stream):
    """The lines of standard input, past a byte order mark.

    Raises:
        NotTextError: if it is no UTF-8 text.
    """
    for first in itertools.islice(stream, 1):
        yield text_start("Standard input", first, "one")
    yield from stream


def _decode(line, number, notes):
    line = line.rstrip(b"\r\n")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        notes.add("invalid UTF-8, read as U+FFFD", number)
        return line.decode("utf-8", errors="replace")


def _progress_bar():
    """A bar on standard error if that is a terminal, and if no translations would get in its way there."""
    visible = sys.stderr.isatty() and not sys.stdout.isatty()
    num_lines = None
    if visible and sys.stdin.buffer.seekable() and not sys.stdin.isatty():
        start = sys.stdin.buffer.tell()
        num_lines = sum(1 for _ in sys.stdin.buffer)
        sys.stdin.buffer.seek(start)
    return tqdm.tqdm(total=num_lines, unit=" lines", disable=not visible)


@contextlib.contextmanager
def _ends_soon_after_ctrl_c():
    """Within it, Ctrl-C ends the process even while TensorFlow computes, for which Python would wait (seconds)."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def wait():
        with reader:
            if reader.recv(1):
                time.sleep(_PATIENCE)
                os._exit(INTERRUPTED)

    threading.Thread(target=wait, daemon=True).start()
    before = signal.set_wakeup_fd(writer.fileno())
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writer.close()  # which ends the thread
