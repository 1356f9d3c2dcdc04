"""Finds the differences between a sentence and the passages."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from guardrails.detectors.groundedness import words
from guardrails.detectors.groundedness.statements import Fact, Kind, Statement, analyse, names_of

_SWAP_MARGIN = 0.15  # a fact counts as misplaced if another sentence fits better by this margin
_SAME_SUBJECT = 1.2  # statements with at least this similarity (0 to 2) have the same subject
_TIE_MARGIN = 0.15  # clauses of passages within this margin of the greatest similarity are compared
_MAX_CLAUSES = 16  # the maximum number of clauses of a sentence that are compared one by one
# The maximum number of facts of a sentence that are compared with their context. Further facts only need to be in a
# passage.
_MAX_FACTS = 32


@dataclass(frozen=True, slots=True)
class Place:
    """A sentence of a passage: the index of the passage, and the span of the sentence in code points."""

    passage: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between a sentence and the passages.

    Attributes:
        name: The kind of the difference, for example ``number``.
        value: The value in the sentence.
        place: The sentence of a passage that the sentence was compared with; None if no passage has the value.
    """

    name: str
    value: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class _PassageClause:
    """A clause of a passage.

    Attributes:
        clause: The analysed clause.
        context_stems: The stems of the whole sentence, and of the previous sentence if the sentence continues its
            subject.
        place: The place of the sentence.
    """

    clause: Statement
    context_stems: frozenset[str]
    place: Place


class Sources:
    """The sentences of passages, analysed once for all sentences of an answer.

    Attributes:
        sentences: The text and the place of each sentence.
    """

    def __init__(self, sentences: Sequence[tuple[str, Place]]) -> None:
        self.sentences = sentences
        self._names = names_of([text for text, _ in sentences])
        self._clauses: list[_PassageClause] = []
        self._facts: dict[str, set[str]] = {}
        counts: Counter[str] = Counter()
        before: tuple[frozenset[str], int] = (frozenset(), -1)
        for text, place in sentences:
            whole = analyse(text, self._names)
            context_stems = whole.stems
            counts.update(context_stems)
            continues_subject = bool(whole.tokens) and whole.tokens[0].word in words.CONTINUATIONS
            if continues_subject and before[1] == place.passage:
                context_stems |= before[0]
            self._clauses.extend(_PassageClause(clause, context_stems, place) for clause in whole.clauses())
            before = context_stems, place.passage
        for passage_clause in self._clauses:
            for fact in passage_clause.clause.facts:
                self._facts.setdefault(fact.kind.value, set()).update(fact.keys)
        self._weights = {stem: 1 / math.sqrt(count) for stem, count in counts.items()}

    def differences(self, text: str) -> list[Difference]:
        """Return the differences between a sentence and the passages."""
        whole = analyse(text, self._names)
        found: list[Difference] = []
        compared = 0
        for clause in _limit_clauses(whole.clauses()):
            passage_clauses = sorted(
                ((self._similarity(clause, passage_clause), passage_clause) for passage_clause in self._clauses),
                key=lambda pair: pair[0],
                reverse=True,
            )
            for fact in clause.facts:
                compared += 1
                difference = self._difference(fact, clause, whole, with_context=compared <= _MAX_FACTS)
                if difference is not None:
                    found.append(difference)
            if not found:
                found += _contradictions(clause, passage_clauses)
        return found

    def _difference(
        self, fact: Fact, clause: Statement, whole: Statement, *, with_context: bool
    ) -> Difference | None:
        """Return the difference between a fact and the passages; None if a passage has the fact.

        Args:
            fact: The fact.
            clause: The clause of the fact.
            whole: The sentence of the clause.
            with_context: Whether the fact must also have the same context and the same unit.
        """
        if fact.kind.value not in self._facts or not self._facts[fact.kind.value] & fact.keys:
            return Difference(fact.kind.value, fact.text)
        if not with_context:
            return None
        matching = [passage_clause for passage_clause in self._clauses if fact.is_in(passage_clause.clause.facts)]
        best = max(
            matching,
            key=lambda passage_clause: self._similarity(
                clause, passage_clause, _ignored_stems(fact, clause, passage_clause)
            ),
        )
        similarity = self._similarity(clause, best, _ignored_stems(fact, clause, best))
        for passage_clause in self._clauses:
            # Other facts of the same kind. If their clause fits better, the sentence has swapped the facts.
            rivals = [
                other
                for other in passage_clause.clause.facts
                if other.kind is fact.kind and not other.is_in(whole.facts)
            ]
            if not rivals or passage_clause in matching:
                continue
            ignored = _ignored_stems(fact, clause, passage_clause) | {rivals[0].stem}
            if self._similarity(clause, passage_clause, ignored) > similarity + _SWAP_MARGIN:
                return Difference(fact.kind.value, fact.text, passage_clause.place)
        same = [
            other for passage_clause in matching for other in passage_clause.clause.facts if fact.is_in([other])
        ]
        if fact.unit and all(other.unit and other.unit != fact.unit for other in same):
            return Difference("unit", f"{fact.text} {fact.unit}", best.place)
        return None

    def _similarity(
        self, clause: Statement, passage_clause: _PassageClause, ignored: frozenset[str] = frozenset()
    ) -> float:
        """Return how similar a clause and a clause of a passage are, from 0 to 2.

        The similarity is the share of the clause's stems in the sentence of the passage, plus the share of the
        stems of the passage's clause in the clause.
        """
        own, other = clause.stems - ignored, passage_clause.clause.stems - ignored
        return self._share(own, passage_clause.context_stems) + self._share(other, own)

    def _share(self, stems: frozenset[str], among: frozenset[str]) -> float:
        total = sum(self._weights.get(stem, 0.5) for stem in stems)
        return sum(self._weights.get(stem, 0.5) for stem in stems & among) / total if total else 0.0


