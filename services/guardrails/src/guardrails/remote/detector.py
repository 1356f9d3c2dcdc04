"""A detector of another server, asked over the detector API."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import aiohttp
import msgspec
import structlog

from guardrails.chunking import Chunker
from guardrails.detectors.kind import Made
from guardrails.detectors.params import BadParam, decode_members
from guardrails.detectors.port import DetectorFailed, Judge
from guardrails.domain import Detection, DetectorInfo, DetectorKind, Direction, Health, Surroundings
from guardrails.remote import messages
from guardrails.remote.config import RemoteConfig

_LONGEST_ANSWER = 8 * 1024 * 1024
_LONGEST_REASON = 300
_HEALTH_SECONDS = 2.0
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
"""What `Judge.chunker` is."""


class RemoteOffer:
    """A remote detector that can be asked for; ``threshold`` and ``replacement`` are ours, the rest is its own.

    Args:
        config: How it is asked.
        session: Its connections, which all remote detectors share.
        chunker: Opens what cuts its windows, where that is a server of its own.
    """

    def __init__(
        self, config: RemoteConfig, session: aiohttp.ClientSession, chunker: OpenChunker | None = None
    ) -> None:
        self._chunker = chunker
        self.detector_id = config.detector_id
        self._config = config
        self._session = session
        self._turns = asyncio.Semaphore(config.concurrency)

    def make(self, raw: bytes) -> Made:
        """See `Offer.make`."""
        params = decode_members(raw)
        threshold = params.pop("threshold", self._config.threshold)
        replacement = params.pop("replacement", "[REDACTED]")
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise BadParam("threshold", "must be a number from 0 to 1")
        if not isinstance(replacement, str) or len(replacement) > 200:  # as in `Params`
            raise BadParam("replacement", "must be a text of at most 200 characters")
        judge = RemoteJudge(self._config, self._session, self._turns, params, self._chunker)
        return Made(judge, replacement, float(threshold))

    def info(self) -> DetectorInfo:
        """See `Offer.info`."""
        config = self._config
        streaming = config.chunking.value == "sentence"
        description = config.description or "A detector of another server."
        return DetectorInfo(self.detector_id, description, _PARAMS_SCHEMA, streaming, config.kind, remote=True)

    async def health(self) -> Health:
        """What its server says at ``/health``."""
        timeout = aiohttp.ClientTimeout(total=_HEALTH_SECONDS)
        try:
            async with self._session.get(
                self._config.url / "health", timeout=timeout, ssl=self._config.tls or True
            ) as response:
                if response.ok:
                    return Health(healthy=True)
                return Health(healthy=False, reason=f"its server says {response.status}")
        except TimeoutError:
            return Health(healthy=False, reason="its server does not answer")
        except aiohttp.ClientError:
            return Health(healthy=False, reason="its server cannot be reached")


class RemoteJudge(Judge):
    """A remote detector with a request's parameters.

    Args:
        config: How it is asked.
        session: Its connections.
        turns: Questions that may be asked at once.
        params: What its server is told.
        chunker: See `RemoteOffer`.
    """

    def __init__(
        self,
        config: RemoteConfig,
        session: aiohttp.ClientSession,
        turns: asyncio.Semaphore,
        params: dict[str, Any],
        chunker: OpenChunker | None = None,
    ) -> None:
        self.kind = config.kind
        self.chunking = config.chunking
        self.seconds = config.seconds
        self.across = config.across
        self._config = config
        self._session = session
        self._turns = turns
        self._params = params
        self._open_chunker = chunker
        self._url = config.url.joinpath(_PATHS[config.kind].lstrip("/"))

    def chunker(self, ready: Callable[[], None]) -> Chunker:
        """See `Judge.chunker`."""
        return super().chunker(ready) if self._open_chunker is None else self._open_chunker(ready)

    async def judge(self, windows: Sequence[str], surroundings: Surroundings) -> list[list[Detection]]:
        """See `Judge.judge`."""
        match self.kind:
            case DetectorKind.CONTENTS:
                request = messages.ContentsRequest(list(windows), self._params)
                answers = await self._ask(request, surroundings, list[list[messages.Result]])
                if len(answers) != len(windows):
                    raise self._failed("it did not answer one list for each text")
                return [self._detections(answer, text) for answer, text in zip(answers, windows, strict=True)]
            case DetectorKind.CHAT:
                return await self._chats(windows, surroundings)
            case DetectorKind.CONTEXT_DOC:
                if not surroundings.passages:
                    raise self._failed("it needs the passages that the text should rest on")
                kind = "url" if surroundings.urls else "docs"
                context = list(surroundings.passages)
                return await self._each(
                    windows,
                    [messages.ContextDocRequest(text, kind, context, self._params) for text in windows],
                    surroundings,
                )
            case DetectorKind.GENERATION:
                if not surroundings.prompt:
                    raise self._failed("it needs the prompt that the text answers")
                return await self._each(
                    windows,
                    [messages.GenerationRequest(surroundings.prompt, text, self._params) for text in windows],
                    surroundings,
                )

    async def _chats(self, windows: Sequence[str], surroundings: Surroundings) -> list[list[Detection]]:
        if not surroundings.messages:
            raise self._failed("it needs the conversation that the text stands in")
        said = msgspec.json.decode(surroundings.messages, type=list[msgspec.Raw])
        if surroundings.direction is not Direction.OUTPUT:
            # The conversation as it is, judged once: what is found is told of the latest text.
            found = await self._each(windows[-1:], [self._chat(said, surroundings)], surroundings)
            return [[] for _ in windows[:-1]] + found
        requests = []
        for index, text in enumerate(windows):
            reply = surroundings.replies[index] if index < len(surroundings.replies) else b""
            message = {"role": "assistant", "content": text or None} | decode_members(reply)
            requests.append(self._chat([*said, msgspec.Raw(msgspec.json.encode(message))], surroundings))
        return await self._each(windows, requests, surroundings)

    def _chat(self, said: Sequence[msgspec.Raw], surroundings: Surroundings) -> messages.ChatRequest:
        conversation = msgspec.Raw(msgspec.json.encode(said))
        tools = msgspec.Raw(surroundings.tools) if surroundings.tools else msgspec.UNSET
        return messages.ChatRequest(conversation, self._params, tools)

    async def _each(
        self, windows: Sequence[str], requests: Iterable[msgspec.Struct], surroundings: Surroundings
    ) -> list[list[Detection]]:
        try:
            async with asyncio.TaskGroup() as group:
                asked = [
                    group.create_task(self._ask(request, surroundings, list[messages.Result]))
                    for request in requests
                ]
        except* DetectorFailed as failures:
            first = failures.exceptions[0]
            raise first from first.__cause__
        return [self._detections(task.result(), text) for task, text in zip(asked, windows, strict=True)]

    async def _ask(self, request: msgspec.Struct, surroundings: Surroundings, answer: type[T]) -> T:
        headers = {name: value for name, value in surroundings.headers.items() if name in self._config.headers}
        headers |= {messages.DETECTOR_ID: self._config.detector_id, "content-type": "application/json"}
        body = msgspec.json.encode(request)
        async with self._turns:
            try:
                try:
                    status, raw = await self._post(body, headers)
                except (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError):
                    # A kept connection that the server has closed meanwhile; judging twice changes nothing.
                    status, raw = await self._post(body, headers)
            except aiohttp.ClientError as error:
                _log.warning("detector cannot be reached", detector=self._config.detector_id, error=str(error))
                raise self._failed("its server cannot be reached", 503) from error
        if not 200 <= status < 300:  # HTTP's successes
            raise self._failed(_reason(raw) or f"its server answered {status}", status)
        try:
            raw.decode()  # of what is not looked into msgspec does not see that it is text
            return msgspec.json.decode(raw, type=answer)
        except (ValueError, RecursionError) as error:
            raise self._failed("its server's answer is not as the detector API has it", 502) from error

    async def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        async with self._session.post(
            self._url, data=body, headers=headers, ssl=self._config.tls or True, allow_redirects=False
        ) as response:
            raw = bytearray()
            async for chunk in response.content.iter_any():
                raw += chunk
                if len(raw) > _LONGEST_ANSWER:
                    raise self._failed("its server's answer is too long", 502)
            return response.status, bytes(raw)

    def _detections(self, results: Iterable[messages.Result], text: str) -> list[Detection]:
        found = []
        for result in results:
            start, end = result.start, result.end
            if (start is None) is not (end is None):
                raise self._failed("its server answered half a span", 502)
            if start is not None and end is not None:
                if not 0 <= start <= end <= len(text):
                    raise self._failed("its server answered a span that is not in the text", 502)
                if start == end:
                    start = end = None  # of nothing: it is about all of the text
            own = "" if start is None else text[start:end]
            named = own if result.text is None else result.text
            extra = {
                name: raw
                for name, raw in (("evidence", result.evidence), ("metadata", result.metadata))
                if raw is not msgspec.UNSET and bytes(raw) != b"null"
            }
            found.append(
                Detection(
                    result.detection_type,
                    result.detection,
                    named,
                    start,
                    end,
                    result.score,
                    msgspec.json.encode(extra) if extra else b"",
                )
            )
        found.sort(key=lambda each: float("inf") if each.start is None else each.start)
        return found

    def _failed(self, reason: str, status: int = 0) -> DetectorFailed:
        return DetectorFailed(f"detector request failed for `{self._config.detector_id}`: {reason}", status)


def _reason(raw: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=messages.Refusal, strict=False).message[:_LONGEST_REASON]
    except (ValueError, RecursionError):
        return ""
