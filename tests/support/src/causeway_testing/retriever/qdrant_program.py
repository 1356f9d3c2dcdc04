"""The stand-in for a Qdrant cluster as a program with the interface of the server's program.

Each node is a process that may be killed or frozen. It relays bytes to a process with the data of all nodes,
`qdrant_cluster.Cluster`, and sends a heartbeat to it every 30 ms. The first node starts that process, which listens
at the first node's peer address. It continues for up to 30 seconds after the last node is killed, so that restarted
nodes find their data again, as on a disk.

The program reads ``QDRANT__SERVICE__HOST``, ``…__GRPC_PORT``, ``…__HTTP_PORT``, ``QDRANT__STORAGE__STORAGE_PATH``,
``QDRANT__CLUSTER__ENABLED``, ``QDRANT__CLUSTER__P2P__PORT``, ``--uri`` and ``--bootstrap``. Over HTTP it reports
the states of peers and copies.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from servicekit.tasks import cancel_and_wait

from causeway_testing.retriever.qdrant_cluster import FORWARD_SECONDS, Cluster, Node
from causeway_testing.servers import free_ports

_BEAT_SECONDS = 0.03
_FROZEN_SECONDS = 0.5
_NO_NODE_SECONDS = 30.0
_START_SECONDS = 20.0
_LEAVE = b"q"


class DataProcess:
    """The process with the data of all nodes.

    Args:
        count: The number of nodes.
    """

    def __init__(self, count: int) -> None:
        self._cluster = Cluster(count, FORWARD_SECONDS)
        self._hosts: dict[str, Node] = {}
        self._attached = 0
        self._all_stopped = asyncio.Event()

    async def run(self, host: str, port: int) -> None:
        """Serve the nodes until all have stopped after a signal.

        A check every 30 seconds also ends the process if no node is connected at that moment.
        """
        server = await asyncio.start_server(self._attach, host, port)
        async with server:
            while True:
                try:
                    async with asyncio.timeout(_NO_NODE_SECONDS):
                        await self._all_stopped.wait()
                        break
                except TimeoutError:
                    if not self._attached:
                        break
        await self._cluster.aclose()

    async def _attach(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = (await reader.readline()).decode().strip()
        node = self._hosts.setdefault(host, self._cluster.nodes[len(self._hosts) % len(self._cluster.nodes)])
        await self._cluster.start(node)
        [port] = free_ports(1)
        states = await asyncio.start_server(self._answer, "127.0.0.1", port)
        self._attached += 1
        writer.write(json.dumps({"grpc": node.port, "http": port}).encode() + b"\n")
        was_stopped = False
        try:
            was_stopped = await self._follow(node, reader)
        finally:
            self._attached -= 1
            states.close()
            await self._cluster.kill(node)
            writer.close()
            if was_stopped and not self._attached:
                self._all_stopped.set()

    async def _follow(self, node: Node, reader: asyncio.StreamReader) -> bool:
        """Freeze and thaw a node with its process until the process ends; return whether a signal stopped it."""
        while True:
            try:
                async with asyncio.timeout(_FROZEN_SECONDS):
                    beats = await reader.read(256)
            except TimeoutError:
                self._cluster.freeze(node)
                continue
            except ConnectionError:
                beats = b""
            if not node.thawed.is_set():
                await self._cluster.thaw(node)
            if not beats or _LEAVE in beats:
                return bool(beats)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a request over HTTP: peers, collections, or the state of each copy of a collection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split()[1].split("/")
            if path[1:] == ["collections"]:
                found = (await self._cluster.nodes[0].client.get_collections()).collections
                result: Any = {"collections": [{"name": each.name} for each in found]}
            elif path[1] == "collections":
                nodes = self._cluster.nodes
                states = ["Active" if node.is_up and path[2] not in node.outdated else "Dead" for node in nodes]
                result = {"local_shards": [], "remote_shards": [{"state": each} for each in states]}
            else:
                result = {"status": "enabled", "peers": {host: {} for host in self._hosts}}
            body = json.dumps({"result": result, "status": "ok"}).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            await writer.drain()
        writer.close()


async def serve(environment: Mapping[str, str], uri: str | None, bootstrap: str | None) -> None:
    """Run as a node until a signal ends the process."""
    host = environment.get("QDRANT__SERVICE__HOST", "127.0.0.1")
    storage = Path(environment.get("QDRANT__STORAGE__STORAGE_PATH", "storage"))
    is_cluster = environment.get("QDRANT__CLUSTER__ENABLED", "false") == "true"
    storage.mkdir(parents=True, exist_ok=True)
    own_address = (
        f"{urlsplit(uri).hostname if uri else host}:{environment.get('QDRANT__CLUSTER__P2P__PORT', '6335')}"
    )
    data = urlsplit(bootstrap).netloc if bootstrap else own_address
    reader, writer = await _data_process(data, None if bootstrap else (storage, 3 if is_cluster else 1))
    writer.write(f"{own_address}\n".encode())
    ports = json.loads(await reader.readline())
    servers = [
        await asyncio.start_server(
            _relay(ports[kind]), host, int(environment[f"QDRANT__SERVICE__{kind.upper()}_PORT"])
        )
        for kind in ("grpc", "http")
    ]
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    beating = asyncio.create_task(_beat(writer))
    await stopped.wait()
    await cancel_and_wait(beating)
    writer.write(_LEAVE)
    await writer.drain()
    for each in servers:
        each.close()


async def _beat(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(_BEAT_SECONDS)


async def _data_process(
    address: str, start: tuple[Path, int] | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(_START_SECONDS):
        while True:
            try:
                return await asyncio.open_connection(host, int(port))
            except ConnectionError:
                if start is not None:
                    await asyncio.to_thread(_start_data, address, *start)
                    start = None
                await asyncio.sleep(0.05)


def _start_data(address: str, storage: Path, count: int) -> None:
    command = [sys.executable, "-m", __spec__.name, "--data", address, "--nodes", str(count)]
    with (storage / "data.log").open("wb") as log:
        subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log)


def _relay(port: int) -> Any:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            writer.close()
            return
        upstream = asyncio.create_task(_pump(reader, inner_writer))
        downstream = asyncio.create_task(_pump(inner_reader, writer))
        await asyncio.wait((upstream, downstream), return_when=asyncio.FIRST_COMPLETED)
        await cancel_and_wait(upstream, downstream)
        writer.close()
        inner_writer.close()

    return relay


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while content := await reader.read(65536):
            writer.write(content)
            await writer.drain()


def main() -> None:
    """Run a node, or with ``--data`` the process with the data."""
    parser = argparse.ArgumentParser(description="A stand-in for a Qdrant server, for tests.")
    parser.add_argument("--uri")
    parser.add_argument("--bootstrap")
    parser.add_argument("--data", help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.data is None:
        asyncio.run(serve(os.environ, arguments.uri, arguments.bootstrap))
    else:
        host, _, port = arguments.data.rpartition(":")
        asyncio.run(_run_data_process(arguments.nodes, host, int(port)))


async def _run_data_process(count: int, host: str, port: int) -> None:
    await DataProcess(count).run(host, port)


if __name__ == "__main__":
    main()
