"""guardrails.remote.caikit_chunker: a chunker of the reference's protocol on a real gRPC server."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from causeway.caikit.v1 import chunkers_pb2 as pb
from causeway.caikit.v1 import chunkers_pb2_grpc
from causeway_testing.guardrails.remote import DetectorStub, detector_server
from causeway_testing.servers import eventually, free_ports
from detection.chunking.chunkers import TooLong, Windows
from detection.detectors.port import DetectorFailed, Judge
from detection.moderation.judge_calls import windows
from guardrails.remote.chunkers import Chunkers
from guardrails.remote.config import ChunkerConfig
from guardrails.remote.registry import RemoteDetectors
from hypothesis import given, settings
from hypothesis import strategies as st


@dataclass
class Stub(chunkers_pb2_grpc.ChunkersServiceServicer):
    """Ends a chunk behind each full stop, as existing servers do: white space at the text's end is in no chunk.

    Attributes:
        says: The answers that replace the right ones.
        deaf: The server does not answer before this is set.
        asked: The model name of each call.
        pieces: The numbers of the received pieces.
        ended: Calls that have ended.
        whole: The texts of unary calls.
        status: The status with which unary calls fail.
    """

    says: list[pb.ChunkerTokenizationStreamResult] | None = None
    deaf: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    ended: int = 0
    whole: list[str] = field(default_factory=list)
    status: grpc.StatusCode | None = None

    async def BidiStreamingChunkerTokenizationTaskPredict(  # noqa: N802  # the contract's name
        self,
        request_iterator: AsyncIterator[pb.BidiStreamingChunkerTokenizationTaskRequest],
        context: Any,  # gRPC's signature
    ) -> AsyncGenerator[pb.ChunkerTokenizationStreamResult, None]:
        self.asked.append(dict(context.invocation_metadata())["mm-model-id"])
        text, end = "", 0
        try:
            async for request in request_iterator:
                self.pieces.append(request.input_index_stream)
                text += request.text_stream
                await self.deaf.wait()
                if self.says is not None:
                    for said in self.says:
                        yield said
                    return
                for match in re.finditer(r"[^.]*\.", text[end:]):
                    yield self._chunk(end, end + len(match[0]), match[0])
                    end += len(match[0])
            await self.deaf.wait()
            if text[end:].strip():
                yield self._chunk(end, len(text), text[end:])
        finally:
            self.ended += 1

    async def ChunkerTokenizationTaskPredict(  # noqa: N802  # as above
        self, request: pb.ChunkerTokenizationTaskRequest, context: Any
    ) -> pb.TokenizationResults:
        self.asked.append(dict(context.invocation_metadata())["mm-model-id"])
        self.whole.append(request.text)
        await self.deaf.wait()
        if self.status is not None:
            await context.abort(self.status, "told to")
        if self.says is not None:
            return pb.TokenizationResults(results=[pb.Token(end=said.processed_index) for said in self.says])
        found = re.finditer(r"[^.]*\.|[^.]*[^.\s][^.]*$", request.text)
        tokens = [pb.Token(start=match.start(), end=match.end(), text=match[0]) for match in found]
        return pb.TokenizationResults(results=tokens)

    def _chunk(self, start: int, end: int, text: str) -> pb.ChunkerTokenizationStreamResult:
        token = pb.Token(start=start, end=end, text=text)
        return pb.ChunkerTokenizationStreamResult(results=[token], processed_index=end, start_index=start)


@contextlib.asynccontextmanager
async def serving(stub: Stub, *, is_deaf: bool = False) -> AsyncIterator[str]:
    """Serve a chunker on a real server; yield the target."""
    if not is_deaf:
        stub.deaf.set()
    [port] = free_ports(1)
    server = grpc.aio.server()
    chunkers_pb2_grpc.add_ChunkersServiceServicer_to_server(stub, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def config(target: str, chunker_id: str = "", seconds: float = 10.0) -> ChunkerConfig:
    """Return the configuration of the chunker."""
    return ChunkerConfig("dots", target, chunker_id, seconds, protocol="caikit")


async def cut(
    target: str, *pieces: str, chunker_id: str = "", seconds: float = 10.0, limit: int = 1000
) -> list[str]:
    """Return the chunks of a text that arrives in pieces."""
    chunkers, ready = Chunkers(), asyncio.Event()
    cutting = Windows(chunkers.chunker(config(target, chunker_id, seconds), ready.set), limit)
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
        await chunkers.aclose()
    return [window.text for window in found]


@given(st.lists(st.text("a. \U0001f511é", max_size=5), min_size=1, max_size=6))
@settings(max_examples=20)
def test_chunks_are_as_the_server_says(pieces: list[str]) -> None:
    """For every split, the chunks are the server's, and the rest of the text is the last chunk. Together they are
    the text.
    """

    async def run() -> None:
        stub = Stub()
        async with serving(stub) as target:
            found = await cut(target, *pieces)
        assert found == re.findall(r"[^.]*\.|[^.]+$", "".join(pieces))
        assert stub.pieces == list(range(len(stub.pieces)))
        assert set(stub.asked) <= {"dots"}

    asyncio.run(run())


async def test_a_complete_text_is_one_unary_call() -> None:
    """A complete text is one unary call, and a growing text is a stream."""
    stub = Stub()
    async with serving(stub) as target:
        assert await cut(target, "One. Two.  ") == ["One.", " Two.", "  "]
        assert (stub.whole, stub.pieces) == (["One. Two.  "], [])
        await cut(target, "One.", " Two.")
    assert (len(stub.whole), bool(stub.pieces)) == (1, True)


@pytest.mark.parametrize(
    ("code", "status"), [(grpc.StatusCode.INTERNAL, 500), (grpc.StatusCode.UNAVAILABLE, 503)], ids=str
)
async def test_its_failure_keeps_its_status(code: grpc.StatusCode, status: int) -> None:
    """The status of a failure becomes the same status in HTTP."""
    async with serving(Stub(status=code)) as target:
        with pytest.raises(DetectorFailed, match="chunker request failed for `dots`") as error:
            await cut(target, "abc")
    assert error.value.status == status


async def test_the_model_is_named() -> None:
    """The request names the chunker's id if the file has one."""
    stub = Stub()
    async with serving(stub) as target:
        assert await cut(target, "One. Two", chunker_id="sentence_chunker") == ["One.", " Two"]
    assert stub.asked == ["sentence_chunker"]


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ([pb.ChunkerTokenizationStreamResult(processed_index=9)], "an impossible position"),
        (
            [
                pb.ChunkerTokenizationStreamResult(processed_index=2),
                pb.ChunkerTokenizationStreamResult(processed_index=1),
            ],
            "an impossible position",
        ),
    ],
)
async def test_what_cannot_be_is_its_failure(says: list[pb.ChunkerTokenizationStreamResult], reason: str) -> None:
    """An impossible answer is a 502 with the chunker's name."""
    async with serving(Stub(says=says)) as target:
        with pytest.raises(DetectorFailed, match=f"chunker request failed for `dots`: .*{reason}") as error:
            await cut(target, "abc")
    assert error.value.status == 502


