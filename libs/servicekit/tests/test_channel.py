import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from causeway.generator.v1 import generator_pb2
from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from causeway.retriever.v1 import retriever_pb2
from causeway_testing.servers import free_ports
from servicekit import channel, rpc
from servicekit.channel import open_channel
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from servicekit.server import GrpcServer
from servicekit.service_channel import ServiceChannel

GUARDRAILS = guardrails_pb2.DESCRIPTOR.services_by_name["GuardrailsService"]
ASK = guardrails_pb2.DetectTextRequest()


class Guardrails(guardrails_pb2_grpc.GuardrailsServiceServicer):
    async def DetectText(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        return guardrails_pb2.DetectTextResponse()

    async def ListDetectors(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        raise NotImplementedError

    def Detect(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        raise NotImplementedError

    def GetPolicy(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        raise NotImplementedError


@contextlib.asynccontextmanager
async def guardrails(port: int = 0, servicer: Guardrails | None = None) -> AsyncIterator[int]:
    served = servicer or Guardrails()
    server = GrpcServer(
        f"127.0.0.1:{port}",
        [(GUARDRAILS, lambda it: guardrails_pb2_grpc.add_GuardrailsServiceServicer_to_server(served, it))],
    )
    await server.start()
    yield server.port
    await server.stop(0)


@contextlib.asynccontextmanager
async def detect_text(port: int) -> AsyncIterator[Any]:
    async with open_channel(f"127.0.0.1:{port}", [GUARDRAILS]) as opened:
        yield guardrails_pb2_grpc.GuardrailsServiceStub(opened).DetectText


async def test_a_reader_that_stops_stops_the_writer(served: Any) -> None:
    """If the client stops reading a stream, at most 64 KiB are written. Reading continues the stream."""
    written = 0
    progress = asyncio.Event()

    async def handler(request: Any, context: Any) -> AsyncIterator[Any]:
        nonlocal written
        while True:
            message = generator_pb2.GenerateResponse(
                events=[generator_pb2.GenerateEvent(kind=generator_pb2.EVENT_KIND_TEXT, text="token ")]
            )
            yield message
            written += message.ByteSize()
            progress.set()

    async def standstill() -> int:
        with contextlib.suppress(TimeoutError):
            while True:
                progress.clear()
                await asyncio.wait_for(progress.wait(), 0.3)
        return written

    method = await served.server_stream(handler)
    messages = rpc.server_stream(method, generator_pb2.GenerateRequest(), Deadline.after(120))
    async with contextlib.aclosing(messages):
        await anext(messages)
        stopped_at = await standstill()
        assert stopped_at < 64 * 1024
        for _ in range(5000):
            await anext(messages)
        assert stopped_at < await standstill() < stopped_at + 5000 * 12 + 64 * 1024


async def test_a_missing_server_is_reported_soon() -> None:
    """A call to a port without a server fails long before its deadline, including all attempts."""
    async with detect_text(free_ports(1)[0]) as method:
        with pytest.raises(Unavailable):
            await rpc.unary(method, ASK, Deadline.after(600))


async def test_a_restarted_service_is_found() -> None:
    """After a restart on the same port, the next calls on the same channel succeed."""
    (port,) = free_ports(1)
    async with detect_text(port) as method:
        async with guardrails(port):
            await rpc.unary(method, ASK, Deadline.after(120))
        with pytest.raises(Unavailable):
            await rpc.unary(method, ASK, Deadline.after(120))
        async with guardrails(port):
            async with asyncio.timeout(60):
                while True:
                    with contextlib.suppress(Unavailable):
                        await rpc.unary(method, ASK, Deadline.after(120))
                        break


async def test_a_slow_connection_is_not_an_error() -> None:
    """A connection that takes half a second is slow and not an outage."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async with guardrails() as port:

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.5)
            there, back = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pump(reader, back), pump(there, writer))

        relay = await asyncio.start_server(slow, "127.0.0.1", 0)
        async with relay, detect_text(relay.sockets[0].getsockname()[1]) as method:
            await rpc.unary(method, ASK, Deadline.after(120))


class Renewed:
    """Certificates whose material changes. No call uses the material."""

    def __init__(self) -> None:
        self.material: Any = object()

    def current(self) -> Any:
        return self.material


async def test_closing_cancels_calls_with_an_earlier_certificate() -> None:
    """After a renewal, a running call continues on the old channel. Closing the channel cancels this call."""
    started, ended = asyncio.Event(), asyncio.Event()

    class Slow(Guardrails):
        async def DetectText(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
            started.set()
            try:
                await asyncio.sleep(600)
            finally:
                ended.set()

    certificates: Any = Renewed()
    async with guardrails(servicer=Slow()) as port, asyncio.timeout(60):
        address = f"127.0.0.1:{port}"
        renewed = ServiceChannel(address, lambda _: grpc.aio.insecure_channel(address), certificates)
        call = guardrails_pb2_grpc.GuardrailsServiceStub(renewed).DetectText(ASK, timeout=600)
        await started.wait()
        old = renewed.current()
        certificates.material = object()
        assert renewed.current() is not old
        await asyncio.sleep(0.05)
        assert not call.done()
        await renewed.close()
        assert call.cancelled()
        await ended.wait()


async def test_services_ignore_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls between services do not use a proxy of the environment."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_ports(1)[0]}")
    monkeypatch.delenv("no_proxy", raising=False)
    async with guardrails() as port, detect_text(port) as method:
        await rpc.unary(method, ASK, Deadline.after(120))


async def test_messages_above_grpcs_default_limit_arrive(served: Any) -> None:
    """A message above gRPC's own limit of 4 MiB and below the platform's limit arrives complete."""

    async def handler(request: Any, context: Any) -> Any:
        return guardrails_pb2.DetectTextResponse(verdicts=[guardrails_pb2.Verdict(redacted_text=request.texts[0])])

    text = "x" * (channel.MAX_MESSAGE_BYTES - 1024)
    method = await served.unary(handler)
    answer = await rpc.unary(method, guardrails_pb2.DetectTextRequest(texts=[text]), Deadline.after(120))
    assert answer.verdicts[0].redacted_text == text


def test_the_status_codes_that_are_retried() -> None:
    """All methods are repeated if a stopping server refuses them. Unary methods are also repeated if no server is
    found.
    """
    retriever = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]
    codes = {
        name["method"]: set(config["retryPolicy"]["retryableStatusCodes"])
        for config in channel.service_config([retriever])["methodConfig"]
        for name in config["name"]
    }
    assert codes.pop("Upsert") == {"CANCELLED"}
    assert set(codes) == {method.name for method in retriever.methods} - {"Upsert"}
    assert all(retried == {"UNAVAILABLE", "CANCELLED"} for retried in codes.values())


def test_no_timeout_in_the_service_configuration() -> None:
    """Each call has its own deadline: grpcio mishandles the service configuration's time-outs with retries."""
    assert "timeout" not in json.dumps(channel.service_config([GUARDRAILS])).lower()
