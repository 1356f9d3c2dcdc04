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


class Wanted(msgspec.Struct, kw_only=True):
    """The parameters that mean something to a model without chance. Others are passed over."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None

    def problem(self) -> tuple[str, str] | None:
        """The parameter that is out of range, and why; None if all are good."""
        for name in ("max_tokens", "max_completion_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                return name, f"'{name}' must be at least 1."
        if self.n is not None and not 1 <= self.n <= _MOST_CHOICES:
            return "n", f"'n' must be between 1 and {_MOST_CHOICES}."
        return None


@dataclass(frozen=True, slots=True)
class Worded:
    """What is said: the pieces in order, and why there are no more of them (``stop`` or ``length``)."""

    pieces: list[str]
    finish_reason: str


def worded(text: str, wanted: Wanted) -> Worded:
    """Return the part of an answer that the parameters allow."""
    stops = [wanted.stop] if isinstance(wanted.stop, str) else wanted.stop or []
    ends = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    said = pieces(text[: min(ends)] if ends else text)
    most = min((most for most in (wanted.max_tokens, wanted.max_completion_tokens) if most), default=len(said))
    return Worded(said[:most], "length" if most < len(said) else "stop")


_parameters = msgspec.json.Decoder(Wanted)


class ExtractiveModel:
    """Answers with the best sentences of the sources, each with its citation; the same prompt, the same answer.

    A request of the OpenAI API brings no sources, so its answer is that there are none; it is given in that API's
    shape, so that the route works where no model server is.

    Args:
        name: Its public name.
        window: Context window in its tokens, which are words.
        clock: Seconds since 1970.
    """

    def __init__(
        self, name: str = "extractive", *, window: int = 32_768, clock: Callable[[], float] = time.time
    ) -> None:
        self.name = name
        self.owned_by = "causeway"
        self.only_quotes = True
        self.tokens = PieceCounter()
        self._window = window
        self._clock = clock

    async def generate(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        """As the port says, a TEXT event a word."""
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
        # Reading long sources takes milliseconds, in which other streams go on.
        text = await asyncio.to_thread(answer, _question(prompt), prompt.sources)
        said, choices = worded(text, wanted), wanted.n or 1
        yield openai_emulation.start(self.name)
        for piece in said.pieces:
            for choice in range(choices):
                yield Event(EventKind.TEXT, choice, piece)
        for choice in range(choices):
            yield Event(EventKind.FINISH, choice, said.finish_reason)
        yield Event(EventKind.USAGE, usage=self._usage(prompt.messages, said, choices))

    def _usage(self, messages: Sequence[ChatMessage], said: Worded, choices: int) -> Usage:
        return Usage(self.tokens.count_messages(messages), choices * len(said.pieces), exact=True)

    async def context_window(self) -> int:
        """As constructed."""
        return self._window

    async def created(self) -> int:
        """Not known."""
        return 0

    async def ready(self) -> bool:
        """Always."""
        return True

    async def aclose(self) -> None:
        """It holds nothing."""


def _identity(body: bytes) -> str:
    """An id that the same request has again, like all of its answer."""
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
    asked = [message for message in prompt.messages if message.role == "user"]
    return text_of(asked[-1]) if asked else ""
