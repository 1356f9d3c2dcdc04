"""A bridge from MCP clients that use standard input and output to the ``/mcp`` route of a gateway.

The bridge sends each message of the client (Model Context Protocol) unchanged to the gateway, and writes the
responses.
"""

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx

_VERSION_HEADER = "mcp-protocol-version"
_SESSION_HEADER = "mcp-session-id"
_VERSION_META_KEY = "io.modelcontextprotocol/protocolVersion"
_CANCELLED_METHOD = "notifications/cancelled"
_INTERNAL_ERROR = -32603
_PARSE_ERROR = -32700
_MAX_CONCURRENT_REQUESTS = 64
_TIMEOUT = httpx.Timeout(connect=5, read=None, write=60, pool=None)  # the gateway sends comments on silent streams

Message = dict[str, Any]


class Bridge:
    """Forwards messages to a gateway.

    A client cancels a request with a message. The bridge then closes the connection of the request. The gateway
    treats a closed connection as a cancellation in every version of the protocol.

    Args:
        http: The HTTP client for the gateway.
        url: The gateway's MCP address.
        write: Writes a line to the MCP client.
    """

    def __init__(self, http: httpx.AsyncClient, url: str, write: Callable[[str], Awaitable[None]]) -> None:
        self._http = http
        self._url = url
        self._write = write
        self._headers: dict[str, str] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)

    async def serve(self, lines: AsyncIterator[bytes]) -> None:
        """Handle messages until the input ends; then cancel the running requests.

        Args:
            lines: The lines of the MCP client, each with one message.
        """
        tasks: set[asyncio.Task[None]] = set()
        try:
            async for line in lines:
                if not line.strip():
                    continue
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    await self._write_error(None, _PARSE_ERROR, "The line is not JSON.")
                    continue
                if isinstance(message, dict) and message.get("method") == _CANCELLED_METHOD:
                    self._cancel(message)
                    continue
                await self._slots.acquire()
                task = asyncio.create_task(self._exchange(line, message))
                task.add_done_callback(lambda _: self._slots.release())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                key = _request_key(message)
                if key is not None:
                    self._running[key] = task
                    task.add_done_callback(functools.partial(self._remove, key))
                if isinstance(message, dict) and message.get("method") == "initialize":
                    await asyncio.wait([task])  # later messages need the negotiated version
        finally:
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _remove(self, key: str, task: "asyncio.Task[None]") -> None:
        if self._running.get(key) is task:  # a later request may have the same id
            del self._running[key]

    def _cancel(self, message: Message) -> None:
        params = message.get("params")
        request_id = params.get("requestId") if isinstance(params, dict) else None
        if (task := self._running.get(json.dumps(request_id))) is not None:
            task.cancel()

    async def _exchange(self, line: bytes, message: Any) -> None:
        """Forward a message and write its responses."""
        answered = False
        try:
            async with self._http.stream(
                "POST", self._url, content=line.strip(), headers=self._request_headers(message)
            ) as response:
                self._store_session(response)
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    async for text in _events(response):
                        answered = answered or _is_response(text, message)
                        self._store_version(message, text)
                        await self._write(text)
                else:
                    await response.aread()
                    await self._write_response(message, response.text, response)
                    answered = True
            if not answered and _request_key(message) is not None:
                await self._write_error(
                    message["id"], _INTERNAL_ERROR, f"{self._url} ended the stream without a result."
                )
        except httpx.HTTPError as error:
            if not answered and _request_key(message) is not None:
                cause = str(error) or type(error).__name__
                await self._write_error(message["id"], _INTERNAL_ERROR, f"{self._url} does not answer: {cause}")

    async def _write_response(self, message: Any, text: str, response: httpx.Response) -> None:
        """Write the response of a message that the gateway sent in one piece.

        An error without an id gets the id of the request. For a request, a response that is not JSON-RPC becomes an
        error with the HTTP status. For a notification, the bridge writes only a response with an id.
        """
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = {}
        if not isinstance(answer, dict) or "jsonrpc" not in answer:
            answer = {}
        if answer.get("id") is not None:
            self._store_version(message, text)
            await self._write(text)
        elif _request_key(message) is not None:
            error = answer.get("error")
            error = error if isinstance(error, dict) else {}
            reason = error.get("message") or f"The gateway answers with status {response.status_code}."
            await self._write_error(message["id"], error.get("code", _INTERNAL_ERROR), reason)

    def _request_headers(self, message: Any) -> dict[str, str]:
        headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            **self._headers,
        }
        params = message.get("params") if isinstance(message, dict) else None
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        if isinstance(meta, dict) and isinstance(version := meta.get(_VERSION_META_KEY), str):
            headers |= {_VERSION_HEADER: version, "mcp-method": str(message.get("method"))}
            name = params.get("name", params.get("uri"))
            if isinstance(name, str):
                headers["mcp-name"] = name
        return {name: value for name, value in headers.items() if value.isascii() and value.isprintable()}

    def _store_session(self, response: httpx.Response) -> None:
        if session := response.headers.get(_SESSION_HEADER):
            self._headers[_SESSION_HEADER] = session

    def _store_version(self, message: Any, text: str) -> None:
        """Store the protocol version of the response to ``initialize``."""
        if isinstance(message, dict) and message.get("method") == "initialize":
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                self._headers[_VERSION_HEADER] = str(json.loads(text)["result"]["protocolVersion"])

    async def _write_error(self, request_id: Any, code: int, reason: str) -> None:
        error = {"code": code, "message": reason}
        await self._write(json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}))


async def _events(response: httpx.Response) -> AsyncIterator[str]:
    """Yield the data of each server-sent event."""
    data: list[str] = []
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []


def _request_key(message: Any) -> str | None:
    """Return the id of a request as JSON; None for a message without a response."""
    if not isinstance(message, dict) or "method" not in message or message.get("id") is None:
        return None
    return json.dumps(message["id"])


def _is_response(text: str, request: Any) -> bool:
    """Return whether an event is the response of a request: a result or an error with the request's id."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(event, dict)
        and "method" not in event
        and ("result" in event or "error" in event)
        and isinstance(request, dict)
        and event.get("id") == request.get("id")
    )


def bridge_client(api_key: str, host: str) -> httpx.AsyncClient:
    """Return an HTTP client for the requests to a gateway.

    Args:
        api_key: The API key for every request; empty: no key.
        host: The gateway's host.
    """
    return httpx.AsyncClient(
        timeout=_TIMEOUT,
        headers={"authorization": f"Bearer {api_key}"} if api_key else None,
        # Requests to this machine do not use a proxy from the environment.
        trust_env=host not in {"127.0.0.1", "::1", "localhost"},
        limits=httpx.Limits(max_connections=_MAX_CONCURRENT_REQUESTS),
    )
