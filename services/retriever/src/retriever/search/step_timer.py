"""The wall time of the steps of a search."""

import contextlib
import time
from collections.abc import Iterator

from retriever.domain.query import Step


class StepTimer:
    """Sums the wall time of named steps, in the order of their first start."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._running: dict[str, int] = {}

    @contextlib.contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Time a step, or a further part of a step. The time of overlapping parts counts once."""
        begin = time.perf_counter()
        self._seconds.setdefault(name, 0.0)
        alone = not self._running.get(name)
        self._running[name] = self._running.get(name, 0) + 1
        try:
            yield
        finally:
            self._running[name] -= 1
            if alone:
                self._seconds[name] += time.perf_counter() - begin

    def steps(self) -> tuple[Step, ...]:
        """Return the steps so far."""
        return tuple(Step(name, seconds * 1000) for name, seconds in self._seconds.items())
