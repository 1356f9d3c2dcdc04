import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.servers import eventually, free_ports
from nats.aio.client import DEFAULT_FLUSH_TIMEOUT, Client
from servicekit import nats_client
from servicekit.broker import Broker
from servicekit.nats import connect
from servicekit.tasks import cancel_and_wait


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Client]]:
    """Return a server's process and a connection to it."""
    (port,) = free_ports(1)
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*Broker(tmp_path, port).command(), stdout=quiet, stderr=quiet)
    await eventually(lambda: any(tmp_path.glob("*.ports")), what="the server")
    client = await connect(f"nats://127.0.0.1:{port}", "test", connect_timeout=10)
    yield process, client
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def test_buffered_messages_are_sent(server: tuple[asyncio.subprocess.Process, Client], log: Any) -> None:
    """A closed connection has sent the published messages, and logs nothing."""
    _, client = server
    assert client.connected_url is not None
    async with await connect(client.connected_url.geturl(), "test") as other:
        subscription = await other.subscribe("a")
        await other.flush()
        await client.publish("a", b"last words")
        await client.close()
        assert (await subscription.next_msg(timeout=10)).data == b"last words"
    assert client.is_closed
    assert log == []


async def test_a_frozen_server_blocks_no_caller(
    server: tuple[asyncio.subprocess.Process, Client], log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing does not wait for a frozen server, with any amount of unsent data. It ends at its own time limit, and
    not at that of the library.
    """
    monkeypatch.setattr(nats_client, "_FLUSH_SECONDS", 0.2)
    monkeypatch.setattr(nats_client, "_CLOSE_SECONDS", 0.4)
    process, client = server
    process.send_signal(signal.SIGSTOP)

    async def publish() -> None:
        while True:
            await client.publish("a", b"x" * 500_000)

    publishing = asyncio.create_task(publish())
    await asyncio.sleep(0.5)  # the buffers on the way are full
    begin = time.monotonic()
    await asyncio.wait_for(client.close(), 60)
    assert time.monotonic() - begin < DEFAULT_FLUSH_TIMEOUT
    await cancel_and_wait(publishing)
    assert client.is_closed
    assert [entry["event"] for entry in log] == ["messages to nats may be lost"]


async def test_closing_ends_the_task_that_reconnects(server: tuple[asyncio.subprocess.Process, Client]) -> None:
    """Closing also ends an attempt to reconnect that has lost a cancellation, so that the process can end."""
    _, client = server

    async def reconnecting() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(600)

    task = client._reconnection_task = asyncio.create_task(reconnecting())
    await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        await client.close()
    assert task.done()


async def test_closing_does_not_wait_for_a_task_that_ignores_cancellation(
    server: tuple[asyncio.subprocess.Process, Client], log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing ends at its time limit, even if an attempt to reconnect loses every cancellation."""
    monkeypatch.setattr(nats_client, "_CLOSE_SECONDS", 0.5)
    _, client = server
    released = asyncio.Event()

    async def reconnecting() -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    task = client._reconnection_task = asyncio.create_task(reconnecting())
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(client.close())
    await asyncio.wait([closing], timeout=60)
    in_time, still_reconnecting = closing.done(), not task.done()
    released.set()
    await asyncio.gather(closing, task)
    assert (in_time, still_reconnecting, client.is_closed) == (True, True, True)
    assert log[-1]["event"] == "the attempt to reconnect to nats has not ended"


async def test_a_server_that_has_died_is_no_error(
    server: tuple[asyncio.subprocess.Process, Client],
) -> None:
    """Messages that can no longer be sent do not end the process with an error."""
    process, client = server
    process.kill()
    await process.wait()
    await eventually(lambda: not client.is_connected, what="the loss")
    await client.publish("a", b"x" * 100_000)
    await client.close()
    assert client.is_closed
