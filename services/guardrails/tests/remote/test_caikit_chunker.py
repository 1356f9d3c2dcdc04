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
from detection.moderation.judge_calls import split_text
from guardrails.remote.chunkers import Chunkers
from guardrails.remote.config import ChunkerConfig
from guardrails.remote.registry import RemoteDetectors
from hypothesis import given, settings
from hypothesis import strategies as st


@dataclass
class Stub(chunkers_pb2_grpc.ChunkersServiceServicer):
    """Ends a chunk after each full stop. As with existing servers, white space at the text's end is in no chunk.

    Attributes:
        responses: The responses that replace the right ones.
        may_respond: The server does not respond before this is set.
        model_names: The model name of each call.
        pieces: The numbers of the received pieces.
        ended: The number of calls that have ended.
        unary_texts: The texts of unary calls.
        status: The status with which unary calls fail.
    """

    responses: list[pb.ChunkerTokenizationStreamResult] | None = None
    may_respond: asyncio.Event = field(default_factory=asyncio.Event)
    model_names: list[str] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    ended: int = 0
    unary_texts: list[str] = field(default_factory=list)
    status: grpc.StatusCode | None = None

    async def BidiStreamingChunkerTokenizationTaskPredict(  # noqa: N802  # the contract's name
        self,
        request_iterator: AsyncIterator[pb.BidiStreamingChunkerTokenizationTaskRequest],
        context: Any,  # gRPC's signature
    ) -> AsyncGenerator[pb.ChunkerTokenizationStreamResult, None]:
        self.model_names.append(dict(context.invocation_metadata())["mm-model-id"])
        text, end = "", 0
        try:
            async for request in request_iterator:
                self.pieces.append(request.input_index_stream)
                text += request.text_stream
                await self.may_respond.wait()
                if self.responses is not None:
                    for response in self.responses:
                        yield response
                    return
                for match in re.finditer(r"[^.]*\.", text[end:]):
                    yield self._chunk(end, end + len(match[0]), match[0])
                    end += len(match[0])
            await self.may_respond.wait()
            if text[end:].strip():
                yield self._chunk(end, len(text), text[end:])
        finally:
            self.ended += 1

    async def ChunkerTokenizationTaskPredict(  # noqa: N802  # as above
        self, request: pb.ChunkerTokenizationTaskRequest, context: Any
    ) -> pb.TokenizationResults:
        self.model_names.append(dict(context.invocation_metadata())["mm-model-id"])
        self.unary_texts.append(request.text)
        await self.may_respond.wait()
        if self.status is not None:
            await context.abort(self.status, "a scripted failure")
        if self.responses is not None:
            return pb.TokenizationResults(
                results=[pb.Token(end=response.processed_index) for response in self.responses]
            )
        found = re.finditer(r"[^.]*\.|[^.]*[^.\s][^.]*$", request.text)
        tokens = [pb.Token(start=match.start(), end=match.end(), text=match[0]) for match in found]
        return pb.TokenizationResults(results=tokens)

    def _chunk(self, start: int, end: int, text: str) -> pb.ChunkerTokenizationStreamResult:
        token = pb.Token(start=start, end=end, text=text)
        return pb.ChunkerTokenizationStreamResult(results=[token], processed_index=end, start_index=start)


@contextlib.asynccontextmanager
async def serving(stub: Stub, *, silent: bool = False) -> AsyncIterator[str]:
    """Serve a chunker on a real server; yield the target."""
    if not silent:
        stub.may_respond.set()
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
def test_the_chunks_are_those_of_the_server(pieces: list[str]) -> None:
    """For every split, the chunks are the server's, and the rest of the text is the last chunk. They join to
    the text.
    """

    async def run() -> None:
        stub = Stub()
        async with serving(stub) as target:
            found = await cut(target, *pieces)
        assert found == re.findall(r"[^.]*\.|[^.]+$", "".join(pieces))
        assert stub.pieces == list(range(len(stub.pieces)))
        assert set(stub.model_names) <= {"dots"}

    asyncio.run(run())


