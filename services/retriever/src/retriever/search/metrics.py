"""Metrics and the span of a search.

The name of the span and its ``gen_ai.`` attributes follow OpenTelemetry's conventions for retrieval:
https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-spans.md
"""

from types import TracebackType
from typing import Self

from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from servicekit import metrics, telemetry
from servicekit.errors import CausewayError

from retriever.domain.query import Query, Retrieved
from retriever.search.step_timer import StepTimer

_PASSAGES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_SCORES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
_tracer = telemetry.tracer(__name__)
_steps = metrics.durations(
    __name__, "causeway.retrieval.step", "Seconds of each step of a search: embed, dense, sparse, fuse, rerank, …"
)
_passages = metrics.amounts(
    __name__, "causeway.retrieval.passages", "{passage}", "Passages that a search returned, by mode.", _PASSAGES
)
_best = metrics.amounts(
    __name__, "causeway.retrieval.best_cosine", "", "Cosine of a search's first passage, by mode.", _SCORES
)


class SearchSpan:
    """Traces one search and records its steps at the end. It is a context manager.

    Args:
        query: The query.
        timer: Times the steps.
        content: Whether the span has the text of the query.
    """

    def __init__(self, query: Query, timer: StepTimer, *, content: bool) -> None:
        source = ",".join(query.indexes)
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": source,
            "causeway.retrieval.mode": query.mode.value,
        }
        if content:
            attributes["gen_ai.retrieval.query.text"] = query.text
        self._query = query
        self._timer = timer
        self._context = _tracer.start_as_current_span(
            f"retrieval {source}" if len(query.indexes) == 1 else "retrieval",
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        )

    def __enter__(self) -> Self:
        self._span: trace.Span = self._context.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        for step in self._timer.steps():
            _steps.record(step.milliseconds / 1000, {"causeway.step": step.name})
            self._span.set_attribute(f"causeway.step.{step.name}.ms", round(step.milliseconds, 3))
        if isinstance(error, CausewayError):
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(StatusCode.ERROR, type(error).__name__)
        self._context.__exit__(kind, error, stack)

    def record(self, retrieved: Retrieved) -> None:
        """Record the number of passages and the cosine of the first one."""
        labels = {"causeway.retrieval.mode": self._query.mode.value}
        _passages.record(len(retrieved.passages), labels)
        self._span.set_attribute("causeway.retrieval.passages", len(retrieved.passages))
        if retrieved.reranker:
            self._span.set_attribute("causeway.retrieval.reranker", retrieved.reranker)
        if retrieved.passages and (cosine := retrieved.passages[0].dense_score) is not None:
            _best.record(cosine, labels)
