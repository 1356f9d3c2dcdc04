"""Qdrant servers for tests on loopback: one node, or a cluster of nodes with separate addresses."""

import asyncio
import os
import signal
import subprocess
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
from qdrant_client import AsyncQdrantClient
from retriever.stores.qdrant.aliases import SPACE
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore

from causeway_testing.servers import free_ports

VARIABLE = "CAUSEWAY_QDRANT_SERVER"
_START_SECONDS = 60.0
_RECOVER_SECONDS = 120.0


def kinds(*otherwise: str) -> list[str]:
    """Return the given kinds of stores, or with CAUSEWAY_TEST_QDRANT the kinds that use the running server."""
    servers = ["qdrant-server", "qdrant-server-shared"]
    return servers if "CAUSEWAY_TEST_QDRANT" in os.environ else list(otherwise)


@asynccontextmanager
async def running_server(*, shared: bool = False) -> AsyncIterator[Callable[[], QdrantStore]]:
    """Yield a function that opens a store on the running server. Remove its collections at the end."""
    url = os.environ["CAUSEWAY_QDRANT_URL"]
    hosts = list(filter(None, os.environ.get("CAUSEWAY_QDRANT_HOSTS", "").split(",")))
    count = max(1, len(hosts))
    layout = Layout(f"test-{uuid.uuid4().hex}", replicas=count, write_consistency=count // 2 + 1, shared=shared)
    yield lambda: QdrantStore(Connection.from_url(url, None, 20.0, hosts=hosts), layout)
    connection = Connection.from_url(url, None, 20.0, hosts=hosts)
    for each in (await connection.read(AsyncQdrantClient.get_collections)).collections:
        if each.name.startswith((f"{layout.prefix}.", f"{layout.prefix}{SPACE}.")):
            await connection.write(AsyncQdrantClient.delete_collection, each.name)
    await connection.aclose()


class NoServer(Exception):
    """The program of the server is missing or cannot be started."""


def server_program() -> Path:
    """Return the program that `VARIABLE` names.

    Raises:
        NoServer: The variable is not set, or does not name a program. The message says what to do.
    """
    named = os.environ.get(VARIABLE, "")
    if not named:
        raise NoServer(
            f"{VARIABLE} is not set. These tests need the program of a Qdrant server, 1.19 or newer: unpack a "
            "release of https://github.com/qdrant/qdrant, or copy /qdrant/qdrant out of the image qdrant/qdrant, "
            f"and set {VARIABLE} to its path."
        )
    path = Path(named).resolve()
    if not path.is_file() or not os.access(path, os.X_OK):
        raise NoServer(f"{VARIABLE} names {path}. This is not a program that this user can run.")
    return path


class ServerNode:
    """A process that is one node.

    Args:
        program: The program of the server.
        host: The address to listen on.
        directory: The directory for data and log.
        ports: The node's ports for gRPC, for HTTP and for the other nodes.
        peer: The first node of the cluster; None for a single node, and for the first node until `lead` is called.
    """

    def __init__(
        self, program: Path, host: str, directory: Path, ports: Sequence[int], peer: "ServerNode | None"
    ) -> None:
        self.host = host
        self.grpc, self.http, self._p2p = ports
        self._program = program
        self._directory = directory
        self._peer = peer
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The host and the gRPC port of the node."""
        return f"{self.host}:{self.grpc}"

    @property
    def pid(self) -> int:
        """The id of the node's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def uri(self) -> str:
        """The URL at which the other nodes reach this node."""
        return f"http://{self.host}:{self._p2p}"

    def lead(self) -> None:
        """Configure this node as the first node of a cluster."""
        self._peer = self

    async def start(self) -> None:
        """Start the process, and wait until it answers.

        Raises:
            AssertionError: The process ended. The error has the end of its log.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        options = [] if self._peer is None else ["--uri", self.uri]
        if self._peer not in (None, self):
            options += ["--bootstrap", self._peer.uri]
        variables = {
            "QDRANT__SERVICE__HOST": self.host,
            "QDRANT__SERVICE__GRPC_PORT": str(self.grpc),
            "QDRANT__SERVICE__HTTP_PORT": str(self.http),
            "QDRANT__STORAGE__STORAGE_PATH": str(self._directory / "storage"),
            "QDRANT__STORAGE__SNAPSHOTS_PATH": str(self._directory / "snapshots"),
            "QDRANT__CLUSTER__ENABLED": "false" if self._peer is None else "true",
            "QDRANT__CLUSTER__P2P__PORT": str(self._p2p),
            "QDRANT__TELEMETRY_DISABLED": "true",
        }
        self._process = await asyncio.to_thread(self._run, options, variables)
        await _wait_until(self._answers, _START_SECONDS)

    def _run(self, options: list[str], variables: dict[str, str]) -> "subprocess.Popen[bytes]":
        with (self._directory / "log").open("ab") as log:
            return subprocess.Popen(
                [self._program, *options],
                cwd=self._directory,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Kill the process."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGTERM to the process, and wait until it has ended."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Freeze the process. Its connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the frozen process."""
        self._signal(signal.SIGCONT)

    async def peers(self) -> int:
        """Return the number of nodes that this node knows."""
        return len((await self._get("/cluster"))["peers"])

    async def is_recovered(self) -> bool:
        """Return whether this node reports that all copies of all collections are active."""
        found = await self._get("/collections")
        states = [await self._get(f"/collections/{each['name']}/cluster") for each in found["collections"]]
        return all(
            shard["state"] == "Active"
            for each in states
            for shard in (*each["local_shards"], *each["remote_shards"])
        )

    async def _get(self, path: str) -> dict[str, list[dict[str, str]]]:
        # These servers do not use TLS, and loading certificates takes long.
        async with httpx.AsyncClient(
            base_url=f"http://{self.host}:{self.http}", timeout=10, verify=False
        ) as client:
            result: dict[str, list[dict[str, str]]] = (await client.get(path)).raise_for_status().json()["result"]
            return result

    async def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            log_tail = (self._directory / "log").read_text(errors="replace")[-2000:]
            raise AssertionError(f"{self._program} ended with {self._process.returncode}:\n{log_tail}")
        try:
            await self._get("/collections")
        except httpx.HTTPError:
            return False  # it is starting
        return True

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._signal(signal.SIGCONT)
            self._signal(number)
            self._process.wait(30)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


@asynccontextmanager
async def started(program: Path, directory: Path, count: int) -> AsyncIterator[list[ServerNode]]:
    """Start a server of one node on 127.0.0.1, or a cluster on 127.0.0.2 and the addresses after it."""
    ports = free_ports(3 * count)
    nodes: list[ServerNode] = []
    try:
        for number in range(count):
            host = "127.0.0.1" if count == 1 else f"127.0.0.{2 + number}"
            own = ports[3 * number : 3 * number + 3]
            node = ServerNode(program, host, directory / str(number), own, nodes[0] if nodes else None)
            if count > 1 and not nodes:
                node.lead()
            nodes.append(node)
            await node.start()
        for node in nodes if count > 1 else ():
            await _wait_until(partial(_knows, node, count), _START_SECONDS)
        yield nodes
    finally:
        for node in reversed(nodes):
            await asyncio.to_thread(node.stop)


async def recovered(nodes: Sequence[ServerNode]) -> None:
    """Wait until every node reports that all copies are active."""
    for node in nodes:
        await _wait_until(node.is_recovered, _RECOVER_SECONDS)


async def _knows(node: ServerNode, count: int) -> bool:
    return await node.peers() == count


async def _wait_until(condition: Callable[[], Awaitable[bool]], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110  # another process has the state
            await asyncio.sleep(0.1)
