"""What happens on the way of an answer: named steps on one clock, and what detectors found."""

import contextlib
import time
from collections.abc import Iterator

from gateway.domain import Detections, Step, Usage

QUERY = -1
"""The item of what was found in a search query that a model made: it is no choice of the answer."""


class Timeline:
    """What happened on the way of one answer; complete when it has ended, was refused, or was left.

    Attributes:
        detections: All that detectors found, in each direction, with the action that it led to, and those that
            failed; also what clients are not told of.
        model: Who was asked, as far as the request said.
        usage: The tokens of the answer; None where they are not known.
        start_json: What the model said of its answer as a whole; empty: nothing.
        raw_json: The last that was passed on as it came, or the whole answer; empty: nothing was.
        chunks: How many chunks were passed on as they came.
    """

    def __init__(self) -> None:
        self.model = ""
        self.usage: Usage | None = None
        self.start_json = self.raw_json = b""
        self.chunks = 0
        self.detections: list[Detections] = []
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
