"""The detectors ``token_limit`` and ``reading_time``: find texts that are too long."""

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

import msgspec
from detection.detectors.factory import BuiltIn
from detection.detectors.params import Params
from detection.detectors.patterns.matching import Limits
from detection.detectors.port import DetectorStream
from detection.domain import Detection
from servicekit import openai_tokens

_INLINE_LIMIT = 16_384
_WORDS_A_MINUTE = 200
_WORD_ENDS = re.compile(r"(?<=\S)\s")

Count = Callable[[str], int]


class TokenLimitParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    limit: Annotated[int, msgspec.Meta(ge=1, description="Maximum number of tokens of a text.")] = 4096
    encoding: Annotated[Literal["cl100k_base", "o200k_base"], msgspec.Meta(description="The tokenizer.")] = (
        "cl100k_base"
    )


class ReadingTimeParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    max_time: Annotated[
        float,
        msgspec.Meta(gt=0, description=f"Maximum reading time in minutes, at {_WORDS_A_MINUTE} words a minute."),
    ]


def token_limit(limits: Limits) -> BuiltIn[TokenLimitParams]:
    """Return the factory of the detector. Its detections refer to the whole text.

    Args:
        limits: See `CountingDetector`.
    """

    def build(params: TokenLimitParams) -> CountingDetector:
        detection = Detection("token_limit", "too_many_tokens")
        openai_tokens.encoding(params.encoding)  # loads the tables, so that no detection waits for them
        count = partial(openai_tokens.count, params.encoding)
        return CountingDetector(count, _bytes, openai_tokens.CUTS, params.limit, detection, limits)

    return BuiltIn("token_limit", "Finds texts with too many tokens.", TokenLimitParams, build, about_answer=True)


def reading_time(limits: Limits) -> BuiltIn[ReadingTimeParams]:
    """Return the factory of the detector. Its detections refer to the whole text.

    Args:
        limits: See `CountingDetector`.
    """

    def build(params: ReadingTimeParams) -> CountingDetector:
        detection = Detection("reading_time", "too_long_to_read")
        max_words = params.max_time * _WORDS_A_MINUTE
        return CountingDetector(_words, _words, _WORD_ENDS, max_words, detection, limits)

    description = "Finds texts that take too long to read."
    return BuiltIn("reading_time", description, ReadingTimeParams, build, about_answer=True)


class CountingDetector:
    """Finds texts with a count above a limit.

    Args:
        count: Counts a text.
        bound: Returns an upper bound of the count of a text. The sum of the bounds of a text's pieces must also be
            an upper bound of the text's count.
        cuts: Matches where a text can be cut: the counts of the parts add up to the count of the text.
        max_count: The maximum count.
        detection: The detection for a higher count.
        limits: Its limit of held-back text applies.
    """

    def __init__(
        self,
        count: Count,
        bound: Count,
        cuts: re.Pattern[str],
        max_count: float,
        detection: Detection,
        limits: Limits,
    ) -> None:
        self._count = count
        self._bound = bound
        self._cuts = cuts
        self._max_count = max_count
        self._detection = detection
        self._limits = limits
        self.inline_limit = _INLINE_LIMIT

    def detect(self, text: str) -> list[Detection]:
        """See `Detector.detect`."""
        return self.stream().feed(text, last=True)[1]

    def stream(self) -> DetectorStream:
        """See `Detector.stream`."""
        return CountingStream(self._count, self._bound, self._cuts, self._max_count, self._detection, self._limits)


class CountingStream:
    """Holds back the part of a growing text that may exceed the maximum count.

    The stream counts exactly only after the upper bound of the count has exceeded the maximum.
    """

    def __init__(
        self,
        count: Count,
        bound: Count,
        cuts: re.Pattern[str],
        max_count: float,
        detection: Detection,
        limits: Limits,
    ) -> None:
        self._count = count
        self._bound = bound
        self._cuts = cuts
        self._max_count = max_count
        self._detection = detection
        self._limits = limits
        self._counted = 0  # the count of the text before the last cut
        self._length = 0
        self._decided = 0
        self._rest: list[str] = []  # the text after the last cut
        self._rest_bound = 0  # the upper bound of the count of this text
        self._searched = 0  # the part of this text that has no further cut
        self._found = False

    def feed(self, text: str, last: bool) -> tuple[int, list[Detection]]:
        """See `DetectorStream.feed`."""
        if not last and self._length - self._decided > self._limits.held_back:
            raise self._limits.too_long()
        self._length += len(text)
        detections = [] if self._found or not self._exceeds_maximum(text, last) else [self._detection]
        self._found = self._found or bool(detections)
        if self._found or self._counted + self._rest_bound <= self._max_count:
            self._decided = self._length
        else:
            # Text that was released earlier cannot be held back again.
            self._decided = max(self._decided, self._length - len(self._rest[0]))
        return self._decided, detections

    def _exceeds_maximum(self, text: str, last: bool) -> bool:
        self._rest.append(text)
        self._rest_bound += self._bound(text)
        if self._counted + self._rest_bound <= self._max_count:
            return False
        rest = "".join(self._rest)
        if not last:
            cut = 0
            for match in self._cuts.finditer(rest, self._searched):
                cut = match.start()
            self._counted += self._count(rest[:cut]) if cut else 0
            rest = rest[cut:]
        else:
            self._counted += self._count(rest)
            rest = ""
        self._rest, self._rest_bound, self._searched = [rest], self._bound(rest), len(rest)
        return self._counted > self._max_count


def _words(text: str) -> int:
    return len(text.split())


def _bytes(text: str) -> int:
    return len(text.encode())
