"""Finds the differences between a sentence and the passages."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from guardrails.detectors.groundedness import words
from guardrails.detectors.groundedness.statements import Fact, Kind, Statement, names_of, statement

_SWAP_MARGIN = 0.15  # a fact counts as misplaced if another sentence fits better by this margin
_SAME_SUBJECT = 1.2  # statements with at least this likeness (0 to 2) have the same subject
_TIE_MARGIN = 0.15  # clauses of passages within this margin of the greatest likeness are compared
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
class _Unit:
    """A clause of a passage.

    Attributes:
        clause: The analysed clause.
        around: The stems of the whole sentence, and of the previous sentence if the sentence continues its
            subject.
        place: The place of the sentence.
    """

    clause: Statement
    around: frozenset[str]
    place: Place


@dataclass(frozen=True)
class Sources:
    """The sentences of passages, analysed once for all sentences of an answer.

    Attributes:
        sentences: The text and the place of each sentence.
    """

    sentences: Sequence[tuple[str, Place]]
    _units: list[_Unit] = field(default_factory=list, init=False)
    _weights: dict[str, float] = field(default_factory=dict, init=False)
    _facts: dict[str, set[str]] = field(default_factory=dict, init=False)
    _names: frozenset[str] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        names = names_of([text for text, _ in self.sentences])
        object.__setattr__(self, "_names", names)
        counts: Counter[str] = Counter()
        before: tuple[frozenset[str], int] = (frozenset(), -1)
        for text, place in self.sentences:
            whole = statement(text, names)
            around = whole.stems
            counts.update(around)
            carried = bool(whole.tokens) and whole.tokens[0].word in words.CONTINUATIONS
            if carried and before[1] == place.passage:
                around |= before[0]
            self._units.extend(_Unit(clause, around, place) for clause in whole.clauses())
            before = around, place.passage
        for unit in self._units:
            for fact in unit.clause.facts:
                self._facts.setdefault(fact.kind.value, set()).update(fact.keys)
        self._weights.update({stem: 1 / math.sqrt(count) for stem, count in counts.items()})

    def differences(self, text: str) -> list[Difference]:
        """Return the differences between a sentence and the passages."""
        whole = statement(text, self._names)
        found: list[Difference] = []
        compared = 0
        for clause in _bounded(whole.clauses()):
            units = sorted(
                ((self._likeness(clause, unit), unit) for unit in self._units),
                key=lambda pair: pair[0],
                reverse=True,
            )
            for fact in clause.facts:
                compared += 1
                difference = self._difference(fact, clause, whole, with_context=compared <= _MAX_FACTS)
                if difference is not None:
                    found.append(difference)
            if not found:
                found += _contradictions(clause, units)
        return found

    def _difference(
        self, fact: Fact, clause: Statement, whole: Statement, *, with_context: bool
    ) -> Difference | None:
        if fact.kind.value not in self._facts or not self._facts[fact.kind.value] & fact.keys:
            return Difference(fact.kind.value, fact.text)
        if not with_context:
            return None
        matching = [unit for unit in self._units if fact.is_in(unit.clause.facts)]
        best = max(matching, key=lambda unit: self._likeness(clause, unit, _ignored_stems(fact, clause, unit)))
        likeness = self._likeness(clause, best, _ignored_stems(fact, clause, best))
        for unit in self._units:
            rivals = [each for each in unit.clause.facts if each.kind is fact.kind and not each.is_in(whole.facts)]
            if not rivals or unit in matching:
                continue
            ignored = _ignored_stems(fact, clause, unit) | {rivals[0].stem}
            if self._likeness(clause, unit, ignored) > likeness + _SWAP_MARGIN:
                return Difference(fact.kind.value, fact.text, unit.place)
        same = [other for unit in matching for other in unit.clause.facts if fact.is_in([other])]
        if fact.unit and all(other.unit and other.unit != fact.unit for other in same):
            return Difference("unit", f"{fact.text} {fact.unit}", best.place)
        return None

    def _likeness(self, clause: Statement, unit: _Unit, ignored: frozenset[str] = frozenset()) -> float:
        """Return how alike a clause and a unit are, from 0 to 2.

        It is the share of the clause's stems in the unit's sentence, plus the share of the unit's stems in the
        clause.
        """
        own, other = clause.stems - ignored, unit.clause.stems - ignored
        return self._share(own, unit.around) + self._share(other, own)

    def _share(self, stems: frozenset[str], among: frozenset[str]) -> float:
        total = sum(self._weights.get(stem, 0.5) for stem in stems)
        return sum(self._weights.get(stem, 0.5) for stem in stems & among) / total if total else 0.0


def _bounded(clauses: Sequence[Statement]) -> list[Statement]:
    """Return the first `_MAX_CLAUSES` clauses, and one clause that joins all further clauses."""
    rest = tuple(token for clause in clauses[_MAX_CLAUSES:] for token in clause.tokens)
    return [*clauses[:_MAX_CLAUSES], *([Statement(rest)] if rest else [])]


def _ignored_stems(fact: Fact, clause: Statement, unit: _Unit) -> frozenset[str]:
    """Return the stems to ignore in the context of a fact: its own stem, or the stems of all names for a name."""
    if fact.kind is not Kind.NAME:
        return frozenset({fact.stem})
    return frozenset(each.stem for each in (*clause.facts, *unit.clause.facts) if each.kind is Kind.NAME)


def _contradictions(clause: Statement, units: Sequence[tuple[float, _Unit]]) -> list[Difference]:
    best = units[0][0] if units else 0.0
    if best < _SAME_SUBJECT:
        return []
    first: Difference | None = None
    for likeness, unit in units:
        if likeness < best - _TIE_MARGIN:
            break
        flips = _flips(clause, unit.clause)
        if len(flips) % 2 == 0:
            return []
        first = first or Difference("negation" if flips[0] in words.NEGATIONS else "opposite", flips[0], unit.place)
    return [first] if first is not None else []


def _flips(clause: Statement, other: Statement) -> list[str]:
    """Return the words that reverse the meaning of one clause against the other."""
    only = clause.words - other.words
    flips = [each for each in sorted(only) if words.has_opposite(each, other.words - clause.words)]
    negations, others = clause.negations, other.negations
    if len(negations) % 2 != len(others) % 2:
        flips.append((negations or others)[0])
    flips += ["than"] * _is_swapped(clause, other, "", "than") + ["to"] * _is_swapped(clause, other, "from", "to")
    return flips


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
