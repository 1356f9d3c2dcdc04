"""What happens on the way of an answer: named steps on one clock, and what detectors found."""

import contextlib
import time
from collections.abc import Iterable, Iterator

from opentelemetry import trace
from servicekit import telemetry

from gateway.domain import Detections, Step, Usage

_tracer = telemetry.tracer(__name__)
_NANOSECONDS = 1e9

QUERY = -1
"""The item of what was found in a search query that a model made: it is no choice of the answer."""


class Timeline:
    """What happened on the way of one answer; complete when it has ended, was refused, or was left.

    Each step is a span, too, and as long as the step: a trace and the thoughts of an answer never differ.

    Attributes:
        detections: All that detectors found, in each direction, with the action that it led to, and those that
            failed; also what clients are not told of.
        model: Who was asked, as far as the request said.
        usage: The tokens of the answer; None where they are not known.
        start_json: What the model said of its answer as a whole; empty: nothing.
        raw_json: The last that was passed on as it came, or the whole answer; empty: nothing was.
        chunks: How many chunks were passed on as they came.
        heard: A model has begun to speak, for the answer or on the way to it; asking again costs again.
    """

    def __init__(self) -> None:
        self.model = ""
        self.usage: Usage | None = None
        self.start_json = self.raw_json = b""
        self.chunks = 0
        self.heard = False
        self.detections: list[Detections] = []
        self._seconds: dict[str, float] = {}
        self._usage: dict[str, Usage] = {}
        self._inner: dict[str, dict[str, float]] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times what runs inside, also when it fails; calls of services are below it in the trace."""
        with self.streamed(name) as span, below(span):
            yield

    @contextlib.contextmanager
    def streamed(self, name: str) -> Iterator[trace.Span]:
        """Time a step that hands out events, also when it fails, and yield its span, which is not the current one.

        An async generator runs in the context of whichever task asks for its next event, so that a span that was
        current across a `yield` would be current in that task as well. `below` makes it current in between.
        """
        begin, start = time.perf_counter(), time.time_ns()
        # Without effect where the trace is not recorded.
        recording = trace.get_current_span().is_recording()
        span = _tracer.start_span(name, start_time=start) if recording else trace.INVALID_SPAN
        try:
            yield span
        finally:
            seconds = time.perf_counter() - begin
            self._note(name, seconds)
            span.end(start + int(seconds * _NANOSECONDS))

    def add(self, name: str, seconds: float) -> None:
        """Notes a step that was timed elsewhere, and ends now; what was done twice is one step."""
        self._note(name, seconds)
        if trace.get_current_span().is_recording():
            end = time.time_ns()
            _tracer.start_span(name, start_time=end - int(seconds * _NANOSECONDS)).end(end)

    def inside(self, name: str, steps: Iterable[tuple[str, float]]) -> None:
        """Notes what a service says of its own steps within one of these: their names, and milliseconds."""
        inner = self._inner.setdefault(name, {})
        for inner_name, milliseconds in steps:
            inner[inner_name] = inner.get(inner_name, 0.0) + milliseconds

    def _note(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def spent(self, name: str, usage: Usage) -> None:
        """Notes the tokens that a step took."""
        self._usage[name] = usage

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps so far, in the order in which they first ended."""
        return tuple(
            Step(
                name,
                round(seconds * 1000, 3),
                self._usage.get(name),
                tuple(Step(inner, round(spent, 3)) for inner, spent in self._inner.get(name, {}).items()),
            )
            for name, seconds in self._seconds.items()
        )


def below(step: trace.Span) -> contextlib.AbstractContextManager[object]:
    """Make a step's span the current one, so that calls of services are below it in the trace."""
    if not step.is_recording():
        return contextlib.nullcontext()
    return trace.use_span(step, record_exception=False, set_status_on_exception=False)
