"""Decides whether a source answers a question.

The decision uses the question and one source, never the other sources. So another source can add an answer,
but cannot remove one. The decision depends on the share of the question's words in the best passage, and on the
cosine of question and source, if the retriever knows it. The weights were chosen with the development questions of
``make eval`` and the bundled embedding model. The final questions had no influence on them.
"""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import PurePosixPath

from generator.domain import Source
from generator.extractive.passages import Passage
from generator.extractive.terms import subject, words

_NAME = 1.6  # the weight of a name; other words weigh 1
_COMMON = 0.4  # the weight of a word that most questions could have
# Factors for a word of the question, by the place where the source has the word:
_IN_CONTEXT = 0.75  # in a heading above the passage, or in its table's header
_BEFORE = 0.6  # in the sentence before the passage
_RELATED = 0.7  # in the passage or its headings, with another ending
_ELSEWHERE = 0.35  # elsewhere in the source
_COSINE = 3.0  # the weight of a cosine of 1
_ENOUGH = 1.0
_ENOUGH_WORDS = 0.25  # the sufficient share if no cosine is known
_LEAST_WORDS = 2
_TELLING = 0.5  # a source with at least this cosine may answer without a word of the question

_STEM = 4  # minimum number of first letters that related words share
_ENDING = 4  # maximum difference of their lengths
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
    there = frozenset(words(f"{PurePosixPath(source.name.partition('#')[0]).stem} {source.text}"))
    names = _names(question) & terms.keys()
    if not names <= there:
        return False
    weights = {word: _NAME if word in names else _COMMON if word in _COMMON_WORDS else 1.0 for word in terms}
    share = max(_share(weights, passage, there) for passage in passages)
    if source.cosine is None:
        telling = terms.keys() - _COMMON_WORDS or terms.keys()
        return share >= _ENOUGH_WORDS and len(telling & there) >= min(_LEAST_WORDS, len(telling))
    return (share > 0 or source.cosine >= _TELLING) and share + _COSINE * source.cosine >= _ENOUGH


def _share(weights: dict[str, float], passage: Passage, there: AbstractSet[str]) -> float:
    """Return the share of the question's weight that a passage has."""
    own, above, before = (set(words(text)) for text in (passage.text, passage.context, passage.previous))
    found = 0.0
    for word, weight in weights.items():
        if word in own:
            found += weight
        elif word in above:
            found += _IN_CONTEXT * weight
        elif word in before:
            found += _BEFORE * weight
        elif _is_related(word, own | above):
            found += _RELATED * weight
        elif word in there:
            found += _ELSEWHERE * weight
    return found / sum(weights.values())


def _is_related(word: str, others: Iterable[str]) -> bool:
    """Return whether one of the others differs from the word only in its ending, as ``elects`` and ``election``."""
    if len(word) < _STEM or not word.isalpha():
        return False
    beginning = word[: max(_STEM, len(word) - _ENDING + 1)]
    return any(other.startswith(beginning) and abs(len(other) - len(word)) <= _ENDING for other in others)


def _names(question: str) -> set[str]:
    """Return the words that look like names: capitalized within a sentence, or with letters and digits."""
    found: set[str] = set()
    for sentence in _SENTENCE.split(question):
        for place, word in enumerate(_WORD.findall(sentence)):
            mixed = any(map(str.isdigit, word)) and any(map(str.isalpha, word))
            if mixed or (place and word[0].isupper()):
                found.update(words(word))
    return found
