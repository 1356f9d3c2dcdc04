"""An answer of a model on Triton: the text up to a stop sequence, and the token counts."""

import codecs
from collections.abc import Mapping
from typing import Any

from generator.triton.contract import parse_piece
from generator.triton.parameters import Sampling
from generator.triton.stops import StopCutter


class Answer:
    """Collects the responses of a model for one request.

    Attributes:
        responses: The number of responses.
        prompt_tokens: The server's token count of the prompt; None if unknown.
        answer_tokens: The server's token count of the answer; None if unknown.
    """

    def __init__(self, sampling_parameters: Sampling) -> None:
        self.responses = 0
        self.prompt_tokens: int | None = None
        self.answer_tokens: int | None = None
        self._sampling = sampling_parameters
        self._cutter = StopCutter(sampling_parameters.stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a token may be half a character
        self._texts: list[str] = []
        self._reason = ""

    @property
    def text(self) -> str:
        """Return the whole text so far."""
        return "".join(self._texts)

    @property
    def stopped(self) -> bool:
        """Return whether the model has sent a stop sequence; if so, the caller can stop the model."""
        return self._cutter.stopped

    def add_response(self, outputs: Mapping[str, list[Any]]) -> str:
        """Return the text that a response adds to the answer."""
        self.responses += 1
        content = parse_piece(outputs)
        self._reason = content.reason or self._reason
        self.prompt_tokens = self.prompt_tokens if content.prompt_tokens is None else content.prompt_tokens
        self.answer_tokens = (
            self.answer_tokens
            if content.answer_tokens is None
            else (self.answer_tokens or 0) + content.answer_tokens
        )
        return self._append(self._cutter.feed(self._decoder.decode(content.text)))

    def close(self) -> str:
        """Return the remaining text at the end of the answer."""
        return self._append(self._cutter.feed(self._decoder.decode(b"", final=True)) + self._cutter.close())

    def reason(self, answer_tokens: int) -> str:
        """Return the finish reason: the server's reason, else ``stop`` or ``length``.

        Args:
            answer_tokens: The number of tokens of the answer.
        """
        if self._cutter.stopped:
            return "stop"
        if self._reason:
            return self._reason
        # TensorRT-LLM sends no reason, but one response per token.
        return "length" if max(answer_tokens, self.responses) >= self._sampling.max_tokens else "stop"

    def _append(self, text: str) -> str:
        if text:
            self._texts.append(text)
        return text
