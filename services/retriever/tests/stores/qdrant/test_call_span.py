"""The attributes and status of the spans of Qdrant calls."""

from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest
from causeway_testing.retriever.qdrant import serving
from causeway_testing.servers import span_exporter
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from qdrant_client import AsyncQdrantClient
from retriever.domain.index import IndexSpec
from retriever.domain.scope import EVERYTHING
from retriever.ports.store import Terms
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.failures import Missing
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore
from servicekit.errors import Unavailable

SPEC = IndexSpec("local", "notes", "hashed-words-64", 64)


def below(parent: Any) -> list[ReadableSpan]:
    """Return the ended child spans of a span."""
    spans = span_exporter().get_finished_spans()
    return [span for span in spans if span.parent and span.parent.span_id == parent.get_span_context().span_id]


async def test_the_attributes_of_a_span() -> None:
    """A span names the system, the operation, the collection and the server, and has no other attribute."""
    span_exporter()
    async with serving() as server:
        store = await QdrantStore.open(Connection.from_url(server.url, None, 5.0), Layout())
        collection = await store.create(SPEC)
        await collection.publish()
        with trace.get_tracer(__name__).start_as_current_span("search") as parent:
            await collection.sparse(Terms([4711], [0.25]), 3, EVERYTHING)
        await store.aclose()
        seen = below(parent)
        searched = next(span for span in seen if str(span.name).startswith("query_points"))
        name = searched.attributes["db.collection.name"] if searched.attributes else ""
        assert searched.name == f"query_points {name}"
        assert searched.kind is SpanKind.CLIENT
        assert dict(searched.attributes or {}) == {
            "db.system.name": "qdrant",
            "db.operation.name": "query_points",
            "db.collection.name": collection.location.name,
            "server.address": "127.0.0.1",
            "server.port": urlsplit(server.url).port,
        }
        assert {span.status.status_code for span in seen} == {StatusCode.UNSET}


async def test_the_status_of_a_span() -> None:
    """The span of a missing collection is no error. The spans of calls to an unavailable server are errors."""
    span_exporter()

    async def fail(_: str) -> None:
        raise ConnectionError

    async with serving() as server:
        connection = Connection.from_url(server.url, None, 5.0)
        store = await QdrantStore.open(connection, Layout())
        with trace.get_tracer(__name__).start_as_current_span("a look") as parent, pytest.raises(Missing):
            await connection.read(AsyncQdrantClient.get_collection, "nothing")
        span = below(parent)[0]
        assert span.attributes is not None
        assert span.attributes["db.response.status_code"] == "NOT_FOUND"
        assert span.status.status_code is StatusCode.UNSET
        assert "error.type" not in span.attributes

        server.before = fail
        with trace.get_tracer(__name__).start_as_current_span("later") as parent, pytest.raises(Unavailable):
            await store.collections()
        tries = below(parent)
        assert len(tries) == 2
        for failed in tries:
            assert failed.attributes is not None
            assert failed.attributes["db.response.status_code"] == grpc.StatusCode.UNAVAILABLE.name
            assert failed.attributes["error.type"] == grpc.StatusCode.UNAVAILABLE.name
            assert failed.status.status_code is StatusCode.ERROR
        server.before = None
        await store.aclose()


async def test_no_span_is_recorded_outside_a_trace() -> None:
    """A call outside a trace creates no span."""
    exporter = span_exporter()
    async with serving() as server:
        connection = Connection.from_url(server.url, None, 5.0)
        before = len(exporter.get_finished_spans())
        await connection.check()
        await connection.read(AsyncQdrantClient.get_collections)
        await connection.aclose()
        assert len(exporter.get_finished_spans()) == before
