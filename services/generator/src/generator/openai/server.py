"""The connection to one model server: requests, failures, and closing."""

import asyncio
import contextlib
import math
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import aiohttp
import msgspec
from pydantic import SecretStr
from servicekit import telemetry
from servicekit.errors import CausewayError, Unavailable, UpstreamRejected
from servicekit.tasks import cancel_and_wait
from yarl import URL

from generator.gathering import Gathering
from generator.openai.endpoint import Endpoint
from generator.openai.errors import MAX_ERROR_BYTES, bad_answer, redirected, refused, unreachable
from generator.openai.reply import CONNECTION_ERRORS, Limits, Reply
from generator.ports import too_slow

# The lowest HTTP statuses of a redirect, a refusal and a server fault.
_REDIRECTED = 300
_REFUSED = 400
_SERVER_FAULT = 500
# The names of a model's context window in the lists of vLLM and SGLang, OpenRouter, Groq, and Mistral.
_WINDOW_MEMBERS = ("max_model_len", "context_length", "context_window", "max_context_length")
_MAX_CONNECTIONS = 1000
_KEEPALIVE_SECONDS = 3.0
_CHECK_SECONDS = 2.0
_CHECK_INTERVAL_SECONDS = 5.0
_MAX_NUMBER = 2**32 - 1  # the greatest context window in the gRPC message; a larger number is a mistake


class _ListedModel(NamedTuple):
    window: int
    created: int


_UNKNOWN = _ListedModel(0, 0)


class _List(msgspec.Struct):
    data: list[dict[str, Any]] = []


