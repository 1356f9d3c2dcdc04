"""The detector ``ban_substrings``: finds phrases of a list."""

import itertools
import re
import unicodedata
from collections.abc import Sequence
from operator import itemgetter
from typing import Annotated, Literal

import msgspec

from detection.detectors.factory import BuiltIn
from detection.detectors.params import BadParam, Params
from detection.detectors.patterns.detector import PatternDetector
from detection.detectors.patterns.engine import Unsupported
from detection.detectors.patterns.matching import Limits, Matcher, Pattern, preceding
from detection.detectors.patterns.view import readable

_MAX_SUBSTRINGS = 1000
_MAX_SUBSTRING_LENGTH = 500
_MAX_CHARACTERS = 20_000
_NO_WORD = r"(?:[^\pL\pM\pN_]|$)"


class BanSubstringsParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    substrings: Annotated[
        list[Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_SUBSTRING_LENGTH)]],
        msgspec.Meta(min_length=1, max_length=_MAX_SUBSTRINGS, description="The banned phrases."),
    ]
    case_sensitive: Annotated[bool, msgspec.Meta(description="Whether upper and lower case differ.")] = False
    match_type: Annotated[
        Literal["str", "word"],
        msgspec.Meta(description="`str`: anywhere; `word`: only if no letter, digit or underscore is next to it."),
    ] = "str"


def ban_substrings(limits: Limits) -> BuiltIn[BanSubstringsParams]:
    """Return the factory of the detector.

    The detector finds every occurrence, including overlapping ones. If several phrases begin at the same
    position, it finds the longest one.
    """

    def build(params: BanSubstringsParams) -> PatternDetector:
        if sum(map(len, params.substrings)) > _MAX_CHARACTERS:
            raise BadParam("substrings", f"more than {_MAX_CHARACTERS} characters in total")
        whole_words = params.match_type == "word"
        spellings = [spelling for substring in params.substrings for spelling in _spellings(substring)]
        words = spellings if params.case_sensitive else map(_fold_case, spellings)
        expression = _alternation(sorted(set(words)))
        if whole_words:
            expression = f"({expression}){_NO_WORD}"
        if not params.case_sensitive:
            expression = f"(?i){expression}"
        pattern = Pattern(
            "banned",
            "banned_substring",
            expression,
            accept=_begins_word if whole_words else None,
            grouped=whole_words,
            overlapping=True,
        )
        try:
            return PatternDetector([Matcher(pattern)], limits)
        except Unsupported as error:
            raise BadParam("substrings", f"the list is too large: {error}") from error

    return BuiltIn("ban_substrings", "Finds phrases of a list.", BanSubstringsParams, build)


def _spellings(substring: str) -> tuple[str, ...]:
    """Return the substring, and its spelling in the view of a text, which the detector also searches."""
    view = readable(substring)
    return (substring, view) if any(map(str.isalnum, view)) else (substring,)


def _begins_word(text: bytes, start: int, _: int) -> bool:
    before = text[preceding(text, start) : start].decode()
    return not before or not (before == "_" or unicodedata.category(before)[0] in "LMN")


def _alternation(words: Sequence[str]) -> str:
    # The words are sorted and distinct. The expression has each common prefix once, and prefers the longest word.
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(words[0], words[-1], strict=False))
    shared = "".join(character for character, _ in same)
    rests = [word[len(shared) :] for word in words]
    branches = [_alternation(list(group)) for _, group in itertools.groupby(filter(None, rests), key=itemgetter(0))]
    if not branches:
        return re.escape(shared)
    optional = "?" if rests[0] == "" else ""
    return f"{re.escape(shared)}(?:{'|'.join(branches)}){optional}"


def _fold_case(word: str) -> str:
    # RE2 ignores case with simple folding, so use only foldings of one character to one character.
    return "".join(
        next((form for form in (character.casefold(), character.lower()) if len(form) == 1), character)
        for character in word
    )
