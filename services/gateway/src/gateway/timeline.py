"""Where an answer's time goes: named steps on one clock."""

import contextlib
import time
from collections.abc import Iterator

from gateway.domain import Step


class Timeline:
    """The steps of one answer. Begins when it is made."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._steps: list[Step] = []

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times what runs inside, also when it fails."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - begin)

    def add(self, name: str, seconds: float) -> None:
        """Notes a step that was timed elsewhere."""
        self._steps.append(Step(name, round(seconds * 1000, 3)))

    @property
    def seconds(self) -> float:
        """Time since the beginning."""
        return time.perf_counter() - self._begin

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps so far, in the order in which they ended."""
        return tuple(self._steps)
