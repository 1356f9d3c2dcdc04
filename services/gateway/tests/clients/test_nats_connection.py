"""Lost and full stores of NATS, and the end of the connection.

test_ingest.py, test_jobs.py and others test the start of the connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from causeway_testing.servers import eventually, free_ports, nats_server
from gateway.clients import nats_resource
from gateway.clients.nats_connection import NatsLink
from nats.js.errors import NotFoundError
from servicekit import keys, response_keys
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable

TOO_LARGE = 10**15
STREAMS = (
    f"KV_{keys.MEMORY_BUCKET}",
    f"KV_{response_keys.RESPONSES_BUCKET}",
    f"OBJ_{response_keys.LARGE_RESPONSES_BUCKET}",
    response_keys.RESPONSE_LOG_STREAM,
    response_keys.RESPONSE_JOB_STREAM,
)


async def use_all(link: NatsLink) -> None:
    """Use each stream and bucket that is created on first use."""
    for use in (link.memory, link.responses, link.large_responses, link.response_log, link.response_jobs):
        await use()


async def test_lost_streams_are_created_again(link: NatsLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream or bucket that NATS has lost is created again. The gateway does not check this at each use."""
    await use_all(link)
    jetstream = (await link.client()).jetstream()
    for stream in STREAMS:
        await jetstream.delete_stream(stream)
    await use_all(link)
    for stream in STREAMS:
        with pytest.raises(NotFoundError):
            await jetstream.stream_info(stream)
    monkeypatch.setattr(nats_resource, "_CHECK_SECONDS", 0.0)
    await use_all(link)
    for stream in STREAMS:
        await jetstream.stream_info(stream)


async def test_a_server_without_its_data_gets_new_streams(
    tmp_path: Path, ready: Callable[[NatsLink], Awaitable[None]]
) -> None:
    """If NATS returns without its data, the gateway creates the streams and buckets of its start again."""
    [port] = free_ports(1)
    async with NatsLink(f"nats://127.0.0.1:{port}", retry=0.05) as link, asyncio.timeout(60):
        async with nats_server(tmp_path / "before", port):
            await ready(link)
            epoch = (await link.ingest()).epoch
        await asyncio.sleep(1)  # the epoch has a resolution of one second
        async with nats_server(tmp_path / "after", port):
            await eventually(lambda: link._ingest is not None and link._ingest.epoch != epoch)
            await (await link.history()).put("head", b"x")


async def test_a_full_server_is_reported_as_full(url: str, ready: Callable[[NatsLink], Awaitable[None]]) -> None:
    """If NATS has no space for a stream, errors say so and name the setting, at the start and on first use.

    Streams that fit can be used.
    """
    async with NatsLink(url, retry=0.05, response_bytes=TOO_LARGE) as link:
        await ready(link)
        for use in (link.responses, link.large_responses):
            with pytest.raises(Unavailable, match=r"cannot be created.*no space.*CAUSEWAY_RESPONSE_BYTES"):
                await use()
    async with NatsLink(url, retry=0.05, usage_bytes=TOO_LARGE) as link, asyncio.timeout(60):
        await eventually(lambda: link._problem != "")
        with pytest.raises(Unavailable, match=r"ingest queue cannot be used.*no space.*CAUSEWAY_USAGE_BYTES"):
            await link.ingest()
        await link.response_jobs()
        assert "CAUSEWAY_USAGE_BYTES" in (await link.problem(Deadline.after(5)) or "")


async def test_the_link_closes_if_the_client_loses_a_cancellation(tmp_path: Path) -> None:
    """The link closes even if a task of the client ignores a cancellation."""

    async def reconnecting() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(600)

    async with nats_server(tmp_path) as url, asyncio.timeout(60):
        async with NatsLink(url, retry=0.05) as link:
            await eventually(lambda: link._ingest is not None)
            assert link._client is not None
            task = link._client._reconnection_task = asyncio.create_task(reconnecting())
            await asyncio.sleep(0.01)
        assert task.done()
