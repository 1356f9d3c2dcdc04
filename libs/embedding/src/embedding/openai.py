"""Embeddings of a server with the OpenAI API: https://platform.openai.com/docs/api-reference/embeddings."""

import email.utils
import math
import time
from collections.abc import Sequence

import httpx2
import msgspec
import numpy as np
import numpy.typing as npt
import structlog
from servicekit import telemetry
from servicekit.errors import CausewayError, InvalidRequest, RateLimited, Unavailable

from embedding.choice import EmbeddingConfig
from embedding.errors import WrongVectors

_log = structlog.get_logger(__name__)
_CONNECT_SECONDS = 5.0
_MOST_BYTES = 64 * 1024 * 1024
_MOST_WORDS = 2000
_REFUSED, _TOO_MANY, _SERVER_FAULT = 400, 429, 500
_OF_THE_REQUEST = (400, 413, 422)


class _Entry(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Entry]


class OpenAISource:
    """Asks ``POST {address}/embeddings``."""

    def __init__(self, config: EmbeddingConfig) -> None:
        key = config.api_key
        self._http = httpx2.AsyncClient(
            headers={} if key is None else {"authorization": f"Bearer {key.get_secret_value()}"},
            timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=config.concurrency),
        )
        self._url = config.address.rstrip("/") + "/embeddings"
        self._members: dict[str, object] = {"model": config.model, "encoding_format": "float"}
        if config.ask_dimension:
            self._members["dimensions"] = config.dimension

    async def vectors(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """One request; see `embedding.remote.Source.vectors`."""
        headers = {"content-type": "application/json"}
        telemetry.inject(headers)
        content = msgspec.json.encode({**self._members, "input": texts})
        try:
            async with self._http.stream("POST", self._url, content=content, headers=headers) as response:
                body = bytearray()
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > _MOST_BYTES:
                        raise WrongVectors(f"The embedding server sent more than {_MOST_BYTES} bytes.")
        except (httpx2.HTTPError, OSError) as error:
            raise Unavailable("The embedding server cannot be reached.") from error
        if response.status_code >= _REFUSED:
            raise _refusal(response, bytes(body))
        return _read(bytes(body), len(texts))

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()


def _read(body: bytes, count: int) -> npt.NDArray[np.float32]:
    try:
        entries = msgspec.json.decode(body, type=_Answer).data
        if sorted(entry.index for entry in entries) != list(range(count)):
            raise ValueError("not one vector for each text")
        entries.sort(key=lambda entry: entry.index)
        return np.array([entry.embedding for entry in entries], np.float32)
    except ValueError as error:  # no such JSON, or vectors of several lengths
        raise WrongVectors("The embedding server sent something else than a vector for each text.") from error


def _refusal(response: httpx2.Response, body: bytes) -> CausewayError:
    said = body.decode("utf-8", "replace")[:_MOST_WORDS]
    status = response.status_code
    _log.warning("the embedding server refused", status=status, said=said)
    retry_after = _retry_after(response.headers.get("retry-after", ""))
    if status == _TOO_MANY:
        return RateLimited("The embedding server takes no more at present.", retry_after=retry_after)
    if status == 503:  # Service Unavailable
        return Unavailable("The embedding server is not ready.", retry_after=retry_after)
    if status in _OF_THE_REQUEST:
        return InvalidRequest(f"The embedding server refused with status {status}.")
    # Wrong credentials, an unknown model, a defect: nothing that the caller could mend, or another try would.
    return WrongVectors(f"The embedding server answered with status {status}.")


def _retry_after(value: str) -> float | None:
    """Seconds; the header holds those or a date (RFC 9110, 10.2.3)."""
    try:
        seconds = float(value)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
