"""Analyses a sentence into words, numbers, names, dates and negations, which can be compared."""

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from guardrails.detectors.groundedness import words

_TOKEN = re.compile(
    r"""
      (?P<iso> \b\d{4}-\d{2}-\d{2}\b )
    | (?P<name> \b[A-Z][A-Za-z]*-?\d[\w-]* )
    | (?<![\w\[(.]) (?P<number> \d+(?:[.,]\d+)* )
      (?: (?:st|nd|rd|th)\b | (?P<unit> [^\W\d_]{1,2}\b | [%€$£] ) | (?![\w\])]) )
    | (?P<word> [^\W\d_]+ (?: ['\u2019-] [^\W\d_]+ )* )
    | (?P<sign> [%€$£] )
    | (?P<stop> [,;:()\u2013\u2014] )
    """,
    re.VERBOSE,
)
_SEPARATOR = re.compile("[.,]")
_THOUSANDS = re.compile(r"\d{1,3}(?:[.,]\d{3})+")
_ENDINGS = (
    "ations",
    "ation",
    "ments",
    "ment",
    "ings",
    "ing",
    "ies",
    "ied",
    "ed",
    "es",
    "s",
    "al",
    "ly",
    "er",
    "e",
    "y",
)
_STEM_LENGTH = 6
_MONTHS = tuple(dict.fromkeys(words.MONTHS.values()))


class Kind(Enum):
    """The kind of a fact; findings contain the values."""

    NUMBER = "number"
    DATE = "date"
    NAME = "name"
    COLOUR = "colour"


@dataclass(frozen=True, slots=True)
class Fact:
    """A part of a sentence that a passage must contain.

    Attributes:
        kind: The kind of fact.
        keys: The possible meanings of the fact; two facts with a common meaning are equal.
        text: The text of the fact.
        unit: The unit of a number; empty if unknown.
    """

    kind: Kind
    keys: frozenset[str]
    text: str
    unit: str = ""

    @property
    def stem(self) -> str:
        """The stem that represents the fact in a set of stems; of an ambiguous number, the greater meaning."""
        key = max(self.keys, key=float) if self.kind is Kind.NUMBER else min(self.keys)
        return f"{self.kind.value}:{key}"

    def is_in(self, facts: "Sequence[Fact]") -> bool:
        """Return whether an equal fact is among the facts."""
        return any(self.kind is other.kind and self.keys & other.keys for other in facts)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a fact or a break between two clauses."""

    word: str
    fact: Fact | None = None
    breaks: bool = False

    @property
    def stem(self) -> str:
        """The stem for comparisons; empty for stop words, negations and breaks."""
        if self.fact is not None:
            return self.fact.stem
        return (
            "" if self.breaks or self.word in words.STOP_WORDS or self.word in words.NEGATIONS else stem(self.word)
        )


@dataclass(frozen=True)
class Statement:
    """An analysed sentence or clause."""

    tokens: tuple[Token, ...]

    @cached_property
    def facts(self) -> list[Fact]:
        """The facts, in order."""
        return [token.fact for token in self.tokens if token.fact is not None]

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of the words and facts."""
        return frozenset(token.stem for token in self.tokens) - {""}

    @cached_property
    def words(self) -> frozenset[str]:
        """The words in lower case, without facts."""
        return frozenset(token.word for token in self.tokens if token.fact is None and not token.breaks)

    @cached_property
    def negations(self) -> list[str]:
        """The negating words."""
        return [token.word for token in self.tokens if token.word in words.NEGATIONS or token.word.endswith("n't")]

    def clauses(self) -> "list[Statement]":
        """Split at the breaks; return the clauses that have stems, or the whole statement if none has one."""
        parts: list[list[Token]] = [[]]
        for token in self.tokens:
            if token.breaks:
                parts.append([])
            else:
                parts[-1].append(token)
        found = [Statement(tuple(part)) for part in parts]
        return [part for part in found if part.stems] or [self]


