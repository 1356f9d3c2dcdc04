"""A chunker server with the protocol of the guardrails orchestrator. It returns sentences, or follows a script."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from causeway.caikit.v1 import chunkers_pb2 as pb
from causeway.caikit.v1 import chunkers_pb2_grpc
from text.sentences import SentenceSplitter


@dataclass(frozen=True)
class Cut:
    """The scripted chunks of a text.

    Attributes:
        text: The text.
        ends: The ends of the chunks.
        fails: Whether the call fails instead.
    """

    text: str
    ends: Sequence[int] = ()
    fails: bool = False


class Chunkers(chunkers_pb2_grpc.ChunkersServiceServicer):
    """The server, which follows a script or returns sentences.

    Attributes:
        cuts: The script. For a growing text, the server waits until the text matches only one cut.
        models: The model of each call.
        target: The address after `serve`.
    """

    def __init__(self) -> None:
        self.cuts: Sequence[Cut] = ()
        self.models: list[str] = []
        self.target = ""

    async def serve(self) -> grpc.aio.Server:
        """Serve on a free port in the running loop."""
        server = grpc.aio.server()
        chunkers_pb2_grpc.add_ChunkersServiceServicer_to_server(self, server)
        self.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        return server

    async def ChunkerTokenizationTaskPredict(  # noqa: N802  # the contract's name
        self, request: pb.ChunkerTokenizationTaskRequest, context: Any
    ) -> pb.TokenizationResults:
        """Cut a complete text."""
        self._record_model(context)
        ends = await self._ends(request.text, context, last=True)
        starts = [0, *ends[:-1]]
        tokens = [
            pb.Token(start=start, end=end, text=request.text[start:end])
            for start, end in zip(starts, ends, strict=False)
        ]
        return pb.TokenizationResults(results=tokens)

    async def BidiStreamingChunkerTokenizationTaskPredict(  # noqa: N802  # as above
        self, request_iterator: AsyncIterator[pb.BidiStreamingChunkerTokenizationTaskRequest], context: Any
    ) -> AsyncGenerator[pb.ChunkerTokenizationStreamResult, None]:
        """Cut a growing text."""
        self._record_model(context)
        text, sent = "", 0
        async for request in request_iterator:
            text += request.text_stream
            for end in await self._ends(text, context, last=False):
                if sent < end:
                    yield _chunk(text, sent, end)
                    sent = end
        for end in await self._ends(text, context, last=True):
            if sent < end:
                yield _chunk(text, sent, end)
                sent = end

    async def _ends(self, text: str, context: Any, *, last: bool) -> Sequence[int]:
        matching = [cut for cut in self.cuts if cut.text == text or (not last and cut.text.startswith(text))]
        if not matching:
            return SentenceSplitter().feed(text, last)
        if len(matching) > 1:
            return ()
        [cut] = matching
        if cut.fails:
            await context.abort(grpc.StatusCode.INTERNAL, "a scripted failure")
        return [end for end in cut.ends if end <= len(text)]

    def _record_model(self, context: Any) -> None:
        self.models.append(dict(context.invocation_metadata())["mm-model-id"])


def _chunk(text: str, start: int, end: int) -> pb.ChunkerTokenizationStreamResult:
    token = pb.Token(start=start, end=end, text=text[start:end])
    return pb.ChunkerTokenizationStreamResult(results=[token], start_index=start, processed_index=end)
