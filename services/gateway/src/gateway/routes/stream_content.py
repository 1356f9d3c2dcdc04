"""Runs detectors on a stream of text: newline-delimited JSON in both directions, as a raw ASGI application."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    Internal,
    MethodNotAllowed,
    Unprocessable,
    UnsupportedMedia,
)
from servicekit.tasks import discard
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from gateway.answering.detector_kinds import supported
from gateway.dialects.orchestrator import errors, text_detection
from gateway.dialects.orchestrator.registration import STREAM_CONTENT
from gateway.domain import Chunking, DetectionContext, DetectorInfo, DetectorKind, Direction
from gateway.frontends.profiles import GuardrailsWire
from gateway.ports.answering import Clearance, Guardrails, Watch
from gateway.routes.body import headers_for_detectors, media_type_of, wait_for_disconnect
from gateway.server.request_state import state_of
from gateway.server.responses import STREAM_HEADERS, refuse

MEDIA = b"application/x-ndjson"

_log = structlog.get_logger(__name__)


class _ClientLeft(Exception):
    """The client closed the connection before the response was complete."""


class StreamContent:
    """The ASGI application of the path `STREAM_CONTENT`. Detectors judge each sentence when it is complete.

    Args:
        guardrails: Runs the detectors.
        timeout: The time limit of a request, in seconds.
        passed_headers: The names, in lower case, of the headers that detectors may get.
    """

    def __init__(self, guardrails: Guardrails, *, timeout: float, passed_headers: frozenset[bytes]) -> None:
        self._guardrails = guardrails
        self._timeout = timeout
        self._passed_headers = passed_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. If the client leaves, cancel the detectors.

        An error before the response begins is an HTTP status. A later error is the last line of the response.
        """
        wire = state_of(scope).frontend.guardrails_wire
        answer = _Answer(send, wire)
        try:
            async with asyncio.timeout(self._timeout):
                await self._serve(scope, receive, answer)
        except _ClientLeft:
            return
        except TimeoutError:
            await answer.fail(DeadlineExceeded("The request took longer than its deadline."))
        except CausewayError as error:
            await answer.fail(error)
        except Exception as error:  # the boundary: the client gets an error, the log gets the cause
            _log.exception("detection failed", error=str(error))
            await answer.fail(Internal())

    async def _serve(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        if scope["method"] != "POST":
            raise MethodNotAllowed(f"{STREAM_CONTENT} does not accept {scope['method']}.")
        if media_type_of(Headers(scope=scope)) != MEDIA.decode():
            raise UnsupportedMedia("Content-Type must be application/x-ndjson.", field="content-type")
        principal, deadline = state_of(scope).principal, Deadline.after(self._timeout)
        context = DetectionContext(headers=headers_for_detectors(scope, self._passed_headers))
        lines = _lines(receive)
        async with aclosing(lines):
            first = await anext(lines, None)
            if first is None:
                raise Unprocessable("`detectors` is required", field="detectors")
            try:
                detectors, content = text_detection.first_line(first)
                infos = await self._guardrails.detectors(principal, deadline)
                available = {info.detector_id: info for info in infos}
                for detector in detectors:
                    _check(available, detector.detector_id)
                # This call reports invalid parameters before the client sends more text.
                await self._guardrails.detect(principal, Direction.INPUT, detectors, [""], deadline, context)
            except CausewayError:
                if answer.wire is GuardrailsWire.ORCHESTRATOR:
                    await answer.begin()
                raise
            await answer.begin()
            async with self._guardrails.watch(principal, detectors, deadline, context, Chunking.SENTENCE) as watch:
                writer = _ChunkWriter(answer)
                tasks = (
                    asyncio.ensure_future(_write_verdicts(watch, writer)),
                    asyncio.ensure_future(_feed(watch, writer, content, lines, receive)),
                )
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    next(task for task in tasks if task.done()).result()
                finally:
                    await discard(*tasks)
        await answer.end()


class _Answer:
    """The response to one request."""

    def __init__(self, send: Send, wire: GuardrailsWire) -> None:
        self.wire = wire
        self._send = send
        self._begun = False

    async def begin(self) -> None:
        self._begun = True
        headers = [(b"content-type", MEDIA), *STREAM_HEADERS]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def line(self, line: bytes) -> None:
        await self._send({"type": "http.response.body", "body": line, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def fail(self, error: CausewayError) -> None:
        body = errors.body(error, self.wire)
        if self._begun:
            await self.line(body + b"\n")
            await self.end()
        else:
            await refuse(self._send, error, body, errors.status(error, self.wire))


def _check(available: Mapping[str, DetectorInfo], detector_id: str) -> None:
    if not supported(available, detector_id, (DetectorKind.CONTENTS,)).streaming:
        raise Unprocessable(
            f"detector `{detector_id}` uses chunker `whole_doc`, which is not supported by this endpoint",
            field="detectors",
            resource=detector_id,
        )


async def _lines(receive: Receive) -> AsyncGenerator[bytes, None]:
    incomplete = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientLeft
        more = message.get("more_body", False)
        *complete, incomplete = (incomplete + message.get("body", b"")).split(b"\n")
        for line in complete:
            if line.strip():
                yield line
    if incomplete.strip():
        yield incomplete


class _ChunkWriter:
    """Sends a line for each chunk that the detectors clear."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer
        self._start = 0

    async def send(self, clearances: Sequence[Clearance]) -> None:
        """Send the lines of clearances.

        Raises:
            DetectorFailed: A detector failed.
        """
        for clearance in clearances:
            for failure in clearance.failures:
                raise errors.DetectorFailed(failure)
            if clearance.findings or clearance.cleared_until > self._start:
                line = text_detection.chunk_line(
                    clearance.findings,
                    self._start,
                    clearance.cleared_until,
                    relative=self._answer.wire is GuardrailsWire.ORCHESTRATOR,
                )
                self._start = clearance.cleared_until
                await self._answer.line(line)


async def _feed(
    watch: Watch, writer: _ChunkWriter, content: str, lines: AsyncGenerator[bytes, None], receive: Receive
) -> None:
    """Pass the lines to the detectors. Then wait until the client leaves or the task is cancelled.

    Raises:
        _ClientLeft: The client left.
    """
    await writer.send(await watch.feed(0, content))
    async for line in lines:
        await writer.send(await watch.feed(0, text_detection.next_line(line)))
    await writer.send(await watch.feed(0, "", last=True))
    await watch.end()
    await wait_for_disconnect(receive)
    raise _ClientLeft


async def _write_verdicts(watch: Watch, writer: _ChunkWriter) -> None:
    async with aclosing(watch.clearances()) as clearances:
        async for clearance in clearances:
            await writer.send((clearance,))
