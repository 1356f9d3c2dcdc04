"""Rerankers over HTTP: ``POST {url}/rerank`` in the API of Cohere, Jina, vLLM and Infinity, or of TEI.

API of Cohere: https://docs.cohere.com/reference/rerank.
API of TEI: https://huggingface.github.io/text-embeddings-inference.
The APIs use different field names for the texts and the scores. TEI returns a plain list of scores. The other
servers return an object that contains the list.
"""

import math
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec
import structlog
from servicekit import telemetry
from servicekit.errors import CausewayError, RateLimited, Unavailable
from servicekit.http_headers import retry_after
from yarl import URL

from retriever.clients.reranker_file import HttpEntry
from retriever.ports.reranker import Rating, RerankerFailed

_log = structlog.get_logger(__name__)
_MAX_RESPONSE_BYTES = 8 * 1024 * 1024
_MAX_LOGGED_BYTES = 2000
_OK, _TOO_MANY = 200, 429
_NOT_READY = (502, 503, 504)


class HttpReranker:
    """A client of a reranker server; see `ports.reranker.Reranker`. The first request connects."""

    def __init__(self, entry: HttpEntry) -> None:
        self._entry = entry
        self._url = URL(f"{entry.url.rstrip('/')}/rerank")
        self._subject = f"The reranker '{entry.name}'"
        self._session: aiohttp.ClientSession | None = None

    async def rate(self, query: str, texts: Sequence[str]) -> list[Rating]:
        """Rate all texts in one request."""
        try:
            # A redirect would send the texts and the key to a server that the operator did not name.
            async with self._connected().post(
                self._url, data=self._body(query, texts), headers=self._headers(), allow_redirects=False
            ) as response:
                body = await _read(response)
                if response.status != _OK or body is None:
                    raise self._error(response, body)
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{self._subject} cannot be reached.") from error
        try:
            return _ratings(msgspec.json.decode(body), len(texts))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RerankerFailed(f"{self._subject} did not send a score for each text.") from error

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            # `ResilientReranker` limits the time and the number of requests.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None, sock_connect=5)
            )
        return self._session

    def _body(self, query: str, texts: Sequence[str]) -> bytes:
        if self._entry.api == "tei":
            return msgspec.json.encode({"query": query, "texts": list(texts), "truncate": True})
        model = self._entry.public_model
        return msgspec.json.encode({"model": model, "query": query, "documents": list(texts), "top_n": len(texts)})

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "application/json"}
        telemetry.inject(headers)
        if self._entry.api_key is not None:
            headers["authorization"] = f"Bearer {self._entry.api_key.get_secret_value()}"
        return headers

    def _error(self, response: aiohttp.ClientResponse, body: bytes | None) -> CausewayError:
        if body is None:
            return RerankerFailed(f"{self._subject} sent more than {_MAX_RESPONSE_BYTES} bytes.")
        reason = body[:_MAX_LOGGED_BYTES].decode(errors="replace")
        _log.warning(
            "the reranker request failed", reranker=self._entry.name, status=response.status, reason=reason
        )
        delay = retry_after(response.headers)
        if response.status == _TOO_MANY:
            return RateLimited(f"{self._subject} does not accept more requests at present.", retry_after=delay)
        if response.status in _NOT_READY:
            return Unavailable(f"{self._subject} is not ready.", retry_after=delay)
        return RerankerFailed(f"{self._subject} returned status {response.status}.")


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the body, or None if it is too long."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > _MAX_RESPONSE_BYTES:
            return None
    return bytes(body)


def _ratings(value: Any, count: int) -> list[Rating]:
    """Return the rating of each text.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: A rating is missing or malformed.
    """
    items = value if isinstance(value, list) else value["results"]
    ratings: list[Rating | None] = [None] * count
    for item in items:
        score = float(item["relevance_score"] if "relevance_score" in item else item["score"])
        if not (0 <= item["index"] < count and math.isfinite(score)):
            raise ValueError(f"the index {item['index']} or the score {score} is invalid")
        ratings[item["index"]] = Rating(score, _captions(item.get("captions") or ()))
    complete = [rating for rating in ratings if rating is not None]
    if len(complete) < count:
        raise ValueError("a text has no score")
    return complete


def _captions(values: Sequence[Any]) -> tuple[str, ...]:
    """Return the captions of a result. Some servers send them as an extension: strings, or objects with a text."""
    return tuple(value if isinstance(value, str) else str(value["text"]) for value in values)