def stem(word: str) -> str:
    """Return an approximate stem of a word."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word[:_STEM_LENGTH]


def analyse(text: str, names: Container[str] = ()) -> Statement:
    """Return the analysed sentence.

    Args:
        text: The sentence.
        names: Known names in lower case. They are names even at the beginning of a sentence.
    """
    return Statement(tuple(_tokens(text, names)))


def names_of(sentences: Sequence[str]) -> frozenset[str]:
    """Return the names in sentences, in lower case.

    Names are codes such as ``A-320``, and capitalised words. A capitalised word at the beginning of a sentence is a
    name only if the next word also has a capital letter.
    """
    return frozenset(
        key
        for sentence in sentences
        for fact in analyse(sentence).facts
        if fact.kind is Kind.NAME
        for key in fact.keys
    )


def _tokens(text: str, names: Container[str]) -> Iterator[Token]:
    matches = list(_TOKEN.finditer(text))
    index = 0
    while index < len(matches):
        match = matches[index]
        written = match.group().replace("\u2019", "'")
        lowered = written.lower()
        step = 1
        if match.lastgroup == "stop":
            yield Token("", breaks=True)
        elif match["iso"]:
            year, month, day = written.split("-")
            yield Token(lowered, Fact(Kind.NUMBER, frozenset({_number_key(float(year))}), year))
            if 1 <= int(month) <= len(_MONTHS):
                yield Token(lowered, Fact(Kind.DATE, frozenset({_MONTHS[int(month) - 1]}), written))
            yield Token(lowered, Fact(Kind.NUMBER, frozenset({_number_key(float(day))}), day))
        elif match["number"] or _value(lowered) is not None:
            token, step = _number_token(matches, index)
            yield token
        elif lowered in words.BREAKS:
            yield Token(lowered, breaks=True)
        else:
            yield _word_token(matches, index, written, names)
        index += step


def _word_token(matches: Sequence[re.Match[str]], index: int, written: str, names: Container[str]) -> Token:
    bare = written.removesuffix("'s")
    lowered = bare.lower()
    is_capitalised = bare[0].isupper()
    if is_capitalised and lowered in words.MONTHS and (index or lowered != "may"):
        return Token(lowered, Fact(Kind.DATE, frozenset({words.MONTHS[lowered]}), written))
    if is_capitalised and lowered.removesuffix("s") in words.WEEKDAYS:
        return Token(lowered, Fact(Kind.DATE, frozenset({words.WEEKDAYS[lowered.removesuffix("s")]}), written))
    if lowered in words.SEASONS:
        return Token(lowered, Fact(Kind.DATE, frozenset({lowered}), written))
    if lowered in words.COLOURS:
        return Token(lowered, Fact(Kind.COLOUR, frozenset({lowered.replace("gray", "grey")}), written))
    if matches[index]["name"] or (is_capitalised and lowered != "i" and _is_name(matches, index, lowered, names)):
        return Token(lowered, Fact(Kind.NAME, frozenset({lowered}), written))
    return Token(lowered)


def _is_name(matches: Sequence[re.Match[str]], index: int, lowered: str, names: Container[str]) -> bool:
    if index:
        return True
    following = matches[1].group() if len(matches) > 1 else ""
    return lowered in names or (
        following[:1].isupper() and following.lower() not in words.MONTHS and lowered not in words.STOP_WORDS
    )


def _value(lowered: str) -> int | None:
    """Return the value of a number word; None for other words and for ``one``, which is also a pronoun."""
    parts = lowered.split("-")
    values = [words.SMALL_NUMBERS.get(part) for part in parts]
    if None in values or lowered == "one":
        return None
    return sum(value for value in values if value is not None)


def _number_token(matches: Sequence[re.Match[str]], index: int) -> tuple[Token, int]:
    first = matches[index]
    lowered = first.group().lower()
    digits = first["number"]
    values = _readings(digits) if digits else [float(_value(lowered) or 0)]
    unit = first["unit"] or ""
    end = index + 1
    while end < len(matches) and (scale := words.SCALES.get(matches[end].group().lower())) is not None:
        values = [value * scale for value in values]
        end += 1
    if not unit and end < len(matches):
        unit = matches[end].group()
    keys = frozenset(map(_number_key, values))
    written = first.group() if end == index + 1 else " ".join(match.group() for match in matches[index:end])
    return Token(lowered, Fact(Kind.NUMBER, keys, written, words.UNITS.get(unit.lower(), ""))), end - index


def _readings(digits: str) -> list[float]:
    """Return the possible values of a number in digits, with points and commas in any convention.

    If a number has both separators, the last one is the decimal separator (``1,234.56``, ``1.234,56``). A separator
    that occurs twice separates thousands. One separator before three digits is ambiguous: ``1.000`` is one thousand
    in German and one in English, and ``1,000`` is the opposite. After a leading zero or more than three digits, it
    is certainly a decimal separator (``0.125``, ``1234.567``).
    """
    joined = float(_SEPARATOR.sub("", digits))
    separators = _SEPARATOR.findall(digits)
    if not separators:
        return [joined]
    whole, decimal, fraction = digits.rpartition(separators[-1])
    if len(separators) > 1:
        if decimal in whole or not _THOUSANDS.fullmatch(whole):
            return [joined]
        return [float(f"{_SEPARATOR.sub('', whole)}.{fraction}")]
    value = float(f"{whole}.{fraction}")
    return [joined, value] if _THOUSANDS.fullmatch(digits) and not digits.startswith("0") else [value]


def _number_key(value: float) -> str:
    return f"{value:.12g}"
