"""An answering pipeline over fakes of its ports."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from gateway.answering.pipeline import Pipeline
from gateway.domain import (
    Action,
    Batch,
    Detector,
    Done,
    Event,
    Passage,
    Retrieval,
    Turn,
)
from servicekit.deadline import Deadline
from servicekit.principal import LOCAL

from causeway_testing.gateway.answering import FakeGenerator, FakeGuardrails
from causeway_testing.gateway.application import FakePictures
from causeway_testing.gateway.retrieval import FakeRetriever

MESSAGE = "Withheld."
QUESTION = "when does the ferry leave"
ORIGINAL = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'
"""A request of an OpenAI client."""


def passage(number: int, text: str) -> Passage:
    return Passage(f"p{number}", "docs", f"d{number}", f"{number}.md", f"{number}.md", text, 1.0 / number)


def words(action: Action, *, requested: bool = False) -> tuple[Detector, ...]:
    return (Detector("words", action, requested=requested),)


@dataclass
class World:
    """The fakes of a pipeline's ports."""

    retriever: FakeRetriever = field(
        default_factory=lambda: FakeRetriever(
            {"docs": [passage(1, "the ferry leaves at nine"), passage(2, "a secret ferry")], "empty": []}
        )
    )
    generator: FakeGenerator = field(default_factory=lambda: FakeGenerator.saying("At ", "nine"))
    guardrails: FakeGuardrails = field(default_factory=FakeGuardrails)
    pictures: FakePictures = field(default_factory=FakePictures)

    def answer(self, turn: Turn, seconds: float = 10) -> AsyncGenerator[Batch, None]:
        """Yield the events of an answer in batches."""
        pipeline = Pipeline(self.retriever, self.generator, self.guardrails, self.pictures)
        return pipeline.answer(turn, Deadline.after(seconds))

    async def events(self, turn: Turn) -> list[Event]:
        """Return the events of an answer."""
        events: list[Event] = []
        await self.collect(turn, events)
        return events

    async def collect(self, turn: Turn, events: list[Event]) -> None:
        """Append the events of an answer, even if the answer fails."""
        async with aclosing(self.answer(turn)) as batches:
            async for batch in batches:
                events += batch


def turn(question: str = QUESTION, **more: Any) -> Turn:
    """Return a turn that searches the index ``docs``."""
    defaults: dict[str, Any] = {"retrieval": Retrieval(("docs",), top=3), "blocked_message": MESSAGE}
    return Turn(LOCAL, question, **(defaults | more))


def steps(events: Sequence[Event]) -> list[str]:
    """Return the names of the steps of a complete answer."""
    assert isinstance(events[-1], Done)
    return [step.name for step in events[-1].steps]


def of_type(kind: type, events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]
