"""A proxy never reuses a connection that the gateway is closing."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
import pytest_asyncio

pytestmark = pytest.mark.asyncio(loop_scope="session")

SWEEP = [0.6 + 0.05 * number for number in range(30)]
"""Seconds; the proxy closes an idle connection after 1 s here, and the gateway after 1.5 s."""
EDGE = [1.5 + 0.0005 * (number - 15) for number in range(30)]
"""Seconds, around the time at which the gateway closes the connections that the proxy keeps open."""
# Shorter limits for the proxies, because the limit of the gateway is 1.5 s here instead of 75 s.
LIMITS = {
    "nginx": ("keepalive_timeout 60s", "keepalive_timeout 1s"),
    "HAProxy": ("pool-purge-delay 5s", "pool-purge-delay 100ms"),
    "Caddy": ("keepalive 60s", "keepalive 1s"),
    "Envoy": ("idle_timeout: 60s}", "idle_timeout: 1s}"),
}


async def statuses(platform: Any, start_proxy: Any, proxy: str) -> list[int]:
    """Return the statuses of requests through a proxy after pauses that are shorter and longer than the limits."""
    body = {"messages": [{"role": "user", "content": "When is high water?"}]}

    async def ask(pause: float) -> int:
        await asyncio.sleep(pause)
        answer = await http.post("/v1/chat/completions", json=body, headers=platform.headers("north"))
        return answer.status_code

    limits = httpx.Limits(max_connections=len(SWEEP), max_keepalive_connections=len(SWEEP))
    found: list[int] = []
    async with (
        start_proxy(proxy, LIMITS[proxy]) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, limits=limits) as http,
    ):
        for pauses in ([0.0] * len(SWEEP), SWEEP, SWEEP, EDGE, EDGE, EDGE, EDGE):
            found += await asyncio.gather(*map(ask, pauses))
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def checks(platform: Any, start_proxy: Any) -> AsyncIterator[Mapping[str, asyncio.Task[list[int]]]]:
    """Check all proxies at the same time, because a check mostly waits. Return the check of each proxy."""
    tasks = {name: asyncio.create_task(statuses(platform, start_proxy, name)) for name in LIMITS}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def test_pauses_around_the_idle_limit(checks: Mapping[str, asyncio.Task[list[int]]], proxy: str) -> None:
    """POST requests, which proxies may not retry, succeed after all pauses."""
    assert await checks[proxy] == [200] * (7 * len(SWEEP))