async def test_an_early_end_is_its_failure() -> None:
    """A call that ends before the text is a failure, because the server has not processed the remaining text."""
    async with serving(Stub(says=[])) as target:
        chunkers, ready = Chunkers(), asyncio.Event()
        chunker = chunkers.chunker(config(target), ready.set)
        chunker.feed("abc", last=False)

        def feeds() -> bool:
            try:
                chunker.feed("", last=False)
            except DetectorFailed as error:
                return error.status == 502 and "before the end of the text" in str(error)
            return False

        await eventually(feeds)
        chunker.close()
        await chunkers.aclose()


async def test_its_time_counts_from_the_end_of_the_text() -> None:
    """A silent server is late after the text's end, with a 504. A text that grows slowly is not late."""
    async with serving(Stub(), is_deaf=True) as target:
        with pytest.raises(DetectorFailed, match="longer than") as error:
            await cut(target, "One.", seconds=0.2)
    assert error.value.status == 504


async def test_a_chunk_that_does_not_end_meets_the_limit() -> None:
    """Text that the server accepts and does not cut has the same limit as any window."""
    async with serving(Stub(), is_deaf=True) as target:
        with pytest.raises(TooLong):
            await cut(target, "a" * 600, "b" * 600, limit=1000)


async def test_one_that_cannot_be_reached() -> None:
    """A server that cannot be reached is a 503."""
    [port] = free_ports(1)
    with pytest.raises(DetectorFailed, match="cannot be reached") as error:
        await cut(f"127.0.0.1:{port}", "abc")
    assert error.value.status == 503


async def test_leaving_stops_the_call() -> None:
    """When the client leaves, the call ends, and the server does not wait for more text."""
    stub = Stub()
    async with serving(stub) as target:
        chunkers = Chunkers()
        left = chunkers.chunker(config(target), lambda: None)
        left.feed("a", last=False)
        await eventually(lambda: stub.pieces == [0])
        left.close()
        await eventually(lambda: stub.ended == 1)
        await chunkers.aclose()


async def test_a_detector_of_the_file_is_asked_about_its_chunks(tmp_path: Path) -> None:
    """The file names the protocol of the server. The server also cuts whole texts."""
    async with (
        serving(Stub()) as target,
        detector_server(DetectorStub()) as detector,
        aiohttp.ClientSession() as session,
    ):
        path = tmp_path / "detectors.yaml"
        path.write_text(
            f"chunkers: {{dots: {{target: '{target}', protocol: caikit, chunker_id: sentence_chunker}}}}\n"
            f"detectors: {{hap: {{kind: text_contents, url: '{detector.url}', chunker: dots}}}}\n"
        )
        chunkers = Chunkers()
        detectors = RemoteDetectors(session, chunkers, ())
        detectors.load(path)
        [factory] = detectors.current()
        judge = factory.make(b"").detector
        assert isinstance(judge, Judge)
        assert [window.text for window in await windows(judge, "One. Two. ")] == ["One.", " Two.", " "]
        await chunkers.aclose()
