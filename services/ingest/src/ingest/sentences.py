"""Where sentences stand in a text.

A simplification of Unicode's sentence boundaries (UAX #29): line breaks end sentences, and a full stop after an
abbreviation, an initial or an ordinal, or before a lower-case letter, does not.
"""

import re

_CLOSING = "\"'\u201d\u2019\u00bb)\\]\u300d\u300f\uff09\u3011\u300b"
_OPENING = " \t\"'\u201c\u2018\u00ab(["
_END = re.compile(
    rf"""
      [.!?\u2026]+ [{_CLOSING}]* (?=\s)           # Latin and its like: white space follows
    | [\u3002\uff01\uff1f\uff61]+ [{_CLOSING}]*   # Chinese and Japanese: nothing need follow
    | [\u0964\u0965\u061f\u06d4]+                # Devanagari, Arabic, Urdu
    | [\u104b\u17d4\u1362\u0589]+                # Burmese, Khmer, Amharic, Armenian
    | \n+
    """,
    re.VERBOSE,
)
_LAST_WORD = re.compile(r"(\S+)$")
_LOOKBACK = 24
# fmt: off
_ABBREVIATIONS = frozenset((
    "mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "no", "nr", "nos", "vol", "art", "fig", "sec", "ch", "pp",
    "cf", "vs", "al", "etc", "approx", "dept", "est", "inc", "ltd", "corp", "co", "e.g", "i.e", "a.m", "p.m", "z.b",
    "d.h", "u.a", "bzw", "ca", "evtl", "ggf", "inkl", "zzgl", "str", "tel", "abs", "bd", "hr", "fr", "usw",
))
# fmt: on


def sentences(text: str) -> list[tuple[int, int]]:
    """Spans of the text's sentences in code points, in order; everything but white space lies in one of them."""
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _END.finditer(text):
        if not match[0].isspace() and match[0][0] in ".\u2026" and _goes_on(text, start, match):
            continue
        start = _add(spans, text, start, match.end())
    _add(spans, text, start, len(text))
    return spans


def _goes_on(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the sentence goes on behind a full stop."""
    following = text[match.end() : match.end() + 8].lstrip(_OPENING)
    if following[:1].islower():
        return True
    if match[0] != ".":
        return False
    before = _LAST_WORD.search(text, max(start, match.start() - _LOOKBACK), match.start())
    if before is None:
        return False
    word = before[1].lstrip(_OPENING).lower()
    initial = len(word) == 1 and word.isalpha()
    ordinal = word.isdigit() and not text[start : before.start()].strip()
    return initial or ordinal or word in _ABBREVIATIONS


def _add(spans: list[tuple[int, int]], text: str, start: int, end: int) -> int:
    piece = text[start:end]
    stripped = piece.strip()
    if stripped:
        first = start + len(piece) - len(piece.lstrip())
        spans.append((first, first + len(stripped)))
    return end
