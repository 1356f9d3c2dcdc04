"""A remote detector, called over the detector API."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import aiohttp
import msgspec
import structlog
from detection.chunking.chunkers import Chunker
from detection.detectors.factory import ConfiguredDetector
from detection.detectors.params import REPLACEMENT, BadParam, decode_members
from detection.detectors.port import DetectorFailed, Judge
from detection.domain import Detection, DetectionContext, DetectorInfo, DetectorKind, Direction, Health

from guardrails.remote import messages
from guardrails.remote.config import RemoteConfig

_MAX_RESPONSE_BYTES = 8 * 1024 * 1024
_MAX_REASON_LENGTH = 300
_HEALTH_SECONDS = 2.0
_UNPROCESSABLE = 422  # the status if the request lacks an input of the detector
_PATHS = {
    DetectorKind.CONTENTS: messages.CONTENTS,
    DetectorKind.CHAT: messages.CHAT,
    DetectorKind.CONTEXT_DOC: messages.CONTEXT_DOC,
    DetectorKind.GENERATION: messages.GENERATION,
}
_PARAMS_SCHEMA = msgspec.json.encode(
    {
        "type": "object",
        "properties": {
            "threshold": {"type": "number", "minimum": 0, "maximum": 1},
            "replacement": {"type": "string", "maxLength": 200},
        },
        "additionalProperties": True,
    }
)
_log = structlog.get_logger(__name__)
T = TypeVar("T")

OpenChunker = Callable[[Callable[[], None]], Chunker]
"""Opens a chunker; see `Judge.chunker`."""


class RemoteFactory:
    """The factory of a remote detector.

    The factory handles ``threshold`` and ``replacement``. The server gets the other parameters.

    Args:
        config: The configuration of the detector.
        session: The HTTP session, which all remote detectors share.
        chunker: Opens the remote chunker; None: the detector has a built-in chunker.
    """

    def __init__(
        self, config: RemoteConfig, session: aiohttp.ClientSession, chunker: OpenChunker | None = None
    ) -> None:
        self._chunker = chunker
        self.detector_id = config.detector_id
        self._config = config
        self._session = session
        self._slots = asyncio.Semaphore(config.concurrency)

    def make(self, raw: bytes) -> ConfiguredDetector:
        """See `DetectorFactory.make`."""
        params = decode_members(raw)
        threshold = params.pop("threshold", self._config.threshold)
        replacement = params.pop("replacement", REPLACEMENT)
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise BadParam("threshold", "must be a number from 0 to 1")
        if not isinstance(replacement, str) or len(replacement) > 200:  # as in `Params`
            raise BadParam("replacement", "must be a text of at most 200 characters")
        judge = RemoteJudge(self._config, self._session, self._slots, params, self._chunker)
        return ConfiguredDetector(judge, replacement, float(threshold))

    def info(self) -> DetectorInfo:
        """See `DetectorFactory.info`."""
        config = self._config
        streaming = config.chunking.value == "sentence"
        description = config.description or "A remote detector."
        return DetectorInfo(self.detector_id, description, _PARAMS_SCHEMA, streaming, config.kind, remote=True)

    async def health(self) -> Health:
        """Return the health that the server reports at ``/health``."""
        timeout = aiohttp.ClientTimeout(total=_HEALTH_SECONDS)
        try:
            async with self._session.get(
                self._config.url / "health", timeout=timeout, ssl=self._config.tls or True
            ) as response:
                if response.ok:
                    return Health(healthy=True)
                return Health(healthy=False, reason=f"its server answered with status {response.status}")
        except TimeoutError:
            return Health(healthy=False, reason="its server does not answer")
        except aiohttp.ClientError:
            return Health(healthy=False, reason="its server cannot be reached")


class RemoteJudge(Judge):
    """A remote detector with the parameters of a request.

    Args:
        config: The configuration of the detector.
        session: The HTTP session.
        slots: Limits the concurrent calls.
        params: The parameters for the server.
        chunker: See `RemoteFactory`.
    """

    def __init__(
        self,
        config: RemoteConfig,
        session: aiohttp.ClientSession,
        slots: asyncio.Semaphore,
        params: dict[str, Any],
        chunker: OpenChunker | None = None,
    ) -> None:
        self.kind = config.kind
        self.chunking = config.chunking
        self.seconds = config.seconds
        self.cross_choice = config.cross_choice
        self.judges_blank = config.kind is DetectorKind.CHAT  # a message without text may call tools
        self._config = config
        self._session = session
        self._slots = slots
        self._params = params
        self._open_chunker = chunker
        self._url = config.url.joinpath(_PATHS[config.kind].lstrip("/"))

    def chunker(self, ready: Callable[[], None]) -> Chunker:
        """See `Judge.chunker`."""
        return super().chunker(ready) if self._open_chunker is None else self._open_chunker(ready)

    async def judge(self, windows: Sequence[str], context: DetectionContext) -> list[list[Detection]]:
        """See `Judge.judge`."""
        match self.kind:
            case DetectorKind.CONTENTS:
                request = messages.ContentsRequest(list(windows), self._params)
                answers = await self._call(request, context, list[list[messages.Result]])
                if len(answers) != len(windows):
                    raise self._error("it did not answer with one list for each text", 502)
                return [self._detections(answer, text) for answer, text in zip(answers, windows, strict=True)]
            case DetectorKind.CHAT:
                return await self._judge_conversations(windows, context)
            case DetectorKind.CONTEXT_DOC:
                kind = "url" if context.urls else "docs"
                documents = list(context.passages)
                return await self._call_each(
                    windows,
                    [messages.ContextDocRequest(text, kind, documents, self._params) for text in windows],
                    context,
                )
            case DetectorKind.GENERATION:
                if not context.prompt:
                    raise self._error("it needs the prompt that the text answers", _UNPROCESSABLE)
                return await self._call_each(
                    windows,
                    [messages.GenerationRequest(context.prompt, text, self._params) for text in windows],
                    context,
                )

    async def _judge_conversations(
        self, windows: Sequence[str], context: DetectionContext
    ) -> list[list[Detection]]:
        if not context.messages:
            raise self._error("it needs the conversation of the text", _UNPROCESSABLE)
        conversation = msgspec.json.decode(context.messages, type=list[msgspec.Raw])
        if context.direction is not Direction.OUTPUT:
            # Judge the unchanged conversation once, and report its detections for the last text.
            found = await self._call_each(windows[-1:], [self._chat(conversation, context)], context)
            return [[] for _ in windows[:-1]] + found
        requests = []
        for index, text in enumerate(windows):
            reply = context.replies[index] if index < len(context.replies) else b""
            message = {"role": "assistant", "content": text or None} | decode_members(reply)
            requests.append(self._chat([*conversation, msgspec.Raw(msgspec.json.encode(message))], context))
        return await self._call_each(windows, requests, context)

    def _chat(self, conversation: Sequence[msgspec.Raw], context: DetectionContext) -> messages.ChatRequest:
        encoded = msgspec.Raw(msgspec.json.encode(conversation))
        tools = msgspec.Raw(context.tools) if context.tools else msgspec.UNSET
        return messages.ChatRequest(encoded, self._params, tools)

    async def _call_each(
        self, windows: Sequence[str], requests: Iterable[msgspec.Struct], context: DetectionContext
    ) -> list[list[Detection]]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._call(request, context, list[messages.Result])) for request in requests
                ]
        except* DetectorFailed as failures:
            first = failures.exceptions[0]
            raise first from first.__cause__
        return [self._detections(task.result(), text) for task, text in zip(tasks, windows, strict=True)]

    async def _call(self, request: msgspec.Struct, context: DetectionContext, response_type: type[T]) -> T:
        headers = {name: value for name, value in context.headers.items() if name in self._config.headers}
        headers |= {messages.DETECTOR_ID: self._config.detector_id, "content-type": "application/json"}
        body = msgspec.json.encode(request)
        async with self._slots:
            try:
                try:
                    status, raw = await self._post(body, headers)
                except (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError):
                    # The server closed an idle connection. A second call is safe, because calls change nothing.
                    status, raw = await self._post(body, headers)
            except aiohttp.ClientError as error:
                _log.warning("detector cannot be reached", detector=self._config.detector_id, error=str(error))
                raise self._error("its server cannot be reached", 503) from error
        if not 200 <= status < 300:  # the successful statuses of HTTP
            raise self._error(_reason(raw) or f"its server answered with status {status}", status)
        try:
            raw.decode()  # msgspec does not check whether raw members are UTF-8
            return msgspec.json.decode(raw, type=response_type)
        except (ValueError, RecursionError) as error:
            raise self._error("its server's answer does not follow the detector API", 502) from error

    async def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        async with self._session.post(
            self._url, data=body, headers=headers, ssl=self._config.tls or True, allow_redirects=False
        ) as response:
            raw = bytearray()
            async for chunk in response.content.iter_any():
                raw += chunk
                if len(raw) > _MAX_RESPONSE_BYTES:
                    raise self._error("its server's answer is too long", 502)
            return response.status, bytes(raw)

    def _detections(self, results: Iterable[messages.Result], text: str) -> list[Detection]:
        found = []
        for result in results:
            start, end = result.start, result.end
            if (start is None) is not (end is None):
                raise self._error("its server sent a span without a start or an end", 502)
            if start is not None and end is not None:
                if not 0 <= start <= end <= len(text):
                    raise self._error("its server sent a span outside the text", 502)
                if start == end:
                    start = end = None  # an empty span means the whole text
            matched = "" if start is None else text[start:end]
            reported = matched if result.text is None else result.text
            extra = {
                name: raw
                for name, raw in (("evidence", result.evidence), ("metadata", result.metadata))
                if raw is not msgspec.UNSET and bytes(raw) != b"null"
            }
            found.append(
                Detection(
                    result.detection_type,
                    result.detection,
                    reported,
                    start,
                    end,
                    result.score,
                    msgspec.json.encode(extra) if extra else b"",
                )
            )
        found.sort(key=lambda detection: float("inf") if detection.start is None else detection.start)
        return found

    def _error(self, reason: str, status: int = 0) -> DetectorFailed:
        return DetectorFailed(f"detector request failed for `{self._config.detector_id}`: {reason}", status)


def _reason(raw: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=messages.Refusal, strict=False).message[:_MAX_REASON_LENGTH]
    except (ValueError, RecursionError):
        return ""
