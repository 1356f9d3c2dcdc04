"""Pauses in reading the streams of model servers, so that several tokens arrive together.

A separate read of each token costs about ten system calls in the generator and seven in the gateway. A read of
several tokens costs as much as a read of one token. The pauses grow with the load of the process.
"""

import asyncio
import time
from collections.abc import Callable

from servicekit import metrics

_WINDOW = 0.25
"""Seconds between two measurements of the process's load."""
_OUTDATED = 4 * _WINDOW
"""Seconds after which a measurement has no influence."""
_IDLE_SHARE, _BUSY_SHARE = 0.03, 0.1
"""Shares of a core that the process would use without pauses. Below the first share, streams do not pause. Above
the second share, each stream pauses for the longest interval. The bounds are low, because other processes share the
core and spend several times as much on a token.
"""
_SAVED = 1.0
"""The processor time that the longest pauses save, relative to the time that the process still uses. With 10 to
20 ms between tokens, pauses save about half of a stream's processor time.
"""
_MIN_PAUSE = 0.002
"""Seconds; streams do not pause for a shorter time."""


class Gathering:
    """The pauses of all streams of the process.

    Args:
        max_pause: The maximum pause in seconds; 0: streams never pause.
        clock: Returns monotonic seconds.
        cpu_clock: Returns the processor time of the process in seconds.

    Attributes:
        max_pause: The maximum pause in seconds.
    """

    def __init__(
        self,
        max_pause: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.max_pause = max_pause
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._interval = 0.0
        self._measured_at = clock()
        self._cpu_time = cpu_clock()
        self._tick: asyncio.Event | None = None

    @property
    def interval(self) -> float:
        """Return the current pause in seconds; streams do not pause if it is less than 2 ms."""
        return self._interval if self._clock() - self._measured_at < _OUTDATED else 0.0

    def next_tick(self) -> asyncio.Event | None:
        """Return the event of the next tick, which all streams share; None if streams must not pause."""
        now = self._clock()
        if now - self._measured_at >= _WINDOW:
            self._measure(now)
        if self._interval < _MIN_PAUSE:
            return None
        if self._tick is None:
            self._tick = asyncio.Event()
            asyncio.get_running_loop().call_later(self._interval, self._end_pause, self._tick)
        return self._tick

    def _end_pause(self, tick: asyncio.Event) -> None:
        self._tick = None
        tick.set()

    def _measure(self, now: float) -> None:
        used, passed = self._cpu_clock(), now - self._measured_at
        # The saved time counts as used. Otherwise each pause would shorten the next pause.
        gathered = self._interval / self.max_pause if self.max_pause else 0.0
        share = (used - self._cpu_time) / passed * (1 + _SAVED * gathered)
        target = self.max_pause * min(1.0, max(0.0, (share - _IDLE_SHARE) / (_BUSY_SHARE - _IDLE_SHARE)))
        # Each step covers half of the difference, so that the interval does not oscillate.
        self._interval = target if passed >= _OUTDATED else (self._interval + target) / 2
        self._measured_at, self._cpu_time = now, used


def watch(gathering: Gathering) -> None:
    """Register the metric of the interval."""
    metrics.observed(
        __name__,
        "causeway.stream.interval",
        "s",
        "Current pause in reading the streams of model servers, to gather tokens.",
        lambda: [(gathering.interval, {})],
    )
