"""A client of remote chunkers that implement ``causeway.guardrails.v1.ChunkerService``."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import grpc
import structlog
from causeway.guardrails.v1 import chunker_pb2, chunker_pb2_grpc
from detection.detectors.port import DetectorFailed
from servicekit import rpc
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, DeadlineExceeded, http_status

from guardrails.remote.config import ChunkerConfig

DESCRIPTOR = chunker_pb2.DESCRIPTOR.services_by_name["ChunkerService"]
_MAX_SECONDS = 3600.0  # for one text; the configuration sets the time-out of a piece
_log = structlog.get_logger(__name__)


class RemoteChunker:
    """Splits one text in one call, which begins with the first piece.

    A subclass implements another protocol. It overrides the methods that choose the gRPC method, write a piece and
    read the responses.

    Args:
        config: The configuration of the chunker.
        stub: The client of the chunker's server.
        ready: Called on the event loop when the server has processed more text, and at the end of the call.
    """

    def __init__(
        self, config: ChunkerConfig, stub: chunker_pb2_grpc.ChunkerServiceStub, ready: Callable[[], None]
    ) -> None:
        self._config = config
        self._stub: Any = stub
        self._ready = ready
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._pieces: list[str] = []
        self._last = False
        self._sent = 0  # the number of code points of the text so far
        self._processed = 0  # the number of code points that the server has processed
        self._end = 0  # the end of the last chunk
        self._ends: list[int] = []  # the ends of chunks that `feed` has not returned
        self._failure: DetectorFailed | None = None
        self._id_sent = False
        self._timer = asyncio.timeout(None)

    @property
    def waiting(self) -> int:
        """See `Chunker.waiting`."""
        return self._sent - self._processed

    def feed(self, text: str, last: bool) -> list[int]:
        """See `Chunker.feed`.

        Raises:
            DetectorFailed: The server failed, or exceeded its time limit.
        """
        if self._failure is not None:
            raise self._failure
        if text or last:
            self._pieces.append(text)
            self._last = self._last or last
            idle = not self.waiting
            self._sent += len(text)
            if self._task is None:
                self._task = asyncio.create_task(self._run())
                self._task.add_done_callback(lambda _: self._ready())
            elif idle:
                self._restart_clock()
            self._wake.set()
        ends, self._ends = self._ends, []
        return ends

    def close(self) -> None:
        """See `Chunker.close`."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            async with self._timer:
                self._restart_clock()
                await self._call(Deadline.after(_MAX_SECONDS))
        except TimeoutError:
            self._failure = self._error(f"it took longer than {self._config.seconds:g} s", 504)
        except DeadlineExceeded:  # the status of the server, or the limit of the whole text
            self._failure = self._error("its call exceeded a deadline", 504)
        except CausewayError as error:
            _log.warning(
                "chunker's server failed or cannot be reached", chunker=self._config.name, error=error.message
            )
            self._failure = self._error("its server failed or cannot be reached", http_status(error))
        except DetectorFailed as error:
            self._failure = error
        except Exception:  # a defect; without a failure, the text would wait for its chunks forever
            _log.exception("chunker failed", chunker=self._config.name)
            self._failure = self._error("it failed unexpectedly", 500)

    async def _call(self, deadline: Deadline) -> None:
        """Call the server."""
        async with rpc.bidi(*self._method(), deadline) as call:
            await self._exchange(call)

    async def _exchange(self, call: rpc.Exchange) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(self._write(call))
                await self._read(call)
                writing.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures.exceptions[0].__cause__

    async def _write(self, call: rpc.Exchange) -> None:
        # `_read` processes the responses that arrived before the error, and then raises the same error.
        with contextlib.suppress(CausewayError):
            await self._write_pieces(call)

    async def _write_pieces(self, call: rpc.Exchange) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            text, last = "".join(self._pieces), self._last
            self._pieces = []
            await self._write_piece(call, text, last)
            if last:
                await call.done_writing()
                return

    def _method(self) -> tuple[Callable[..., Any], str]:
        """Return the gRPC method to call, and its name."""
        return self._stub.Chunk, f"{DESCRIPTOR.full_name}/Chunk"

    async def _write_piece(self, call: rpc.Exchange, text: str, last: bool) -> None:
        """Write the next piece."""
        chunker_id = "" if self._id_sent else self._config.chunker_id
        self._id_sent = True
        await call.write(chunker_pb2.ChunkRequest(text=text, last=last, chunker_id=chunker_id))

    async def _read(self, call: rpc.Exchange) -> None:
        """Read the responses until all chunks of the text have ended."""
        while not (self._last and self._processed == self._end == self._sent):
            response = await call.read()
            if response is grpc.aio.EOF:
                raise self._error("it ended its stream before the end of the text", 502)
            for end in response.ends:
                self._end_chunk(end)
            if not max(self._processed, self._end) <= response.taken <= self._sent:
                raise self._error("it reported an impossible number of processed characters", 502)
            self._note_processed(response.taken)

    def _end_chunk(self, end: int) -> None:
        if not self._end < end <= self._sent:
            raise self._error("it ended a chunk at an impossible position", 502)
        self._end = end
        self._ends.append(end)

    def _note_processed(self, processed: int) -> None:
        self._processed = processed
        self._restart_clock()
        self._ready()

    def _restart_clock(self) -> None:
        is_pending = self.waiting or (self._last and self._end < self._sent)
        now = asyncio.get_running_loop().time()
        self._timer.reschedule(now + self._config.seconds if is_pending else None)

    def _error(self, reason: str, status: int) -> DetectorFailed:
        return DetectorFailed(f"chunker request failed for `{self._config.name}`: {reason}", status)
