"""From text to text: the model, the tokenizer and the search together."""

import functools
import os
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.data.tokenizers import Tokenizer
from keras_transformer.decoding import Search
from keras_transformer.files import MODEL_FILE, TOKENIZER_FILE, replaced
from keras_transformer.translation.batching import (
    MAX_BATCH_TOKENS,
    MAX_SCORED_TOKENS,
    Graphs,
    max_batch_rows,
    ragged,
    run_by_length,
)
from keras_transformer.translation.pipeline import Pipeline
from keras_transformer.vocabulary import END_ID, PAD_ID, START_ID

# What ids are padded to under XLA, which takes seconds to compile for each new shape.
_XLA_MULTIPLE = 32


class Hypothesis(NamedTuple):
    """One translation of a sentence."""

    text: str
    ids: tuple[int, ...]  # the tokens, the end id last if it was reached
    log_probability: float  # sum over the tokens, the end id's included
    score: float  # what hypotheses are ranked by: length-normalised in beam search
    finished: bool  # False if the limit on its length cut it off
    truncated: bool  # True if the source was longer than the limit and was cut
    attention: np.ndarray | None  # [tokens, source tokens with the end mark], if asked for
    alignment: tuple[tuple[int, int], ...] | None  # pairs (source word, target word), counted from 0, if asked for


class TargetScore(NamedTuple):
    """What the model says of a given translation."""

    ids: tuple[int, ...]
    token_log_probabilities: np.ndarray  # one for each id
    log_probability: float  # their sum
    perplexity: float  # exp(-mean)


def _of_pipeline(name, description):
    return property(lambda self: getattr(self.pipeline, name), doc=description)


