"""Real servers on free ports, and functions that wait or that read this process's metrics and spans, for tests."""

import asyncio
import contextlib
import functools
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from servicekit import metrics
from servicekit.broker import Broker
from servicekit.channel import open_channel
from servicekit.server import GrpcServer

_START_SECONDS = 90.0
_PORTS = range(10_000, 32_000)
# Hypothesis seeds the functions of `random`, so several processes would choose the same ports.
_RANDOM = random.SystemRandom()


@contextlib.asynccontextmanager
async def nats_server(
    directory: Path, port: int = -1, passwords: Mapping[str, str] | None = None, extra: str = ""
) -> AsyncIterator[str]:
    """Start a real nats-server with JetStream, yield its URL, and kill it at the end.

    Args:
        directory: The directory of the server's files. A later server in the same directory has the same data.
        port: See `Broker`.
        passwords: See `Broker`. The yielded URL contains no password.
        extra: Further lines of the configuration.
    """
    broker = Broker(directory, port, passwords, extra)
    for stale in directory.glob("*.ports"):
        stale.unlink()
    command = broker.command()
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield await _url_of(directory, process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _url_of(directory: Path, process: asyncio.subprocess.Process) -> str:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        for path in directory.glob("*.ports"):
            text = path.read_text()
            if '"nats"' in text and text.rstrip().endswith("}"):
                return text.split('"nats"', 1)[1].split('"', 2)[1]
        if process.returncode is not None:
            raise RuntimeError(f"nats-server ended with {process.returncode}")
        await asyncio.sleep(0.01)
    raise TimeoutError("nats-server did not write its port in time")


@contextlib.asynccontextmanager
async def grpc_service(
    descriptor: ServiceDescriptor, add: Callable[[grpc.aio.Server], None]
) -> AsyncIterator[grpc.aio.Channel]:
    """Start a service with the same interceptor as in production, and yield a channel to it."""
    server = GrpcServer("127.0.0.1:0", [(descriptor, add)])
    await server.start()
    channel = open_channel(f"127.0.0.1:{server.port}", [descriptor])
    try:
        yield channel
    finally:
        await channel.close()
        await server.stop(0)


@functools.cache
def _measurements() -> CollectorRegistry:
    registry = CollectorRegistry()
    metrics.install(registry)
    return registry


def measured(name: str) -> list[tuple[Mapping[str, str], float]]:
    """Return the labels and the value of each sample with this Prometheus name in this process.

    The first call starts the measurements. So a test must call this function before the measured action, too.
    """
    return [
        (sample.labels, sample.value)
        for family in _measurements().collect()
        for sample in family.samples
        if sample.name == name
    ]


@functools.cache
def span_exporter() -> InMemorySpanExporter:
    """Return an exporter of all spans that end in this process after the first call.

    Before the first call, trace ids may be zero.
    """
    if not isinstance(trace.get_tracer_provider(), TracerProvider):  # one exporter for all tests of a process
        trace.set_tracer_provider(TracerProvider())
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


def traced(name: str) -> list[ReadableSpan]:
    """Return the ended spans of this process with a name, in order.

    The first call starts the recording. So a test must call this function before the traced action, too.
    """
    return [span for span in span_exporter().get_finished_spans() if span.name == name]


async def eventually(
    condition: Callable[[], bool], *, within: float = 60.0, every: float = 0.01, what: str = "the condition"
) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: The condition does not hold in time.
    """
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not occur within {within} s")
        await asyncio.sleep(every)


def free_ports(count: int) -> Sequence[int]:
    """Return different free ports of the loopback interface.

    Linux and macOS give outgoing connections only higher ports, so no connection takes one of these ports before
    the test's server listens on it.
    """
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            port = _RANDOM.choice(_PORTS)
            with contextlib.suppress(OSError):  # another server uses the port
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
    return ports
