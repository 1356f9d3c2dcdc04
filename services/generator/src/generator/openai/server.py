"""The connection to one model server: requests out, failures told apart, nothing left open."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import msgspec
import openai
from pydantic import SecretStr
from servicekit import telemetry
from servicekit.errors import CausewayError, UpstreamRejected

from generator.openai.errors import MOST_ERROR_BYTES, refused, too_slow, unreachable
from generator.openai.reply import CONNECTION_ERRORS, Limits, Reply

_REFUSED = 400
_SERVER_FAULT = 500
# Servers name a model's window in their list of models differently: vLLM and SGLang, OpenRouter, Groq, Mistral.
_WINDOW_MEMBERS = ("max_model_len", "context_length", "context_window", "max_context_length")
# Headers that tell the package's makers about the machine it runs on.
_STATISTICS = "X-Stainless-"
_MOST_CONNECTIONS = 1000
_KEEP_SECONDS = 3.0
_LOOK_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 5.0


class _List(msgspec.Struct):
    data: list[dict[str, Any]] = []


class ModelServer:
    """A server that speaks the OpenAI API, through the ``openai`` package.

    The package gives address, credentials and connections. Requests go out on its HTTP client as the bytes they
    are, and answers come in as bytes: its own way of making a request takes longer than all the rest of one (0.5 ms
    more than 0.4), and its typed chunks ten times as long. It must be made in a running event loop.

    Args:
        base_url: With its version, for example ``http://127.0.0.1:8000/v1``.
        api_key: None where the server wants none.
    """

    def __init__(self, base_url: str, api_key: SecretStr | None = None, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        timeout = httpx2.Timeout(None, connect=self._limits.connect)
        self._timeout = timeout.as_dict()
        self._http = openai.DefaultAioHttpClient(
            timeout=timeout,
            # Many servers close a connection that was idle for five seconds. Ours goes first, so that no request is
            # written into one that is being closed.
            limits=httpx2.Limits(max_connections=_MOST_CONNECTIONS, keepalive_expiry=_KEEP_SECONDS),
            event_hooks={"response": [_refuse]},
        )
        client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key="unused" if api_key is None else api_key.get_secret_value(),
            http_client=self._http,
        )
        self._chat_url = _below(client.base_url, "/chat/completions")
        self._models_url = _below(client.base_url, "/models")
        self._headers = {
            "Accept-Encoding": "identity",
            **{
                name: value
                for name, value in client.default_headers.items()
                if isinstance(value, str) and not name.startswith(_STATISTICS)
            },
            **({} if api_key is None else client.auth_headers),
        }
        self._looking = asyncio.Lock()
        self._looked_at = -math.inf
        self._reachable = False
        self._windows: Mapping[str, int] = {}

    @contextlib.asynccontextmanager
    async def chat(self, body: bytes) -> AsyncIterator[Reply]:
        """Posts a chat completion request; a reply that was not read to its end is closed with its connection.

        Raises:
            UpstreamRejected: The server refused.
            DeadlineExceeded: It did not connect, or not begin to answer, in time.
            Unavailable: It cannot be reached.
        """
        async with self._asked("POST", self._chat_url, self._limits.first_byte, body) as reply:
            yield reply

    async def reachable(self) -> bool:
        """It answered when it was last looked at, at most a few seconds ago."""
        await self._look()
        return self._reachable

    async def window(self, model: str) -> int:
        """The context window that it names for a model; 0 where it names none, or has not been reached."""
        if model not in self._windows:
            await self._look()
        return self._windows.get(model, 0)

    async def aclose(self) -> None:
        """Closes its connections; once more does no harm."""
        await self._http.aclose()

    @contextlib.asynccontextmanager
    async def _asked(
        self, method: str, url: httpx2.URL, patience: float, body: bytes | None = None
    ) -> AsyncIterator[Reply]:
        headers = dict(self._headers)
        telemetry.inject(headers)
        request = httpx2.Request(method, url, headers=headers, content=body, extensions={"timeout": self._timeout})
        try:
            async with asyncio.timeout(patience):
                response = await self._http.send(request, stream=True)
        except TimeoutError as error:
            raise too_slow(patience, "did not begin to answer") from error
        except CONNECTION_ERRORS as error:
            raise unreachable(error, self._limits.connect) from error
        try:
            yield Reply(response, self._limits)
        finally:
            await response.aclose()

    async def _look(self) -> None:
        async with self._looking:
            if time.monotonic() - self._looked_at < _LOOK_AGAIN_SECONDS:
                return
            try:
                async with self._asked("GET", self._models_url, _LOOK_SECONDS) as reply:
                    self._windows = _windows(await reply.whole()) or self._windows
                self._reachable = True
            except UpstreamRejected as error:
                # A server without this list is there all the same.
                self._reachable = error.status < _SERVER_FAULT
            except CausewayError:
                self._reachable = False
            self._looked_at = time.monotonic()


def _below(base: httpx2.URL, path: str) -> httpx2.URL:
    # A query of the base URL (Azure's api-version) stays.
    return base.copy_with(path=base.path.rstrip("/") + path)


async def _refuse(response: httpx2.Response) -> None:
    """Turns a refusal into our error, with as much of its body as can be meant to be read."""
    if response.status_code < _REFUSED:
        return
    body = bytearray()
    with contextlib.suppress(*CONNECTION_ERRORS):
        async with contextlib.aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > MOST_ERROR_BYTES:
                    break
    raise refused(response.status_code, response.headers, bytes(body[:MOST_ERROR_BYTES]))


def _windows(document: bytes) -> dict[str, int]:
    try:
        entries = msgspec.json.decode(document, type=_List).data
    except msgspec.DecodeError:
        return {}
    windows = {}
    for entry in entries:
        sizes = [entry[name] for name in _WINDOW_MEMBERS if isinstance(entry.get(name), int)]
        if isinstance(entry.get("id"), str) and sizes:
            windows[entry["id"]] = sizes[0]
    return windows
