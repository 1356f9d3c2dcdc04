"""The limits of an answer in a chat completion request, which the generator itself applies for some models.

https://platform.openai.com/docs/api-reference/chat/create
"""

import msgspec
from servicekit.errors import InvalidRequest


class AnswerLimits(msgspec.Struct, kw_only=True):
    """The parameters that limit the length of an answer, with the rules of vLLM's server for their values."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None

    @property
    def token_limit(self) -> int | None:
        """Return the maximum number of tokens; ``max_completion_tokens`` overrides ``max_tokens``."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def stops(self) -> list[str]:
        """Return the stop sequences."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def check(self) -> None:
        """Check the values.

        Raises:
            InvalidRequest: A token limit is less than 1, or a stop sequence is empty. The error names the
                parameter.
        """
        for name, limit in (("max_tokens", self.max_tokens), ("max_completion_tokens", self.max_completion_tokens)):
            if limit is not None and limit < 1:
                raise InvalidRequest(f"'{name}' must be at least 1.", field=name)
        for index, stop in enumerate(self.stops):
            if not stop:
                field = "stop" if isinstance(self.stop, str) else f"stop[{index}]"
                raise InvalidRequest("A stop sequence must not be empty.", field=field)
