"""Computes the numbers of paragraphs in Word, for example ``4.2`` or ``(b)``, from the rules in the document."""

import re
from dataclasses import dataclass

from lxml import etree  # type: ignore[import-untyped]  # ships no types

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
    (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
_ROMAN_LIMIT = 4000
_PLACEHOLDER = re.compile(r"%(\d)")


@dataclass(frozen=True, slots=True)
class _Level:
    """A level of a list: ``w:lvl`` (ECMA-376 part 1, 17.9.6)."""

    form: str
    text: str
    start: int


class Numbers:
    """Counts a document's numbered paragraphs.

    Args:
        numbering: Root of the numbering part, or None.
    """

    def __init__(self, numbering: etree._Element | None) -> None:
        self._levels: dict[str, dict[int, _Level]] = {}
        self._lists: dict[str, str] = {}
        self._restarts: dict[str, dict[int, int]] = {}
        self._counters: dict[str, dict[int, int]] = {}
        if numbering is None:
            return
        for abstract in numbering.iter(f"{W}abstractNum"):
            levels = {int(level.get(f"{W}ilvl", "0")): _level(level) for level in abstract.iter(f"{W}lvl")}
            self._levels[abstract.get(f"{W}abstractNumId", "")] = levels
        for number in numbering.iter(f"{W}num"):
            name = number.get(f"{W}numId", "")
            self._lists[name] = value_of(number, "abstractNumId")
            self._restarts[name] = {
                int(override.get(f"{W}ilvl", "0")): int(value_of(override, "startOverride"))
                for override in number.iter(f"{W}lvlOverride")
                if value_of(override, "startOverride")
            }

    def marker(self, list_id: str, depth: int) -> str:
        """Count a paragraph of a list, and return its marker: ``-`` for a bullet, empty if the level has none."""
        abstract = self._lists.get(list_id, "")
        levels = self._levels.get(abstract, {})
        level = levels.get(depth)
        if level is None or level.form == "none":
            return ""
        if level.form == "bullet":
            return "-"
        counters = self._counters.setdefault(abstract, {})
        for restarted, start in self._restarts.pop(list_id, {}).items():
            counters[restarted] = start - 1
        counters[depth] = counters.get(depth, level.start - 1) + 1
        for deeper in [counted for counted in counters if counted > depth]:
            del counters[deeper]

        def number(match: re.Match[str]) -> str:
            outer_depth = int(match[1]) - 1
            outer = levels.get(outer_depth, level)
            return _formatted(counters.get(outer_depth, outer.start), outer.form)

        return _PLACEHOLDER.sub(number, level.text)


def _level(level: etree._Element) -> _Level:
    start = value_of(level, "start")
    return _Level(value_of(level, "numFmt") or "decimal", value_of(level, "lvlText"), int(start) if start else 1)


def value_of(element: etree._Element, name: str) -> str:
    """Return the value of a property of an element; empty if the element lacks the property."""
    child = element.find(f"{W}{name}")
    return "" if child is None else child.get(f"{W}val", "")


def _formatted(number: int, form: str) -> str:
    match form:
        case "lowerLetter" | "upperLetter" if number > 0:
            # The markers after z are aa, bb and so on (ECMA-376 part 1, 17.18.59).
            letters = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
            return letters if form == "lowerLetter" else letters.upper()
        case "lowerRoman" | "upperRoman" if 0 < number < _ROMAN_LIMIT:
            roman = ""
            for value, sign in _ROMAN:
                roman += sign * (number // value)
                number %= value
            return roman if form == "lowerRoman" else roman.upper()
        case "decimalZero":
            return f"{number:02}"
        case _:
            return str(number)
