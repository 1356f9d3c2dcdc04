"""The Model Context Protocol over standard input and output, for clients that start a program.

The bridge sends each message unchanged to the gateway's ``/mcp`` and writes the answers.
"""

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx

_VERSION = "mcp-protocol-version"
_SESSION = "mcp-session-id"
_MODERN = "io.modelcontextprotocol/protocolVersion"
_CANCELLED = "notifications/cancelled"
_INTERNAL_ERROR = -32603
_PARSE_ERROR = -32700
_MOST_AT_ONCE = 64
_TIMEOUT = httpx.Timeout(connect=5, read=None, write=60, pool=None)  # the gateway sends comments on silent streams

Message = dict[str, Any]


class Bridge:
    """Sends messages to a gateway.

    A client cancels a request with a message. The bridge then closes the request's connection, which the gateway
    understands in every generation of the protocol.

    Args:
        http: The client of the gateway.
        url: The gateway's MCP address.
        write: Writes each line for the client.
    """

    def __init__(self, http: httpx.AsyncClient, url: str, write: Callable[[str], Awaitable[None]]) -> None:
        self._http = http
        self._url = url
        self._write = write
        self._headers: dict[str, str] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)

    async def serve(self, lines: AsyncIterator[bytes]) -> None:
        """Handle messages until the input ends; then cancel the running requests."""
        tasks: set[asyncio.Task[None]] = set()
        try:
            async for line in lines:
                if not line.strip():
                    continue
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    await self._fail(None, _PARSE_ERROR, "The line is not JSON.")
                    continue
                if isinstance(message, dict) and message.get("method") == _CANCELLED:
                    self._cancel(message)
                    continue
                await self._room.acquire()
                task = asyncio.create_task(self._exchange(line, message))
                task.add_done_callback(lambda _: self._room.release())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                number = _number(message)
                if number is not None:
                    self._running[number] = task
                    task.add_done_callback(functools.partial(self._forget, number))
                if isinstance(message, dict) and message.get("method") == "initialize":
                    await asyncio.wait([task])  # later messages need the version that it negotiates
        finally:
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, number: str, _task: "asyncio.Task[None]") -> None:
        self._running.pop(number, None)

    def _cancel(self, message: Message) -> None:
        params = message.get("params")
        request_id = params.get("requestId") if isinstance(params, dict) else None
        if (task := self._running.get(json.dumps(request_id))) is not None:
            task.cancel()

    async def _exchange(self, line: bytes, message: Any) -> None:
        """Send a message and pass all its answers on."""
        answered = False
        try:
            async with self._http.stream(
                "POST", self._url, content=line.strip(), headers=self._headers_of(message)
            ) as response:
                self._learn(response)
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    async for text in _events(response):
                        answered = answered or '"result"' in text or '"error"' in text
                        self._agree(message, text)
                        await self._write(text)
                else:
                    text = (await response.aread()).decode()
                    answered = await self._hand_on(message, text, response)
        except httpx.HTTPError as error:
            if not answered and _number(message) is not None:
                answer = str(error) or type(error).__name__
                await self._fail(message["id"], _INTERNAL_ERROR, f"{self._url} does not answer: {answer}")

    async def _hand_on(self, message: Any, text: str, response: httpx.Response) -> bool:
        if not text:
            return True
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {}
        if not isinstance(answer, dict) or "jsonrpc" not in answer:
            answer = {}
        if answer.get("id") is None:
            # An error from before the message was read: the client waits for one with the request's id.
            if _number(message) is None:
                return True
            words = (
                answer.get("error", {}).get("message") or f"The gateway answers with status {response.status_code}."
            )
            await self._fail(message["id"], answer.get("error", {}).get("code", _INTERNAL_ERROR), words)
            return True
        self._agree(message, text)
        await self._write(text)
        return True

    def _headers_of(self, message: Any) -> dict[str, str]:
        headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            **self._headers,
        }
        params = message.get("params") if isinstance(message, dict) else None
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        if isinstance(meta, dict) and isinstance(version := meta.get(_MODERN), str):
            headers |= {_VERSION: version, "mcp-method": str(message.get("method"))}
            name = params.get("name", params.get("uri"))
            if isinstance(name, str):
                headers["mcp-name"] = name
        return {name: value for name, value in headers.items() if value.isascii() and value.isprintable()}

    def _learn(self, response: httpx.Response) -> None:
        if session := response.headers.get(_SESSION):
            self._headers[_SESSION] = session

    def _agree(self, message: Any, text: str) -> None:
        """Store the version that a handshake negotiated."""
        if isinstance(message, dict) and message.get("method") == "initialize":
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self._headers[_VERSION] = str(json.loads(text)["result"]["protocolVersion"])

    async def _fail(self, number: Any, code: int, words: str) -> None:
        error = {"code": code, "message": words}
        await self._write(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}))


async def _events(response: httpx.Response) -> AsyncIterator[str]:
    """Yield the data of each server-sent event."""
    data: list[str] = []
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []


def _number(message: Any) -> str | None:
    """Return the id of a request; None for a message without an answer."""
    if not isinstance(message, dict) or "method" not in message or message.get("id") is None:
        return None
    return json.dumps(message["id"])


def bridge_client(api_key: str, host: str) -> httpx.AsyncClient:
    """Return the client of a gateway.

    Args:
        api_key: Sent with every message; empty: no key.
        host: The gateway's host.
    """
    return httpx.AsyncClient(
        timeout=_TIMEOUT,
        headers={"authorization": f"Bearer {api_key}"} if api_key else None,
        # The environment's proxy is for other hosts, not for this machine.
        trust_env=host not in {"127.0.0.1", "::1", "localhost"},
        limits=httpx.Limits(max_connections=_MOST_AT_ONCE),
    )
