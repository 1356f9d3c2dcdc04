"""The connection to one model server: requests out, failures told apart, nothing left open."""

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
from servicekit.tasks import ended
from yarl import URL

from generator.gathering import Gathering
from generator.openai.endpoint import Endpoint
from generator.openai.errors import MOST_ERROR_BYTES, elsewhere, ended_early, refused, too_slow, unreachable
from generator.openai.reply import CONNECTION_ERRORS, Limits, Reply

_ELSEWHERE = 300
_REFUSED = 400
_SERVER_FAULT = 500
# Servers name a model's window in their list of models differently: vLLM and SGLang, OpenRouter, Groq, Mistral.
_WINDOW_MEMBERS = ("max_model_len", "context_length", "context_window", "max_context_length")
_MOST_CONNECTIONS = 1000
_KEEP_SECONDS = 3.0
_LOOK_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 5.0
_MOST_NUMBER = 2**32 - 1


class _Listed(NamedTuple):
    window: int
    created: int


_UNKNOWN = _Listed(0, 0)


class _List(msgspec.Struct):
    data: list[dict[str, Any]] = []


class ModelServer:
    """A server that speaks the OpenAI API.

    Requests go out and answers come in as the bytes they are, over aiohttp: the ``openai`` package's own way of
    making a request takes longer than all the rest of one (0.5 ms more than 0.4), its typed chunks ten times as
    long, and its HTTP client between us and aiohttp a sixth of the generator's time.

    Args:
        endpoint: Where it is.
        limits: How long to wait for it, how much to take from it.
        gathering: When its streams are left unread; None: never.
    """

    def __init__(
        self, endpoint: Endpoint, limits: Limits | None = None, gathering: Gathering | None = None
    ) -> None:
        self._limits = limits or Limits()
        self._gathering = gathering
        self._endpoint = endpoint
        self._query = _plain(endpoint.query)
        self._base_url = URL(endpoint.base_url).update_query(self._query)
        self._session: aiohttp.ClientSession | None = None
        self._urls: dict[tuple[str, bool], URL] = {}
        self._headers = {
            "accept": "application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "causeway",
        }
        self._looking = asyncio.Lock()
        self._looked_at = -math.inf
        self._reachable = False
        self._models: Mapping[str, _Listed] = {}
        self._background: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def chat(
        self, body: bytes, model: str = "", headers: Mapping[str, SecretStr] | None = None, *, plain: bool = False
    ) -> AsyncIterator[Reply]:
        """Posts a chat completion request; a reply that was not read to its end is closed with its connection.

        Args:
            body: The request.
            model: The server's name of the model, for those that want it in the path.
            headers: Sent besides the server's.
            plain: It is a text completion request instead.

        Raises:
            UpstreamRejected: The server refused.
            DeadlineExceeded: It did not connect, or not begin to answer, in time.
            Unavailable: It cannot be reached.
        """
        self._renew_query()
        url = self._urls.get((model, plain))
        if url is None:
            url = self._urls[model, plain] = _below(self._base_url, self._endpoint.answers(model, plain=plain))
        async with self._asked("POST", url, self._limits.first_byte, body, headers) as reply:
            yield reply

    async def reachable(self) -> bool:
        """It answered when it was last looked at, at most a few seconds ago."""
        await self._look()
        return self._reachable

    async def window(self, model: str) -> int:
        """The context window that it names for a model; 0 where it names none, or has not been reached.

        Only the very first call waits for the server: later ones would hold up every prompt while it is away.
        """
        if model not in self._models or not self._models[model].window:
            if math.isinf(self._looked_at):
                await self._look()
            elif self._background is None or self._background.done():
                self._background = asyncio.create_task(self._look())
        return self._models.get(model, _UNKNOWN).window

    async def created(self, model: str) -> int:
        """When it says that a model was created, in seconds since 1970; 0 where it does not, or was not reached."""
        await self._look()
        return self._models.get(model, _UNKNOWN).created

    async def aclose(self) -> None:
        """Closes its connections; once more does no harm."""
        if self._background is not None:
            await ended(self._background)
        if self._session is not None:
            await self._session.close()

    def _connections(self) -> aiohttp.ClientSession:
        # Made with the first request: aiohttp wants a running event loop.
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Many servers close a connection that was idle for five seconds. Ours goes first, so that no
                # request is written into one that is being closed.
                connector=aiohttp.TCPConnector(limit=_MOST_CONNECTIONS, keepalive_timeout=_KEEP_SECONDS),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect),
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=_proxy(self._base_url),
            )
        return self._session

    @contextlib.asynccontextmanager
    async def _asked(
        self,
        method: str,
        url: URL,
        patience: float,
        body: bytes | None = None,
        extra: Mapping[str, SecretStr] | None = None,
    ) -> AsyncIterator[Reply]:
        # Secrets are asked for their values with each request: files of keys are renewed.
        headers = dict(self._headers)
        if self._endpoint.bearer is not None:
            headers["authorization"] = f"Bearer {self._endpoint.bearer.get_secret_value()}"
        headers.update(_plain(self._endpoint.headers))
        if extra:
            headers.update(_plain(extra))
        telemetry.inject(headers)
        began_at = time.monotonic()
        try:
            async with asyncio.timeout(patience):
                # Not followed: our keys were not given for where a redirection leads.
                response = await self._connections().request(
                    method, url, data=body, headers=headers, allow_redirects=False
                )
        except aiohttp.ConnectionTimeoutError as error:
            raise unreachable(error, self._limits.connect) from error
        except TimeoutError as error:
            raise too_slow(patience, "did not begin to answer") from error
        except aiohttp.ClientResponseError as error:
            # Its own words tell URL and headers, keys included.
            raise ended_early("did not answer in HTTP") from ConnectionError(error.message)
        except CONNECTION_ERRORS as error:
            raise unreachable(error, self._limits.connect) from error
        reply = Reply(response, self._limits, patience - (time.monotonic() - began_at), self._gathering)
        try:
            if response.status >= _ELSEWHERE:
                await _refuse(response, reply)
            yield reply
        finally:
            await reply.aclose()

    def _renew_query(self) -> None:
        if self._endpoint.query and (query := _plain(self._endpoint.query)) != self._query:
            self._query = query
            self._base_url = URL(self._endpoint.base_url).update_query(query)
            self._urls.clear()

    async def _look(self) -> None:
        async with self._looking:
            if time.monotonic() - self._looked_at < _LOOK_AGAIN_SECONDS:
                return
            try:
                self._renew_query()
                url = _below(self._base_url, self._endpoint.models_path)
                async with self._asked("GET", url, _LOOK_SECONDS) as reply:
                    self._models = _listed(await reply.whole()) or self._models
                self._reachable = True
            except UpstreamRejected as error:
                # A server without this list is there all the same.
                self._reachable = error.status < _SERVER_FAULT
            except CausewayError:
                self._reachable = False
            self._looked_at = time.monotonic()


