"""Composes an answer from sentences, list items and table rows of the sources, each with its citation.

`generator.extractive.passages` calls these parts of a source passages.
"""

from collections.abc import Sequence

from generator.domain import Source
from generator.extractive.ranking import Ranked, rank, refers_back
from generator.extractive.terms import words

NO_SOURCES = "I answer only from sources, and I have none for this question."
NOT_FOUND = "I don't know: the sources do not say."

_MAX_PASSAGES = 3
# The answer uses another passage if its score is at least this share of the best score.
_MIN_RELATIVE_SCORE = 0.5
# A passage repeats another one if they share at least this part of the words of the shorter passage.
_DUPLICATE_SHARE = 0.8


def answer(question: str, sources: Sequence[Source]) -> str:
    """Return the best one to three passages of the sources, each followed by ``[name]`` of its source.

    If no source answers the question, return `NO_SOURCES` or `NOT_FOUND`. The same question and sources give the
    same answer. More sources never turn an answer into a refusal.
    """
    if not any(source.text.strip() for source in sources):
        return NO_SOURCES
    ranked = rank(question, sources)
    if not ranked:
        return NOT_FOUND
    return " ".join(f"{_quote(passage)} [{passage.source}]" for passage in _choose(ranked))


def _choose(ranked: Sequence[Ranked]) -> list[Ranked]:
    chosen: list[Ranked] = []
    chosen_words: list[set[str]] = []
    for candidate in ranked:
        if len(chosen) == _MAX_PASSAGES or candidate.score < _MIN_RELATIVE_SCORE * ranked[0].score:
            break
        if any(_is_worse_row(candidate, other) for other in chosen):
            continue
        quoted = set(words(_quote(candidate)))
        if any(len(quoted & other) >= _DUPLICATE_SHARE * min(len(quoted), len(other)) for other in chosen_words):
            continue
        chosen.append(candidate)
        chosen_words.append(quoted)
    return chosen


def _is_worse_row(row: Ranked, other: Ranked) -> bool:
    """Return whether another row of the same table fits the question better."""
    same = row.passage.table and (row.source, row.passage.table) == (other.source, other.passage.table)
    return bool(same) and row.coverage < other.coverage


def _quote(ranked: Ranked) -> str:
    """Return the passage, with the sentence before or after it if one of them refers to the other."""
    passage = ranked.passage
    parts = [passage.text]
    if passage.previous and refers_back(passage.text):
        parts.insert(0, passage.previous)
    if passage.following and refers_back(passage.following):
        parts.append(passage.following)
    return " ".join(parts)
