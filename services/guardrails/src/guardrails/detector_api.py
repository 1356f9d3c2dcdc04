"""The detector API over HTTP: serves the built-in and remote detectors to other systems."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
import structlog
from aiohttp import web
from detection.domain import Detection, DetectionContext, DetectorKind, DetectorSpec, Direction, Verdict
from detection.moderation.catalogue import Catalogue
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.whole_text import judge
from servicekit.errors import CausewayError, NotFound, PayloadTooLarge, Unavailable

from guardrails.remote import messages

_MAX_CALLS = 256
_MAX_BYTES_PER_CHARACTER = 12  # the longest JSON form of a character: a pair of escaped surrogates
_log = structlog.get_logger(__name__)
M = TypeVar("M", bound=msgspec.Struct)


class Refused(Exception):
    """An error response to a request.

    Args:
        status: The HTTP status.
        message: The reason, for the client.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class DetectorServer:
    """Serves the detectors of a catalogue over HTTP.

    Args:
        catalogue: The detectors.
        workers: The threads that judge long texts.
        max_text_length: The maximum number of code points of one request's texts.
        grace: The maximum number of seconds that a stopping server waits for running requests.

    Attributes:
        port: The port of the started server.
    """

    def __init__(self, catalogue: Catalogue, workers: ThreadPool, max_text_length: int, grace: float) -> None:
        self._catalogue = catalogue
        self._workers = workers
        self._max_text_length = max_text_length
        self._calls = 0
        self.port = 0
        app = web.Application(client_max_size=max_text_length * _MAX_BYTES_PER_CHARACTER)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.post(messages.CONTENTS, self._with_errors(self._contents)),
                web.post(messages.CHAT, self._with_errors(self._chat)),
                web.post(messages.CONTEXT_DOC, self._with_errors(self._context_doc)),
                web.post(messages.GENERATION, self._with_errors(self._generation)),
            ]
        )
        # A client that disconnects cancels its detectors.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=grace)

    async def start(self, host: str, port: int) -> None:
        """Start the server; port 0 means a free port.

        Raises:
            Unavailable: The server cannot listen on the address.
        """
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise Unavailable(
                f"Cannot listen on {host}:{port}: {error.strerror}.", resource=f"{host}:{port}"
            ) from error
        self.port = self._runner.addresses[0][1]
        _log.info("serving the detector API", port=self.port)

    async def stop(self) -> None:
        """Refuse new requests, and wait for running requests, at most for the grace period."""
        await self._runner.cleanup()

    def _with_errors(
        self, handler: Callable[[web.Request], Awaitable[object]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Return a handler that limits the concurrent requests, and converts errors to responses."""

        async def handle(request: web.Request) -> web.Response:
            if self._calls >= _MAX_CALLS:
                return _error(429, "too many concurrent requests; try again later", {"retry-after": "1"})
            self._calls += 1
            try:
                return web.Response(
                    body=msgspec.json.encode(await handler(request)), content_type="application/json"
                )
            except Refused as refused:
                return _error(refused.status, refused.message)
            except NotFound as error:
                return _error(404, error.message)
            except (PayloadTooLarge, web.HTTPRequestEntityTooLarge) as error:
                return _error(413, getattr(error, "message", "the body is too large"))
            except CausewayError as error:
                return _error(422, error.message)
            except asyncio.CancelledError:
                raise
            except Exception:
                _log.exception("a request for detections failed")
                return _error(500, "internal error")
            finally:
                self._calls -= 1

        return handle

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _contents(self, request: web.Request) -> object:
        body = await _read(request, messages.ContentsRequest)
        verdicts = await self._judge(
            request, DetectorKind.CONTENTS, body.detector_params, body.contents, DetectionContext()
        )
        return [_results(verdict) for verdict in verdicts]

    async def _chat(self, request: web.Request) -> object:
        body = await _read(request, messages.ChatRequest)
        tools = b"" if body.tools is msgspec.UNSET else bytes(body.tools)
        context = DetectionContext(Direction.INPUT, messages=bytes(body.messages), tools=tools)
        (verdict,) = await self._judge(request, DetectorKind.CHAT, body.detector_params, [""], context)
        return _results(verdict)

    async def _context_doc(self, request: web.Request) -> object:
        body = await _read(request, messages.ContextDocRequest)
        if body.context_type not in ("docs", "url"):
            raise Refused(422, "`context_type` must be `docs` or `url`")
        self._check_size(sum(map(len, body.context)))
        context = DetectionContext(passages=tuple(body.context), urls=body.context_type == "url")
        (verdict,) = await self._judge(
            request, DetectorKind.CONTEXT_DOC, body.detector_params, [body.content], context
        )
        return _results(verdict)

    async def _generation(self, request: web.Request) -> object:
        body = await _read(request, messages.GenerationRequest)
        context = DetectionContext(prompt=body.prompt)
        (verdict,) = await self._judge(
            request, DetectorKind.GENERATION, body.detector_params, [body.generated_text], context
        )
        return _results(verdict)

    async def _judge(
        self,
        request: web.Request,
        kind: DetectorKind,
        params: dict[str, object],
        texts: Sequence[str],
        context: DetectionContext,
    ) -> list[Verdict]:
        detector_id = request.headers.get(messages.DETECTOR_ID)
        if not detector_id:
            raise Refused(400, f"the header `{messages.DETECTOR_ID}` is missing")
        if self._catalogue.info(detector_id).kind is not kind:
            raise Refused(422, f"detector `{detector_id}` is not supported by this endpoint")
        self._check_size(sum(map(len, texts)))
        rules = self._catalogue.rules([DetectorSpec(detector_id, params=msgspec.json.encode(params))])
        verdicts, failures = await judge(texts, rules, context, self._workers)
        if failures:
            raise Refused(failures[0].status or 500, failures[0].message)
        return verdicts

    def _check_size(self, size: int) -> None:
        if size > self._max_text_length:
            raise PayloadTooLarge(f"The texts are longer than {self._max_text_length} characters.")


async def _read(request: web.Request, body_type: type[M]) -> M:
    if request.content_type != "application/json":
        raise Refused(415, "the body must be application/json")
    raw = await request.read()
    try:
        return msgspec.json.decode(raw, type=body_type)
    except msgspec.ValidationError as error:
        raise Refused(422, str(error)) from error
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from error


def _results(verdict: Verdict) -> list[messages.Result]:
    return [_result(finding.detection) for finding in verdict.findings]


def _result(detection: Detection) -> messages.Result:
    extra = msgspec.json.decode(detection.extra, type=dict[str, msgspec.Raw]) if detection.extra else {}
    return messages.Result(
        detection.type,
        detection.name,
        detection.score,
        detection.start,
        detection.end,
        None if detection.start is None else detection.text,
        extra.get("evidence", msgspec.UNSET),
        extra.get("metadata", msgspec.UNSET),
    )


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(messages.Refusal(status, message))
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
