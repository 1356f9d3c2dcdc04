"""Batches of events on their way to the client."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

import pytest
from causeway_testing.generator import FakeModel
from generator.batching import batched
from generator.domain import Event, EventKind, OpenAIRequest
from hypothesis import given
from hypothesis import strategies as st

PROMPT = OpenAIRequest(b"{}")
MANY = 1 << 20


def text(value: str) -> Event:
    return Event(EventKind.TEXT, text=value)


async def source(steps: Sequence[Event | None]) -> AsyncGenerator[Event, None]:
    """Yield the events. None lets other tasks run first."""
    for step in steps:
        if step is None:
            await asyncio.sleep(0)
        else:
            yield step


@given(
    st.lists(st.none() | st.text(max_size=30).map(text), max_size=40),
    st.lists(st.integers(0, 3), max_size=40),
    st.integers(1, 6),
    st.integers(1, 120),
)
def test_all_events_arrive_in_order_within_the_bounds(
    steps: list[Event | None], pauses: list[int], max_events: int, max_bytes: int
) -> None:
    """All events arrive once and in order, in batches within the limits, for any timing of model and reader."""

    async def run() -> list[list[Event]]:
        batches = []
        waits = iter(pauses)
        async for batch in batched(source(steps), max_events=max_events, max_bytes=max_bytes):
            batches.append(batch)
            for _ in range(next(waits, 0)):
                await asyncio.sleep(0)
        return batches

    batches = asyncio.run(run())
    assert [event for batch in batches for event in batch] == [step for step in steps if step is not None]
    for batch in batches:
        assert 0 < len(batch) <= max_events
        assert len(batch) == 1 or sum(len(event.text) for event in batch) <= max_bytes


async def test_events_that_arrive_together_are_one_batch() -> None:
    """Events that arrive together are one batch. A single event is sent without delay."""
    steps: list[Event | Exception | float] = [
        text("a"),
        text("b"),
        text("c"),
        0.02,
        text("d"),
        0.02,
        text("e"),
        text("f"),
    ]
    batches = [
        "".join(event.text for event in batch)
        async for batch in batched(FakeModel(script=steps).generate(PROMPT), max_events=99, max_bytes=MANY)
    ]
    assert batches == ["abc", "d", "ef"]


async def test_the_first_event_does_not_wait() -> None:
    """The first event is sent before the model yields the second."""
    answer = batched(FakeModel(script=[text("a"), 30.0, text("b")]).generate(PROMPT), max_events=99, max_bytes=MANY)
    async with contextlib.aclosing(answer), asyncio.timeout(1):
        assert await anext(answer) == [text("a")]


async def test_a_reader_that_stops_pauses_the_model() -> None:
    """After the reader stops, the model yields at most one more batch."""
    model = FakeModel(script=[text("x")] * 1000)
    answer = batched(model.generate(PROMPT), max_events=10, max_bytes=MANY)
    async with contextlib.aclosing(answer):
        assert len(await anext(answer)) == 10
        await asyncio.sleep(0.02)
        assert model.yielded <= 22


async def test_a_batch_has_a_limit_of_bytes() -> None:
    """The limit of bytes ends a batch. An event above the limit is a batch of its own."""
    model = FakeModel(script=[text("x" * 400)] * 3 + [text("y" * 5000), text("z")])
    sizes = [
        sum(len(event.text) for event in batch)
        async for batch in batched(model.generate(PROMPT), max_events=99, max_bytes=1000)
    ]
    assert sizes == [800, 400, 5000, 1]


async def test_a_failure_is_raised_after_the_earlier_events() -> None:
    """The failure is raised after the earlier events."""
    answer = batched(
        FakeModel(script=[text("a"), text("b"), ValueError("broken")]).generate(PROMPT),
        max_events=99,
        max_bytes=MANY,
    )
    assert await anext(answer) == [text("a"), text("b")]
    with pytest.raises(ValueError, match="broken"):
        await anext(answer)


async def test_a_failure_of_a_full_buffer_is_not_lost() -> None:
    """A failure after a full buffer is raised after the waiting batches."""
    script: list[Event | Exception | float] = [text("a"), text("b"), text("c"), ValueError("broken")]
    answer = batched(FakeModel(script=script).generate(PROMPT), max_events=1, max_bytes=MANY)
    for letter in "abc":
        assert await anext(answer) == [text(letter)]
    with pytest.raises(ValueError, match="broken"):
        await anext(answer)


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_closing_returns_after_the_model_has_stopped(count: int) -> None:
    """Closing returns after the model has stopped, if it had started."""
    model = FakeModel(script=[text("a"), 0.0, text("b"), 30.0, text("c")])
    answer = batched(model.generate(PROMPT), max_events=1, max_bytes=MANY)
    for _ in range(count):
        await anext(answer)
    await answer.aclose()
    assert model.stopped == (1 if count else 0)


async def test_a_cancelled_reader_stops_the_model() -> None:
    """A cancelled reader cancels the model."""
    model = FakeModel(script=[text("a"), 30.0])

    async def read() -> None:
        async with contextlib.aclosing(batched(model.generate(PROMPT), max_events=9, max_bytes=MANY)) as answer:
            async for _ in answer:
                pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.stopped == 1
