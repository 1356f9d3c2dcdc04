"""The metrics and spans of searches."""

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.servers import measured, traced
from opentelemetry.sdk.trace import ReadableSpan
from retriever.domain.document import Document
from retriever.domain.query import Mode, Query
from retriever.search.metrics import SearchSpan
from retriever.search.step_timer import StepTimer
from servicekit.errors import CausewayError, NotFound
from servicekit.principal import LOCAL

SPAN = f"retrieval {INDEX}"


def seen(name: str, **labels: str) -> float:
    return sum(value for found, value in measured(name) if labels.items() <= found.items())


def last() -> ReadableSpan:
    return traced(SPAN)[-1]


async def test_a_search_is_measured(bench: Bench) -> None:
    """A search measures its steps, passages and best cosine. Its span has no words of the query."""
    await bench.put(Document("d", "harbour.pdf", generation=1), ["the ferry leaves", "tickets for the ferry"])
    measured("")
    traced("")
    before = {
        step: seen("causeway_retrieval_step_seconds_count", causeway_step=step) for step in ("embed", "dense")
    }
    found = await bench.retrieval.retrieve(LOCAL, Query((INDEX,), "ferry tickets"))
    for step, count in before.items():
        assert seen("causeway_retrieval_step_seconds_count", causeway_step=step) == count + 1
    assert seen("causeway_retrieval_passages_count", causeway_retrieval_mode="hybrid") >= 1
    assert seen("causeway_retrieval_best_cosine_count", causeway_retrieval_mode="hybrid") >= 1
    attributes = dict(last().attributes or {})
    assert attributes["gen_ai.operation.name"] == "retrieval"
    assert attributes["gen_ai.data_source.id"] == INDEX
    assert attributes["causeway.retrieval.passages"] == len(found.passages) == 2
    steps = {step.name: round(step.milliseconds, 3) for step in found.steps}
    assert {name: attributes[f"causeway.step.{name}.ms"] for name in steps} == steps
    assert "ferry" not in str(attributes)


def test_the_span_has_the_query_if_the_setting_allows_it() -> None:
    """If the setting allows it, the span has the query in the attribute that OpenTelemetry's conventions define."""
    traced("")
    with SearchSpan(Query((INDEX,), "ferry", mode=Mode.TEXT), StepTimer(), content=True):
        pass
    assert (last().attributes or {})["gen_ai.retrieval.query.text"] == "ferry"


async def test_the_span_of_a_failed_search(bench: Bench) -> None:
    """The span of a failed search has an error status and the type of the error."""
    traced("")
    with pytest.raises(CausewayError):
        await bench.retrieval.retrieve(LOCAL, Query(("nowhere",), "ferry"))
    span = traced("retrieval nowhere")[-1]
    assert (span.attributes or {})["error.type"] == NotFound.__name__
    assert not span.status.is_ok
