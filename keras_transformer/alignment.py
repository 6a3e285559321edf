"""Word alignments from attention."""

import numpy as np


def align_words(attention, source_starts, target_starts):
    """Align each target word with the source word that it attends to most.

    The weights of a source word's pieces are added, those of a target word's pieces averaged. The end marks, the last
    column and perhaps the last row, are no words.

    Args:
        attention: array [T, S], weights of the source tokens (the end mark last) for each target token.
        source_starts, target_starts: for each token, whether it is the first of a word (else it continues one), or
            `None` for a mark that belongs to no word.

    Returns:
        Tuple of pairs (source word, target word), counted from 0, in the order of the target; as "0-0 2-1" they are
        what alignment tools read. Words of a text that has none are aligned with nothing.
    """
    source_words, target_words = _words(source_starts), _words(target_starts)
    num_source, num_target = max(source_words, default=-1) + 1, max(target_words, default=-1) + 1
    if not num_source:
        return ()
    weights = np.zeros([num_target, num_source])
    for row, target in enumerate(target_words):
        for column, source in enumerate(source_words):
            if target >= 0 and source >= 0:
                weights[target, source] += attention[row, column] / target_words.count(target)
    return tuple((int(source), target) for target, source in enumerate(weights.argmax(axis=1)))


def _words(starts):
    """The number of the word that each token belongs to, -1 for none."""
    words, word = [], -1
    for start in starts:
        if start is None:
            words.append(-1)
            continue
        word += bool(start) or word < 0
        words.append(word)
    return words
