"""Two gateways behind a proxy that alternates between them serve clients of both protocol versions."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import httpx
import mcp_types as types
import pytest
from causeway_testing.servers import eventually
from gateway.main import build_app
from gateway.server.running_calls import RunningCalls
from gateway.settings import Settings
from mcp import Client
from mcp.shared.exceptions import MCPError
from starlette.types import ASGIApp, Receive, Scope, Send

VERSIONS = pytest.mark.parametrize("mode", ["legacy", "auto"])


@pytest.fixture
async def url(fakes: Any, settings: Settings, serve: Callable[[ASGIApp], int]) -> str:
    """Return the URL of the proxy."""
    calls = RunningCalls(), RunningCalls()

    async def notify_both(name: str) -> None:
        for running_calls in calls:
            running_calls.cancel_here(name)

    for running_calls in calls:
        running_calls.notify = notify_both
    apps = itertools.cycle(
        [build_app(settings, replace(fakes.services(), calls=running_calls)) for running_calls in calls]
    )

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        await next(apps)(scope, receive, send)

    return f"http://127.0.0.1:{serve(proxy)}/mcp"


@VERSIONS
async def test_each_request_may_reach_another_gateway(url: str, mode: Any) -> None:
    """Calls of a session succeed on alternating gateways, because no gateway keeps state between requests."""
    async with Client(url, mode=mode) as client:
        for _ in range(3):
            found = await client.call_tool("search", {"query": "bridge"})
            assert len(found.structured_content["results"]) == 2
            assert len((await client.list_tools()).tools) == 4


@VERSIONS
@pytest.mark.parametrize("begun", [False, True])
async def test_a_call_is_cancelled_on_either_gateway(url: str, fakes: Any, mode: Any, begun: bool) -> None:
    """A cancelled call stops its model on either gateway, and the client's next call succeeds."""
    fakes.generator.gate = asyncio.Event()
    progress_received = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        progress_received.set()

    async with Client(url, mode=mode) as client:
        with anyio.CancelScope() as scope:

            async def cancel_call() -> None:
                await (progress_received.wait() if begun else eventually(lambda: bool(fakes.generator.prompts)))
                scope.cancel()

            cancelling = asyncio.create_task(cancel_call())
            await client.call_tool("ask", {"question": "When?"}, progress_callback=on_progress if begun else None)
        assert scope.cancelled_caught
        await cancelling
        await eventually(lambda: fakes.generator.closed == 1)
        fakes.generator.gate.set()
        answer = await client.call_tool("ask", {"question": "When?"})
        assert answer.structured_content["answer"] == "At nine."


@VERSIONS
async def test_the_time_out_of_a_client_stops_the_model(url: str, fakes: Any, mode: Any) -> None:
    """The model stops when the call of a client times out."""
    fakes.generator.gate = asyncio.Event()
    async with Client(url, mode=mode) as client:
        with pytest.raises(MCPError):
            await client.call_tool("ask", {"question": "When?"}, read_timeout_seconds=0.2)
        await eventually(lambda: fakes.generator.closed == 1)


async def test_a_cancellation_of_an_ended_call_is_accepted(fakes: Any, settings: Settings) -> None:
    """A gateway that hears of its own cancellation does not cancel the message with the cancellation."""
    running_calls = RunningCalls()
    cancelled: list[str] = []

    async def notify(name: str) -> None:
        cancelled.append(name)
        asyncio.get_running_loop().call_soon(running_calls.cancel_here, name)

    running_calls.notify = notify
    app = build_app(settings, replace(fakes.services(), calls=running_calls))
    headers = {"accept": "application/json, text/event-stream", "mcp-session-id": "s"}
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        response = await client.post("/mcp", json=message, headers=headers)
    assert (response.status_code, response.text) == (202, "")
    assert len(cancelled) == 1


async def test_another_session_cannot_cancel_a_call(url: str, fakes: Any) -> None:
    """A cancellation of another session with the same request id does not stop the call."""
    fakes.generator.gate = asyncio.Event()
    async with Client(url, mode="legacy") as one, Client(url, mode="legacy") as two:
        calling = asyncio.create_task(one.call_tool("ask", {"question": "When?"}))
        await eventually(lambda: bool(fakes.generator.prompts))
        for number in range(20):
            params = types.CancelledNotificationParams(request_id=number)
            await two.session.send_notification(types.CancelledNotification(params=params))
        await two.list_tools()
        assert fakes.generator.closed == 0
        fakes.generator.gate.set()
        assert (await calling).structured_content["answer"] == "At nine."
