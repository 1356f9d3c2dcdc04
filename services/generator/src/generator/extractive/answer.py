"""An answer made of the sources' own sentences, each with its citation."""

from collections.abc import Sequence

from generator.domain import Source
from generator.extractive.ranking import Ranked, leans, rank, subject
from generator.extractive.terms import words

NO_SOURCES = "I answer only from sources, and there are none for this question."
NOT_FOUND = "I don't know: the sources do not say."

_MOST_PASSAGES = 3
# A further passage is worth reading if it scores this share of the best one's score.
_GOOD_ENOUGH = 0.5
# A passage fits if it has two of the question's words, or its only one, and this share of their weight.
_LEAST_WORDS = 2
_LEAST_COVERAGE = 0.2
_SAME = 0.8


def answer(question: str, sources: Sequence[Source]) -> str:
    """The best sentences of the sources, one to three, each followed by ``[name]`` of its source.

    With no sources, and where nothing fits, it says so. The same question and sources give the same answer.
    """
    if not any(source.text.strip() for source in sources):
        return NO_SOURCES
    ranked = rank(question, sources)
    least = min(_LEAST_WORDS, len(subject(question)))
    if not any(each.shared >= least and each.coverage >= _LEAST_COVERAGE for each in ranked):
        return NOT_FOUND
    return " ".join(f"{_quoted(each)} [{each.source}]" for each in _chosen(ranked))


def _chosen(ranked: Sequence[Ranked]) -> list[Ranked]:
    chosen: list[Ranked] = []
    shown: list[set[str]] = []
    for each in ranked:
        if len(chosen) == _MOST_PASSAGES or each.score < _GOOD_ENOUGH * ranked[0].score:
            break
        said = set(words(_quoted(each)))
        if any(len(said & other) >= _SAME * min(len(said), len(other)) for other in shown):
            continue
        chosen.append(each)
        shown.append(said)
    return chosen


def _quoted(ranked: Ranked) -> str:
    """The passage, with its neighbours where one says little without the other."""
    passage = ranked.passage
    parts = [passage.text]
    if passage.previous and leans(passage.text):
        parts.insert(0, passage.previous)
    if passage.following and leans(passage.following):
        parts.append(passage.following)
    return " ".join(parts)
