"""How long streams leave what model servers send unread, so that tokens gather: the busier the process, the longer.

A token that comes alone costs about ten system calls here and seven in the gateway. Tokens that are read together
cost as much as one.
"""

import asyncio
import time
from collections.abc import Callable

from servicekit import metrics

_WINDOW = 0.25
"""Seconds between two looks at how busy the process is."""
_OUTDATED = 4 * _WINDOW
_IDLE_SHARE, _BUSY_SHARE = 0.03, 0.1
"""Shares of a core that the process would use without pauses: up to the first one no stream waits, from the second
one on each waits for the whole interval. Other processes share the core and spend several times as much on a token.
"""
_SAVED = 1.0
"""What pauses of the whole interval save, as a part of what the process still uses: streams of 10 to 20 ms a token
take about half."""
_SHORTEST = 0.002


class Gathering:
    """The pauses of all streams of the process.

    Args:
        longest: Seconds of a pause when the process is busy; 0: no stream ever pauses.
        clock: Seconds, monotonic.
        cpu_clock: Seconds of processor time that the process has used.

    Attributes:
        longest: As above.
    """

    def __init__(
        self,
        longest: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.longest = longest
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._interval = 0.0
        self._looked_at = clock()
        self._used = cpu_clock()
        self._tick: asyncio.Event | None = None

    @property
    def interval(self) -> float:
        """Seconds from tick to tick as of late; 0 while no stream pauses."""
        return self._interval if self._clock() - self._looked_at < _OUTDATED else 0.0

    def next_tick(self) -> asyncio.Event | None:
        """Return what is set at the next tick, which all streams share; None: read at once."""
        now = self._clock()
        if now - self._looked_at >= _WINDOW:
            self._look(now)
        if self._interval < _SHORTEST:
            return None
        if self._tick is None:
            self._tick = asyncio.Event()
            asyncio.get_running_loop().call_later(self._interval, self._ring, self._tick)
        return self._tick

    def _ring(self, tick: asyncio.Event) -> None:
        self._tick = None
        tick.set()

    def _look(self, now: float) -> None:
        used, passed = self._cpu_clock(), now - self._looked_at
        # What gathering saves counts as used: else each pause would shorten the next one.
        gathered = self._interval / self.longest if self.longest else 0.0
        share = (used - self._used) / passed * (1 + _SAVED * gathered)
        wanted = self.longest * min(1.0, max(0.0, (share - _IDLE_SHARE) / (_BUSY_SHARE - _IDLE_SHARE)))
        # Half the way at a time, so that the interval does not swing.
        self._interval = wanted if passed >= _OUTDATED else (self._interval + wanted) / 2
        self._looked_at, self._used = now, used


def watch(gathering: Gathering) -> None:
    """Let scrapes see the interval."""
    metrics.observed(
        __name__,
        "causeway.stream.interval",
        "s",
        "Seconds for which streams of model servers are left unread at the moment, so that tokens gather.",
        lambda: [(gathering.interval, {})],
    )
