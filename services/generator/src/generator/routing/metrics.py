"""The metrics and spans of a deployment's answers, with OpenTelemetry's conventions for generative AI.

https://github.com/open-telemetry/semantic-conventions-genai/tree/main/docs/gen-ai
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from opentelemetry.trace import SpanKind, StatusCode
from servicekit import metrics, telemetry
from servicekit.errors import CausewayError

from generator.domain import Conversation, Event, EventKind, Prompt, Usage
from generator.routing.circuit_breaker import State
from generator.routing.deployment import Deployment
from generator.routing.span_attributes import RequestParameters, request_attributes, response_attributes

_TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
_INTERVAL_BUCKETS = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
_tracer = telemetry.tracer(__name__)
_durations = metrics.durations(
    __name__, "gen_ai.client.operation.duration", "Seconds that a model server took for an answer."
)
_first_chunk_times = metrics.durations(
    __name__, "gen_ai.client.operation.time_to_first_chunk", "Seconds until a streamed answer of a model began."
)
_token_intervals = metrics.durations(
    __name__,
    "gen_ai.server.time_per_output_token",
    "Mean seconds between the tokens of an answer.",
    _INTERVAL_BUCKETS,
)
_token_counts = metrics.amounts(
    __name__, "gen_ai.client.token.usage", "{token}", "Tokens of the prompt and of the answer.", _TOKEN_BUCKETS
)
_CIRCUIT_VALUES = {State.CLOSED: 0.0, State.HALF_OPEN: 1.0, State.OPEN: 2.0}


class Recorder:
    """Records the span and the metrics of one answer of a deployment, from the start of the request.

    Args:
        model: The model's public name.
        deployment: The deployment.
        parameters: The parameters of the request.
        prompt: The request.
    """

    def __init__(self, model: str, deployment: Deployment, parameters: RequestParameters, prompt: Prompt) -> None:
        operation = "text_completion" if isinstance(prompt, Conversation) and prompt.plain else "chat"
        self._labels = {
            "gen_ai.operation.name": operation,
            "gen_ai.request.model": model,
            "causeway.deployment": deployment.name,
        }
        self._span = _tracer.start_span(
            f"{operation} {model}",
            kind=SpanKind.CLIENT,
            attributes={
                **self._labels,
                "gen_ai.provider.name": deployment.model.owned_by,
                **request_attributes(parameters),
            },
        )
        self._streamed = parameters.stream is True
        self._reasons: list[str] = []
        self._requested_at = time.perf_counter()
        self._started_at: float | None = None
        self._usage: Usage | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *rest: object) -> None:
        labels = self._labels
        now = time.perf_counter()
        if isinstance(error, CausewayError):
            labels = {**labels, "error.type": type(error).__name__}
            self._span.set_status(StatusCode.ERROR, type(error).__name__)
            self._span.set_attribute("error.type", type(error).__name__)
        elif kind is not None:
            labels = {**labels, "error.type": "left"}
        _durations.record(now - self._requested_at, labels)
        if self._usage is not None:
            self._record_usage(self._usage, now)
        if self._reasons:
            self._span.set_attribute("gen_ai.response.finish_reasons", self._reasons)
        self._span.end()

    def record_start(self, first: Sequence[Event]) -> None:
        """Record the start of the answer, with its first events."""
        self._started_at = time.perf_counter()
        if self._streamed:
            _first_chunk_times.record(self._started_at - self._requested_at, self._labels)
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", self._started_at - self._requested_at)
        if self._span.is_recording():
            self._span.set_attributes(response_attributes(first))
        for event in first:
            self.record_event(event)

    def record_event(self, event: Event) -> None:
        """Record an event with a finish reason or with token counts."""
        if event.usage is not None:
            self._usage = event.usage
        if event.kind is EventKind.FINISH:
            self._reasons.append(event.text)

    def _record_usage(self, usage: Usage, now: float) -> None:
        for kind, number in (("input", usage.prompt_tokens), ("output", usage.completion_tokens)):
            _token_counts.record(number, {**self._labels, "gen_ai.token.type": kind})
            self._span.set_attribute(f"gen_ai.usage.{kind}_tokens", number)
        if self._streamed and self._started_at is not None and usage.completion_tokens > 1:
            _token_intervals.record((now - self._started_at) / (usage.completion_tokens - 1), self._labels)


def watch(deployments: Callable[[], Iterable[Deployment]]) -> None:
    """Register the metrics of each deployment's circuit (0 closed, 1 half open, 2 open) and load.

    Several public models may have deployments with the same name: the same model on the same server. The metrics
    show the highest state of their circuits, and the sum of their loads.

    Args:
        deployments: Returns the served deployments.
    """

    def per_name(
        value: Callable[[Deployment], float], combine: Callable[[Iterable[float]], float]
    ) -> Callable[[], list[tuple[float, dict[str, str]]]]:
        def read() -> list[tuple[float, dict[str, str]]]:
            values: dict[str, list[float]] = defaultdict(list)
            for deployment in deployments():
                values[deployment.name].append(value(deployment))
            return [(combine(found), {"causeway.deployment": name}) for name, found in values.items()]

        return read

    metrics.observed(
        __name__,
        "causeway.deployment.circuit",
        "",
        "0: closed, all requests pass; 1: half open, one test request passes; 2: open, no request passes.",
        per_name(lambda deployment: _CIRCUIT_VALUES[deployment.circuit.state], max),
    )
    metrics.observed(
        __name__,
        "causeway.deployment.busy",
        "",
        "Running answers.",
        per_name(lambda deployment: deployment.slots.busy, sum),
    )
    metrics.observed(
        __name__,
        "causeway.deployment.waiting",
        "",
        "Requests that wait for a slot.",
        per_name(lambda deployment: deployment.slots.waiting, sum),
    )
