"""Unsent calls are repeated. Calls that a server may have received are not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from causeway.generator.v1 import generator_pb2, generator_pb2_grpc
from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from causeway.retriever.v1 import retriever_pb2, retriever_pb2_grpc
from causeway_testing.servers import free_ports
from servicekit import rpc
from servicekit.channel import open_channel
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable

SERVICES = [
    messages.DESCRIPTOR.services_by_name[name]
    for messages, name in (
        (generator_pb2, "GeneratorService"),
        (guardrails_pb2, "GuardrailsService"),
        (retriever_pb2, "RetrieverService"),
    )
]
KINDS = ["unary", "server_stream", "client_stream", "bidi"]


class Servicer:
    """Has one method of each kind, counts its calls, and ends each call with a function of the test."""

    def __init__(self, ending: Callable[[Any], Awaitable[None]]) -> None:
        self.calls = 0
        self._ending = ending

    async def _handle(self, context: Any) -> None:
        self.calls += 1
        await self._ending(context)

    async def DetectText(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        await self._handle(context)
        return guardrails_pb2.DetectTextResponse()

    async def Generate(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        await self._handle(context)
        yield generator_pb2.GenerateResponse()

    async def Upsert(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        await self._handle(context)
        return retriever_pb2.UpsertResponse()

    async def Detect(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        await self._handle(context)
        yield guardrails_pb2.DetectResponse()


@contextlib.asynccontextmanager
async def serving(servicer: Servicer, port: int) -> AsyncIterator[None]:
    server = grpc.aio.server()
    for stubs, service, methods in (
        (generator_pb2_grpc, "GeneratorService", ["Generate"]),
        (guardrails_pb2_grpc, "GuardrailsService", ["Detect", "DetectText"]),
        (retriever_pb2_grpc, "RetrieverService", ["Upsert"]),
    ):
        bases = (getattr(stubs, f"{service}Servicer"),)
        served = type(service, bases, {name: staticmethod(getattr(servicer, name)) for name in methods})()
        getattr(stubs, f"add_{service}Servicer_to_server")(served, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    yield
    await server.stop(0)


async def call(kind: str, channel: grpc.aio.Channel, deadline: Deadline) -> None:
    guardrails: Any = guardrails_pb2_grpc.GuardrailsServiceStub(channel)
    if kind == "unary":
        await rpc.unary(guardrails.DetectText, guardrails_pb2.DetectTextRequest(), deadline)
    elif kind == "server_stream":
        generate: Any = generator_pb2_grpc.GeneratorServiceStub(channel).Generate
        assert (
            len(
                [
                    message
                    async for message in rpc.server_stream(generate, generator_pb2.GenerateRequest(), deadline)
                ]
            )
            == 1
        )
    elif kind == "client_stream":
        upsert: Any = retriever_pb2_grpc.RetrieverServiceStub(channel).Upsert
        await rpc.client_stream(upsert, [retriever_pb2.UpsertRequest()], "Upsert", deadline)
    else:
        async with rpc.bidi(guardrails.Detect, "Detect", deadline) as exchange:
            await exchange.write(guardrails_pb2.DetectRequest())
            await exchange.done_writing()
            while await exchange.read() is not grpc.aio.EOF:
                pass


async def well(context: Any) -> None:
    """End a call with its answer."""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_waits_for_the_successor(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without a server waits for the next server, which receives the call once."""
    monkeypatch.setattr("servicekit.unsent.RETRY_SECONDS", 60.0)  # a busy machine may oversleep
    (port,) = free_ports(1)
    first, second = Servicer(well), Servicer(well)
    async with open_channel(f"127.0.0.1:{port}", SERVICES) as channel:
        async with serving(first, port):
            await call(kind, channel, Deadline.after(120))
        # Until the channel notices the end of the connection, a call fails on the old connection ("Broken pipe").
        # Such a call is not repeated, because the server may have received a part of it.
        async with asyncio.timeout(60):
            while (state := channel.get_state()) is grpc.ChannelConnectivity.READY:
                await channel.wait_for_state_change(state)
        waiting = asyncio.create_task(call(kind, channel, Deadline.after(120)))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        async with serving(second, port):
            await waiting
    assert (first.calls, second.calls) == (1, 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_without_a_server_fails(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call ends before its deadline, and the error says that no server was found."""
    monkeypatch.setattr("servicekit.unsent.RETRY_SECONDS", 0.3)
    async with open_channel(f"127.0.0.1:{free_ports(1)[0]}", SERVICES) as channel:
        with pytest.raises(Unavailable):
            await call(kind, channel, Deadline.after(600))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_never_waits_longer_than_its_deadline(kind: str) -> None:
    """If less time is left than the wait, the call fails with its own error and not with a time-out."""
    async with open_channel(f"127.0.0.1:{free_ports(1)[0]}", SERVICES) as channel:
        with pytest.raises(Unavailable):
            await call(kind, channel, Deadline.after(1))


@pytest.mark.parametrize("kind", ["server_stream", "client_stream", "bidi"])
async def test_a_call_that_a_server_has_received_is_not_repeated(kind: str) -> None:
    """A call that a server refused, or that broke during its work, is not repeated. It may be done in part."""
    (port,) = free_ports(1)

    async def refuse(context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the model server cannot be reached")

    servicer = Servicer(refuse)
    async with open_channel(f"127.0.0.1:{port}", SERVICES) as channel, serving(servicer, port):
        with pytest.raises(Unavailable):
            await call(kind, channel, Deadline.after(120))
    assert servicer.calls == 1


async def test_an_unresolvable_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call waits for a name that does not resolve yet, and then fails with this reason."""
    monkeypatch.setattr("servicekit.unsent.RETRY_SECONDS", 0.3)
    async with open_channel("dns:///no-such-service.invalid:50051", SERVICES) as channel:
        with pytest.raises(Unavailable):
            await call("server_stream", channel, Deadline.after(600))
