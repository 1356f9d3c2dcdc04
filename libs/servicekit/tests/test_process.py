import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from causeway_testing.servers import free_ports
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from pydantic import Field
from servicekit import process
from servicekit.settings import ServiceSettings

TRACE = "0af7651916cd43dd8448eb211c80319c"

# A service with the parts of a real one: a server, a channel, tasks and generators that are open when it ends.
SERVICE = """
import asyncio, sys, time
from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from opentelemetry import context
from servicekit import nats, process, rpc, telemetry
from servicekit.channel import open_channel
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, Unavailable
from servicekit.server import GrpcServer
from servicekit.settings import ServiceSettings
import structlog

class Guardrails(guardrails_pb2_grpc.GuardrailsServiceServicer):
    async def DetectText(self, request, context):
        structlog.get_logger("book").info("asked")
        return guardrails_pb2.DetectTextResponse()
    async def Detect(self, requests, context):
        async for _ in requests:
            yield guardrails_pb2.DetectResponse()

async def ticks():
    while True:
        await asyncio.sleep(0.001)
        yield

async def tick():
    async for _ in ticks():
        pass

async def serve(settings, stop):
    if "unavailable" in sys.argv:
        raise Unavailable("The store cannot be opened.") from OSError("disk on fire")
    if "misconfigured" in sys.argv:
        raise InvalidRequest("CAUSEWAY_BOOKS_FILE: there is no such file.")
    if "defect" in sys.argv:
        {}["shelf"]
    descriptor = guardrails_pb2.DESCRIPTOR.services_by_name["GuardrailsService"]
    add = lambda it: guardrails_pb2_grpc.add_GuardrailsServiceServicer_to_server(Guardrails(), it)
    server = GrpcServer("127.0.0.1:0", [(descriptor, add)])
    serving = asyncio.create_task(server.serve_until(stop, settings.shutdown_grace))
    channel = open_channel(f"127.0.0.1:{server.port}", [descriptor])
    stub = guardrails_pb2_grpc.GuardrailsServiceStub(channel)
    context.attach(telemetry.extract({"traceparent": sys.argv[1]}))
    await rpc.unary(stub.DetectText, guardrails_pb2.DetectTextRequest(), Deadline.after(120))
    left_open = asyncio.create_task(tick())
    stream = stub.Detect()
    await stream.write(guardrails_pb2.DetectRequest())
    await stream.read()
    if "stuck" in sys.argv:
        process._EXIT_SECONDS = 0.2
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
    print("ready", flush=True)
    await serving

sys.exit(process.run("book", ServiceSettings, serve, []))
"""

Start = Callable[..., Any]


class Service:
    """Runs a service in a separate process."""

    def __init__(self, running: asyncio.subprocess.Process) -> None:
        self._process = running

    async def ready(self) -> None:
        assert self._process.stdout is not None
        assert await asyncio.wait_for(self._process.stdout.readline(), 60) == b"ready\n"

    async def end(self, signal_number: signal.Signals | None = None) -> tuple[int, str]:
        """Return the exit code and the output on stderr."""
        if signal_number is not None:
            self._process.send_signal(signal_number)
        _, err = await asyncio.wait_for(self._process.communicate(), 60)
        assert self._process.returncode is not None
        return self._process.returncode, err.decode()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    script = tmp_path / "service.py"
    script.write_text(SERVICE)

    async with AsyncExitStack() as stack:

        async def start(*arguments: str, **variables: str) -> Service:
            running = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-W", "default", str(script), f"00-{TRACE}-b7ad6b7169203331-01", *arguments),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "CAUSEWAY_SHUTDOWN_GRACE": "0.2", **variables},
            )
            service = Service(running)
            stack.callback(service.kill)
            return service

        yield start


def _json(err: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in err.splitlines() if line.startswith("{")]


async def test_a_signal_drains_the_service(start: Start) -> None:
    """SIGTERM drains the service and ends it with 0. Open resources are closed without an error."""
    service = await start()
    await service.ready()
    code, err = await service.end(signal.SIGTERM)
    assert code == 0, err
    assert [line["event"] for line in _json(err)] == ["serving", "asked", "draining"]
    for complaint in ("Traceback", "was destroyed", "never retrieved", "never awaited", "ResourceWarning"):
        assert complaint not in err


async def test_a_stuck_thread_does_not_delay_the_exit(start: Start) -> None:
    """A thread that cannot end, such as a name lookup, is left behind, and the process ends normally."""
    service = await start("stuck")
    await service.ready()
    code, err = await service.end(signal.SIGTERM)
    assert code == 0, err
    assert [line["event"] for line in _json(err)][-1] == "draining"


def test_an_abandoned_name_resolution_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """If connecting takes too long, the failure of the name resolution that follows is not logged. Others are."""

    async def connect() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.open_connection("host.invalid", 1)
        with pytest.raises(socket.gaierror):
            await asyncio.get_running_loop().getaddrinfo("host.invalid", 1)
        await asyncio.sleep(0.05)
        asyncio.get_running_loop().create_future().set_exception(OSError("the disk is on fire"))

    with asyncio.Runner(loop_factory=process._new_event_loop) as runner:
        runner.run(connect())
    [record] = caplog.records
    assert str(record.exc_info[1] if record.exc_info else "") == "the disk is on fire"


