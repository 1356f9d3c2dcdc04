"""Calls to a Qdrant cluster or a single server: choice of the node, time-outs and retries."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from pydantic import SecretStr
from qdrant_client import AsyncQdrantClient
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, Unavailable

from retriever.stores.qdrant.comparison import Comparison
from retriever.stores.qdrant.failures import Missing, Transient
from retriever.stores.qdrant.layout import CONSISTENCY, quorum
from retriever.stores.qdrant.node import Method, Node, Read, address_of
from retriever.stores.qdrant.server_certificate import ServerCertificates

T = TypeVar("T")

MIN_SERVER_VERSION = (1, 19)
"""The first version of the server that can compute the IDF only from documents that the caller may see. Older
versions also count hidden documents."""

_AGREEMENT_SECONDS = 0.5
"""Pause before a failed write is repeated. During the pause, all nodes learn which node the cluster has
excluded, so the second attempt does not wait for this node."""

_EXTRA_WAIT_FACTOR = 0.25
"""When enough nodes have responded, `Connection.read_each` waits a little longer for the others: this factor
times the longer of `try_seconds` and the time until enough nodes had responded."""


class Calls(Protocol):
    """Calls to the server for all points of a collection, or only for the points of one index."""

    async def read(self, method: Method[..., T], *args: Any, **options: Any) -> T:
        """See `Connection.read`."""
        ...

    async def write(self, method: Method[..., T], *args: Any, **options: Any) -> T:
        """See `Connection.write`."""
        ...

    async def read_each(self, function: Callable[[Read], Awaitable[T]]) -> list[T]:
        """See `Connection.read_each`."""
        ...


class Connection:
    """Clients of the nodes of a cluster, or of a single server.

    A process prefers one node until a read at this node is slow or returns an old copy. It tries nodes that failed
    recently only after the others. Each call has one deadline. An attempt that can be repeated at another node has
    a shorter time-out, so that a hanging node delays the call only briefly.

    Args:
        nodes: The nodes, at least one, the preferred node first.
        seconds: Maximum time of a call.
        try_seconds: Time after which a read is repeated at another node.
        certificates: The certificates of the nodes. Monitoring starts with the first `check`.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        seconds: float,
        try_seconds: float = 1.0,
        certificates: ServerCertificates | None = None,
    ) -> None:
        self._nodes = list(nodes)
        self._comparison = Comparison(self._nodes, try_seconds)
        for node in self._nodes:
            node.reason_to_avoid = partial(self._comparison.reason_to_avoid, node)
        self._certificates = certificates
        self._seconds = seconds
        self._try_seconds = try_seconds

    @classmethod
    def from_url(
        cls,
        url: str,
        api_key: SecretStr | None,
        seconds: float,
        authority: Path | None = None,
        hosts: Sequence[str] = (),
        try_seconds: float = 1.0,
    ) -> "Connection":
        """Return a connection over gRPC.

        Args:
            url: See `Node.from_url`.
            api_key: The API key, or None if the server requires none.
            seconds: Maximum time of a call.
            authority: See `Node.from_url`.
            hosts: Hosts of all nodes of a cluster. They replace the host of the URL. Each may have a port.
            try_seconds: Time after which a read is repeated at another node.

        Raises:
            InvalidRequest: The URL or a host is malformed, or the file cannot be used.
        """
        urls = _urls(url, hosts)
        nodes = [Node.from_url(node_url, api_key, seconds, authority) for node_url in urls]
        random.shuffle(nodes)  # so that not all processes prefer the same node
        encrypted = [(host, port) for host, port, is_encrypted in map(address_of, urls) if is_encrypted]
        certificates = ServerCertificates(encrypted, authority) if encrypted else None
        return cls(nodes, seconds, try_seconds, certificates)

    async def check(self) -> None:
        """Check the versions and the API key. Avoid nodes that store no index although another node stores one.

        Then start to monitor the certificates.

        Raises:
            DeadlineExceeded, Unavailable: Half of the nodes or more do not respond or refuse the API key, or a
                node is too old.
        """
        for version in await self.read_each(_version):
            numbers = [int(part) for part in version.split("-")[0].split(".")[:2] if part.isdecimal()]
            if len(numbers) == 2 and tuple(numbers) < MIN_SERVER_VERSION:
                minimum = ".".join(map(str, MIN_SERVER_VERSION))
                raise Unavailable(f"The Qdrant server has version {version}. Use version {minimum} or newer.")
        await self._comparison.run()
        if self._certificates is not None:
            self._certificates.start()

    async def compare(self) -> None:
        """Avoid nodes of a cluster that store no index although another node stores one.

        Failed calls do not reveal every such node: a node can lose its disk and restart between two calls.
        """
        if self.is_cluster:
            with contextlib.suppress(DeadlineExceeded, Unavailable):
                await self._comparison.run()

    async def read(self, method: Method[..., T], *args: Any, **options: Any) -> T:
        """Return the result of a read method of the client. If a node fails, call the next node.

        Raises:
            Missing: The collection does not exist. In a cluster, two nodes or the last one tried report this.
            DeadlineExceeded: The call took too long.
            Unavailable: No node responds, or a node refuses the call.
        """
        return await self._call(False, method, *args, **options)

    async def write(self, method: Method[..., T], *args: Any, **options: Any) -> T:
        """Return the result of an idempotent write method of the client; see `read`.

        A failed write may have been applied, or may be applied later. While one node hangs, each other node is
        slow to write until it has excluded the hanging node. So a write is sent to another node only if the
        first node does not respond to version requests. A node that reports a failure receives the write once more,
        because by then it has excluded the node that caused the failure.

        Raises:
            Missing, DeadlineExceeded, Unavailable: See `read`.
        """
        return await self._call(True, method, *args, **options)

    async def write_once(self, method: Method[..., T], *args: Any, **options: Any) -> T:
        """Return the result of a write method that must not be repeated.

        Raises:
            Missing, DeadlineExceeded, Unavailable: See `read`.
        """
        try:
            return await self._order()[0].call(self._seconds, method, *args, **options)
        except Transient as failure:
            raise failure.error from failure

    async def read_each(self, function: Callable[[Read], Awaitable[T]]) -> list[T]:
        """Call a coroutine function for the nodes, and return the results of those that respond.

        More than half of the nodes must respond. The method calls avoided nodes only if too few other nodes
        respond in time. A node that responds much later than the others is avoided from then on: its result is not
        needed, because a read of more than half of the copies sees every write.

        Args:
            function: The function. It receives a `Read` of one node.

        Raises:
            Missing: The collection does not exist.
            DeadlineExceeded, Unavailable: Too few nodes respond.
        """
        majority, order, began = quorum(len(self._nodes)), self._order(), time.monotonic()
        chosen = [node for number, node in enumerate(order) if number < majority or not node.is_avoided]
        tasks: dict[asyncio.Future[T], Node] = {
            asyncio.ensure_future(function(partial(node.call, self._seconds))): node for node in chosen
        }
        try:
            done, pending = await _succeeded(tasks, majority, self._try_seconds)
            if _count(done) < majority:
                # Nodes that failed recently may have recovered.
                others = [node for node in order if node not in chosen]
                other_tasks = [
                    asyncio.ensure_future(function(partial(node.call, self._seconds))) for node in others
                ]
                tasks.update(zip(other_tasks, others, strict=True))
                more, pending = await _succeeded([*pending, *other_tasks], majority - _count(done))
                done |= more
            if pending:
                # A slow node must not delay every search.
                extra_seconds = max(self._try_seconds, time.monotonic() - began) * _EXTRA_WAIT_FACTOR
                more, pending = await asyncio.wait(pending, timeout=extra_seconds)
                done |= more
            for task in pending:
                tasks[task].avoid("it answers later than the other nodes")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        results = [task.result() for task in done if not task.exception()]
        if len(results) >= majority:
            return results
        failure = next(error for task in done if (error := task.exception()))
        raise failure.error if isinstance(failure, Transient) else failure

    def prefer_another(self) -> None:
        """Prefer the next node, because the preferred node is slow, or its copy may be old."""
        self._nodes.append(self._nodes.pop(0))

    @property
    def is_cluster(self) -> bool:
        """Whether there are several nodes."""
        return len(self._nodes) > 1

    async def aclose(self) -> None:
        """Close the connections."""
        if self._certificates is not None:
            await self._certificates.aclose()
        for node in self._nodes:
            await node.aclose()

    async def _call(self, is_write: bool, method: Method[..., T], *args: Any, **options: Any) -> T:
        deadline = Deadline.after(self._seconds)
        tried: list[Node] = []
        misses = 0
        next_node = self._next(tried)
        while next_node is not None:
            node = next_node
            tried.append(node)
            # The last attempt has all the remaining time.
            is_last = self._next(tried) in (None, node)
            try:
                began, left = time.monotonic(), deadline.remaining()
                if is_write and not is_last:
                    return await node.call_while_up(self._try_seconds, left, method, *args, **options)
                seconds = left if is_last else min(left, self._try_seconds)
                result = await node.call(seconds, method, *args, **options)
                is_slow = time.monotonic() - began > self._try_seconds / 2
                if is_slow and node is self._nodes[0]:
                    self.prefer_another()
                return result
            except Missing:
                # A node that has just started may not have all collections yet.
                misses += 1
                if is_last or misses == 2:
                    raise
                next_node = self._next(tried)
            except Transient as failure:
                if failure.is_response and options.get("consistency") is CONSISTENCY:
                    # The node may have no connection to the others. Then it cannot detect that its copy is old.
                    node.avoid("it does not reach enough copies")
                repeats_here = is_write and failure.is_response and tried.count(node) == 1
                next_node = node if repeats_here else self._next(tried)
                if next_node is None or deadline.at <= time.monotonic():
                    raise failure.error from failure
                if repeats_here and self.is_cluster:
                    await asyncio.sleep(min(_AGREEMENT_SECONDS, max(0.0, deadline.at - time.monotonic())))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _next(self, tried: Sequence[Node]) -> Node | None:
        """Return the next node to try, or None if all were tried. A single node is tried twice."""
        left = [node for node in self._order() if node not in tried]
        if len(self._nodes) == 1 and len(tried) == 1:
            return tried[0]
        return left[0] if left else None

    def _order(self) -> list[Node]:
        """Return the nodes in the order in which to try them: the avoided ones last."""
        return sorted(self._nodes, key=lambda node: node.is_avoided)


async def _succeeded(
    tasks: Iterable["asyncio.Future[T]"], count: int, seconds: float | None = None
) -> tuple[set["asyncio.Future[T]"], set["asyncio.Future[T]"]]:
    """Wait until a number of tasks have succeeded. Return the finished tasks and the pending tasks.

    Args:
        tasks: The tasks.
        count: Number of tasks that must succeed.
        seconds: Maximum time; None: no limit. The wait also ends when all tasks have finished.
    """
    done: set[asyncio.Future[T]] = set()
    pending = set(tasks)
    until = None if seconds is None else time.monotonic() + seconds
    while pending and _count(done) < count:
        left = None if until is None else max(0.0, until - time.monotonic())
        more, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not more:
            break
        done |= more
    return done, pending


def _count(done: Iterable["asyncio.Future[Any]"]) -> int:
    """Return the number of tasks that succeeded."""
    return sum(not task.exception() for task in done)


async def _version(read: Read) -> str:
    return (await read(AsyncQdrantClient.info)).version


def _urls(url: str, hosts: Sequence[str]) -> list[str]:
    """Return the URL of each node."""
    if not hosts:
        return [url]
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return [f"{parts.scheme}://{host if ':' in host else host + port}" for host in hosts]
