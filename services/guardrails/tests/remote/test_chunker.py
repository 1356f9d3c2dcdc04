"""guardrails.remote.chunker: a chunker on a real gRPC server, and its possible failures."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from causeway.guardrails.v1 import chunker_pb2 as pb
from causeway.guardrails.v1 import chunker_pb2_grpc
from causeway_testing.guardrails.remote import DetectorStub, detector_server
from causeway_testing.servers import eventually, free_ports, grpc_service
from detection.chunking.chunkers import TooLong, Windows
from detection.detectors.port import DetectorFailed, Judge
from detection.domain import Action, OnError, Piece
from detection.moderation.hold_back import HoldLimits
from detection.moderation.judge_calls import split_text
from detection.moderation.rules import Rule
from detection.moderation.session import Session
from detection.moderation.thread_pool import ThreadPool
from guardrails.remote.chunker import RemoteChunker
from guardrails.remote.chunkers import Chunkers
from guardrails.remote.config import ChunkerConfig
from guardrails.remote.registry import RemoteDetectors
from hypothesis import given, settings
from hypothesis import strategies as st
from servicekit.errors import DeadlineExceeded
from structlog.testing import capture_logs

DESCRIPTOR = pb.DESCRIPTOR.services_by_name["ChunkerService"]


@dataclass
class Stub(chunker_pb2_grpc.ChunkerServiceServicer):
    """Ends a chunk after each bar, and fails as the test configures.

    Attributes:
        responses: The responses that replace the right ones.
        may_respond: The server does not respond before this is set.
        chunker_ids: The chunker's ID in each call.
        ended: The number of calls that have ended.
    """

    responses: list[pb.ChunkResponse] | None = None
    may_respond: asyncio.Event = field(default_factory=asyncio.Event)
    chunker_ids: list[str] = field(default_factory=list)
    ended: int = 0

    async def Chunk(  # noqa: N802  # the contract's name
        self,
        request_iterator: AsyncIterator[pb.ChunkRequest],
        context: Any,  # gRPC's signature
    ) -> AsyncGenerator[pb.ChunkResponse, None]:
        taken = 0
        try:
            async for request in request_iterator:
                if not taken:
                    self.chunker_ids.append(request.chunker_id)
                await self.may_respond.wait()
                if self.responses is not None:
                    for response in self.responses:
                        yield response
                    return
                ends = [taken + match.end() for match in re.finditer(r"\|", request.text)]
                taken += len(request.text)
                if request.last and taken and (not ends or ends[-1] < taken) and not request.text.endswith("|"):
                    ends.append(taken)
                yield pb.ChunkResponse(ends=ends, taken=taken)
        finally:
            self.ended += 1


@contextlib.asynccontextmanager
async def serving(stub: Stub) -> AsyncIterator[Callable[..., RemoteChunker]]:
    """Serve the chunker; yield a function that opens chunkers on the server."""
    stub.may_respond.set()

    def add(server: grpc.aio.Server) -> None:
        chunker_pb2_grpc.add_ChunkerServiceServicer_to_server(stub, server)

    async with grpc_service(DESCRIPTOR, add) as channel:
        client: Any = chunker_pb2_grpc.ChunkerServiceStub(channel)

        def open_one(ready: Callable[[], None] = lambda: None, seconds: float = 5.0) -> RemoteChunker:
            return RemoteChunker(ChunkerConfig("bars", "here", "usual", seconds), client, ready)

        yield open_one


async def cut(chunker: RemoteChunker, *pieces: str, ready: asyncio.Event) -> list[str]:
    """Return the chunks of a text that arrives in pieces."""
    cutting = Windows(chunker, 10_000)
    found = []
    try:
        for number, piece in enumerate(pieces):
            found += cutting.feed(piece, last=number == len(pieces) - 1)
            await asyncio.sleep(0)
        while not cutting.complete:
            await asyncio.wait_for(ready.wait(), 60)
            ready.clear()
            found += cutting.feed("", last=False)
    finally:
        cutting.close()
    return [window.text for window in found]


@given(st.lists(st.text("a|\U0001f511é", max_size=5), min_size=1, max_size=8))
@settings(max_examples=25)
def test_the_chunks_are_those_of_the_server(pieces: list[str]) -> None:
    """For every split, the chunks are the server's. They join to the text, in code points."""

    async def run() -> None:
        stub, ready = Stub(), asyncio.Event()
        async with serving(stub) as chunker:
            found = await cut(chunker(ready.set), *pieces, ready=ready)
        text = "".join(pieces)
        assert "".join(found) == text
        assert found == re.findall(r"[^|]*\||[^|]+$", text)
        assert set(stub.chunker_ids) <= {"usual"}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("responses", "reason"),
    [
        ([], "before the end of the text"),
        ([pb.ChunkResponse(ends=[9], taken=3)], "an impossible position"),
        ([pb.ChunkResponse(ends=[2, 2], taken=3)], "an impossible position"),
        ([pb.ChunkResponse(taken=9)], "an impossible number of processed characters"),
        ([pb.ChunkResponse(ends=[2], taken=1)], "an impossible number of processed characters"),
    ],
)
async def test_an_impossible_response_is_a_failure(responses: list[pb.ChunkResponse], reason: str) -> None:
    """An impossible response is a failure with status 502 and the chunker's name."""
    ready = asyncio.Event()
    async with serving(Stub(responses=responses)) as chunker:
        with pytest.raises(DetectorFailed, match=f"chunker request failed for `bars`: .*{reason}") as error:
            await cut(chunker(ready.set), "abc", ready=ready)
    assert error.value.status == 502


