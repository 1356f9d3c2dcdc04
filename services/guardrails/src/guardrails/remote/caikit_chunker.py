"""A client of the guardrails orchestrator's chunkers, which implement caikit's ``ChunkersService``."""

from collections.abc import Callable
from typing import Any

import grpc
from causeway.caikit.v1 import chunkers_pb2
from servicekit import rpc
from servicekit.deadline import Deadline

from guardrails.remote.chunker import RemoteChunker

DESCRIPTOR = chunkers_pb2.DESCRIPTOR.services_by_name["ChunkersService"]
_STREAMED = "BidiStreamingChunkerTokenizationTaskPredict"
_UNARY = "ChunkerTokenizationTaskPredict"
_MODEL = "mm-model-id"


class CaikitChunker(RemoteChunker):
    """Splits one text. The server gets the ``chunker_id`` of the configuration, or the chunker's name.

    A text that arrives in one piece takes one unary call. For a growing text, the protocol does not report how much
    text the server has processed. The chunker therefore counts text as processed when it is written. If the server
    does not end a chunk, the detector fails at the hold-back limit. The server's time limit applies only while a
    piece waits to be written, and after the end of the text. If text remains after the server's last chunk, for
    example white space, it is the last chunk.
    """

    _piece_index = 0
    _all_written = False

    async def _call(self, deadline: Deadline) -> None:
        if not self._last:
            await super()._call(deadline)
            return
        request = chunkers_pb2.ChunkerTokenizationTaskRequest(text="".join(self._pieces))
        response = await rpc.unary(self._named_method(_UNARY), request, deadline)
        for chunk in response.results:
            self._end_chunk(chunk.end)
        self._end_last_chunk()
        self._note_processed(self._sent)

    def _method(self) -> tuple[Callable[..., Any], str]:
        return self._named_method(_STREAMED), f"{DESCRIPTOR.full_name}/{_STREAMED}"

    def _named_method(self, name: str) -> Callable[..., Any]:
        """Return a method of the server that adds the name of the model to the metadata."""
        method: Callable[..., Any] = getattr(self._stub, name)
        model = self._config.chunker_id or self._config.name

        def call(*request: Any, metadata: tuple[tuple[str, str], ...] = (), **options: Any) -> Any:
            return method(*request, metadata=(*metadata, (_MODEL, model)), **options)

        return call

    async def _write_piece(self, call: rpc.Exchange, text: str, last: bool) -> None:
        if text:
            piece = chunkers_pb2.BidiStreamingChunkerTokenizationTaskRequest(
                text_stream=text, input_index_stream=self._piece_index
            )
            self._piece_index += 1
            await call.write(piece)
        self._all_written = last
        self._note_processed(self._processed + len(text))

    async def _read(self, call: rpc.Exchange) -> None:
        while (response := await call.read()) is not grpc.aio.EOF:
            if response.processed_index != self._end:  # an equal index means that no chunk is complete
                self._end_chunk(response.processed_index)
            self._restart_clock()
            self._ready()
        if not self._all_written:
            raise self._error("it ended its stream before the end of the text", 502)
        self._end_last_chunk()

    def _end_last_chunk(self) -> None:
        """End the last chunk at the end of the text."""
        if self._end < self._sent:
            self._end_chunk(self._sent)