class ModelServer:
    """An OpenAI-compatible server.

    The class sends and reads bytes with aiohttp. With the ``openai`` package, a request would take 0.9 ms instead
    of 0.4 ms, and each chunk would take ten times as long to read. The package's HTTP client would use a sixth of
    the generator's CPU time.

    Args:
        endpoint: The address.
        limits: The time-outs and the size limit.
        gathering: Decides when to pause the streams; None: never.
    """

    def __init__(
        self, endpoint: Endpoint, limits: Limits | None = None, gathering: Gathering | None = None
    ) -> None:
        self._limits = limits or Limits()
        self._gathering = gathering
        self._endpoint = endpoint
        self._query = _revealed(endpoint.query)
        self._base_url = URL(endpoint.base_url).update_query(self._query)
        self._session: aiohttp.ClientSession | None = None
        self._urls: dict[tuple[str, bool], URL] = {}
        self._headers = {
            "accept": "application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "causeway",
        }
        self._check_lock = asyncio.Lock()
        self._checked_at = -math.inf
        self._reachable = False
        self._models: Mapping[str, _ListedModel] = {}
        self._background: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def chat(
        self, body: bytes, model: str = "", headers: Mapping[str, SecretStr] | None = None, *, plain: bool = False
    ) -> AsyncIterator[Reply]:
        """Send a chat completion request, and provide the response during the block.

        At the end of the block, close the connection if the block has not read the whole response.

        Args:
            body: The body of the request.
            model: The name of the model on the server, for paths that contain this name.
            headers: Headers in addition to the server's headers.
            plain: Send a text completion request instead.

        Raises:
            UpstreamRejected: The server responded with a status of 400 or more.
            DeadlineExceeded: The server did not connect or did not begin to answer in time.
            Unavailable: The server cannot be reached, redirects the request, or does not respond in HTTP.
        """
        self._renew_query()
        url = self._urls.get((model, plain))
        if url is None:
            url = self._urls[model, plain] = _append_path(
                self._base_url, self._endpoint.completions_path(model, plain=plain)
            )
        async with self._reply("POST", url, self._limits.first_byte, body, headers) as reply:
            yield reply

    async def reachable(self) -> bool:
        """Return whether the server passed the last check, which is at most five seconds old.

        It passes if it responds without a redirect and without a status of 500 or more.
        """
        await self._check()
        return self._reachable

    async def window(self, model: str) -> int:
        """Return the context window that the server reports for a model; 0 if unknown.

        Only the first call waits for the server. Otherwise each prompt would wait while the server is unavailable.
        """
        if model not in self._models or not self._models[model].window:
            if math.isinf(self._checked_at):
                await self._check()
            elif self._background is None or self._background.done():
                self._background = asyncio.create_task(self._check())
        return self._models.get(model, _UNKNOWN).window

    async def created(self, model: str) -> int:
        """Return the time of a model's creation that the server reports, in seconds since 1970; 0 if unknown."""
        await self._check()
        return self._models.get(model, _UNKNOWN).created

    async def aclose(self) -> None:
        """Close all connections; repeated calls do nothing."""
        if self._background is not None:
            await cancel_and_wait(self._background)
        if self._session is not None:
            await self._session.close()

    def _connections(self) -> aiohttp.ClientSession:
        # Created by the first request: aiohttp needs a running event loop.
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Many servers close a connection that was idle for five seconds. The client closes it earlier, so
                # that it never sends a request over a connection that the server is closing.
                connector=aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, keepalive_timeout=_KEEPALIVE_SECONDS),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect),
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=_proxy(self._base_url),
            )
        return self._session

    @contextlib.asynccontextmanager
    async def _reply(
        self,
        method: str,
        url: URL,
        seconds: float,
        body: bytes | None = None,
        extra_headers: Mapping[str, SecretStr] | None = None,
    ) -> AsyncIterator[Reply]:
        # Read the secrets for each request, because the files of keys may change.
        headers = dict(self._headers)
        if self._endpoint.bearer is not None:
            headers["authorization"] = f"Bearer {self._endpoint.bearer.get_secret_value()}"
        headers.update(_revealed(self._endpoint.headers))
        if extra_headers:
            headers.update(_revealed(extra_headers))
        telemetry.inject(headers)
        began_at = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                # Do not follow redirects, because the target must not get the keys.
                response = await self._connections().request(
                    method, url, data=body, headers=headers, allow_redirects=False
                )
        except aiohttp.ConnectionTimeoutError as error:
            raise unreachable(error, self._limits.connect) from error
        except TimeoutError as error:
            raise too_slow(seconds, "did not begin to answer") from error
        except aiohttp.ClientResponseError as error:
            # The original exception contains the URL and the headers, including keys.
            raise bad_answer("did not answer in HTTP") from ConnectionError(error.message)
        except CONNECTION_ERRORS as error:
            raise unreachable(error, self._limits.connect) from error
        reply = Reply(response, self._limits, seconds - (time.monotonic() - began_at), self._gathering)
        try:
            if response.status >= _REDIRECTED:
                await _refuse(response, reply)
            yield reply
        finally:
            await reply.aclose()

    def _renew_query(self) -> None:
        if self._endpoint.query and (query := _revealed(self._endpoint.query)) != self._query:
            self._query = query
            self._base_url = URL(self._endpoint.base_url).update_query(query)
            self._urls.clear()

    async def _check(self) -> None:
        async with self._check_lock:
            if time.monotonic() - self._checked_at < _CHECK_INTERVAL_SECONDS:
                return
            try:
                self._renew_query()
                url = _append_path(self._base_url, self._endpoint.models_path)
                async with self._reply("GET", url, _CHECK_SECONDS) as reply, asyncio.timeout(_CHECK_SECONDS):
                    self._models = _parse_models(await reply.read_all()) or self._models
                self._reachable = True
            except UpstreamRejected as error:
                # Some servers have no list of models.
                self._reachable = error.status < _SERVER_FAULT
            except (CausewayError, TimeoutError):
                self._reachable = False
            self._checked_at = time.monotonic()


def _append_path(base: URL, path: str) -> URL:
    # Keep the query of the base URL (Azure's api-version).
    return base.with_path(base.raw_path.rstrip("/") + path, encoded=True, keep_query=True)


def _proxy(url: URL) -> str | None:
    """Return the proxy that the environment sets for the server; aiohttp would look it up for each request."""
    if url.host is None or urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)


def _revealed(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in secrets.items()}


async def _refuse(response: aiohttp.ClientResponse, reply: Reply) -> None:
    """Raise the error for a redirect, or for a refusal with the first part of its body."""
    if response.status < _REFUSED:
        raise redirected(response.status)
    body = bytearray()
    with contextlib.suppress(Unavailable):
        while piece := await reply.read():
            body += piece
            if len(body) > MAX_ERROR_BYTES:
                break
    raise refused(response.status, response.headers, bytes(body[:MAX_ERROR_BYTES]))


def _parse_models(document: bytes) -> dict[str, _ListedModel]:
    try:
        entries = msgspec.json.decode(document, type=_List).data
    except (ValueError, RecursionError):
        return {}
    return {
        entry["id"]: _ListedModel(_first_number(entry, *_WINDOW_MEMBERS), _first_number(entry, "created"))
        for entry in entries
        if isinstance(entry.get("id"), str)
    }


def _first_number(entry: Mapping[str, Any], *members: str) -> int:
    found = (entry[name] for name in members if type(entry.get(name)) is int)
    return next((number for number in found if 0 < number <= _MAX_NUMBER), 0)
