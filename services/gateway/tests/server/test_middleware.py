import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import structlog
from causeway_testing.gateway.answering import FakeGenerator, FakeProbe
from causeway_testing.servers import eventually, measured
from gateway.domain import Delta
from gateway.main import build_app
from gateway.server.http_server import HttpServer, listen
from gateway.server.middleware import BodyLimit, Tracing
from gateway.settings import Settings
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from servicekit import telemetry
from servicekit.errors import CausewayError, DeadlineExceeded, InvalidRequest, PayloadTooLarge, Unavailable
from starlette.types import ASGIApp

QUESTION = {"messages": [{"role": "user", "content": "When does the ferry leave?"}]}
TRACE = "0af7651916cd43dd8448eb211c80319c"


# --- tracing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/chat", 400),
        ("GET", "/chat", 405),
        ("POST", "/v1/chat/completions", 400),
        ("GET", "/nowhere", 404),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/docs", 200),
        ("GET", "/jobs/none", 404),
        ("DELETE", "/documents", 405),
        ("POST", "/documents", 415),
    ],
)
async def test_every_response_has_its_trace_id(
    client: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    """Every response has the trace id once in each of both headers."""
    response = await client.request(method, path, headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
    assert response.status_code == status
    assert response.headers.get_list("x-trace-id") == [TRACE]
    assert response.headers.get_list("x-request-id") == [TRACE]


async def test_a_request_that_outlasts_the_shutdown_gets_503() -> None:
    """A request that the server cancels at the end of the shutdown gets the status 503 and Retry-After."""
    draining, begun = asyncio.Event(), asyncio.Event()

    async def hanging(_: Any, __: Any, ___: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    def error_body(_: Any, error: CausewayError) -> bytes:
        return error.message.encode()

    with listen("127.0.0.1", 0) as listener:
        server = HttpServer(Tracing(hanging, error_body, draining), 1)
        serving = asyncio.create_task(server.serve([listener]))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            requesting = asyncio.create_task(client.get("/"))
            await begun.wait()
            draining.set()
            server.should_exit = True
            response = await requesting
        await serving
    assert response.status_code == 503
    assert response.text == "The server is stopping. Try again."
    assert "retry-after" in response.headers


@pytest.mark.parametrize("header", [None, "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "\xff"])
async def test_a_request_without_a_trace_gets_a_new_trace_id(client: httpx.AsyncClient, header: str | None) -> None:
    """A request without a valid trace gets a new trace id."""
    ids = set()
    for _ in range(2):
        headers = [] if header is None else [(b"traceparent", header.encode("latin-1"))]
        ids.add((await client.get("/jobs/none", headers=headers)).headers["x-trace-id"])
    assert len(ids) == 2
    assert all(int(trace_id, 16) for trace_id in ids)


async def test_calls_belong_to_the_clients_trace(fakes: Any, client: httpx.AsyncClient) -> None:
    """Calls to services belong to the client's trace."""
    seen: list[str] = []

    class Generator(FakeGenerator):
        async def count_tokens(self, *args: Any) -> Any:
            seen.append(telemetry.current_trace_id())
            return await super().count_tokens(*args)

    fakes.generator = Generator([[Delta(0, "a")]])
    app = build_app(Settings(default_index="docs"), fakes.services())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://g") as http:
        await http.post("/chat", json=QUESTION, headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
    assert set(seen) == {TRACE}


async def test_an_unexpected_exception_is_a_500_without_details(fakes: Any, client: httpx.AsyncClient) -> None:
    """An unexpected exception of a route causes a 500 without details, and the log has the cause."""

    class Broken(FakeProbe):
        async def check(self, deadline: Any) -> str | None:
            raise RuntimeError("internal details")

    fakes.probes.append(Broken("broken"))
    app = build_app(Settings(), fakes.services())
    with structlog.testing.capture_logs() as logs:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://g") as http:
            response = await http.get("/readyz")
    assert response.status_code == 500
    assert "internal details" not in response.text
    assert response.json()["error"]["type"] == "server_error"
    assert response.headers["x-trace-id"]
    assert any(entry.get("exc_info") for entry in logs)


async def test_a_request_writes_one_log_line(client: httpx.AsyncClient) -> None:
    """A request writes one log line with its method, path, status and duration. Health checks write none."""
    with structlog.testing.capture_logs() as logs:
        await client.post("/chat", json=QUESTION)
        await client.post("/chat", json={})
        await client.get("/healthz")
        await client.get("/readyz?verbose")
    lines = [entry for entry in logs if entry["event"] == "request"]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("POST", "/chat", 200),
        ("POST", "/chat", 400),
    ]
    assert all(line["duration_ms"] > 0 for line in lines)


async def test_a_client_that_left_is_logged_with_499(serve: Callable[[ASGIApp], int], fakes: Any) -> None:
    """The log line and the metric of a request whose client left before the response have the status 499."""

    def requests_with_status(status: str) -> float:
        samples = measured("http_server_request_duration_seconds_count")
        return sum(value for labels, value in samples if labels["http_response_status_code"] == status)

    before = requests_with_status("499")
    fakes.generator.gate = asyncio.Event()
    fakes.generator.script = [[], [Delta(0, "never")]]
    port = serve(build_app(Settings(default_index="docs"), fakes.services()))
    body = json.dumps(QUESTION).encode()
    with structlog.testing.capture_logs() as logs:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /chat HTTP/1.1\r\nhost: g\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await eventually(lambda: bool(fakes.generator.prompts))
        writer.close()
        await eventually(lambda: any(entry["event"] == "request" for entry in logs))
    assert [entry["status"] for entry in logs if entry["event"] == "request"] == [499]
    assert requests_with_status("499") == before + 1


# --- admission ----------------------------------------------------------------------------------------------------


async def test_requests_above_the_limit_are_refused(fakes: Any) -> None:
    """Requests above the limit are refused with 503 in the dialect's format. Health checks are served."""
    gate = fakes.generator.gate = asyncio.Event()
    app = build_app(Settings(default_index="docs", max_requests=1), fakes.services())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://g") as http:
        first = asyncio.ensure_future(http.post("/chat", json=QUESTION))
        await eventually(lambda: bool(fakes.generator.prompts))
        for path, kind in (("/chat", str), ("/v1/chat/completions", dict), ("/jobs/x", dict)):
            refused = await http.post(path, json=QUESTION)
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert isinstance(refused.json()["error"], kind)
            assert refused.headers["x-trace-id"]
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/readyz")).status_code == 200
        gate.set()
        assert (await first).status_code == 200
        assert (await http.post("/chat", json=QUESTION)).status_code == 200


# --- bodies -------------------------------------------------------------------------------------------------------


async def pieces(size: int) -> Any:
    for _ in range(0, size, 1000):
        yield b" " * 1000


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("path", "size", "kind"),
    [("/chat", 21_000, str), ("/v1/chat/completions", 21_000, dict), ("/documents", 101_000, dict)],
)
async def test_a_body_above_the_limit_is_refused(
    http: httpx.AsyncClient, fakes: Any, path: str, size: int, kind: type, chunked: bool
) -> None:
    """A body above the limit of its path is refused with 413 in the dialect's format, and no service is called."""
    media = "multipart/form-data; boundary=x" if path == "/documents" else "application/json"
    start = (
        b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n' if path == "/documents" else b""
    )

    async def content() -> Any:
        yield start
        async for piece in pieces(size):
            yield piece

    body = content() if chunked else start + b" " * size
    response = await http.post(path, content=body, headers={"content-type": media})
    assert response.status_code == 413
    assert isinstance(response.json()["error"], kind)
    assert "larger than" in response.text
    assert response.headers["x-trace-id"]
    assert fakes.generator.prompts == []
    assert fakes.ingest.uploads == []


async def test_a_body_at_the_limit_is_read(http: httpx.AsyncClient) -> None:
    """A body of exactly the limit is read."""
    body = json.dumps(QUESTION).encode()
    assert (await http.post("/chat", content=body + b" " * (20_000 - len(body)))).status_code == 200
    assert (await http.post("/chat", content=body + b" " * (20_001 - len(body)))).status_code == 413


@pytest.mark.parametrize("length", [b"-5", b"ten", b"1.5", b"", b"+5", b"\xb2"])
async def test_an_invalid_length_is_refused(length: bytes) -> None:
    """A Content-Length that is not a number is refused."""
    with pytest.raises(InvalidRequest, match="Content-Length"):
        await _through_limit([(b"content-length", length)])


@pytest.mark.parametrize("length", [b"11", b"9" * 30, b"9" * 5000])
async def test_a_length_above_the_limit_is_refused(length: bytes) -> None:
    """A Content-Length above the limit is refused, even if it has thousands of digits."""
    with pytest.raises(PayloadTooLarge):
        await _through_limit([(b"content-length", length)])


async def _through_limit(headers: list[tuple[bytes, bytes]]) -> None:
    async def app(*_: Any) -> None:
        raise AssertionError("the request was not refused")

    async def nothing(*_: Any) -> Any:
        raise AssertionError("the body was read or a response was sent")

    scope = {"type": "http", "path": "/x", "headers": headers}
    await BodyLimit(app, 10, 10, 1.0)(scope, nothing, nothing)


@pytest.mark.parametrize("length", ["-5", "ten", "99999999999999999999999999"])
async def test_the_server_refuses_invalid_lengths(port: int, length: str) -> None:
    """The server refuses an invalid Content-Length with a 4xx status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST /chat HTTP/1.1\r\nhost: g\r\ncontent-length: {length}\r\n\r\n{{}}".encode())
    status = await asyncio.wait_for(reader.readline(), 60)
    assert status.startswith(b"HTTP/1.1 4")
    writer.close()


# --- errors of the routing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/chat", 405, str),
        ("PUT", "/2024-04/chat/stream", 405, str),
        ("GET", "/v1/chat/completions", 405, dict),
        ("GET", "/retrieve", 405, dict),
        ("GET", "/nowhere", 404, dict),
        ("POST", "/v1/chat", 404, dict),
    ],
)
async def test_routing_errors_have_the_dialects_format(
    client: httpx.AsyncClient, method: str, path: str, status: int, kind: type
) -> None:
    """Unknown paths and wrong methods are refused in the dialect's format, with the allowed methods."""
    response = await client.request(method, path)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert isinstance(response.json()["error"], kind)
    if status == 405:
        assert response.headers["allow"] == "POST"
    if kind is dict:
        assert response.json()["detail"] == response.json()["error"]["message"]


async def test_retry_after_is_a_header(fakes: Any, client: httpx.AsyncClient) -> None:
    """The header Retry-After has whole seconds, at least one."""
    fakes.ingest.failure = Unavailable("gone", retry_after=0.2)
    response = await client.post("/documents", data={"index": "docs"}, files={"file": ("a.md", b"x")})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", "/chat", "POST /chat"),
        ("POST", "/v1/chat/completions", "POST /v1/chat/completions"),
        ("GET", "/jobs/7", "GET /jobs/{job_id}"),
        ("GET", "/nowhere/7", "GET"),
    ],
)
async def test_a_request_is_one_span_named_by_its_route(
    client: httpx.AsyncClient, spans: InMemorySpanExporter, method: str, path: str, name: str
) -> None:
    """A request creates one span, which has the name of its route."""
    response = await client.request(method, path)
    own = [
        span
        for span in spans.get_finished_spans()
        if format(span.context.trace_id, "032x") == response.headers["x-trace-id"]
    ]
    assert [(span.name, span.kind) for span in own] == [(name, SpanKind.SERVER)]
    assert own[0].attributes is not None
    assert own[0].attributes["http.response.status_code"] == response.status_code


async def test_probes_are_not_recorded(client: httpx.AsyncClient, spans: InMemorySpanExporter) -> None:
    """Health checks create no span, but their responses have a trace id."""
    new_trace = (await client.get("/healthz")).headers["x-trace-id"]
    assert int(new_trace, 16)
    client_trace = uuid.uuid4().hex
    headers = {"traceparent": f"00-{client_trace}-b7ad6b7169203331-01"}
    assert (await client.get("/readyz", headers=headers)).headers["x-trace-id"] == client_trace
    ids = {format(span.context.trace_id, "032x") for span in spans.get_finished_spans()}
    assert ids.isdisjoint({new_trace, client_trace})


async def test_a_501_is_no_error_in_its_span(client: httpx.AsyncClient, spans: InMemorySpanExporter) -> None:
    """The span of a 501 has no error status."""
    response = await client.post("/speech")
    assert response.status_code == 501
    trace_id = response.headers["x-trace-id"]
    [span] = [one for one in spans.get_finished_spans() if format(one.context.trace_id, "032x") == trace_id]
    assert span.status.status_code is StatusCode.UNSET


async def read_slowly(monkeypatch: pytest.MonkeyPatch, *, pieces: int, size: int) -> int:
    """Read a body with one piece per second on a fake clock. Return the number of pieces."""
    clock, received = 0.0, 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal received
        while (await receive())["more_body"]:
            received += 1

    async def receive_piece() -> Any:
        nonlocal clock
        clock += 1
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"x" * size, "more_body": received < pieces}

    monkeypatch.setattr("gateway.server.middleware.time.monotonic", lambda: clock)
    scope = {"type": "http", "path": "/", "headers": [], "state": {}}
    limit = BodyLimit(app, 1_000_000, 1_000_000, pause=30, rate=1000.0)
    with contextlib.suppress(DeadlineExceeded):
        await limit(scope, receive_piece, None)  # type: ignore[arg-type]  # nothing is sent
    return received


async def test_a_body_that_is_too_slow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body below the minimum mean rate is refused after 30 s."""
    assert await read_slowly(monkeypatch, pieces=100, size=1) == 31


async def test_a_slow_body_at_the_minimum_rate_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow body at the minimum mean rate is read to its end."""
    assert await read_slowly(monkeypatch, pieces=100, size=1000) == 100
