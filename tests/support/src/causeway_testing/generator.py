"""Fakes of the ports, for tests; they pass the contract that the real ones pass."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncGenerator, Iterator, Sequence

from generator.domain import ChatMessage, Event, EventKind, OpenAIRequest, Prompt, Usage
from generator.ports import Model
from generator.routing.attempts import Retries, Target
from generator.routing.circuit_breaker import CircuitBreaker
from generator.routing.concurrency import ConcurrencyLimiter
from generator.routing.deployment import Deployment
from generator.routing.models import Models
from generator.routing.route import Route


class FakeTokenCounter:
    """A token is a word."""

    exact = True
    counting = "fake"

    def count(self, text: str) -> int:
        """Words, parted by white space."""
        return len(text.split())

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Words of the messages, and one for each message."""
        return sum(self.count(message.text) + 1 for message in messages)


CONVERSATION_EVENTS = (
    Event(EventKind.START, raw_json=b'{"id":"fake-1","model":"fake"}'),
    Event(EventKind.TEXT, text="Hello "),
    Event(EventKind.TEXT, text="there."),
    Event(EventKind.FINISH, text="stop"),
    Event(EventKind.USAGE, usage=Usage(2, 2, True)),
)
COMPLETION_EVENTS = (Event(EventKind.COMPLETION, raw_json=b'{"object":"chat.completion","choices":[]}'),)
CHUNK_EVENTS = (
    Event(EventKind.CHUNK, raw_json=b'{"choices":[{"index":0,"delta":{"content":"Hello "}}]}'),
    Event(EventKind.CHUNK, raw_json=b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'),
)


class FakeModel:
    """Says what it was told to say, and notes what it was asked.

    Args:
        name: Its public name.
        script: Its events, whatever is asked; an exception is raised, a number is a pause in seconds.
        window: Its context window.
        created: When, in seconds since 1970.
        is_ready: What `ready` says.

    Attributes:
        prompts: What it was asked.
        yielded: How many events were taken from it.
        stopped: How many answers were ended by the reader.
        closed: `aclose` was called.
    """

    def __init__(
        self,
        name: str = "fake",
        script: Sequence[Event | Exception | float] | None = None,
        *,
        window: int = 1000,
        created: int = 0,
        is_ready: bool = True,
    ) -> None:
        self.name = name
        self.owned_by = "tests"
        self.only_quotes = False
        self.tokens = FakeTokenCounter()
        self.prompts: list[Prompt] = []
        self.yielded = 0
        self.stopped = 0
        self.closed = False
        self._script = script
        self._window = window
        self._created = created
        self._ready = is_ready

    async def generate(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        """The script; without one, two words."""
        self.prompts.append(prompt)
        try:
            for step in _usual(prompt) if self._script is None else self._script:
                if isinstance(step, Event):
                    self.yielded += 1
                    yield step
                elif isinstance(step, Exception):
                    raise step
                else:
                    await asyncio.sleep(step)
        except (asyncio.CancelledError, GeneratorExit):
            self.stopped += 1
            raise

    async def context_window(self) -> int:
        """As constructed."""
        return self._window

    async def created(self) -> int:
        """As constructed."""
        return self._created

    async def ready(self) -> bool:
        """As constructed."""
        return self._ready

    async def aclose(self) -> None:
        """Notes it."""
        self.closed = True


def _usual(prompt: Prompt) -> Sequence[Event]:
    if not isinstance(prompt, OpenAIRequest):
        return CONVERSATION_EVENTS
    return CHUNK_EVENTS if json.loads(prompt.body).get("stream") else COMPLETION_EVENTS


def deployed(
    model: Model,
    *,
    name: str = "",
    most: int = 100,
    queue: int = 0,
    failures: int = 5,
    seconds: float = 10.0,
    first_token: float = math.inf,
) -> Deployment:
    """A deployment of a model."""
    name = name or model.name
    circuit = CircuitBreaker(name, failures=failures, seconds=seconds)
    return Deployment(name, model, slots=ConcurrencyLimiter(most, queue), circuit=circuit, first_token=first_token)


class FakeCatalogue:
    """The same models always, each asked once and no more."""

    def __init__(self, *models: Model) -> None:
        self._models = Models(
            [
                Route(model.name, [Target(deployed(model))], tokens=model.tokens, retries=Retries(most=0))
                for model in models
            ]
        )

    @contextlib.contextmanager
    def held(self) -> Iterator[Models]:
        """As constructed."""
        yield self._models