def _below(base: URL, path: str) -> URL:
    # A query of the base URL (Azure's api-version) stays.
    return base.with_path(base.raw_path.rstrip("/") + path, encoded=True, keep_query=True)


def _proxy(url: URL) -> str | None:
    """What the environment names for the server, looked up once: aiohttp itself would do it for each request."""
    if url.host is None or urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)


def _plain(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in secrets.items()}


async def _refuse(response: aiohttp.ClientResponse, reply: Reply) -> None:
    """Turns a refusal into our error, with as much of its body as can be meant to be read."""
    if response.status < _REFUSED:
        raise elsewhere(response.status)
    body = bytearray()
    with contextlib.suppress(Unavailable):
        while piece := await reply.read():
            body += piece
            if len(body) > MOST_ERROR_BYTES:
                break
    raise refused(response.status, response.headers, bytes(body[:MOST_ERROR_BYTES]))


def _listed(document: bytes) -> dict[str, _Listed]:
    try:
        entries = msgspec.json.decode(document, type=_List).data
    except (ValueError, RecursionError):
        return {}
    return {
        entry["id"]: _Listed(_number(entry, *_WINDOW_MEMBERS), _number(entry, "created"))
        for entry in entries
        if isinstance(entry.get("id"), str)
    }


def _number(entry: Mapping[str, Any], *members: str) -> int:
    found = (entry[name] for name in members if type(entry.get(name)) is int)
    return next((number for number in found if 0 < number <= _MOST_NUMBER), 0)
