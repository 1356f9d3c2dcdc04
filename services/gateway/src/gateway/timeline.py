"""Where an answer's time goes: named steps on one clock."""

import contextlib
import time
from collections.abc import Iterator

from gateway.domain import Step, Usage


class Timeline:
    """The steps of one answer."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._usage: dict[str, Usage] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times what runs inside, also when it fails."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - begin)

    def add(self, name: str, seconds: float) -> None:
        """Notes a step that was timed elsewhere; what was done twice is one step."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def spent(self, name: str, usage: Usage) -> None:
        """Notes the tokens that a step took."""
        self._usage[name] = usage

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps so far, in the order in which they first ended."""
        return tuple(
            Step(name, round(seconds * 1000, 3), self._usage.get(name)) for name, seconds in self._seconds.items()
        )
