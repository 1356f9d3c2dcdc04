"""A chunker of another server, over the reference orchestrator's protocol (caikit's ``ChunkersService``)."""

from collections.abc import Callable
from typing import Any

import grpc
from causeway.caikit.v1 import chunkers_pb2
from servicekit import rpc

from guardrails.remote.chunker import RemoteChunker

DESCRIPTOR = chunkers_pb2.DESCRIPTOR.services_by_name["ChunkersService"]
_METHOD = "BidiStreamingChunkerTokenizationTaskPredict"
_MODEL = "mm-model-id"


class CaikitChunker(RemoteChunker):
    """`Chunker` of one text; the server is told the configuration's ``chunker_id``, or the chunker's name.

    The protocol does not say how far a text was looked at. What the server has accepted counts as looked at, and a
    chunk that does not end meets the limit of a window. The server's time counts from the text's end on. What the
    server leaves over at the text's end, such as white space, is the last chunk.
    """

    _number = 0
    _all_written = False

    def _method(self) -> tuple[Callable[..., Any], str]:
        method: Callable[..., Any] = getattr(self._stub, _METHOD)
        model = self._config.chunker_id or self._config.name

        def call(*, metadata: tuple[tuple[str, str], ...] = (), **options: Any) -> Any:
            return method(metadata=(*metadata, (_MODEL, model)), **options)

        return call, f"{DESCRIPTOR.full_name}/{_METHOD}"

    async def _write_piece(self, call: rpc.Exchange, text: str, last: bool) -> None:
        if text:
            piece = chunkers_pb2.BidiStreamingChunkerTokenizationTaskRequest(
                text_stream=text, input_index_stream=self._number
            )
            self._number += 1
            await call.write(piece)
        self._all_written = last
        self._took(self._taken + len(text))

    async def _read(self, call: rpc.Exchange) -> None:
        while (response := await call.read()) is not grpc.aio.EOF:
            if response.processed_index != self._end:  # else it has looked at text, and ended no chunk
                self._end_chunk(response.processed_index)
            self._restart_clock()
            self._ready()
        if not self._all_written:
            raise self._failed("it ended before the text did", 502)
        if self._end < self._sent:
            self._end_chunk(self._sent)
