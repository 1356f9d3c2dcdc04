"""guardrails.batching: what waits is taken together."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from guardrails.batching import batches


class _Source:
    """Gives numbers as fast as it is asked, up to a count; may fail or wait at its end."""

    def __init__(self, count: int, *, error: Exception | None = None, endless: bool = False) -> None:
        self.given = 0
        self._count = count
        self._error = error
        self._endless = endless

    async def __call__(self) -> AsyncIterator[int]:
        while self.given < self._count:
            self.given += 1
            yield self.given
        if self._error is not None:
            raise self._error
        if self._endless:
            await asyncio.Event().wait()


async def test_all_items_in_order() -> None:
    """Every item comes once, in order, and many that wait come as few batches."""
    found = [batch async for batch in batches(_Source(100)(), 16)]
    assert [item for batch in found for item in batch] == list(range(1, 101))
    assert len(found) < 20


async def test_an_item_does_not_wait_for_others() -> None:
    """A single item is a batch as soon as it is there."""
    async with contextlib.aclosing(batches(_Source(1, endless=True)(), 16)) as waiting:
        assert await asyncio.wait_for(anext(waiting), 5) == [1]


async def test_a_slow_consumer_stops_the_source() -> None:
    """No more than the limit is read ahead."""
    source = _Source(1000)
    async with contextlib.aclosing(batches(source(), 8)) as waiting:
        await anext(waiting)
        for _ in range(100):
            await asyncio.sleep(0)
        assert source.given <= 17


async def test_an_error_comes_after_the_items() -> None:
    """What the source gave before it failed is not lost."""
    waiting = batches(_Source(2, error=ValueError("broken"))(), 16)
    assert await anext(waiting) == [1, 2]
    with pytest.raises(ValueError, match="broken"):
        await anext(waiting)


async def test_leaving_stops_the_reading() -> None:
    """A consumer that leaves ends the reading, whether the source waits or is stopped by the limit."""
    for source in (_Source(1, endless=True), _Source(1000)):
        async with contextlib.aclosing(batches(source(), 4)) as waiting:
            await anext(waiting)
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1


async def test_no_items() -> None:
    """A source without items has no batches."""
    assert [batch async for batch in batches(_Source(0)(), 4)] == []
