"""tools/load_balancer.py: the load balancer of the gateways."""

import asyncio

import load_balancer
import pytest


class Gateway:
    """One gateway, which is always ready."""

    def ready_gateways(self) -> dict[str, str]:
        return {"gateway-0": "127.0.0.1"}

    def is_draining(self, name: str) -> bool:
        del name
        return False


async def test_no_task_runs_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its end, the proxy closes the connections that are still open, and ends their tasks."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    monkeypatch.setattr(load_balancer, "_GATEWAY_PORT", server.sockets[0].getsockname()[1])
    before = asyncio.all_tasks()
    async with load_balancer.load_balancer(Gateway()) as url:
        port = int(url.rpartition(":")[2])
        answer = b""
        while not answer:  # until the proxy has found the gateway
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"question")
            try:
                answer = await reader.read(100)
            except ConnectionResetError:
                writer.close()
    assert answer == b"question"
    assert await reader.read() == b""
    writer.close()
    server.close()
    remaining = {each for each in asyncio.all_tasks() - before if "echo" not in str(each)}
    assert not remaining
