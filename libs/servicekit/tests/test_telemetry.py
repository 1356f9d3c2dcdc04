import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from opentelemetry import context
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from servicekit import telemetry
from servicekit.settings import ServiceSettings

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "vendor=value"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the names of spans with the authorization of their requests."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str]] = []

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # named by the protocol
        [authorization] = [value for name, value in context.invocation_metadata() if name == "authorization"]
        self.got += [
            (span.name, authorization)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
def inside() -> Iterator[None]:
    """Run the test within the trace of `TRACEPARENT`."""
    token = context.attach(telemetry.extract({"traceparent": TRACEPARENT, "tracestate": STATE}))
    yield
    context.detach(token)


def test_headers_preserve_the_trace(inside: None) -> None:
    """A trace that is extracted and injected stays the same, with the state of its vendor."""
    headers: dict[str, str] = {"other": "kept"}
    telemetry.inject(headers)
    assert headers == {"other": "kept", "traceparent": TRACEPARENT, "tracestate": STATE}


def test_a_given_context_is_injected_instead_of_the_current_one(inside: None) -> None:
    """A call beside the current one has its own trace."""
    other = "00-11111111111111111111111111111111-2222222222222222-01"
    headers: dict[str, str] = {}
    telemetry.inject(headers, telemetry.extract({"traceparent": other}))
    assert headers == {"traceparent": other}


@pytest.mark.parametrize("bad", ["", "nonsense", TRACEPARENT[:-4], "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_an_invalid_traceparent_is_ignored(bad: str) -> None:
    """An invalid header leads to a new trace and not to an error."""
    token = context.attach(telemetry.extract({"traceparent": bad}))
    try:
        assert telemetry.current_trace_id() == ""
    finally:
        context.detach(token)


def test_the_trace_id_is_that_of_the_current_span(inside: None) -> None:
    """Answers and logs name the trace that they belong to."""
    assert telemetry.current_trace_id() == "0af7651916cd43dd8448eb211c80319c"


def test_outside_of_any_trace_nothing_is_injected() -> None:
    """Without a trace there is no header, because a header of zeros would start a broken trace elsewhere."""
    headers: dict[str, str] = {}
    telemetry.inject(headers)
    assert headers == {}
    assert telemetry.current_trace_id() == ""


@pytest.mark.parametrize(("ratio", "endpoint"), [(1.0, None), (0.0, "http://127.0.0.1:1")])
def test_every_request_has_a_trace_id(ratio: float, endpoint: str | None) -> None:
    """Without an endpoint, and for a trace that is not recorded, a request has an id that a client can name."""
    provider = telemetry.provider_for("book", ServiceSettings(trace_sample_ratio=ratio, otlp_endpoint=endpoint))
    with provider.get_tracer("test").start_as_current_span("request") as span:
        assert re.fullmatch(r"(?!0{32})[0-9a-f]{32}", telemetry.current_trace_id())
        assert not span.is_recording()
    telemetry.shut_down(provider)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_the_first_service_decides_whether_a_trace_is_recorded(ratio: float, inside: None) -> None:
    """The first service decides whether all services record a trace."""
    provider = telemetry.provider_for("book", ServiceSettings(trace_sample_ratio=ratio))
    with provider.get_tracer("test").start_as_current_span("request") as span:
        assert span.is_recording()
        assert telemetry.current_trace_id() == "0af7651916cd43dd8448eb211c80319c"
    telemetry.shut_down(provider)


@pytest.mark.parametrize("tls", [False, True])
def test_spans_are_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tls: bool) -> None:
    """Spans are sent over OTLP with the headers of the standard variable. ``https`` means TLS, checked against the
    given file.
    """
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]  # generated without types
    if tls:
        authority = trustme.CA()
        own = authority.issue_cert("localhost")
        pair = (own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes())
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(tmp_path / "ca.pem"))
        port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([pair]))
    else:
        port = server.add_insecure_port("localhost:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
    endpoint = f"{'https' if tls else 'http'}://localhost:{port}"
    try:
        provider = telemetry.provider_for("book", ServiceSettings(otlp_endpoint=endpoint))
        with provider.get_tracer("test").start_as_current_span("request"):
            pass
        telemetry.shut_down(provider, within=20)
    finally:
        server.stop(0).wait()
    assert collector.got == [("request", "Bearer abc")]


def test_unsent_spans_do_not_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """`shut_down` does not wait longer than ``within`` for a collector."""
    release, ended = threading.Event(), threading.Event()

    def shutdown() -> None:
        release.wait(60)
        ended.set()

    provider = telemetry.provider_for("book", ServiceSettings())
    monkeypatch.setattr(provider, "shutdown", shutdown)
    telemetry.shut_down(provider, within=0.01)
    assert not ended.is_set()
    release.set()
    assert ended.wait(60)


def test_spans_name_the_release_and_the_conventions() -> None:
    """The resource names the service and its version. Resource and tracer name the version of the conventions."""
    provider = telemetry.provider_for("gateway", ServiceSettings())
    assert provider.resource.attributes["service.name"] == "causeway-gateway"
    assert provider.resource.attributes["service.version"] == version("causeway-gateway")
    assert provider.resource.schema_url == telemetry.SCHEMA == "https://opentelemetry.io/schemas/1.44.0"
