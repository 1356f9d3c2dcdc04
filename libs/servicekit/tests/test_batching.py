"""Batches of the items of a stream."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servicekit.batching import batched


class Source:
    """Yields the strings of a script; ``None`` lets other tasks run, a number is a pause, an exception is raised.

    Attributes:
        yielded: The number of yielded items.
        stopped: The number of readings that ended before the script.
    """

    def __init__(self, *script: str | float | Exception | None) -> None:
        self.yielded = 0
        self.stopped = 0
        self._script = script

    async def items(self) -> AsyncGenerator[str, None]:
        """Yield the items."""
        try:
            for step in self._script:
                if isinstance(step, str):
                    self.yielded += 1
                    yield step
                elif isinstance(step, Exception):
                    raise step
                else:
                    await asyncio.sleep(step or 0)
        except (asyncio.CancelledError, GeneratorExit):
            self.stopped += 1
            raise


@given(
    st.lists(st.none() | st.text(max_size=30), max_size=40),
    st.lists(st.integers(0, 3), max_size=40),
    st.integers(1, 6),
    st.integers(1, 120),
)
def test_all_items_arrive_in_order_within_the_bounds(
    steps: Sequence[str | None], pauses: Sequence[int], max_items: int, max_size: int
) -> None:
    """All items arrive once and in order, in batches within the limits, for any timing of source and consumer."""

    async def run() -> list[list[str]]:
        batches = []
        waits = iter(pauses)
        async for batch in batched(Source(*steps).items(), max_items, size=len, max_size=max_size):
            batches.append(batch)
            for _ in range(next(waits, 0)):
                await asyncio.sleep(0)
        return batches

    batches = asyncio.run(run())
    assert [item for batch in batches for item in batch] == [step for step in steps if step is not None]
    for batch in batches:
        assert 0 < len(batch) <= max_items
        assert len(batch) == 1 or sum(map(len, batch)) <= max_size


async def test_items_that_arrive_together_are_one_batch() -> None:
    """Items that arrive together are one batch. A single item is a batch without delay."""
    source = Source("a", "b", "c", 0.02, "d", 0.02, "e", "f")
    assert ["".join(batch) async for batch in batched(source.items(), 99)] == ["abc", "d", "ef"]


async def test_the_first_item_does_not_wait() -> None:
    """The first item is a batch before the source yields the second."""
    batches = batched(Source("a", 600.0, "b").items(), 99)
    async with contextlib.aclosing(batches), asyncio.timeout(60):
        assert await anext(batches) == ["a"]


async def test_a_consumer_that_stops_pauses_the_source() -> None:
    """After the consumer stops, the source yields one more batch, and the item that does not fit into it."""
    source = Source(*"x" * 1000)
    batches = batched(source.items(), 10)
    async with contextlib.aclosing(batches):
        assert len(await anext(batches)) == 10
        for _ in range(100):
            await asyncio.sleep(0)
        assert source.yielded == 21


async def test_a_batch_has_a_maximum_size() -> None:
    """The maximum size ends a batch. A larger item is a batch of its own."""
    source = Source(*["x" * 400] * 3, "y" * 5000, "z")
    batches = [batch async for batch in batched(source.items(), 99, size=len, max_size=1000)]
    assert [sum(map(len, batch)) for batch in batches] == [800, 400, 5000, 1]


@pytest.mark.parametrize(("max_items", "expected"), [(1, [["a"], ["b"]]), (9, [["a", "b"]])])
async def test_a_failure_is_raised_after_the_earlier_items(max_items: int, expected: list[list[str]]) -> None:
    """The failure is raised after the earlier items, even if it waits behind a full batch."""
    batches = batched(Source("a", "b", ValueError("broken")).items(), max_items)
    assert [await anext(batches) for _ in expected] == expected
    with pytest.raises(ValueError, match="broken"):
        await anext(batches)


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_closing_returns_after_the_source_has_stopped(count: int) -> None:
    """Closing returns after the source has stopped, if it had started, both at a full batch and at a pause."""
    source = Source("a", None, "b", 600.0, "c")
    batches = batched(source.items(), 1)
    for _ in range(count):
        await anext(batches)
    await batches.aclose()
    assert source.stopped == (1 if count else 0)
    assert len(asyncio.all_tasks()) == 1


async def test_a_cancelled_consumer_stops_the_source() -> None:
    """A cancelled consumer cancels the source."""
    source = Source("a", 600.0)

    async def read() -> None:
        async with contextlib.aclosing(batched(source.items(), 9)) as batches:
            async for _ in batches:
                pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.stopped == 1


async def test_a_source_without_items_has_no_batches() -> None:
    """A source without items has no batches."""
    assert [batch async for batch in batched(Source().items(), 4)] == []
