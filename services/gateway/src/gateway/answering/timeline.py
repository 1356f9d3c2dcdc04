"""Record the timeline of an answer: named steps on one clock, and the findings of detectors."""

import contextlib
import time
from collections.abc import Iterable, Iterator

from opentelemetry import trace
from servicekit import telemetry

from gateway.domain import Detections, Step, Usage

_tracer = telemetry.tracer(__name__)
_NANOSECONDS = 1e9

QUERY = -1
"""The item number of findings in a search query that a model wrote. The query is not a choice of the answer."""


class Timeline:
    """The timeline of one answer, complete after the answer has ended, has failed or was cancelled.

    Each step is also a span of the same length, so that a trace and the thoughts of an answer agree.

    Attributes:
        detections: The findings of all detectors, in each direction, and the failed detectors. Clients receive only
            some of them.
        model: The requested model.
        usage: The tokens of the answer, or None if they are not known.
        reported_model: The first model that the model server named in its streamed answer, or empty.
        raw_json: The last chunk that passed through unchanged, or the whole answer, or empty.
        chunks: The number of chunks that passed through unchanged.
        model_responded: Whether a model has begun to answer, or to write a search query. After that, a retry costs
            tokens again.
    """

    def __init__(self) -> None:
        self.model = ""
        self.usage: Usage | None = None
        self.reported_model = ""
        self.raw_json = b""
        self.chunks = 0
        self.model_responded = False
        self.detections: list[Detections] = []
        self._begin = time.perf_counter()
        self._starts: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._usage: dict[str, Usage] = {}
        self._inner: dict[str, dict[str, float]] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block, even if it fails. In the trace, calls to services are children of the step."""
        with self.streamed_step(name) as span, as_current_span(span):
            yield

    @contextlib.contextmanager
    def streamed_step(self, name: str) -> Iterator[trace.Span]:
        """Time a step that yields events, even if it fails. Yield its span without making it the current span.

        An async generator runs in the context of the task that requests its next event. A current span would
        therefore remain current in that task after a `yield`. `as_current_span` makes the span current between
        two yields.
        """
        begin, start = time.perf_counter(), time.time_ns()
        # A span of a trace that is not recorded would only cost time.
        recording = trace.get_current_span().is_recording()
        span = _tracer.start_span(name, start_time=start) if recording else trace.INVALID_SPAN
        try:
            yield span
        finally:
            seconds = time.perf_counter() - begin
            self._record(name, begin, seconds)
            span.end(start + int(seconds * _NANOSECONDS))

    def add(self, name: str, seconds: float) -> None:
        """Add a step that the caller timed and that ends now. The durations of repeated steps are added up."""
        self._record(name, time.perf_counter() - seconds, seconds)
        if trace.get_current_span().is_recording():
            end = time.time_ns()
            _tracer.start_span(name, start_time=end - int(seconds * _NANOSECONDS)).end(end)

    def add_inner_steps(self, name: str, steps: Iterable[tuple[str, float]]) -> None:
        """Add the steps that a service reports within a step.

        Args:
            name: The name of the outer step.
            steps: The names and the milliseconds of the inner steps.
        """
        inner = self._inner.setdefault(name, {})
        for inner_name, milliseconds in steps:
            inner[inner_name] = inner.get(inner_name, 0.0) + milliseconds

    def _record(self, name: str, begin: float, seconds: float) -> None:
        self._starts.setdefault(name, begin - self._begin)
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def set_usage(self, name: str, usage: Usage) -> None:
        """Set the tokens of a step."""
        self._usage[name] = usage

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps so far, ordered by their first end."""
        return tuple(
            Step(
                name,
                round(seconds * 1000, 3),
                self._usage.get(name),
                tuple(
                    Step(inner, round(milliseconds, 3)) for inner, milliseconds in self._inner.get(name, {}).items()
                ),
                round(self._starts[name] * 1000, 3),
            )
            for name, seconds in self._seconds.items()
        )


def as_current_span(step: trace.Span) -> contextlib.AbstractContextManager[object]:
    """Make a step's span the current span, so that the spans of service calls are its children in the trace."""
    if not step.is_recording():
        return contextlib.nullcontext()
    return trace.use_span(step, record_exception=False, set_status_on_exception=False)
