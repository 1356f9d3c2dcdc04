"""Fakes of the ports, for tests; they pass the contract that the real ones pass."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence

from generator.domain import ChatMessage, Event, EventKind, OpenAIRequest, Prompt, Usage


class FakeTokenCounter:
    """A token is a word."""

    exact = True

    def count(self, text: str) -> int:
        """Words, parted by white space."""
        return len(text.split())

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Words of the messages, and one for each message."""
        return sum(self.count(message.text) + 1 for message in messages)


CONVERSATION_EVENTS = (
    Event(EventKind.START, raw_json=b'{"id":"fake-1"}'),
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
        is_ready: bool = True,
    ) -> None:
        self.name = name
        self.owned_by = "tests"
        self.tokens = FakeTokenCounter()
        self.prompts: list[Prompt] = []
        self.yielded = 0
        self.stopped = 0
        self.closed = False
        self._script = script
        self._window = window
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
