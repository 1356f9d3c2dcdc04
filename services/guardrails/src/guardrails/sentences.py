"""Sentences of a growing text.

A simplification of Unicode's sentence boundaries (UAX #29): a line break ends a sentence unless the next line goes
on in lower case; a full stop after an abbreviation, an initial or a list's number, or before a lower-case letter,
does not. White space between two sentences belongs to the second, so that a sentence is complete as soon as what
follows its end is known.
"""

import re

_CLOSING = "\"'\u201d\u2019\u00bb)\\]\u300d\u300f\uff09\u3011\u300b*_"
_OPENING = "\"'\u201c\u2018\u00ab([*_"
_END = re.compile(
    rf"""
      (?P<stop> [.!?\u2026]+ [{_CLOSING}]* )                    # Latin and its like
    | (?P<full> [\u3002\uff01\uff1f\uff61]+ [{_CLOSING}]* )     # Chinese and Japanese: nothing need follow
    | (?P<mark> [\u0964\u0965\u061f\u06d4]+ [{_CLOSING}]* )     # Devanagari, Arabic, Urdu
    | (?P<line> \n \s* )
    """,
    re.VERBOSE,
)
_WORD = re.compile(r"\S+\Z")
_LOOKBACK = 24
_AHEAD = 8  # characters behind a full stop's white space that are looked at: quotes and brackets, then a letter
# Scripts without spaces: U+2E80 to U+9FFF, Hangul, wide forms; a Latin full stop before them ends a sentence, too.
_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]")
# fmt: off
_ABBREVIATIONS = frozenset((
    "mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "no", "nr", "nos", "vol", "art", "fig", "sec", "ch", "pp",
    "cf", "vs", "al", "etc", "approx", "dept", "est", "inc", "ltd", "corp", "co", "e.g", "i.e", "a.m", "p.m", "z.b",
    "d.h", "u.a", "bzw", "ca", "evtl", "ggf", "inkl", "zzgl", "str", "tel", "abs", "bd", "hr", "fr", "usw", "mme",
    "mlle", "sra", "ud", "gen", "col", "lt", "gov", "rev", "hon", "ave", "blvd", "u.s", "u.k", "u.n", "ph.d",
    "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sept", "sep", "oct", "nov", "dec",
))
# fmt: on


class Sentences:
    """Cuts one growing text into sentences; see `chunking.Chunker`."""

    waiting = 0

    def __init__(self) -> None:
        self._text = ""  # from the last cut on
        self._base = 0  # code points before it
        self._from = 0  # where in it the search goes on

    def close(self) -> None:
        """See `Chunker.close`."""

    def feed(self, text: str, last: bool) -> list[int]:
        """See `Chunker.feed`."""
        self._text += text
        ends = []
        while (match := _END.search(self._text, self._from)) is not None:
            ending = self._ending(match, last)
            if ending is None:
                # Undecided: all of the match may change with what follows.
                self._from = match.start()
                break
            end = len(self._text[: match.end()].rstrip()) if ending else 0
            ends += [self._base + end] if end else []
            self._base += end
            self._text = self._text[end:]
            self._from = match.end() - end
        else:
            self._from = len(self._text)
        if last and self._text:
            ends.append(self._base + len(self._text))
            self._base, self._text, self._from = ends[-1], "", 0
        return ends

    def _ending(self, match: re.Match[str], last: bool) -> bool | None:
        """Whether a sentence ends here; None where what follows must be known first."""
        following = self._text[match.end() :]
        if not following:
            return False if last else None  # more of the same may follow
        if match["line"] is not None:
            return match[0].count("\n") > 1 or not following[0].islower()
        if match["stop"] is None:
            return True
        if not following[0].isspace():
            return _WIDE.match(following) is not None
        behind = following.lstrip()
        if not behind:
            return False if last else None
        if "\n" in following[: len(following) - len(behind)]:
            return False  # the line break decides, and ends it or not
        bare = behind[:_AHEAD].lstrip(_OPENING)
        if not bare and len(behind) < _AHEAD and not last:
            return None
        if match[0][0] in "!?":
            return match[0][-1] in "!?" or not bare[:1].islower()  # a question that was quoted
        if bare[:1].islower():
            return False
        return match[0][0] != "." or not self._abbreviated(match)

    def _abbreviated(self, match: re.Match[str]) -> bool:
        before = _WORD.search(self._text[max(0, match.start() - _LOOKBACK) : match.start()])
        if before is None:
            return False
        word = before[0].lstrip(_OPENING + "-").lower()
        initial = len(word) == 1 and word.isalpha() and word != "i"
        line = self._text[: match.start()].rpartition("\n")[2]
        return initial or word in _ABBREVIATIONS or line.strip().lstrip("#*- ").isdigit()
