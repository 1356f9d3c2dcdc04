"""The view of a text as people read it, with unified look-alike characters and without invisible characters.

Detectors search the text and this view. The view is the text after NFKC normalization of each separate code point,
so that a growing text does not wait for the next character. In addition:

- dashes become ``-``, middle dots, bullets and the ideographic full stop become ``.``, spaces become a space;
- characters without a width (Unicode's Default_Ignorable_Code_Point) are removed;
- a combining mark on an ASCII character is removed if Unicode has no composed character for both.

A letter and a mark that are two characters in the text remain two characters. `canonical` changes patterns so that
they accept both spellings.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache

from detection.detectors.patterns.partial import TOKEN

# https://www.unicode.org/Public/UCD/latest/ucd/DerivedCoreProperties.txt, Default_Ignorable_Code_Point
_IGNORABLE_RANGES = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
_IGNORABLE = frozenset(chr(code) for first, last in _IGNORABLE_RANGES for code in range(first, last + 1))
_LAST_OF_MARKS = 0x20000  # all marks above this code point are ignorable
_CATEGORIES: dict[str, list[str]] = {"Pd": [], "Zs": [], "Mn": [], "Me": []}
for _point in map(chr, range(0x80, _LAST_OF_MARKS)):  # one pass for all categories, because it delays the import
    if (_points := _CATEGORIES.get(unicodedata.category(_point))) is not None:
        _points.append(_point)
_DASHES = frozenset(_CATEGORIES["Pd"]) | set("\u02d7\u2043\u2212")
_DOTS = frozenset("\u00b7\u0387\u2022\u2027\u2219\u22c5\u3002\u30fb")
_SPACES = frozenset(_CATEGORIES["Zs"])
_MARKS = frozenset(_CATEGORIES["Mn"] + _CATEGORIES["Me"]) - _IGNORABLE
_FOLDED = {**dict.fromkeys(_DASHES, "-"), **dict.fromkeys(_DOTS, "."), **dict.fromkeys(_SPACES, " ")}
_CACHE_SIZE = 8192  # characters


def _character_class(points: Iterable[str]) -> str:
    """Return a character class of ranges, because the engine is slow with thousands of single characters."""
    ranges: list[list[int]] = []
    for code in sorted(map(ord, points)):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in ranges) + "]"


_SUSPECT = re.compile(_character_class(_IGNORABLE | _MARKS | set(_FOLDED)))
_READ_DIFFERENTLY = re.compile(
    rf"{_character_class(_IGNORABLE | set(_FOLDED))}|(?:\A|[\0-\x7f]){_character_class(_MARKS)}"
)

_RUN = re.compile(r"[\0-\x7f]+|[^\0-\x7f]+")


def is_plain(text: str) -> bool:
    """Return True only if the view of a text equals the text, regardless of the text before and after it."""
    if text.isascii():
        return True
    suspect = _SUSPECT.search(text)
    if suspect is not None and _READ_DIFFERENTLY.search(text, max(suspect.start() - 1, 0)) is not None:
        return False
    return unicodedata.is_normalized("NFKC", text)


def readable(text: str) -> str:
    """Return the view of a whole text."""
    return View("").feed(text)


def canonical(expression: str) -> str:
    r"""Return a pattern that also matches the decomposed spelling of its letters with marks.

    Args:
        expression: The expression in RE2's syntax. Letters in classes (``[é]``) are unchanged, because a class
            matches one character.
    """
    if expression.isascii():
        return expression
    parts = []
    for token in TOKEN.finditer(expression):
        text = token.group()
        if token.lastgroup == "quoted":
            parts += [_spellings(character, re.escape(character)) for character in token["quoted"]]
        else:
            parts.append(_spellings(text, text) if token.lastgroup == "atom" and len(text) == 1 else text)
    return "".join(parts)


def _spellings(character: str, expression: str) -> str:
    decomposed = unicodedata.normalize("NFD", character)
    return expression if decomposed == character else f"(?:{expression}|{decomposed})"


@lru_cache(maxsize=_CACHE_SIZE)
def _readable_character(character: str) -> str:
    normal = unicodedata.normalize("NFKC", character)
    return "".join(_FOLDED.get(part, part) for part in normal if part not in _IGNORABLE)


class View:
    """The view of one growing text, and the mapping of its positions to the text.

    Args:
        before: The character before the first piece; empty at the beginning of the text.
        length: The number of code points before the first piece.

    Attributes:
        length: The number of code points of the view so far.
        text_length: The number of code points of the text so far.
    """

    def __init__(self, before: str, length: int = 0) -> None:
        self.length = self.text_length = length
        self._before = before
        # For each segment: its start in the view, its start in the text, and whether its characters are equal in
        # both.
        self._views = [0]
        self._texts = [0]
        self._same = [True]

    def feed(self, text: str) -> str:
        """Convert the next piece; return the text to append to the view."""
        parts = []
        for run in _RUN.finditer(text):
            part = run.group()
            if part.isascii():
                self._append(part[0], part[0])
                self.length += len(part) - 1
                self.text_length += len(part) - 1
                self._before = part[-1]
                parts.append(part)
            else:
                parts += map(self._character, part)
        return "".join(parts)

    def start(self, position: int) -> int:
        """Return the start in the text of the character at a position of the view."""
        if position >= self.length:
            return self.text_length
        index = bisect_right(self._views, position) - 1
        return self._texts[index] + (position - self._views[index] if self._same[index] else 0)

    def end(self, position: int) -> int:
        """Return the end in the text of the character before a position of the view."""
        index = bisect_right(self._views, position - 1) - 1
        return self._texts[index] + (position - self._views[index] if self._same[index] else 1)

    def is_same_from(self, position: int) -> bool:
        """Return whether view and text have the same characters from a position of the view on."""
        return (
            self._same[-1]
            and self._views[-1] <= position
            and self.start(position) + self.length - position == self.text_length
        )

    def forget(self, position: int) -> None:
        """Remove the segments before a position of the view."""
        first = max(bisect_right(self._views, position) - 1, 0)
        del self._views[:first], self._texts[:first], self._same[:first]

    def _character(self, character: str) -> str:
        converted = self._without_marks(_readable_character(character))
        self._append(character, converted)
        if converted:
            self._before = converted[-1]
        return converted

    def _without_marks(self, text: str) -> str:
        """Return the text without marks on ASCII characters, unless Unicode has one character for both."""
        if _MARKS.isdisjoint(text):
            return text
        result = ""
        for part in text:
            before = result[-1:] or self._before
            if not (
                part in _MARKS and "" < before < "\x80" and len(unicodedata.normalize("NFC", before + part)) > 1
            ):
                result += part
        return result

    def _append(self, character: str, converted: str) -> None:
        """Record a character of the text, and the characters of the view that replace it."""
        is_same = converted == character
        if converted:
            offset = self._texts[-1] - self._views[-1]
            if not (is_same and self._same[-1] and self.text_length - self.length == offset):
                self._views.append(self.length)
                self._texts.append(self.text_length)
                self._same.append(is_same)
        self.length += len(converted)
        self.text_length += 1