async def test_a_late_response_is_a_failure() -> None:
    """The time limit counts the server's work on a piece, and not the wait for the text."""
    stub, ready = Stub(), asyncio.Event()
    async with serving(stub) as chunker:
        patient = chunker(ready.set, seconds=0.3)
        assert patient.feed("a|", last=False) == []
        await eventually(lambda: not patient.waiting)
        await asyncio.sleep(0.5)
        assert patient.feed("", last=False) == [2]
        stub.may_respond.clear()
        patient.feed("b", last=False)
        ready.clear()
        await asyncio.wait_for(ready.wait(), 60)
        with pytest.raises(DetectorFailed, match="longer than") as error:
            patient.feed("", last=False)
        patient.close()
    assert error.value.status == 504


async def test_a_deadline_is_not_the_time_limit_of_a_piece() -> None:
    """If the server reports that a deadline has passed, the error does not name the time limit of a piece."""

    class Late:
        def Chunk(self, **_: object) -> None:  # noqa: N802  # the contract's name
            raise DeadlineExceeded("The server took too long.")

    ready = asyncio.Event()
    chunker = RemoteChunker(ChunkerConfig("bars", "here"), Late(), ready.set)  # type: ignore[arg-type]  # no stub
    with pytest.raises(DetectorFailed, match="`bars`: its call exceeded a deadline") as error:
        await cut(chunker, "abc", ready=ready)
    assert error.value.status == 504


async def test_an_unreachable_server_is_a_failure() -> None:
    """A server that cannot be reached is a failure with status 503."""
    [port] = free_ports(1)
    chunkers, ready = Chunkers(), asyncio.Event()
    chunker = chunkers.chunker(ChunkerConfig("bars", f"127.0.0.1:{port}"), ready.set)
    with pytest.raises(DetectorFailed, match="cannot be reached") as error:
        await cut(chunker, "abc", ready=ready)
    assert error.value.status == 503
    await chunkers.aclose()


async def test_a_defect_fails_the_text_and_is_logged() -> None:
    """A defect in the call or in a write fails the text at once, and the log has the cause."""

    class Broken:
        def Chunk(self, **_: object) -> None:  # noqa: N802  # the contract's name
            raise RuntimeError("a bug")

    ready = asyncio.Event()
    uncallable = RemoteChunker(ChunkerConfig("bars", "here"), Broken(), ready.set)  # type: ignore[arg-type]  # no stub
    async with serving(Stub()) as chunker:
        for broken, text in ((uncallable, "abc"), (chunker(ready.set), "\ud800")):
            with (
                capture_logs() as logs,
                pytest.raises(DetectorFailed, match="`bars`: it failed unexpectedly") as error,
            ):
                await cut(broken, text, ready=ready)
            assert error.value.status == 500
            [failure] = [line for line in logs if line["event"] == "chunker failed"]  # beside lines of other calls
            assert failure["exc_info"] is True