async def test_a_complete_text_is_one_unary_call() -> None:
    """The service sends a complete text in a unary call, and a growing text in a stream."""
    stub = Stub()
    async with serving(stub) as target:
        assert await cut(target, "One. Two.  ") == ["One.", " Two.", "  "]
        assert (stub.unary_texts, stub.pieces) == (["One. Two.  "], [])
        await cut(target, "One.", " Two.")
    assert (len(stub.unary_texts), bool(stub.pieces)) == (1, True)


@pytest.mark.parametrize(
    ("code", "status"), [(grpc.StatusCode.INTERNAL, 500), (grpc.StatusCode.UNAVAILABLE, 503)], ids=str
)
async def test_a_failure_keeps_its_status(code: grpc.StatusCode, status: int) -> None:
    """The gRPC status of a failure becomes the corresponding HTTP status."""
    async with serving(Stub(status=code)) as target:
        with pytest.raises(DetectorFailed, match="chunker request failed for `dots`") as error:
            await cut(target, "abc")
    assert error.value.status == status


async def test_the_request_names_the_chunker() -> None:
    """The request names the chunker's id if the file has one."""
    stub = Stub()
    async with serving(stub) as target:
        assert await cut(target, "One. Two", chunker_id="sentence_chunker") == ["One.", " Two"]
    assert stub.model_names == ["sentence_chunker"]


@pytest.mark.parametrize(
    ("responses", "reason"),
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
async def test_an_impossible_response_is_a_failure(
    responses: list[pb.ChunkerTokenizationStreamResult], reason: str
) -> None:
    """An impossible response is a failure with status 502 and the chunker's name."""
    async with serving(Stub(responses=responses)) as target:
        with pytest.raises(DetectorFailed, match=f"chunker request failed for `dots`: .*{reason}") as error:
            await cut(target, "abc")
    assert error.value.status == 502


async def test_a_call_that_ends_early_is_a_failure() -> None:
    """A call that ends before the text is a failure, because the server has not processed the remaining text."""
    async with serving(Stub(responses=[])) as target:
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


async def test_a_silent_server_is_a_time_out() -> None:
    """A server that does not respond to a complete text is a failure with status 504."""
    async with serving(Stub(), silent=True) as target:
        with pytest.raises(DetectorFailed, match="longer than") as error:
            await cut(target, "One.", seconds=0.2)
    assert error.value.status == 504


async def test_the_time_limit_counts_from_the_end_of_the_text() -> None:
    """While more text may follow, a silent server is not a failure. After the end, it fails with status 504."""
    async with serving(Stub(), silent=True) as target:
        chunkers, ready = Chunkers(), asyncio.Event()
        chunker = chunkers.chunker(config(target, seconds=0.3), ready.set)
        chunker.feed("One.", last=False)
        await eventually(lambda: chunker.waiting == 0)
        await asyncio.sleep(0.6)
        assert chunker.feed(" Two", last=False) == []
        chunker.feed("", last=True)

        def timed_out() -> bool:
            try:
                chunker.feed("", last=False)
            except DetectorFailed as error:
                return error.status == 504 and "longer than" in str(error)
            return False

        await eventually(timed_out)
        chunker.close()
        await chunkers.aclose()


async def test_a_chunk_that_does_not_end_has_the_limit_of_a_window() -> None:
    """Text in which the server ends no chunk is refused if it is longer than a window."""
    async with serving(Stub(), silent=True) as target:
        with pytest.raises(TooLong):
            await cut(target, "a" * 600, "b" * 600, limit=1000)


async def test_closing_a_chunker_stops_its_call() -> None:
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


async def test_a_detector_of_the_file_uses_the_chunker(tmp_path: Path) -> None:
    """The detectors file selects the protocol of a chunker, and its chunks are the windows of a detector."""
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
        assert [window.text for window in await split_text(judge, "One. Two. ")] == ["One.", " Two.", " "]
        await chunkers.aclose()