class Translator:
    """Translate text with a trained `Transformer`; this object is also what `write_saved_model` exports.

    Training-time BLEU, `translate` and the served graph run one `Pipeline`, so they cannot disagree. A sentence's
    translation does not depend on what it is translated together with. Text may be anything: bytes that are not valid
    UTF-8 become U+FFFD, white space of any kind counts as a blank, and a blank sentence translates to "".

    Args:
        model: a `Transformer`, or any model with its `encode`, `start_decoding`, `decode_step` and call; an
            `Ensemble` of several, or a list of models that one is made of.
        tokenizer: the `Tokenizer` the model was trained with. Build it after any call of
            `keras.utils.set_random_seed`, which destroys tokenizers that are already in the graph.
        search: a `decoding.BeamSearch` or `decoding.Sampling`. Defaults to `BeamSearch()`, which has the paper's
            beam of 4 and length penalty 0.6; `BeamSearch(beam_size=1)` is greedy.
        max_extra_tokens: a translation has at most as many tokens as the source (or the prefix, if that is longer)
            and this many more, the end mark not counted. Defaults to 50 (paper, section 6.1).
        max_target_tokens: absolute limit, the end mark not counted. Defaults to `None`, no such limit.
        max_source_tokens: a longer source is cut there, and its translation flagged as `truncated`. The end mark is
            not counted. Defaults to 1024, which bounds the time and memory of a request.
        jit_compile: whether the Python methods compile the search with XLA: several seconds for each new size of
            batch, then about twice the speed on single sentences (and no gain on batches). Defaults to `False`. The
            exported graph never uses XLA, which TensorFlow Serving switches off.

    Raises:
        ValueError: if the model's vocabulary does not fit the tokenizer's, or a limit is out of its range.
    """

    def __init__(
        self,
        model,
        tokenizer: Tokenizer,
        *,
        search: Search | None = None,
        max_extra_tokens: int = 50,
        max_target_tokens: int | None = None,
        max_source_tokens: int = 1024,
        jit_compile: bool = False,
    ):
        self.pipeline = Pipeline(
            model,
            tokenizer,
            search=search,
            max_extra_tokens=max_extra_tokens,
            max_target_tokens=max_target_tokens,
            max_source_tokens=max_source_tokens,
        )
        self.jit_compile = jit_compile
        self._graphs = Graphs()

    model = _of_pipeline("model", "The model, or the `Ensemble`.")
    tokenizer = _of_pipeline("tokenizer", "The tokenizer.")
    search = _of_pipeline("search", "The search, where no other is asked for.")
    max_extra_tokens = _of_pipeline("max_extra_tokens", "The limit on a translation beyond the length of its source.")
    max_target_tokens = _of_pipeline("max_target_tokens", "The limit on a translation that learned positions leave.")
    max_source_tokens = _of_pipeline("max_source_tokens", "The limit on a source that learned positions leave.")

    def translate(self, sentences: Sequence[str], **arguments) -> list[str]:
        """Translate sentences; the best hypothesis of each.

        Args:
            sentences: list of strings, in any order and of any length.
            arguments: as for `hypotheses`.

        Returns:
            List of as many strings, in the same order.

        Raises:
            TypeError: if `sentences` is a single string.
        """
        return [hypotheses[0].text for hypotheses in self.hypotheses(sentences, **arguments)]

    def hypotheses(
        self,
        sentences: Sequence[str],
        *,
        prefixes: Sequence | None = None,
        constraints: Sequence | None = None,
        search: Search | None = None,
        seed: int = 0,
        return_alignments: bool = False,
        attention_layer: int = -2,
        attention_head: int | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Translate sentences, with all that the search knows of its results.

        Args:
            sentences: list of strings. Warns of those longer than `max_source_tokens`, which are cut.
            prefixes: for each sentence, how its translation must begin: a string, a list of ids, or None.
            constraints: for each sentence, a list of strings (or lists of ids) that must appear in its translation, in
                any order. Needs a `BeamSearch`.
            search: in place of the translator's own.
            seed: of `Sampling`. The samples of a sentence depend on this number and on the sentence alone, so that
                equal sentences get equal samples.
            return_alignments: whether to compute `attention` and `alignment`, which takes one more pass of the model.
            attention_layer: decoder layer whose cross-attention is returned. Defaults to -2, the last but one, which
                aligns best (Garg et al., 2019, https://arxiv.org/abs/1909.02074); a decoder of one layer has only
                that.
            attention_head: number of the head, or `None` (default) for the mean of all.
            on_progress: called with the number of sentences done, after each batch.

        Returns:
            For each sentence a list of `num_hypotheses` `Hypothesis`, best first; fewer where a search found fewer.
            A blank sentence has a single empty one (samples: as many as others).

        Raises:
            TypeError: if `sentences` is not a list of strings.
            FloatingPointError: if the model's logits are not finite.
            ValueError: if another argument does not have one entry for each sentence, or a prefix or constraint holds
                ids that mark padding, start or end, or lie outside of the vocabulary.
        """
        sentences = _checked_texts("sentences", sentences)
        search = self.search if search is None else search
        if return_alignments:
            attention_layer = self.pipeline.attention_layer(attention_layer)
        sources = self.tokenizer.encode(sentences)
        prefixes = [self._target_ids("prefixes", prefix) for prefix in _per_sentence("prefixes", prefixes, sources)]
        constraints = [self._phrases(phrases) for phrases in _per_sentence("constraints", constraints, sources)]
        if any(constraints):
            search = search.containing(max(sum(map(len, phrases)) for phrases in constraints))
        truncated = [len(source) > self.max_source_tokens for source in sources]
        self._warn_of_cuts(truncated)
        sources = [source[: self.max_source_tokens] for source in sources]
        results = self._search(search, (sources, prefixes, constraints), seed, on_progress)
        if return_alignments:
            self._add_alignments(sources, results, attention_layer, attention_head)
        return [
            [hypothesis._replace(truncated=is_cut) for hypothesis in hypotheses]
            for is_cut, hypotheses in zip(truncated, results, strict=True)
        ]

    def _warn_of_cuts(self, truncated):
        """Warn of the sentences that are cut, by number."""
        numbers = [str(number) for number, is_cut in enumerate(truncated, 1) if is_cut]
        if numbers:
            warnings.warn(
                f"Cut {len(numbers)} of {len(truncated)} sentences to `max_source_tokens`={self.max_source_tokens}: "
                f"number {', '.join(numbers[:10])}{', ...' if len(numbers) > 10 else ''}",
                stacklevel=3,
            )

    def score(self, sentences: Sequence[str], targets: Sequence) -> list[TargetScore]:
        """Score given translations, by running the model on them (forced decoding).

        Args:
            sentences: list of strings.
            targets: for each a string, or a list of ids such as `Hypothesis.ids`. A string is tokenized and gets the
                end mark; ids are taken as they are, so that a hypothesis gets its own `log_probability` again.

        Returns:
            List of `TargetScore`.

        Raises:
            TypeError, ValueError: as for `hypotheses`; also if a side is longer than learned positions.
        """
        sentences = _checked_texts("sentences", sentences)
        sources = [[*ids, END_ID] for ids in self.tokenizer.encode(sentences)]
        targets = [
            [*self.tokenizer.encode([target])[0], END_ID] if isinstance(target, str) else [int(id) for id in target]
            for target in _per_sentence("targets", targets, sources)
        ]
        limit = self.model.max_length
        for side, rows in (("sentences", sources), ("targets", targets)):
            for index, ids in enumerate(rows):
                if limit is not None and len(ids) > limit:
                    raise ValueError(
                        f"`{side}` must fit the model's {limit} learned positions, end mark included. "
                        f"Received: {len(ids)} tokens in number {index + 1}"
                    )

        def score_batch(rows):
            wanted = [targets[row] for row in rows]
            inputs = {"sources": ragged([sources[row] for row in rows]), "targets": ragged(wanted)}
            return map(_target_score, wanted, self._graphs.run("score", self._score_rows, inputs))

        lengths = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
        return run_by_length(score_batch, lengths, MAX_SCORED_TOKENS)

    def _target_ids(self, name, text):
        """Ids of a prefix or a phrase."""
        if text is None:
            return []
        ids = self.tokenizer.encode([text])[0] if isinstance(text, str) else [int(token) for token in text]
        if any(token in (PAD_ID, START_ID, END_ID) or not 0 <= token < self.tokenizer.vocabulary_size for token in ids):
            raise ValueError(
                f"`{name}` must hold ids of the vocabulary other than padding, start and end. Received: {ids}"
            )
        return ids

    def _phrases(self, phrases):
        """Ids of what one translation must contain."""
        return [ids for phrase in phrases or () if (ids := self._target_ids("constraints", phrase))]

    def _search(self, search, columns, seed, on_progress):
        """Hypotheses of all rows of the columns: sources, prefixes and constraints, as ids."""

        def run(rows):
            return self._search_batch(search, *([column[row] for row in rows] for column in columns), seed)

        lengths = [len(source) + 1 for source in columns[0]]
        return run_by_length(run, lengths, MAX_BATCH_TOKENS, max_batch_rows(search), on_progress)

    def _search_batch(self, search, sources, prefixes, constraints, seed):
        """Hypotheses of each row of one batch, given as ids."""
        num_rows, multiple, max_length = len(sources), {}, None
        if self.jit_compile:
            multiple = {"multiple": _XLA_MULTIPLE}
            longest = max(map(len, [*sources, *prefixes])) + self.max_extra_tokens + 1
            max_length = -(-longest // _XLA_MULTIPLE) * _XLA_MULTIPLE
            blank = [[]] * ((1 << (num_rows - 1).bit_length()) - num_rows)
            sources, prefixes, constraints = sources + blank, prefixes + blank, constraints + blank
        inputs = {"sources": ragged(sources)}
        if any(prefixes):
            inputs["prefixes"] = ragged(prefixes)
        if any(constraints):
            inputs["constraint_ids"] = tf.ragged.constant(constraints, "int32", ragged_rank=2).to_tensor(PAD_ID)
        if search.needs_seeds:
            hashes = [zlib.crc32(np.array(source, "int32").tobytes()) for source in sources]
            seeds = np.array([[seed & 0xFFFFFFFF, number] for number in hashes], "uint32")
            inputs["seeds"] = tf.constant(seeds.view("int32"))

        def run(sources, prefixes=None, **arguments):
            search_ids = functools.partial(self.pipeline.search_ids, search=search, max_length=max_length)
            if self.jit_compile:
                search_ids = tf.function(search_ids, autograph=False, jit_compile=True)
            if prefixes is not None:
                arguments["prefix_ids"] = self.pipeline.padded(prefixes, **multiple)
            return search_ids(self.pipeline.padded(sources, **multiple, end_mark=True), **arguments)

        result = self._graphs.run((search, max_length, *inputs), run, inputs)
        if (result.scores[:num_rows, 0] == -np.inf).any():  # constraints that cannot be met, or
            self._check_logits(sources[:num_rows])
        return [
            [
                self._hypothesis(*(part[row, place] for part in result))
                for place in range(result.scores.shape[1])
                if place == 0 or result.scores[row, place] > -np.inf
            ]
            for row in range(num_rows)
        ]

    def _check_logits(self, sources):
        """Raise an error if the model's logits are not finite."""
        sources = [[*source, END_ID] for source in sources]
        inputs = {"sources": ragged(sources), "targets": ragged([[END_ID]] * len(sources))}
        if not np.isfinite(self._graphs.run("score", self._score_rows, inputs)).all():
            raise FloatingPointError("The logits of `model` are not finite: its weights are broken")

    def _score_rows(self, sources, targets):
        """Log-probabilities of the tokens of targets, in the graph; end marks are there."""
        return self.pipeline.token_log_probabilities(self.pipeline.padded(sources), self.pipeline.padded(targets))

    def _hypothesis(self, ids, length, log_probability, score, finished):
        ids = tuple(int(token) for token in ids[:length])
        return Hypothesis(
            self.tokenizer.decode(ids), ids, float(log_probability), float(score), bool(finished), False, None, None
        )

    def _add_alignments(self, sources, results, layer, head):
        """Put `attention` and `alignment` into the hypotheses, in place."""

        def align(sources, targets):
            ids = self.pipeline.padded(sources, end_mark=True), self.pipeline.padded(targets)
            found = self.pipeline.align(*ids, layer, head)
            return found.attention, found.word_alignment

        places = [(row, place) for row, hypotheses in enumerate(results) for place in range(len(hypotheses))]
        pairs = [(sources[row], results[row][place].ids) for row, place in places]

        def align_batch(rows):
            columns = zip(*(pairs[row] for row in rows), strict=True)
            inputs = dict(zip(("sources", "targets"), map(ragged, columns), strict=True))
            return zip(*self._graphs.run(("align", layer, head), align, inputs), strict=True)

        lengths = [max(len(source) + 1, len(target)) for source, target in pairs]
        aligned = run_by_length(align_batch, lengths, MAX_SCORED_TOKENS)
        for (row, place), (source, target), (attention, words) in zip(places, pairs, aligned, strict=True):
            results[row][place] = results[row][place]._replace(
                attention=attention[: len(target), : len(source) + 1],
                alignment=tuple((int(word), place) for place, word in enumerate(words) if word >= 0),
            )

    # === Files ===

    def save(self, directory: str | os.PathLike) -> None:
        """Write the model and the tokenizer into `directory`, which `load` reads; existing files are replaced."""
        directory = Path(directory)
        with replaced(directory / MODEL_FILE) as temporary:
            self.model.save(temporary)
        self.tokenizer.save(directory / TOKENIZER_FILE)

    @classmethod
    def load(cls, path: str | os.PathLike, *more: str | os.PathLike, **arguments) -> "Translator":
        """Make a translator of what was trained: see `pretrained.load_translator`.

        Args:
            path: a run directory, finished or under way, a `.keras` file, checkpoints or an export.
            more: further ones, for an ensemble.
            arguments: passed to the constructor, in place of those that the model was trained or exported with.
        """
        from keras_transformer.pretrained import load_translator

        return load_translator(path, *more, translator_class=cls, **arguments)


def _target_score(target, scored):
    """What the log-probabilities of the tokens of a padded row say of its target."""
    scored = scored[: len(target)]
    total = float(scored.sum(dtype="float64"))
    perplexity = float(np.exp(-total / len(scored))) if len(scored) else 1.0
    return TargetScore(tuple(target), scored, total, perplexity)


def _checked_list(name, values):
    if isinstance(values, (str, bytes)):
        raise TypeError(f"`{name}` must be a list of strings. Received: {values!r}")
    return list(values)


def _checked_texts(name, values):
    values = _checked_list(name, values)
    for number, value in enumerate(values, 1):
        if not isinstance(value, str):
            raise TypeError(f"`{name}` must be a list of strings. Received: {value!r} as number {number}")
    return values


def _per_sentence(name, values, sentences):
    """A list with one entry for each sentence; Nones for None."""
    values = [None] * len(sentences) if values is None else _checked_list(name, values)
    if len(values) != len(sentences):
        raise ValueError(
            f"`{name}` must have one entry for each sentence. Received: {len(values)} for {len(sentences)} sentences"
        )
    return values
