"""An answer as it grows: its text, cut where it must end, and what is known of its tokens."""

import codecs
from collections.abc import Mapping
from typing import Any

from generator.triton.contract import piece
from generator.triton.parameters import Sampling
from generator.triton.stops import StopCutter

_REASONS = {"stop": "stop", "length": "length"}


class Answer:
    """Reads a model's responses.

    Attributes:
        responses: How many came.
        asked: Tokens of the prompt, as the server counted them; None if it has not.
        said: Tokens of the answer, likewise.
    """

    def __init__(self, wanted: Sampling) -> None:
        self.responses = 0
        self.asked: int | None = None
        self.said: int | None = None
        self._wanted = wanted
        self._cutter = StopCutter(wanted.stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a token may be half a character
        self._texts: list[str] = []
        self._reason = ""

    @property
    def text(self) -> str:
        """All that was said."""
        return "".join(self._texts)

    @property
    def stopped(self) -> bool:
        """A stop sequence came; the rest need not be made."""
        return self._cutter.stopped

    def take(self, outputs: Mapping[str, list[Any]]) -> str:
        """What a response adds to the text."""
        self.responses += 1
        read = piece(outputs)
        self._reason = read.reason or self._reason
        self.asked = self.asked if read.asked is None else read.asked
        self.said = self.said if read.said is None else (self.said or 0) + read.said
        return self._said(self._cutter.feed(self._decoder.decode(read.text)))

    def close(self) -> str:
        """What the end adds to it."""
        return self._said(self._cutter.feed(self._decoder.decode(b"", final=True)) + self._cutter.close())

    def reason(self, counted: int) -> str:
        """Why it ended, as the OpenAI API says it.

        Args:
            counted: Its tokens.
        """
        if self._cutter.stopped:
            return "stop"
        if self._reason:
            return _REASONS.get(self._reason, self._reason)
        # TensorRT-LLM gives none, but a response for each token.
        return "length" if max(counted, self.responses) >= self._wanted.most else "stop"

    def _said(self, text: str) -> str:
        if text:
            self._texts.append(text)
        return text
