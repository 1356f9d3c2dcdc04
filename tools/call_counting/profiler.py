"""Counts the Python calls of a piece of work."""

import gc
import sys
from collections.abc import Awaitable, Callable
from types import FrameType

RPC = "gRPC calls: "
"""The prefix of the counts of gRPC calls. These counts must not grow."""

Work = Callable[[], Awaitable[object]]


class _CountingProfiler:
    """Counts the calls of Python functions in this thread; each resumption of a coroutine counts as a call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _: FrameType, event: str, __: object) -> None:
        if event == "call":
            self.calls += 1


async def calls(work: Work) -> float:
    """Return the number of calls that `work` makes after its caches are filled."""
    await work()
    await work()
    profiler = _CountingProfiler()
    gc.collect()
    gc.disable()  # a collection calls callbacks at an arbitrary time
    sys.setprofile(profiler)
    try:
        await work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return profiler.calls
