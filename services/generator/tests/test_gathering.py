"""Pauses of streams grow with the load of the process, and all streams share a tick."""

import asyncio

import pytest
from causeway_testing.clock import virtual_time
from generator.gathering import Gathering


class Clocks:
    """Simulated time, and the CPU time that the process uses."""

    def __init__(self) -> None:
        self.now = self.used = 0.0

    def gathering(self, max_pause: float = 0.05) -> Gathering:
        return Gathering(max_pause, clock=lambda: self.now, cpu_clock=lambda: self.used)

    def work(self, gathering: Gathering, share: float, seconds: float = 5.0) -> None:
        """Let streams request a tick every tenth of a second."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.used += 0.1 * share
            gathering.next_tick()


@pytest.mark.parametrize(
    ("share", "interval"), [(0.0, 0.0), (0.03, 0.0), (0.04, 0.05 / 3), (0.05, 0.05), (1.0, 0.05), (4.0, 0.05)]
)
async def test_the_interval_grows_with_the_share_of_a_core(share: float, interval: float) -> None:
    """The interval grows with the load from 0 to the longest pause."""
    clocks = Clocks()
    gathering = clocks.gathering()
    clocks.work(gathering, share, seconds=30.0)
    assert gathering.interval == pytest.approx(interval, abs=1e-4)
    assert (gathering.next_tick() is None) == (interval == 0)


async def test_the_interval_changes_by_half_of_the_difference() -> None:
    """The interval changes by half of the difference, so that a short load does not delay all streams."""
    clocks = Clocks()
    gathering = clocks.gathering()
    clocks.work(gathering, 1.0, seconds=0.3)
    assert gathering.interval == pytest.approx(0.025)
    clocks.work(gathering, 0.0, seconds=0.3)
    assert gathering.interval == pytest.approx(0.0125)
    clocks.work(gathering, 0.0)
    assert gathering.next_tick() is None


async def test_an_outdated_measurement_does_not_count() -> None:
    """After an idle time, a stream is read without a pause."""
    clocks = Clocks()
    gathering = clocks.gathering()
    clocks.work(gathering, 1.0)
    clocks.now += 30
    assert gathering.interval == 0.0
    assert gathering.next_tick() is None


async def test_a_longest_interval_of_0_turns_pauses_off() -> None:
    """A longest interval of 0 turns pauses off under any load."""
    clocks = Clocks()
    gathering = clocks.gathering(0.0)
    clocks.work(gathering, 1.0)
    assert gathering.next_tick() is None


@virtual_time
async def test_all_streams_share_a_tick() -> None:
    """Streams that pause at different times continue at the same tick. The next pause has another tick."""
    clocks = Clocks()
    gathering = clocks.gathering()
    clocks.work(gathering, 1.0)
    await asyncio.sleep(1)  # the tick of the simulated load has ended
    loop, begin = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    ends = []

    async def pause(after: float) -> None:
        await asyncio.sleep(after)
        tick = gathering.next_tick()
        assert tick is not None
        await tick.wait()
        ends.append(round(loop.time() - begin, 3))

    await asyncio.gather(*(pause(after) for after in (0.0, 0.01, 0.04, 0.06)))
    assert ends == [0.05, 0.05, 0.05, 0.11]


@virtual_time
async def test_cancelling_one_pause_does_not_end_the_others() -> None:
    """Cancelling the pause of one stream does not end the pause of another stream."""
    clocks = Clocks()
    gathering = clocks.gathering()
    clocks.work(gathering, 1.0)
    tick = gathering.next_tick()
    assert tick is not None
    leaving, staying = (asyncio.create_task(tick.wait()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying
    assert leaving.cancelled()
