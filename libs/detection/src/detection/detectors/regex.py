"""The detector ``regex``: finds matches of named patterns and of the caller's own patterns."""

from typing import Annotated

import msgspec

from detection.detectors.factory import BuiltIn
from detection.detectors.params import BadParam, Params
from detection.detectors.patterns.detector import PatternDetector
from detection.detectors.patterns.engine import Unsupported
from detection.detectors.patterns.matching import Limits, Matcher, Pattern
from detection.detectors.patterns.named import NAMED

_MAX_PATTERNS = 32
_MAX_PATTERN_LENGTH = 1000
_MAX_INSTRUCTIONS = 10_000  # the maximum number of instructions of all patterns of a caller
_NAMES = ", ".join(f"`{name}`" for name in NAMED)


class RegexParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    regex: Annotated[
        list[Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_PATTERN_LENGTH)]],
        msgspec.Meta(
            min_length=1,
            max_length=_MAX_PATTERNS,
            description=f"The patterns to find: {_NAMES}, or a regular expression in RE2's syntax.",
        ),
    ]


def regex(limits: Limits) -> BuiltIn[RegexParams]:
    """Return the factory of the detector.

    Detections of named patterns have the type ``pii``. Detections of the caller's patterns have the type ``regex``
    and the name ``custom_regex``.
    """
    named = {name: [Matcher(pattern) for pattern in patterns] for name, patterns in NAMED.items()}

    def build(params: RegexParams) -> PatternDetector:
        indexes = {text: params.regex.index(text) for text in params.regex}  # without duplicates
        matchers = [
            matcher
            for text, index in indexes.items()
            for matcher in named.get(text) or [_custom_matcher(text, f"regex[{index}]")]
        ]
        if sum(matcher.size for matcher in matchers if matcher.pattern.custom) > _MAX_INSTRUCTIONS:
            raise BadParam("regex", "the patterns are too large together; use fewer or simpler patterns")
        try:
            return PatternDetector(matchers, limits)
        except Unsupported as error:
            raise BadParam("regex", f"the patterns are too large together: {error}") from error

    description = "Finds personal data by its form, and matches of regular expressions."
    return BuiltIn("regex", description, RegexParams, build)


def _custom_matcher(expression: str, path: str) -> Matcher:
    try:
        matcher = Matcher(Pattern("regex", "custom_regex", expression, custom=True))
    except ValueError as error:
        raise BadParam(path, f"the pattern is not supported: {error}") from error
    if matcher.matches_empty():
        raise BadParam(path, "the pattern matches the empty text")
    return matcher
