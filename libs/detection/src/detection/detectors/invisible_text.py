"""The detector ``invisible_text``: finds characters that a model sees and a reader does not.

Format characters, private-use characters, tags and variation selectors can carry hidden instructions or data. Their
normal uses are not findings: joiners between letters or emoji, direction marks next to a letter, soft hyphens,
flags.
"""

import unicodedata
from typing import Annotated

import msgspec

from detection.detectors.factory import BuiltIn
from detection.detectors.params import Params
from detection.detectors.patterns.detector import PatternDetector
from detection.detectors.patterns.matching import Limits, Matcher, Pattern, following, preceding

# RE2 has no class of unassigned characters. The characters that can never be assigned are listed here.
_INVISIBLE = r"[\p{Cf}\p{Co}\x{FDD0}-\x{FDEF}\x{FFFE}\x{FFFF}\x{115F}\x{1160}\x{3164}\x{E0100}-\x{E01EF}]+"
_JOINERS = "\u200c\u200d"
_BESIDE_LETTERS = "\u00ad\u200e\u200f\u061c\u2060"  # soft hyphen, marks of direction, word joiner
_PREPENDED = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u08e2"  # number signs, which are visible
_BLACK_FLAG, _CANCEL = "\U0001f3f4", "\U000e007f"


class InvisibleTextParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    replacement: Annotated[
        str, msgspec.Meta(max_length=200, description="Replaces a span if the action is redact.")
    ] = ""


def invisible_text(limits: Limits) -> BuiltIn[InvisibleTextParams]:
    """Return the factory of the detector."""
    detector = PatternDetector(
        [Matcher(Pattern("invisible_text", "invisible_characters", _INVISIBLE, accept=_hidden))],
        limits,
        as_read=False,
    )
    description = "Finds characters that readers do not see."
    return BuiltIn("invisible_text", description, InvisibleTextParams, lambda _: detector)


def _hidden(text: bytes, start: int, end: int) -> bool:
    run = text[start:end].decode()
    before = text[preceding(text, start) : start].decode() if start else ""
    # In an incomplete text, a run next to the sentinel is not certain yet, so it does not get here.
    after = text[end : following(text, end)].decode() if end < len(text) else ""
    if len(run) == 1 and not _tag(before):
        if run in _JOINERS:
            return not (_joins(before) and _joins(after))
        if run in _BESIDE_LETTERS:
            return not (_letter(before) or _letter(after))
        return run not in _PREPENDED and not (run == "\ufeff" and not before)  # a byte order mark
    if _tag(before):
        return False  # a run is as long as possible, so this is the rest of a flag
    return not (before == _BLACK_FLAG and run[-1] == _CANCEL and all(map(_tag, run[:-1])))


def _tag(character: str) -> bool:
    return "\U000e0020" <= character <= "\U000e007e"


def _joins(neighbour: str) -> bool:
    # Emoji, their modifiers and selectors, and letters of joining scripts. In ASCII, a joiner is always hidden
    # data.
    return bool(neighbour) and not neighbour.isascii() and unicodedata.category(neighbour)[0] in "LMS"


def _letter(neighbour: str) -> bool:
    return bool(neighbour) and unicodedata.category(neighbour)[0] in "LMN"
