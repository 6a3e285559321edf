"""From text to text: the model, the tokenizer and the search together."""

import warnings
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.decoding import BeamSearch
from keras_transformer.files import MODEL_FILE, TOKENIZER_FILE, replaced
from keras_transformer.translation.alignment import align_words
from keras_transformer.translation.batching import (
    MAX_BATCH_HYPOTHESES,
    MAX_BATCH_TOKENS,
    MAX_SCORED_TOKENS,
    SOURCE_MULTIPLE,
    padded,
    run_by_length,
)
from keras_transformer.translation.pipeline import TranslationGraph, check_limit
from keras_transformer.vocabulary import END_ID, PAD_ID, START_ID

# Under XLA every shape is compiled, which takes seconds.
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


class Translator(TranslationGraph):
    """Translate text with a trained `Transformer`; this object is also what `serving.write_saved_model` exports.

    Training-time BLEU, `translate` and the served graph run the same search, so they cannot disagree. A sentence's
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
        tokenizer,
        *,
        search=None,
        max_extra_tokens=50,
        max_target_tokens=None,
        max_source_tokens=1024,
        jit_compile=False,
    ):
        super().__init__(
            model,
            search=BeamSearch() if search is None else search,
            max_extra_tokens=max_extra_tokens,
            max_target_tokens=max_target_tokens,
        )
        vocabulary_size = self.model.output_shape[-1]
        if vocabulary_size < tokenizer.vocabulary_size:
            raise ValueError(
                "`model` must have an output for every piece of `tokenizer`. "
                f"Received: {vocabulary_size} outputs, {tokenizer.vocabulary_size} pieces"
            )
        check_limit("max_source_tokens", max_source_tokens)
        self.tokenizer = tokenizer
        self.max_source_tokens = self._within_positions(max_source_tokens)
        self.jit_compile = jit_compile
        self._graphs = {}

    def translate(self, sentences, **arguments):
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
        sentences,
        *,
        prefixes=None,
        constraints=None,
        search=None,
        seed=0,
        return_alignments=False,
        attention_layer=-2,
        attention_head=None,
        on_progress=None,
    ):
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
            TypeError: if `sentences` is a single string.
            ValueError: if another argument does not have one entry for each sentence, or a prefix or constraint holds
                ids that mark padding, start or end, or lie outside of the vocabulary.
        """
        sentences = _checked_list("sentences", sentences)
        search = self.search if search is None else search
        if return_alignments:
            attention_layer = self.attention_layer(attention_layer)
        sources = self.tokenizer.encode(sentences)
        prefixes = [self._target_ids("prefixes", prefix) for prefix in _per_sentence("prefixes", prefixes, sources)]
        constraints = [self._phrases(phrases) for phrases in _per_sentence("constraints", constraints, sources)]
        if any(constraints):
            search = search.containing(max(sum(map(len, phrases)) for phrases in constraints))
        self._warn_of_cuts(sources)
        columns = sources, prefixes, constraints if any(constraints) else None
        lengths = [min(len(source), self.max_source_tokens) + 1 for source in sources]
        most_rows = max(1, MAX_BATCH_HYPOTHESES // search.width)

        def run(rows):
            return self._search_rows(search, columns, rows, seed)

        results = run_by_length(run, lengths, MAX_BATCH_TOKENS, most_rows, on_progress)
        if return_alignments:
            self._add_alignments(sources, results, attention_layer, attention_head)
        return results

    def _warn_of_cuts(self, sources):
        """Warn of the sentences that are cut, by number."""
        limit = self.max_source_tokens
        numbers = [str(number) for number, source in enumerate(sources, 1) if len(source) > limit]
        if numbers:
            warnings.warn(
                f"Cut {len(numbers)} of {len(sources)} sentences to `max_source_tokens`={limit}: "
                f"number {', '.join(numbers[:10])}{', ...' if len(numbers) > 10 else ''}",
                stacklevel=3,
            )

    def _search_rows(self, search, columns, rows, seed):
        """Hypotheses of some rows of the columns: sources (cut here), prefixes, and constraints or None."""
        sources, prefixes, constraints = ([column[row] for row in rows] if column else None for column in columns)
        cut = [source[: self.max_source_tokens] for source in sources]
        found = self._search_batch(search, cut, prefixes, constraints, seed)
        return [
            [hypothesis._replace(truncated=len(source) > self.max_source_tokens) for hypothesis in hypotheses]
            for source, hypotheses in zip(sources, found, strict=True)
        ]

    def score(self, sentences, targets):
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
        sentences = _checked_list("sentences", sentences)
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
            pair = [padded([side[row] for row in rows], SOURCE_MULTIPLE) for side in (sources, targets)]
            scores = self._graph("score", self.token_log_probabilities, pair)
            return [_target_score(targets[row], scored) for row, scored in zip(rows, scores, strict=True)]

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

    def _search_batch(self, search, sources, prefixes, constraints, seed):
        """Hypotheses of one batch of sources, given as ids without an end mark."""
        num_rows, multiple, blank_rows, max_length = len(sources), SOURCE_MULTIPLE, 0, None
        if self.jit_compile:
            multiple = _XLA_MULTIPLE
            blank_rows = (1 << (num_rows - 1).bit_length()) - num_rows
            longest = max(map(len, [*sources, *prefixes])) + self.max_extra_tokens + 1
            max_length = -(-longest // multiple) * multiple
        inputs = {"source_ids": padded([[*source, END_ID] for source in sources], multiple, blank_rows)}
        if any(prefixes):
            inputs["prefix_ids"] = padded(prefixes, multiple, blank_rows)
        if constraints is not None:
            shape = (max(map(len, constraints)), max(len(phrase) for phrases in constraints for phrase in phrases))
            inputs["constraint_ids"] = np.full([num_rows + blank_rows, *shape], PAD_ID, "int32")
            for row, phrases in enumerate(constraints):
                for place, phrase in enumerate(phrases):
                    inputs["constraint_ids"][row, place, : len(phrase)] = phrase
        if search.needs_seeds:
            hashes = [zlib.crc32(np.array(source, "int32").tobytes()) for source in sources] + [0] * blank_rows
            inputs["seeds"] = np.array([[seed & 0xFFFFFFFF, number] for number in hashes], "uint32").view("int32")

        def run(*values):
            return self.search_ids(**dict(zip(inputs, values, strict=True)), search=search, max_length=max_length)

        result = self._graph((search, max_length, *inputs), run, inputs.values())
        return [
            [
                self._hypothesis(*(part[row, place] for part in result))
                for place in range(result.scores.shape[1])
                if place == 0 or result.scores[row, place] > -np.inf
            ]
            for row in range(num_rows)
        ]

    def _graph(self, key, function, values):
        """Run a function as a graph for batches of any size, traced once for each key; NumPy in and out."""
        values = list(values)
        if key not in self._graphs:
            signature = [tf.TensorSpec([None] * value.ndim, value.dtype) for value in values]
            self._graphs[key] = tf.function(
                function, input_signature=signature, autograph=False, jit_compile=self.jit_compile
            )
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), self._graphs[key](*map(tf.constant, values)))

    def _hypothesis(self, ids, length, log_probability, score, finished):
        ids = tuple(int(token) for token in ids[:length])
        return Hypothesis(
            self.tokenizer.decode(ids), ids, float(log_probability), float(score), bool(finished), False, None, None
        )

    def _add_alignments(self, sources, results, layer, head):
        """Put `attention` and `alignment` into the hypotheses, in place."""

        def align(source_ids, target_ids):
            attention = self.attention(source_ids, target_ids, layer, head)
            words = map(self.tokenizer.number_words, (source_ids, target_ids))
            return attention, align_words(attention, *words)[0]

        places = [(row, place) for row, hypotheses in enumerate(results) for place in range(len(hypotheses))]
        limit = self.max_source_tokens
        pairs = [([*sources[row][:limit], END_ID], list(results[row][place].ids)) for row, place in places]

        def align_batch(batch):
            inputs = [padded([pairs[index][side] for index in batch], SOURCE_MULTIPLE) for side in (0, 1)]
            return zip(*self._graph(("attention", layer, head), align, inputs), strict=True)

        aligned = run_by_length(align_batch, [max(map(len, pair)) for pair in pairs], MAX_SCORED_TOKENS)
        for (row, place), (source, target), (attention, source_words) in zip(places, pairs, aligned, strict=True):
            results[row][place] = results[row][place]._replace(
                attention=attention[: len(target), : len(source)],
                alignment=tuple((int(word), place) for place, word in enumerate(source_words) if word >= 0),
            )

    # === Files ===

    def save(self, directory):
        """Write the model and the tokenizer into `directory`, which `load` reads; existing files are replaced."""
        directory = Path(directory)
        with replaced(directory / MODEL_FILE) as temporary:
            self.model.save(temporary)
        self.tokenizer.save(directory / TOKENIZER_FILE)

    @classmethod
    def load(cls, path, *more, **arguments):
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


def _per_sentence(name, values, sentences):
    """A list with one entry for each sentence; Nones for None."""
    values = [None] * len(sentences) if values is None else _checked_list(name, values)
    if len(values) != len(sentences):
        raise ValueError(
            f"`{name}` must have one entry for each sentence. Received: {len(values)} for {len(sentences)} sentences"
        )
    return values
