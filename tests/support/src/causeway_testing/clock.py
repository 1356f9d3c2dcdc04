"""Clocks that tests control."""

import asyncio
import functools
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec
from unittest import mock

P = ParamSpec("P")


class ManualClock:
    """A clock that tests set.

    Args:
        now: The first value in seconds.

    Attributes:
        now: The value that the clock returns.
    """

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when no task can run.

    Work takes no time on this clock, so durations are exact on a busy machine, too.
    """

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.now


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready events. If no event is ready, advance the time instead of waiting."""
        if timeout is None:
            return super().select(None)
        found = super().select(0)
        if not found:
            self._loop.now += timeout
        return found


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test in virtual time: timers, ``time.monotonic`` and ``time.perf_counter`` agree."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            clock = runner.get_loop().time
            with mock.patch.object(time, "monotonic", clock), mock.patch.object(time, "perf_counter", clock):
                runner.run(test(*args, **kwargs))

    return run
