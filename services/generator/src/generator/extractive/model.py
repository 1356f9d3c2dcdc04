"""The extractive model: the platform's default, which needs neither weights nor a server."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest

from generator import openai_emulation
from generator.answer_limits import AnswerLimits
from generator.domain import ChatMessage, Conversation, Event, EventKind, OpenAIRequest, Prompt, Usage
from generator.extractive.answer import answer
from generator.tokenizers.word_tokens import PieceCounter, pieces, text_of

_MAX_CHOICES = 128
_WINDOW = 32_768
# https://platform.openai.com/docs/api-reference/chat/create: `function` is the deprecated form of `tool`.
_ROLES = ("developer", "system", "user", "assistant", "tool", "function")
_NO_CALL = (None, "none", "auto")


class Parameters(AnswerLimits, kw_only=True):
    """The parameters that a deterministic model can follow or must refuse. The model ignores other parameters."""

    n: int | None = None
    tool_choice: Any = None
    function_call: Any = None

    def check(self) -> None:
        """Check the values; see `AnswerLimits.check`.

        Raises:
            InvalidRequest: A value is out of range, or requires a tool call. The error names the parameter.
        """
        AnswerLimits.check(self)
        if self.n is not None and not 1 <= self.n <= _MAX_CHOICES:
            raise InvalidRequest(f"'n' must be between 1 and {_MAX_CHOICES}.", field="n")
        for name, choice in (("tool_choice", self.tool_choice), ("function_call", self.function_call)):
            if not _allows_text(choice):
                raise InvalidRequest(f"'{name}' must be 'auto' or 'none': the model calls no tools.", field=name)


@dataclass(frozen=True, slots=True)
class LimitedAnswer:
    """A possibly shortened answer.

    Attributes:
        pieces: Its pieces in order; see `generator.tokenizers.word_tokens.pieces`.
        finish_reason: ``stop`` or ``length``.
    """

    pieces: list[str]
    finish_reason: str


def limit_answer(text: str, parameters: Parameters) -> LimitedAnswer:
    """Return the part of an answer that the parameters allow."""
    ends = [start for stop in parameters.stops if (start := text.find(stop)) >= 0]
    parts = pieces(text[: min(ends)] if ends else text)
    max_pieces = parameters.token_limit or len(parts)
    return LimitedAnswer(parts[:max_pieces], "length" if max_pieces < len(parts) else "stop")


_parameters = msgspec.json.Decoder(Parameters)


def _allows_text(choice: Any) -> bool:
    """Return whether a tool choice allows an answer without a tool call."""
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = choice.get("allowed_tools")
        return isinstance(allowed, dict) and allowed.get("mode") == "auto"
    return choice in _NO_CALL


class ExtractiveModel:
    """Answers with the best sentences of the sources, each with its citation; equal prompts get equal answers.

    A request of the OpenAI API has no sources. It gets the answer `generator.extractive.answer.NO_SOURCES` in the
    format of that API, so that the route works without a model server.

    Args:
        name: The public name.
        window: The context window in tokens; None: 32,768. A token is a piece of
            `generator.tokenizers.word_tokens.pieces`: a word, or a Chinese, Japanese or Korean character.
        clock: Returns seconds since 1970.
    """

    def __init__(
        self, name: str = "extractive", *, window: int | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.name = name
        self.owned_by = "causeway"
        self.only_quotes = True
        self.tokens = PieceCounter()
        self._window = window or _WINDOW
        self._clock = clock

    async def generate(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        """Yield the events of the answer; in a conversation, each TEXT event has one piece.

        See `generator.ports.Model.generate`.
        """
        if isinstance(prompt, OpenAIRequest):
            request = openai_emulation.parse(prompt.body)
            _check_roles(request.conversation.messages)
            writer = openai_emulation.Writer(self.name, _completion_id(prompt.body), int(self._clock()))
            events = writer.answer(request, self._answer(request.conversation))
        else:
            events = self._answer(prompt)
        async with contextlib.aclosing(events):
            async for event in events:
                yield event

    async def _answer(self, prompt: Conversation) -> AsyncGenerator[Event, None]:
        parameters = _parse_parameters(prompt.parameters_json)
        # In a thread, because long sources take milliseconds, and other streams must continue.
        text = await asyncio.to_thread(answer, _question(prompt), prompt.sources)
        limited, choices = limit_answer(text, parameters), parameters.n or 1
        yield openai_emulation.start(self.name)
        for piece in limited.pieces:
            for choice in range(choices):
                yield Event(EventKind.TEXT, choice, piece)
        for choice in range(choices):
            yield Event(EventKind.FINISH, choice, limited.finish_reason)
        yield Event(EventKind.USAGE, usage=self._usage(prompt.messages, limited, choices))

    def _usage(self, messages: Sequence[ChatMessage], limited: LimitedAnswer, choices: int) -> Usage:
        return Usage(self.tokens.count_messages(messages), choices * len(limited.pieces), exact=True)

    async def context_window(self) -> int:
        """Return the configured window."""
        return self._window

    async def created(self) -> int:
        """Return 0, because the time is unknown."""
        return 0

    async def ready(self) -> bool:
        """Return True."""
        return True

    async def aclose(self) -> None:
        """Do nothing, because the model has no resources."""


def _completion_id(body: bytes) -> str:
    """Return an id that is the same for equal requests."""
    return f"chatcmpl-{hashlib.sha256(body).hexdigest()[:29]}"


def _parse_parameters(parameters_json: bytes) -> Parameters:
    try:
        parameters = _parameters.decode(parameters_json)
    except (ValueError, RecursionError) as error:
        raise openai_emulation.invalid(error) from error
    parameters.check()
    return parameters


def _check_roles(messages: Sequence[ChatMessage]) -> None:
    for index, message in enumerate(messages):
        if message.role not in _ROLES:
            field = f"messages[{index}].role"
            raise InvalidRequest(f"'{field}' must be one of {', '.join(_ROLES)}.", field=field)


def _question(prompt: Conversation) -> str:
    if prompt.question:
        return prompt.question
    questions = [message for message in prompt.messages if message.role == "user"]
    return text_of(questions[-1]) if questions else ""
