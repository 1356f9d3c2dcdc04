"""The detector ``invisible_text``: finds characters that a model reads and a person does not see.

Format characters, private-use characters, tags, Hangul fillers and supplementary variation selectors can contain
hidden instructions or data. The detector ignores their normal uses: joiners between letters or emoji, directional
marks next to a letter, soft hyphens, and flags. It also ignores the variation selectors U+FE00 to U+FE0F, which
occur in emoji.
"""

import unicodedata
from typing import Annotated

import msgspec

from detection.detectors.factory import BuiltIn
from detection.detectors.params import Params
from detection.detectors.patterns.detector import PatternDetector
from detection.detectors.patterns.matching import Limits, Matcher, Pattern, following, preceding

# RE2 has no character class for unassigned characters, so this expression lists code points that Unicode never
# assigns.
_INVISIBLE = r"[\p{Cf}\p{Co}\x{FDD0}-\x{FDEF}\x{FFFE}\x{FFFF}\x{115F}\x{1160}\x{3164}\x{E0100}-\x{E01EF}]+"
_JOINERS = "\u200c\u200d"
_BESIDE_LETTERS = "\u00ad\u200e\u200f\u061c\u2060"  # soft hyphen, directional marks, word joiner
_PREPENDED = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u08e2"  # number signs, which are visible
_BLACK_FLAG, _CANCEL = "\U0001f3f4", "\U000e007f"


class InvisibleTextParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    replacement: Annotated[
        str, msgspec.Meta(max_length=200, description="Text that replaces a span if the action is redact.")
    ] = ""


def invisible_text(limits: Limits) -> BuiltIn[InvisibleTextParams]:
    """Return the factory of the detector."""
    detector = PatternDetector(
        [Matcher(Pattern("invisible_text", "invisible_characters", _INVISIBLE, accept=_is_hidden))],
        limits,
        with_view=False,
    )
    description = "Finds characters that readers do not see."
    return BuiltIn("invisible_text", description, InvisibleTextParams, lambda _: detector)


def _is_hidden(text: bytes, start: int, end: int) -> bool:
    run = text[start:end].decode()
    before = text[preceding(text, start) : start].decode() if start else ""
    # This function never gets a run next to the sentinel of an incomplete text, because such a run is uncertain.
    after = text[end : following(text, end)].decode() if end < len(text) else ""
    if len(run) == 1 and not _is_tag(before):
        if run in _JOINERS:
            return not (_may_be_joined(before) and _may_be_joined(after))
        if run in _BESIDE_LETTERS:
            return not (_is_letter(before) or _is_letter(after))
        return run not in _PREPENDED and not (run == "\ufeff" and not before)  # a byte order mark
    if _is_tag(before):
        # The search continues inside a run only after it has rejected a flag, so this is the rest of the flag.
        return False
    return not (before == _BLACK_FLAG and run[-1] == _CANCEL and all(map(_is_tag, run[:-1])))


def _is_tag(character: str) -> bool:
    return "\U000e0020" <= character <= "\U000e007e"


def _may_be_joined(neighbour: str) -> bool:
    # Joiners join emoji, their modifiers and selectors, and letters of joining scripts. Next to ASCII, a joiner is
    # hidden data.
    return bool(neighbour) and not neighbour.isascii() and unicodedata.category(neighbour)[0] in "LMS"


def _is_letter(neighbour: str) -> bool:
    return bool(neighbour) and unicodedata.category(neighbour)[0] in "LMN"