def _limit_clauses(clauses: Sequence[Statement]) -> list[Statement]:
    """Return the first `_MAX_CLAUSES` clauses, and one clause that joins all further clauses."""
    rest = tuple(token for clause in clauses[_MAX_CLAUSES:] for token in clause.tokens)
    return [*clauses[:_MAX_CLAUSES], *([Statement(rest)] if rest else [])]


def _ignored_stems(fact: Fact, clause: Statement, passage_clause: _PassageClause) -> frozenset[str]:
    """Return the stems to ignore in the context of a fact: its own stem; for a name, the stems of all names."""
    if fact.kind is not Kind.NAME:
        return frozenset({fact.stem})
    return frozenset(
        other.stem for other in (*clause.facts, *passage_clause.clause.facts) if other.kind is Kind.NAME
    )


def _contradictions(clause: Statement, passage_clauses: Sequence[tuple[float, _PassageClause]]) -> list[Difference]:
    best = passage_clauses[0][0] if passage_clauses else 0.0
    if best < _SAME_SUBJECT:
        return []
    first: Difference | None = None
    for similarity, passage_clause in passage_clauses:
        if similarity < best - _TIE_MARGIN:
            break
        reversals = _reversals(clause, passage_clause.clause)
        if len(reversals) % 2 == 0:
            return []
        first = first or Difference(
            "negation" if reversals[0] in words.NEGATIONS else "opposite", reversals[0], passage_clause.place
        )
    return [first] if first is not None else []


def _reversals(clause: Statement, other: Statement) -> list[str]:
    """Return the words that make the meanings of two clauses opposite."""
    only = clause.words - other.words
    reversals = [word for word in sorted(only) if words.has_opposite(word, other.words - clause.words)]
    negations, others = clause.negations, other.negations
    if len(negations) % 2 != len(others) % 2:
        reversals.append((negations or others)[0])
    reversals += ["than"] * _is_swapped(clause, other, "", "than") + ["to"] * _is_swapped(
        clause, other, "from", "to"
    )
    return reversals


def _is_swapped(clause: Statement, other: Statement, first: str, second: str) -> bool:
    """Return whether the parts before and after a word like ``than`` are swapped in the other clause."""
    left, right = _sides(clause, first, second)
    before, after = _sides(other, first, second)
    left, right = left - right, right - left
    before, after = before - after, after - before
    return bool(left & after and right & before) and not (left & before and right & after)


def _sides(clause: Statement, first: str, second: str) -> tuple[frozenset[str], frozenset[str]]:
    lowered = [token.word for token in clause.tokens]
    if second not in lowered or (first and first not in lowered[: lowered.index(second)]):
        return frozenset(), frozenset()
    middle = lowered.index(second)
    begin = lowered.index(first) + 1 if first else 0
    return Statement(clause.tokens[begin:middle]).stems, Statement(clause.tokens[middle + 1 :]).stems
