"""Fakes of the generator's ports. They pass the contract tests of the real adapters."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncGenerator, Iterator, Sequence

from generator.domain import ChatMessage, Event, EventKind, OpenAIRequest, Prompt, Usage
from generator.openai.reply import Limits
from generator.ports import Model
from generator.routing.attempts import Retries, Target
from generator.routing.circuit_breaker import CircuitBreaker
from generator.routing.concurrency import ConcurrencyLimiter
from generator.routing.deployment import Deployment
from generator.routing.models import Models
from generator.routing.route import Route


class FakeTokenCounter:
    """A token counter for which a word is a token."""

    exact = True
    counting = "fake"

    def count(self, text: str) -> int:
        """Return the number of words."""
        return len(text.split())

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the counts of the texts."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Return the number of words plus one token for each message."""
        return sum(self.count(message.text) + 1 for message in messages)


def limits_for(fault: str) -> Limits:
    """Return the limits for a model server with the fault.

    Only a model server that hangs needs a short limit. The other replies may be late on a busy machine.
    """
    seconds = 1 if "hang" in fault else 20
    return Limits(connect=20, first_byte=seconds, idle=seconds, max_bytes=1024 * 1024)


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
    """A model that answers with a script, and records the prompts.

    Args:
        name: The public name.
        script: The steps of every answer: an event to yield, an exception to raise, or a pause in seconds.
        window: The context window.
        created: The time of creation in seconds since 1970.
        is_ready: The result of `ready`.

    Attributes:
        prompts: The received prompts.
        yielded: The number of yielded events.
        stopped: The number of answers that their reader stopped before the end.
        closed: Whether `aclose` was called.
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
        """Yield the script; without a script, yield an answer of two words."""
        self.prompts.append(prompt)
        try:
            for step in _default_script(prompt) if self._script is None else self._script:
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
        """Return the value of the constructor."""
        return self._window

    async def created(self) -> int:
        """Return the value of the constructor."""
        return self._created

    async def ready(self) -> bool:
        """Return the value of the constructor."""
        return self._ready

    async def aclose(self) -> None:
        """Record the call."""
        self.closed = True


def _default_script(prompt: Prompt) -> Sequence[Event]:
    if not isinstance(prompt, OpenAIRequest):
        return CONVERSATION_EVENTS
    return CHUNK_EVENTS if json.loads(prompt.body).get("stream") else COMPLETION_EVENTS


def deployed(
    model: Model,
    *,
    name: str = "",
    slots: int = 100,
    queue: int = 0,
    failures: int = 5,
    seconds: float = 10.0,
    first_token: float = math.inf,
) -> Deployment:
    """Return a deployment of a model."""
    name = name or model.name
    circuit = CircuitBreaker(name, failures=failures, seconds=seconds)
    return Deployment(
        name, model, slots=ConcurrencyLimiter(slots, queue), circuit=circuit, first_token_timeout=first_token
    )


class FakeCatalogue:
    """A constant list of models, each with one attempt."""

    def __init__(self, *models: Model) -> None:
        self._models = Models(
            [
                Route(model.name, [Target(deployed(model))], tokens=model.tokens, retries=Retries(maximum=0))
                for model in models
            ]
        )

    @contextlib.contextmanager
    def lease(self) -> Iterator[Models]:
        """Yield the models of the constructor."""
        yield self._models
