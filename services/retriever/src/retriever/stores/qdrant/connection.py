"""Calls of a Qdrant cluster: choice of the node, time-outs and retries."""

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from pydantic import SecretStr
from qdrant_client import AsyncQdrantClient
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, Unavailable

from retriever.stores.qdrant.layout import CONSISTENCY, quorum
from retriever.stores.qdrant.node import Method, Missing, Node, Transient, address_of
from retriever.stores.qdrant.server_certificate import ServerCertificates

T = TypeVar("T")

OLDEST_SERVER = (1, 19)
"""From this version on, the server counts terms in the documents that the caller may see. Older versions also count
them in hidden documents."""

_NO_POINT = str(uuid.UUID(int=0))


class Read(Protocol):
    """Calls a read method of the client."""

    async def __call__(self, method: Method[..., T], *args: Any, **options: Any) -> T:
        """Return the result of the method; see `Connection.read`."""
        ...


class Calls(Protocol):
    """Calls on the points of a collection: all of them, or those of one index."""

    async def read(self, method: Method[..., T], *args: Any, **options: Any) -> T:
        """See `Connection.read`."""
        ...

    async def write(self, method: Method[..., T], *args: Any, **options: Any) -> T:
        """See `Connection.write`."""
        ...

    async def read_each(self, ask: Callable[[Read], Awaitable[T]]) -> list[T]:
        """See `Connection.read_each`."""
        ...


