"""The wall time of the steps of a search."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator

from retriever.domain.query import Step


class StepTimer:
    """Sums the wall time of named steps, in the order of their first start."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._running: Counter[str] = Counter()
        self._begins: dict[str, float] = {}

    @contextlib.contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Time a step, or a further part of a step. The time of overlapping parts counts once."""
        self._seconds.setdefault(name, 0.0)
        if not self._running[name]:
            self._begins[name] = time.perf_counter()
        self._running[name] += 1
        try:
            yield
        finally:
            self._running[name] -= 1
            if not self._running[name]:
                self._seconds[name] += time.perf_counter() - self._begins[name]

    def steps(self) -> tuple[Step, ...]:
        """Return the steps so far."""
        return tuple(Step(name, seconds * 1000) for name, seconds in self._seconds.items())
