"""The guard ends an answer: blocks, failures, the bounds of its buffers, and clients that leave."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from causeway_testing.gateway.partial_watch import MESSAGE, PartialWatch, collect, guarded, model, text_of
from causeway_testing.servers import eventually
from gateway.answering.guard import MAX_HELD_CHARACTERS, OutputGuard
from gateway.domain import Batch, Delta, Detections, DetectorFailure, Event, Finish, Start
from gateway.ports.answering import Clearance
from hypothesis import given, settings
from hypothesis import strategies as st
from servicekit.errors import NotFound, Unavailable

SHARES = st.lists(st.integers(0, 100), min_size=1, max_size=5)


@pytest.fixture(params=[True, False], ids=["at-once", "later"], scope="module", autouse=True)
def _both_ways(request: pytest.FixtureRequest) -> None:
    """Run each test with clearances from `feed`, and with clearances from `clearances`."""
    PartialWatch.at_once = request.param


async def test_a_block_ends_every_choice() -> None:
    """A block ends every choice with the message and ``content_filter``."""
    watch = PartialWatch(blocks_at=(1, 3))
    events = await guarded(
        watch,
        [Delta(0, "free ")],
        [Delta(1, "ok")],
        [Delta(1, " secret")],
        [Delta(0, "more"), Delta(1, "more")],
        [Finish(0, "stop"), Finish(1, "stop")],
    )
    assert text_of(events, 0).startswith("free ")
    assert text_of(events, 0).endswith(MESSAGE)
    assert text_of(events, 1) == "ok" + MESSAGE
    assert [event for event in events if isinstance(event, Finish)] == [
        Finish(0, "content_filter"),
        Finish(1, "content_filter"),
    ]


async def test_nothing_leaves_after_a_block() -> None:
    """Neither cleared text nor other members leave after a block."""
    reported = asyncio.Event()

    class LateWatch(PartialWatch):
        at_once = False

        async def clearances(self) -> AsyncGenerator[Clearance, None]:
            yield Clearance(0, 0, (), blocked=True)
            reported.set()
            yield Clearance(1, 2, (), blocked=False)
            await asyncio.sleep(1)

    async def talkative() -> AsyncGenerator[Batch, None]:
        yield [Delta(0, "ab"), Delta(1, "cd")]
        await asyncio.sleep(0)
        await reported.wait()
        for _ in range(10):
            yield [Delta(2, "", b'{"tool_calls":[]}')]

    watch = LateWatch()
    out: list[Event] = []
    guard = OutputGuard(talkative(), watch, MESSAGE)
    # The reader is slow: all events above occur before it reads.
    async with aclosing(guard.events()) as events:
        async for batch in events:
            out += batch
    assert text_of(out, 0) == text_of(out, 1) == MESSAGE
    assert not any(event.delta_json for event in out if isinstance(event, Delta))


@given(st.text(min_size=1, max_size=30), st.integers(0, 29), SHARES, st.integers(1, 5))
@settings(max_examples=80)
def test_a_block_releases_only_cleared_text(text: str, at: int, shares: list[int], step: int) -> None:
    """A block releases only a beginning of the text that was cleared before."""
    watch_cleared: list[int] = []

    async def run() -> list[Event]:
        watch = PartialWatch(shares=shares, blocks_at=(0, min(at, len(text) - 1)))
        pieces: list[Batch] = [[Delta(0, text[i : i + step])] for i in range(0, len(text), step)]
        events = await guarded(watch, *pieces, [Finish(0, "stop")])
        watch_cleared.append(watch.cleared[0])
        return events

    events = asyncio.run(run())
    out = text_of(events)
    assert out.endswith(MESSAGE)
    assert text.startswith(out.removesuffix(MESSAGE))
    # The piece that made the detector block was not cleared with it.
    assert len(out.removesuffix(MESSAGE)) <= min(at, len(text) - 1) // step * step
    assert events[-1] == Finish(0, "content_filter")


async def test_a_block_wins_over_a_model_that_fails() -> None:
    """A block holds although the model fails afterwards."""
    watch = PartialWatch(blocks_at=(0, 0))
    events = await guarded(watch, [Delta(0, "secret")], Unavailable("gone"))
    assert events[-1] == Finish(0, "content_filter")


async def test_the_failure_of_a_detector_is_an_event() -> None:
    """The failure of a detector is returned as an event."""

    class FailingWatch(PartialWatch):
        at_once = False

        async def clearances(self) -> AsyncGenerator[Clearance, None]:
            failures: tuple[DetectorFailure, ...] = (DetectorFailure("d", "no answer"),)
            async for clearance in super().clearances():
                yield Clearance(clearance.choice, clearance.cleared_until, (), False, failures)
                failures = ()

    events = await guarded(FailingWatch(), [Delta(0, "a")], [Finish(0, "stop")])
    assert [event.failures for event in events if isinstance(event, Detections)] == [
        (DetectorFailure("d", "no answer"),)
    ]


async def test_a_failing_model_is_raised_after_the_cleared_text() -> None:
    """A failure of the model is raised after the cleared text."""
    watch = PartialWatch()
    out: list[Event] = []
    guard = OutputGuard(model([Delta(0, "a")], [Delta(0, "b")], Unavailable("gone")), watch, MESSAGE)
    with pytest.raises(Unavailable, match="gone"):
        await collect(guard, out)
    assert text_of(out).startswith("a")
    assert watch.closed


async def test_failing_detectors_are_raised() -> None:
    """A failure of the detectors is raised before any output."""
    watch = PartialWatch(failure=NotFound("detector `x` not found"))
    out: list[Event] = []
    guard = OutputGuard(model([Start(b"{}"), Delta(0, "a")], [Delta(0, "b")]), watch, MESSAGE)
    with pytest.raises(NotFound):
        await collect(guard, out)
    assert out == []


async def test_detectors_that_end_too_early_are_a_failure() -> None:
    """Detectors that end early cause an error, and the remaining text does not leave."""

    class EarlyEndingWatch(PartialWatch):
        at_once = False

        async def clearances(self) -> AsyncGenerator[Clearance, None]:
            yield Clearance(0, 1, (), blocked=False)

    forever = asyncio.Event()

    async def endless() -> AsyncGenerator[Batch, None]:
        yield [Delta(0, "ab")]
        await forever.wait()

    out: list[Event] = []
    with pytest.raises(Unavailable, match="judged"):
        await collect(OutputGuard(endless(), EarlyEndingWatch(), MESSAGE), out)
    assert text_of(out) == "a"


async def test_text_that_was_never_cleared_is_a_failure() -> None:
    """Text without a clearance at the end causes an error."""

    class IncompleteWatch(PartialWatch):
        at_once = False

        async def clearances(self) -> AsyncGenerator[Clearance, None]:
            async for clearance in super().clearances():
                yield Clearance(clearance.choice, 1, (), blocked=False)

    with pytest.raises(Unavailable, match="judged"):
        await guarded(IncompleteWatch(), [Delta(0, "ab")], [Finish(0, "stop")])


class EndlessModel:
    """A model that never stops and counts its batches."""

    def __init__(self, piece: str, raw: bytes = b"") -> None:
        self._piece = piece
        self._raw = raw
        self.produced = 0
        self.closed = False

    async def batches(self) -> AsyncGenerator[Batch, None]:
        try:
            while True:
                self.produced += len(self._piece) + len(self._raw)
                yield [Delta(0, self._piece, self._raw)]
                await asyncio.sleep(0)
        finally:
            self.closed = True


@pytest.mark.parametrize("share", [0, 100])
async def test_the_model_is_not_read_far_ahead(share: int) -> None:
    """The guard reads at most its bound and a batch ahead of slow detectors or a slow client."""
    model_stream, watch = EndlessModel("x" * 1000), PartialWatch(shares=(share,))
    async with (
        aclosing(model_stream.batches()) as batches,
        aclosing(OutputGuard(batches, watch, MESSAGE).events()) as out,
    ):
        reading = asyncio.ensure_future(anext(out))
        await asyncio.sleep(0.05)
        before = model_stream.produced
        for _ in range(1000):
            await asyncio.sleep(0)
        assert model_stream.produced == before <= MAX_HELD_CHARACTERS + 2 * 1000
        if share:
            # Further reading makes room.
            await reading
            await anext(out)
            await eventually(lambda: model_stream.produced > before)
        reading.cancel()
        await asyncio.wait([reading])


async def test_raw_deltas_count_towards_the_bound() -> None:
    """Raw deltas count in the bound of the guard."""
    model_stream = EndlessModel("", b'{"tool_calls":[' + b"1," * 500 + b"1]}")
    async with (
        aclosing(model_stream.batches()) as batches,
        aclosing(OutputGuard(batches, PartialWatch(), MESSAGE, protected=False).events()) as out,
    ):
        await anext(out)
        await asyncio.sleep(0.05)
        assert model_stream.produced <= 2 * MAX_HELD_CHARACTERS + 4000


async def test_leaving_early_stops_both_tasks() -> None:
    """A client that leaves early stops the reading of the model and the detectors."""
    model_stream, watch = EndlessModel("x"), PartialWatch()
    async with aclosing(model_stream.batches()) as batches:
        async with aclosing(OutputGuard(batches, watch, MESSAGE).events()) as out:
            await anext(out)
        produced = model_stream.produced
        await asyncio.sleep(0.02)
        assert model_stream.produced == produced
    assert model_stream.closed
    assert watch.closed
    assert len(asyncio.all_tasks()) == 1


async def test_being_cancelled_stops_both_tasks() -> None:
    """A cancellation stops both tasks of the guard."""
    watch = PartialWatch(resume=asyncio.Event())
    guard = OutputGuard(model([Delta(0, "a")]), watch, MESSAGE)
    reading = asyncio.ensure_future(anext(guard.events()))
    await asyncio.sleep(0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await eventually(lambda: len(asyncio.all_tasks()) == 1)
    assert watch.closed
