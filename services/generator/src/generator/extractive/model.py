"""The extractive model: the platform's default, which needs neither weights nor a server."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

import msgspec
from servicekit.errors import InvalidRequest

from generator import openai_emulation
from generator.domain import ChatMessage, Conversation, Event, EventKind, OpenAIRequest, Prompt, Usage
from generator.extractive.answer import answer
from generator.tokenizers.word_tokens import PieceCounter, pieces, text_of

_MOST_CHOICES = 128
_WINDOW = 32_768


class Wanted(msgspec.Struct, kw_only=True):
    """The parameters that have an effect on a deterministic model. Others are ignored."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None

    def problem(self) -> tuple[str, str] | None:
        """Return the first parameter that is out of range, and why; None if all are valid."""
        for name in ("max_tokens", "max_completion_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                return name, f"'{name}' must be at least 1."
        if self.n is not None and not 1 <= self.n <= _MOST_CHOICES:
            return "n", f"'n' must be between 1 and {_MOST_CHOICES}."
        return None


@dataclass(frozen=True, slots=True)
class Worded:
    """The answer: its pieces in order, and why it ends (``stop`` or ``length``)."""

    pieces: list[str]
    finish_reason: str


def worded(text: str, wanted: Wanted) -> Worded:
    """Return the part of an answer that the parameters allow."""
    stops = [wanted.stop] if isinstance(wanted.stop, str) else wanted.stop or []
    ends = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    parts = pieces(text[: min(ends)] if ends else text)
    most = min((most for most in (wanted.max_tokens, wanted.max_completion_tokens) if most), default=len(parts))
    return Worded(parts[:most], "length" if most < len(parts) else "stop")


_parameters = msgspec.json.Decoder(Wanted)


class ExtractiveModel:
    """Answers with the best sentences of the sources, each with its citation; equal prompts get equal answers.

    A request of the OpenAI API has no sources, and the answer says so. The answer has that API's format, so that
    the route works without a model server.

    Args:
        name: Its public name.
        window: Context window in its tokens, which are words; None: 32,768.
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
        """See the port; one TEXT event per word."""
        if isinstance(prompt, OpenAIRequest):
            request = openai_emulation.parse(prompt.body)
            writer = openai_emulation.Writer(self.name, _identity(prompt.body), int(self._clock()))
            events = writer.answer(request, self._answer(request.conversation))
        else:
            events = self._answer(prompt)
        async with contextlib.aclosing(events):
            async for event in events:
                yield event

    async def _answer(self, prompt: Conversation) -> AsyncGenerator[Event, None]:
        wanted = _wanted(prompt.parameters_json)
        # In steps: long sources take milliseconds, and other streams must continue.
        text = await asyncio.to_thread(answer, _question(prompt), prompt.sources)
        answered, choices = worded(text, wanted), wanted.n or 1
        yield openai_emulation.start(self.name)
        for piece in answered.pieces:
            for choice in range(choices):
                yield Event(EventKind.TEXT, choice, piece)
        for choice in range(choices):
            yield Event(EventKind.FINISH, choice, answered.finish_reason)
        yield Event(EventKind.USAGE, usage=self._usage(prompt.messages, answered, choices))

    def _usage(self, messages: Sequence[ChatMessage], answered: Worded, choices: int) -> Usage:
        return Usage(self.tokens.count_messages(messages), choices * len(answered.pieces), exact=True)

    async def context_window(self) -> int:
        """Return the configured window."""
        return self._window

    async def created(self) -> int:
        """Return 0: not known."""
        return 0

    async def ready(self) -> bool:
        """Return True."""
        return True

    async def aclose(self) -> None:
        """Do nothing: it holds no resources."""


def _identity(body: bytes) -> str:
    """Return an id that is the same for equal requests."""
    return f"chatcmpl-{hashlib.sha256(body).hexdigest()[:29]}"


def _wanted(parameters_json: bytes) -> Wanted:
    try:
        wanted = _parameters.decode(parameters_json)
    except (ValueError, RecursionError) as error:
        raise openai_emulation.invalid(error) from error
    problem = wanted.problem()
    if problem is not None:
        raise InvalidRequest(problem[1], field=problem[0])
    return wanted


def _question(prompt: Conversation) -> str:
    if prompt.question:
        return prompt.question
    questions = [message for message in prompt.messages if message.role == "user"]
    return text_of(questions[-1]) if questions else ""
