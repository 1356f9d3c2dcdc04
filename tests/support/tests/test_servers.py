import asyncio
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from causeway_testing.servers import eventually, free_ports, nats_server


async def test_each_server_has_its_own_port_and_ends_with_its_block(tmp_path: Path) -> None:
    """Two servers run concurrently, and end with their blocks."""
    async with nats_server(tmp_path / "a") as one, nats_server(tmp_path / "b") as other:
        ports = [urlsplit(url).port for url in (one, other)]
        assert len(set(ports)) == 2
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_a_server_that_cannot_start_raises_an_error_at_once(tmp_path: Path) -> None:
    """A port in use causes an error at once."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(RuntimeError, match="nats-server ended"):
            async with nats_server(tmp_path, listener.getsockname()[1]):
                pass


async def test_a_server_ends_with_a_failing_test(tmp_path: Path) -> None:
    """A failure inside the block ends the server."""
    with pytest.raises(ZeroDivisionError):
        async with nats_server(tmp_path) as url:
            raise ZeroDivisionError
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", urlsplit(url).port)


def test_free_ports_are_different_and_free() -> None:
    """The ports differ, and each can be listened on."""
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


async def test_eventually_waits_until_it_holds() -> None:
    """The function returns soon after the condition holds."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, done.set)
    await eventually(done.is_set)
    assert done.is_set()


async def test_eventually_names_what_did_not_occur() -> None:
    """If a condition does not hold in time, the error names the condition."""
    with pytest.raises(TimeoutError, match=r"the full moon did not occur within 0.05 s"):
        await eventually(lambda: False, within=0.05, what="the full moon")
