"""Embeddings from a server with the OpenAI API: https://platform.openai.com/docs/api-reference/embeddings."""

from collections.abc import Sequence

import httpx2
import msgspec
import numpy as np
import numpy.typing as npt
import openai
import structlog
from servicekit import telemetry
from servicekit.errors import CausewayError, InvalidRequest, RateLimited, Unavailable
from servicekit.http_headers import retry_after

from embedding.config import EmbeddingConfig
from embedding.errors import Unreachable, WrongVectors

_log = structlog.get_logger(__name__)
_TIMEOUT = openai.Timeout(None, connect=5.0)
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_MAX_REASON_CHARACTERS = 2000
_TOO_MANY_REQUESTS, _NOT_READY = 429, 503
_INVALID_REQUEST = (400, 413, 422)


class _Entry(msgspec.Struct):
    index: int
    embedding: list[float]


class _Response(msgspec.Struct):
    data: list[_Entry]


class OpenAISource:
    """Calls ``POST {address}/embeddings``."""

    def __init__(self, config: EmbeddingConfig) -> None:
        self._key = config.api_key
        # `RemoteEmbedder` applies the time-out and the retries.
        self._client = openai.AsyncOpenAI(
            api_key="none",  # a required argument; each request sends the current key, because key files may change
            base_url=config.address,
            timeout=_TIMEOUT,
            max_retries=0,
        )
        self._who = f"The embedding server of '{config.public_name}'"
        self._model = config.model
        self._dimensions = config.dimension if config.ask_dimension else openai.omit

    async def vectors(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Send one request; see `embedding.remote.Source.vectors`."""
        authorization = openai.Omit() if self._key is None else f"Bearer {self._key.get_secret_value()}"
        trace: dict[str, str] = {}
        telemetry.inject(trace)
        try:
            async with self._client.embeddings.with_streaming_response.create(
                model=self._model,
                input=list(texts),
                encoding_format="float",
                dimensions=self._dimensions,
                extra_headers={"Authorization": authorization, **trace},
            ) as response:
                body = bytearray()
                async for piece in response.iter_bytes():
                    body += piece
                    if len(body) > _MAX_RESPONSE_BYTES:
                        raise WrongVectors(f"{self._who} sent more than {_MAX_RESPONSE_BYTES} bytes.")
        except openai.APIStatusError as error:
            raise self._refusal(error) from error
        except (openai.APIConnectionError, httpx2.HTTPError, OSError) as error:
            raise Unreachable(f"{self._who} cannot be reached.") from error
        return self._read(bytes(body), len(texts))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _read(self, body: bytes, count: int) -> npt.NDArray[np.float32]:
        try:
            entries = msgspec.json.decode(body, type=_Response).data
            if sorted(entry.index for entry in entries) != list(range(count)):
                raise ValueError("not one vector for each text")
            entries.sort(key=lambda entry: entry.index)
            return np.array([entry.embedding for entry in entries], np.float32)
        except (ValueError, RecursionError) as error:  # invalid JSON, or vectors of different lengths
            raise WrongVectors(f"{self._who} did not send one vector for each text.") from error

    def _refusal(self, error: openai.APIStatusError) -> CausewayError:
        status = error.status_code
        message = str(error.body)[:_MAX_REASON_CHARACTERS]
        _log.warning("the embedding server refused a request", who=self._who, status=status, reason=message)
        retry_after_seconds = retry_after(error.response.headers)
        if status == _TOO_MANY_REQUESTS:
            return RateLimited(f"{self._who} is busy; try again later.", retry_after=retry_after_seconds)
        if status == _NOT_READY:
            return Unavailable(f"{self._who} is not ready.", retry_after=retry_after_seconds)
        if status in _INVALID_REQUEST:
            return InvalidRequest(f"{self._who} refused the request with status {status}.")
        # Wrong credentials, an unknown model or a defect of the server: a retry would fail, too.
        return WrongVectors(f"{self._who} responded with status {status}.")