async def test_unprocessed_text_does_not_count_as_a_long_chunk() -> None:
    """Text that the server has not processed waits and stops the stream. Only processed text can be too
    long.
    """
    stub, ready = Stub(), asyncio.Event()
    async with serving(stub) as chunker:
        stub.may_respond.clear()
        cutting = Windows(chunker(ready.set), 10)
        assert cutting.feed("123456789|" * 3, last=False) == []
        assert cutting.waiting == 30
        stub.may_respond.set()
        await asyncio.wait_for(ready.wait(), 60)
        assert [window.text for window in cutting.feed("", last=False)] == ["123456789|"] * 3
        ready.clear()
        cutting.feed("no bar at all", last=False)
        await asyncio.wait_for(ready.wait(), 60)
        with pytest.raises(TooLong):
            cutting.feed("", last=False)
        cutting.close()


async def test_closing_a_chunker_stops_its_call() -> None:
    """When the client leaves, the call ends, and the server does not wait for more text."""
    stub = Stub()
    async with serving(stub) as chunker:
        left = chunker()
        left.feed("a", last=False)
        await eventually(lambda: not left.waiting)
        left.close()
        await eventually(lambda: stub.ended == 1)


async def test_a_detector_of_the_file_judges_the_chunks(tmp_path: Path) -> None:
    """The chunker cuts growing and whole texts. If it fails, ``on_error`` applies, and the text stays held."""
    stub, workers = Stub(), ThreadPool(1)
    stub.may_respond.set()

    def add(server: grpc.aio.Server) -> None:
        chunker_pb2_grpc.add_ChunkerServiceServicer_to_server(stub, server)

    [port] = free_ports(1)
    server = grpc.aio.server()
    add(server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    async with detector_server(DetectorStub()) as detector, aiohttp.ClientSession() as session:
        path = tmp_path / "detectors.yaml"
        path.write_text(
            f"chunkers: {{bars: {{target: '127.0.0.1:{port}', timeout: 0.5}}}}\n"
            f"detectors: {{hap: {{kind: text_contents, url: '{detector.url}', chunker: bars}}}}\n"
        )
        chunkers = Chunkers()
        factories = RemoteDetectors(session, chunkers, ())
        factories.load(path)
        [factory] = factories.current()
        assert factory.info().streaming
        judge = factory.make(b"").detector
        assert isinstance(judge, Judge)
        assert [window.text for window in await split_text(judge, "a|b")] == ["a|", "b"]
        found = await growing(judge, workers, "one|a sec", "ret|tw", "o")
        assert [request.body["contents"] for request in detector.requests] == [["one|"], ["a secret|"], ["two"]]
        assert found == [(4, ()), (13, ("secret",)), (16, ())]
        stub.may_respond.clear()
        assert await growing(judge, workers, "one|") == [(0, ("chunker request failed for `bars`",))]
        await chunkers.aclose()
    await server.stop(0)
    workers.close()


async def growing(judge: Judge, workers: ThreadPool, *pieces: str) -> list[tuple[int, tuple[str, ...]]]:
    """Return the cleared positions and the findings of each step."""
    session = Session([Rule("hap", judge, Action.REDACT, OnError.BLOCK, "#")], holding=HoldLimits())

    async def batches() -> AsyncGenerator[list[Piece], None]:
        for number, piece in enumerate(pieces):
            yield [Piece(0, piece, number == len(pieces) - 1)]
            await asyncio.sleep(0.2)

    async with contextlib.aclosing(session.run(batches(), workers)) as run:
        return [
            (
                step.cleared_until,
                tuple(finding.detection.text for finding in step.findings)
                + tuple(failure.message.partition(":")[0] for failure in step.failures),
            )
            async for steps in run
            for step in steps
        ]