class Connection:
    """Clients of the nodes of a cluster, or of a single server.

    A process prefers one node while it answers. Each call has one deadline. An attempt that can be repeated at
    another node has a shorter time-out, so that a hanging node costs little.

    Args:
        nodes: The nodes, at least one. The first one that answers is used.
        seconds: Maximum time of a call.
        try_seconds: Time after which a read is repeated at another node.
        certificates: The certificates of the nodes, observed after the first `check`.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        seconds: float,
        try_seconds: float = 1.0,
        certificates: ServerCertificates | None = None,
    ) -> None:
        self._nodes = list(nodes)
        for node in self._nodes:
            node.is_current = partial(self._is_current, node)
        self._certificates = certificates
        self._seconds = seconds
        self._try_seconds = try_seconds

    @classmethod
    def to(
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
            url: See `Node.at`.
            api_key: The API key, or None if the server requires none.
            seconds: Maximum time of a call.
            authority: See `Node.at`.
            hosts: Hosts of the nodes of a cluster, which replace the URL's host. Each may have a port.
            try_seconds: Time after which a read is repeated at another node.

        Raises:
            InvalidRequest: The URL or a host is malformed, or the file cannot be used.
        """
        urls = _urls(url, hosts)
        nodes = [Node.at(each, api_key, seconds, authority) for each in urls]
        random.shuffle(nodes)  # several processes share the load
        encrypted = [(host, port) for host, port, is_encrypted in map(address_of, urls) if is_encrypted]
        certificates = ServerCertificates(encrypted, authority) if encrypted else None
        return cls(nodes, seconds, try_seconds, certificates)

    async def check(self) -> None:
        """Ask each node for its version.

        Raises:
            DeadlineExceeded, Unavailable: Half of the nodes or more do not answer, or one is too old.
        """
        for answers in await self.read_each(_version):
            numbers = [int(part) for part in answers.split("-")[0].split(".")[:2] if part.isdecimal()]
            if len(numbers) == 2 and tuple(numbers) < OLDEST_SERVER:
                oldest = ".".join(map(str, OLDEST_SERVER))
                raise Unavailable(f"The Qdrant server has version {answers}, {oldest} or newer is needed.")
        if self._certificates is not None:
            self._certificates.start()

    async def read(self, method: Method[..., T], *args: Any, **options: Any) -> T:
        """Return the result of a read method of the client. If a node fails, ask the next one.

        Raises:
            Missing: The collection does not exist. In a cluster, two nodes must say so.
            DeadlineExceeded: The call took too long.
            Unavailable: No node answers, or a node refuses the call.
        """
        return await self._call(False, method, *args, **options)

    async def write(self, method: Method[..., T], *args: Any, **options: Any) -> T:
        """Return the result of an idempotent write method of the client; see `read`.

        A failed write may have been applied, or may be applied later. While one node hangs, a write takes long at
        every other node, until that one excludes the hanging node. So a write goes to another node only if its own
        node does not answer version requests. A node that reports a failure gets the write once more, because by
        then it has excluded the node that caused the failure.

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

    async def read_each(self, ask: Callable[[Read], Awaitable[T]]) -> list[T]:
        """Return the result of a coroutine function for each node that answers; more than half must answer.

        Nodes that do not answer are left out, because a read of more than half of the copies sees every write.

        Args:
            ask: The function. It receives a `Read` of one node.

        Raises:
            Missing: The collection does not exist.
            DeadlineExceeded, Unavailable: Too few nodes answer.
        """
        least, order = quorum(len(self._nodes)), self._order()
        chosen = [node for number, node in enumerate(order) if number < least or not node.is_avoided]
        tasks = {asyncio.ensure_future(ask(partial(node.call, self._seconds))): node for node in chosen}
        try:
            done, pending = await asyncio.wait(tasks, timeout=self._try_seconds)
            if sum(not task.exception() for task in done) < least:
                # Nodes that failed lately may have recovered.
                others = [node for node in order if node not in chosen]
                late = {asyncio.ensure_future(ask(partial(node.call, self._seconds))): node for node in others}
                tasks |= late
                pending |= late.keys()
            while pending and sum(not task.exception() for task in done) < least:
                more, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                done |= more
            for task in pending:
                tasks[task].failed("no answer in time")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        given = [task.result() for task in done if not task.exception()]
        if len(given) >= least:
            return given
        failure = next(error for task in done if (error := task.exception()))
        raise failure.error if isinstance(failure, Transient) else failure

    def prefer_another(self) -> None:
        """Prefer another node, because the preferred one is slow, or its copy may be old."""
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
        following = self._next(tried)
        while following is not None:
            node = following
            tried.append(node)
            # The last attempt gets all the remaining time.
            is_last = self._next(tried) in (None, node)
            try:
                left = deadline.remaining()
                if is_write and not is_last:
                    return await node.call_while_up(self._try_seconds, left, method, *args, **options)
                seconds = left if is_last else min(left, self._try_seconds)
                answer = await node.call(seconds, method, *args, **options)
                if deadline.at - time.monotonic() < left - self._try_seconds / 2 and node is self._nodes[0]:
                    self.prefer_another()  # this one is slow
                return answer
            except Missing:
                # A node that has just started may not know all collections yet.
                misses += 1
                if is_last or misses == 2:
                    raise
                following = self._next(tried)
            except Transient as failure:
                if failure.is_answer and options.get("consistency") is CONSISTENCY:
                    # It may be cut off from the other nodes. Then it does not notice that its own copy is old.
                    node.failed("it does not reach enough copies")
                is_again = is_write and failure.is_answer and tried.count(node) == 1
                following = node if is_again else self._next(tried)
                if following is None or deadline.at <= time.monotonic():
                    raise failure.error from failure
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _next(self, tried: Sequence[Node]) -> Node | None:
        """Return the next node to try. A single node is tried twice."""
        left = [node for node in self._order() if node not in tried]
        if len(self._nodes) == 1 and len(tried) == 1:
            return tried[0]
        return left[0] if left else None

    async def _is_current(self, node: Node, *, is_compared: bool) -> bool:
        """Return whether a node reaches enough copies, and has the same aliases as a healthy node.

        Args:
            node: The node.
            is_compared: Whether its aliases are compared.
        """
        others = [each for each in self._nodes if not each.is_avoided]
        if not others:
            return True
        try:
            reads: list[Read] = [partial(each.call, self._try_seconds) for each in (node, others[0])]
            answers = [await read(AsyncQdrantClient.get_aliases) for read in reads]
            mine, theirs = ({(each.alias_name, each.collection_name) for each in one.aliases} for one in answers)
            for _, collection in sorted(mine & theirs)[:1]:
                # If the healthy node fails as well, copies are lost, and this node is not the cause.
                if not await _reaches_copies(reads[0], collection) and await _reaches_copies(reads[1], collection):
                    return False
        except (Transient, Missing, CausewayError):
            return False
        return mine == theirs or not is_compared

    def _order(self) -> list[Node]:
        """Return the nodes, avoided ones last."""
        return sorted(self._nodes, key=lambda node: node.is_avoided)


async def _reaches_copies(read: Read, collection: str) -> bool:
    """Return whether a node reads more than half of the copies of a collection."""
    try:
        await read(AsyncQdrantClient.retrieve, collection, [_NO_POINT], consistency=CONSISTENCY)
    except (Transient, Missing, CausewayError):
        return False
    return True


async def _version(read: Read) -> str:
    return (await read(AsyncQdrantClient.info)).version


def _urls(url: str, hosts: Sequence[str]) -> list[str]:
    """Return the URL of each node."""
    if not hosts:
        return [url]
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return [f"{parts.scheme}://{host if ':' in host else host + port}" for host in hosts]
