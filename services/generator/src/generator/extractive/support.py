"""Decides whether a source answers a question.

The decision uses the question and one source, never the other sources. Another source can therefore add an answer,
but cannot remove an answer. The source must contain all names in the question. Otherwise the decision depends on
the share of the question's words in the best passage, and on the cosine of question and source, if the retriever
reports it. The weights come from the development questions of ``make eval`` and the bundled embedding model. The
final questions had no influence on the weights.
"""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import PurePosixPath

from generator.domain import Source
from generator.extractive.passages import Passage
from generator.extractive.terms import subject, words

_NAME = 1.6  # the weight of a name; the default weight is 1
_COMMON = 0.4  # the weight of a word that is common in questions
# Factors for a word of the question, by its place in the source:
_IN_CONTEXT = 0.75  # in a heading above the passage, or in its table's header
_BEFORE = 0.6  # in the sentence before the passage
_RELATED = 0.7  # in the passage or its headings, with a different ending
_ELSEWHERE = 0.35  # elsewhere in the source
_COSINE = 3.0  # the weight of a cosine of 1
_SUFFICIENT = 1.0  # the sufficient sum of the share of words and the weighted cosine
_SUFFICIENT_SHARE = 0.25  # the sufficient share if no cosine is known
_MIN_WORDS = 2  # the minimum number of uncommon words of the question in the source if no cosine is known
_SUFFICIENT_COSINE = 0.5  # a source with at least this cosine may answer without a word of the question

_MIN_SHARED_LETTERS = 4  # the minimum number of first letters that two related words share
_MAX_LENGTH_DIFFERENCE = 4  # the maximum difference of the lengths of two related words
_WORD = re.compile(r"[\w'\u2019-]+")
_SENTENCE = re.compile(r"(?<=[.?!])\s+")
_COMMON_WORDS = frozenset(
    words(
        "use find give take come go work time people year day thing way cost price long need want know happen"
        " become keep put call say ask show start begin end open close change pay charge number amount kind type"
        " name place part person man woman child first last next new old good best large small high low right left"
        " different same allow possible often early late soon far fast quick big heavy wide deep tall month week"
        " hour minute once mean difference write written hold live"
    )
)


def supports(question: str, source: Source, passages: Iterable[Passage]) -> bool:
    """Return whether a source answers a question.

    Args:
        question: The question.
        source: The source, with its cosine if known.
        passages: The passages of the source.
    """
    terms = dict.fromkeys(subject(question))
    passages = list(passages)
    if not terms or not passages:
        return False
    source_words = frozenset(words(f"{PurePosixPath(source.name.partition('#')[0]).stem} {source.text}"))
    names = _names(question) & terms.keys()
    if not names <= source_words:
        return False
    weights = {word: _NAME if word in names else _COMMON if word in _COMMON_WORDS else 1.0 for word in terms}
    share = max(_share(weights, passage, source_words) for passage in passages)
    if source.cosine is None:
        specific = terms.keys() - _COMMON_WORDS or terms.keys()
        return share >= _SUFFICIENT_SHARE and len(specific & source_words) >= min(_MIN_WORDS, len(specific))
    return (share > 0 or source.cosine >= _SUFFICIENT_COSINE) and share + _COSINE * source.cosine >= _SUFFICIENT


def _share(weights: dict[str, float], passage: Passage, source_words: AbstractSet[str]) -> float:
    """Return the weighted share of the question's words that a passage and its source contain."""
    own, above, before = (set(words(text)) for text in (passage.text, passage.context, passage.previous))
    supported = 0.0
    for word, weight in weights.items():
        if word in own:
            supported += weight
        elif word in above:
            supported += _IN_CONTEXT * weight
        elif word in before:
            supported += _BEFORE * weight
        elif _is_related(word, own | above):
            supported += _RELATED * weight
        elif word in source_words:
            supported += _ELSEWHERE * weight
    return supported / sum(weights.values())


def _is_related(word: str, others: Iterable[str]) -> bool:
    """Return whether another word differs from the word only in its ending, as ``elects`` and ``election``."""
    if len(word) < _MIN_SHARED_LETTERS or not word.isalpha():
        return False
    beginning = word[: max(_MIN_SHARED_LETTERS, len(word) - _MAX_LENGTH_DIFFERENCE + 1)]
    return any(
        other.startswith(beginning) and abs(len(other) - len(word)) <= _MAX_LENGTH_DIFFERENCE for other in others
    )


def _names(question: str) -> set[str]:
    """Return the probable names: words that are capitalized within a sentence, or have letters and digits."""
    found: set[str] = set()
    for sentence in _SENTENCE.split(question):
        for index, word in enumerate(_WORD.findall(sentence)):
            mixed = any(map(str.isdigit, word)) and any(map(str.isalpha, word))
            if mixed or (index and word[0].isupper()):
                found.update(words(word))
    return found