async def test_a_failed_start_ends_the_process_with_one_line(start: Start) -> None:
    """A known failure ends the process with 1 and a line with the error and its cause."""
    code, err = await (await start("unavailable")).end()
    assert code == 1
    (line,) = _json(err)
    assert (line["level"], line["error"]) == ("critical", "The store cannot be opened.")
    assert "disk on fire" in line["exception"]
    assert len(err.splitlines()) == 1


async def test_a_wrong_file_ends_the_process(start: Start) -> None:
    """A wrong file that a setting names ends the process like a wrong setting, with one line. A line before it
    warns of a variable that is not a setting, with the setting of a similar name, and without the value.
    """
    code, err = await (await start("misconfigured", CAUSEWAY_AUHT="hunter2")).end()
    assert code == process.EXIT_CONFIGURATION
    warning, line = _json(err)
    assert (warning["variable"], warning["similar"]) == ("CAUSEWAY_AUHT", "CAUSEWAY_AUTH")
    assert "hunter2" not in err
    assert line["error"] == "CAUSEWAY_BOOKS_FILE: there is no such file."


async def test_a_defect_ends_the_process_with_one_line(start: Start) -> None:
    """A defect at the start ends the process with 1, and its stack is one line of the log."""
    code, err = await (await start("defect")).end()
    assert code == 1
    (line,) = _json(err)
    assert (line["level"], line["service"]) == ("critical", "book")
    assert "KeyError: 'shelf'" in line["exception"]
    assert len(err.splitlines()) == 1


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Receives spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.resources: list[Any] = []

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        self.resources.extend(request.resource_spans)
        return trace_service_pb2.ExportTraceServiceResponse()

    @property
    def spans(self) -> list[Any]:
        return [span for resource in self.resources for scope in resource.scope_spans for span in scope.spans]


async def test_the_spans_of_a_call_reach_the_collector(start: Start) -> None:
    """The spans of caller and handler are parent and child in the caller's trace. The last spans are sent at the
    end, and the handler's log lines have the trace.
    """
    collector = Collector()
    server = grpc.aio.server()
    add: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server  # has no types
    add(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    service = await start(CAUSEWAY_OTLP_ENDPOINT=f"http://127.0.0.1:{port}")
    await service.ready()
    code, err = await service.end(signal.SIGTERM)
    await server.stop(0)
    assert code == 0
    names = [
        attribute.value.string_value
        for attribute in collector.resources[0].resource.attributes
        if attribute.key == "service.name"
    ]
    assert names == ["causeway-book"]
    caller, handler = (
        next(
            span
            for span in collector.spans
            if (span.name, span.kind) == ("causeway.guardrails.v1.GuardrailsService/DetectText", kind)
        )
        for kind in (3, 2)
    )
    assert caller.trace_id.hex() == handler.trace_id.hex() == TRACE
    assert caller.parent_span_id.hex() == "b7ad6b7169203331"
    assert handler.parent_span_id == caller.span_id
    assert [line["trace_id"] for line in _json(err) if line["event"] == "asked"] == [TRACE]


async def test_a_service_ends_if_the_collector_is_unavailable(start: Start) -> None:
    """A service ends with 0 although no collector accepts its last traces. SIGINT ends it like SIGTERM."""
    service = await start(CAUSEWAY_OTLP_ENDPOINT=f"http://127.0.0.1:{free_ports(1)[0]}")
    await service.ready()
    code, _ = await service.end(signal.SIGINT)
    assert code == 0


class Settings(ServiceSettings):
    book_port: int = Field(1, description="A port.")
    book_shelves: list[str] = Field([], description="Names.")


async def _serve(settings: Settings, stop: asyncio.Event) -> None:
    raise AssertionError("the service must not begin")


def test_an_invalid_environment_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names each wrong variable and its error. The exit code means that a restart does not help."""
    monkeypatch.setenv("CAUSEWAY_BOOK_PORT", "http")
    monkeypatch.setenv("CAUSEWAY_LOG_LEVEL", "LOUD")
    assert process.run("book", Settings, _serve, []) == 78
    lines = capsys.readouterr().err.splitlines()
    assert sorted(line.split(":")[1].strip() for line in lines) == ["CAUSEWAY_BOOK_PORT", "CAUSEWAY_LOG_LEVEL"]
    assert all(line.startswith("book: CAUSEWAY_") for line in lines)
    assert "integer" in "".join(lines)


def test_invalid_json_for_a_list_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A variable with a list must be JSON. Other text is refused with the variable's name."""
    monkeypatch.setenv("CAUSEWAY_BOOK_SHELVES", "[one")
    assert process.run("book", Settings, _serve, []) == 78
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("book: CAUSEWAY_BOOK_SHELVES: this must be JSON: a list like")


def test_a_secret_that_is_wrong_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message does not repeat a variable's value, because it may be a password."""
    monkeypatch.setenv("CAUSEWAY_BOOK_PORT", "hunter2")
    assert process.run("book", Settings, _serve, []) == 78
    assert "hunter2" not in capsys.readouterr().err


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` lists all variables with their defaults and meanings, and ends with 0."""
    with pytest.raises(SystemExit) as ended:
        process.run("book", Settings, _serve, ["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for name, field in Settings.model_fields.items():
        assert f"CAUSEWAY_{name.upper()}" in shown
        assert str(field.description) in shown
    assert "CAUSEWAY_BOOK_PORT [1]\n" in shown
