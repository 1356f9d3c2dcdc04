"""Servers that are replaced in turn during calls: no call of any kind fails."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from causeway.generator.v1 import generator_pb2, generator_pb2_grpc
from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from causeway.retriever.v1 import document_pb2, retriever_pb2, retriever_pb2_grpc
from causeway_testing.servers import eventually, free_ports
from servicekit import rpc
from servicekit.channel import open_channel
from servicekit.deadline import Deadline
from servicekit.server import GrpcServer

EVICTIONS = 10
CALLERS = 6  # of each kind
MESSAGES = 5
SERVICES = [
    (messages.DESCRIPTOR.services_by_name[name], stubs, name)
    for messages, stubs, name in (
        (generator_pb2, generator_pb2_grpc, "GeneratorService"),
        (guardrails_pb2, guardrails_pb2_grpc, "GuardrailsService"),
        (retriever_pb2, retriever_pb2_grpc, "RetrieverService"),
    )
]


class Servicer:
    """Answers a method of each kind.

    Attributes:
        streams: Calls of the server-streaming method.
    """

    def __init__(self) -> None:
        self.streams = 0

    async def DetectText(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        return guardrails_pb2.DetectTextResponse()

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # the contract's name
        self.streams += 1
        for _ in range(MESSAGES):
            yield generator_pb2.GenerateResponse()
            await asyncio.sleep(0.001)

    async def Upsert(self, requests: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        numbers = [request.chunks.chunks[0].number async for request in requests]
        assert numbers == list(range(MESSAGES))
        return retriever_pb2.UpsertResponse()

    async def Detect(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # the contract's name
        async for request in requests:
            yield guardrails_pb2.DetectResponse(choice=request.piece.choice)


class Replica:
    """A server whose successors use its port."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def start(self) -> None:
        """Start the next server."""
        self.servicer = Servicer()
        self.server = GrpcServer(
            f"127.0.0.1:{self._port}",
            [(descriptor, self._adding(stubs, name)) for descriptor, stubs, name in SERVICES],
        )
        await self.server.start()

    def _adding(self, stubs: Any, name: str) -> Callable[[grpc.aio.Server], None]:
        base = getattr(stubs, f"{name}Servicer")
        methods = {
            key: staticmethod(getattr(self.servicer, key))
            for key in vars(Servicer)
            if key[0] != "_" and hasattr(base, key)
        }
        servicer = type(name, (base,), methods)()
        return lambda server: getattr(stubs, f"add_{name}Servicer_to_server")(servicer, server)


class Calls:
    """Calls methods of each kind, and checks that each answer is complete."""

    KINDS = ("unary", "server_stream", "client_stream", "bidi")

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._generator: Any = generator_pb2_grpc.GeneratorServiceStub(channel)
        self._guardrails: Any = guardrails_pb2_grpc.GuardrailsServiceStub(channel)
        self._retriever: Any = retriever_pb2_grpc.RetrieverServiceStub(channel)

    async def unary(self) -> None:
        await rpc.unary(self._guardrails.DetectText, guardrails_pb2.DetectTextRequest(), Deadline.after(120))

    async def server_stream(self) -> None:
        request = generator_pb2.GenerateRequest()
        messages = rpc.server_stream(self._generator.Generate, request, Deadline.after(120))
        assert len([message async for message in messages]) == MESSAGES

    async def client_stream(self) -> None:
        chunks = [document_pb2.Chunk(number=number) for number in range(MESSAGES)]
        requests = [
            retriever_pb2.UpsertRequest(chunks=retriever_pb2.UpsertChunks(chunks=[chunk])) for chunk in chunks
        ]
        await rpc.client_stream(self._retriever.Upsert, requests, "Upsert", Deadline.after(120))

    async def bidi(self) -> None:
        exchange = rpc.bidi(self._guardrails.Detect, "Detect", Deadline.after(120))
        async with exchange as call, asyncio.TaskGroup() as beside:
            beside.create_task(self._write(call))
            assert [(await call.read()).choice for _ in range(MESSAGES)] == list(range(MESSAGES))
            assert await call.read() is grpc.aio.EOF

    async def _write(self, call: rpc.Exchange) -> None:
        for n in range(MESSAGES):
            await call.write(guardrails_pb2.DetectRequest(piece=guardrails_pb2.DetectPiece(choice=n)))
        await call.done_writing()


async def test_no_call_fails_while_servers_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two replicas is replaced ten times, and each call gets its complete answer. A stopping server refuses
    new calls, which then go to the other server.
    """
    monkeypatch.setattr("servicekit.unsent.RETRY_SECONDS", 60.0)  # a busy machine may oversleep
    ports = free_ports(2)
    replicas = [Replica(port) for port in ports]
    for replica in replicas:
        await replica.start()
    answered: Counter[str] = Counter()
    leaving = asyncio.Event()

    async def ask(call: Callable[[], Any]) -> None:
        while not leaving.is_set():
            await call()
            answered[call.__name__] += 1

    target = "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports)
    async with open_channel(target, [descriptor for descriptor, *_ in SERVICES]) as channel:
        calls = Calls(channel)
        async with asyncio.TaskGroup() as beside:
            for kind in Calls.KINDS * CALLERS:
                beside.create_task(ask(getattr(calls, kind)))
            for replica in replicas * EVICTIONS:
                await replica.server.stop(120)
                await replica.start()
                await eventually(
                    lambda: all(replica.servicer.streams for replica in replicas), what="streams to it"
                )
            leaving.set()
    for replica in replicas:
        await replica.server.stop(0)
    assert min(answered[kind] for kind in Calls.KINDS) > EVICTIONS
