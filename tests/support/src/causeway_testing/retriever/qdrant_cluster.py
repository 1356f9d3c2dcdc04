"""A stand-in for a Qdrant cluster whose nodes each have a copy of all data. Tests stop, freeze and restart nodes.

It has the observed behaviour of a real cluster of version 1.19:

- A write reaches the copies one after another, and each copy evaluates the write's condition separately. The called
  node sends the write to a leader: with the ordering `STRONG` the node with the highest id, with `MEDIUM` the
  highest node that is alive. If the leader is unavailable, the write fails after a time-out. The called node then
  excludes the leader, and the other nodes exclude it a moment later. A write waits for all copies that are not
  excluded. It succeeds if as many copies as the collection's write consistency have accepted it. A copy that missed
  the write is not read until its node has recovered.
- A read without a consistency reads the copy of the called node, and after the fan-out delay another copy. `QUORUM`
  reads more than half of the copies, `MAJORITY` and `ALL` read all copies. Points that differ between the copies
  are omitted.
- A call that the cluster cannot execute at the moment gets the gRPC status INTERNAL.
- A node that was unavailable gets changes of collections and aliases late.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc
from qdrant_client import AsyncQdrantClient, models
from qdrant_client import grpc as q
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore

from causeway_testing.retriever.qdrant import Apply, Internal, Server, listen
from causeway_testing.servers import free_ports

T = TypeVar("T")

LAYOUT = Layout(replicas=3, write_consistency=2)
"""As many copies as nodes, and a write consistency of more than half, so that quorum reads see all writes."""

FORWARD_SECONDS = 9.4
"""The time after which a node of a real cluster gives up waiting for another one: three attempts of three seconds
each, and the pauses between them (`lib/api/src/grpc/transport_channel_pool.rs` of Qdrant)."""
_CONSENSUS_SECONDS = 0.2


class Node(Server):
    """A node. See `Server`.

    Attributes:
        is_up: Whether the node's process is running.
        thawed: An event that is cleared while the process is frozen.
        outdated: The collections whose copy on this node has missed a write.
        lag: The seconds before a write reaches this copy. The write waits for it only if too few others accept it.
        is_cut_off: Whether the node cannot reach the other nodes, although clients reach it.
        is_behind: Whether the node gets no changes of collections and aliases until `Cluster.catch_up`.
        excluded: Pairs of a collection and a node that this node no longer chooses as leader with `MEDIUM`.
    """

    def __init__(self, cluster: "Cluster", port: int) -> None:
        super().__init__(f"http://127.0.0.1:{port}", AsyncQdrantClient(":memory:"))
        self.params = cluster.params
        self.port = port
        self.is_up = False
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.outdated: set[str] = set()
        self.lag = 0.0
        self.is_behind = False
        self.is_cut_off = False
        self.excluded: set[tuple[str, Node]] = set()
        self.missed: list[Apply[Any]] = []
        self.grpc_server: grpc.aio.Server | None = None
        self._cluster = cluster

    async def change(self, apply: Apply[T]) -> T:
        """Change collections or aliases on all nodes. Unavailable nodes get the change when they return."""
        if self.is_cut_off:
            raise Internal("Waiting for consensus operation commit failed. Timeout set at: 10 seconds")
        changed = await apply(self.client)
        for node in self._cluster.nodes:
            if not node.is_up or node.is_behind or node.is_cut_off:
                node.missed.append(apply)
            elif node is not self:
                await apply(node.client)
        return changed

    async def write(self, request: Any, apply: Apply[Any]) -> Any:
        """Change points on all copies. The write continues if the caller cancels the call."""

        async def write() -> Any:
            await self.thawed.wait()
            leader = await self._cluster.route_to_leader(self, request)
            if leader.is_cut_off:
                await apply(leader.client)
                raise Internal("Failed peer: Tonic error: transport error")
            return await self._cluster.write(request, apply)

        return await asyncio.shield(self._cluster.run_in_background(write()))

    async def read(self, request: Any, ask: Apply[T]) -> T:
        """Search, or count, on one copy."""
        await self.thawed.wait()
        readable = self._cluster.readable(request.collection_name, self)
        delay = self.params[request.collection_name].get("read_fan_out_delay_ms")
        for number, node in enumerate(readable):
            try:
                is_last = delay is None or number == len(readable) - 1
                async with asyncio.timeout(self._cluster.forward_seconds if is_last else (delay or 0) / 1000):
                    return await node.answer(ask)
            except TimeoutError:
                continue
        raise Internal("1 of 1 read operations failed")

    async def points(self, request: Any, ask: Apply[list[models.Record]]) -> list[models.Record]:
        """Read points from as many copies as the consistency requires."""
        consistency = request.read_consistency
        if consistency.WhichOneof("value") != "type":
            return await self.read(request, ask)
        await self.thawed.wait()
        copies = len(self._cluster.nodes)
        required = copies // 2 + 1 if consistency.type == q.Quorum else copies
        readable = self._cluster.readable(request.collection_name, self)
        if len(readable) < required:
            raise Internal(f"{required - len(readable)} of {required} read operations failed")
        reads = [asyncio.create_task(node.answer(ask)) for node in readable]
        try:
            answers = [await each for each in await _first(reads, required)]
        finally:
            for each in reads:
                each.cancel()
        others = [{point.id: point for point in answer} for answer in answers[1:]]
        return [point for point in answers[0] if all(other.get(point.id) == point for other in others)]

    async def answer(self, ask: Apply[T]) -> T:
        """Wait until the node is not frozen, and return the answer of its copy."""
        await self.thawed.wait()
        return await ask(self.client)


class Cluster:
    """Nodes, the last one with the highest id. Each has a copy of every collection.

    Args:
        count: Number of nodes.
        forward_seconds: The time after which a node gives up waiting for another one; shorter than that of a real
            cluster, so that tests are fast.
    """

    def __init__(self, count: int = 3, forward_seconds: float = 1.0) -> None:
        self.forward_seconds = forward_seconds
        self.params: dict[str, dict[str, int]] = {}
        self.nodes = [Node(self, port) for port in free_ports(count)]
        self._background: set[asyncio.Task[Any]] = set()

    @property
    def hosts(self) -> list[str]:
        """Return the nodes' hosts with their ports."""
        return [f"127.0.0.1:{node.port}" for node in self.nodes]

    async def kill(self, node: Node) -> None:
        """End a node's process."""
        node.is_up = False
        if node.grpc_server is not None:
            await node.grpc_server.stop(None)
            node.grpc_server = None

    async def start(self, node: Node) -> None:
        """Start a node's process. Unless `is_behind` is set, the node first gets all that it has missed."""
        if not node.is_behind:
            await self.catch_up(node)
        node.is_up = True
        node.before = _wait_while_frozen(node)
        node.grpc_server = await listen(node, node.port)

    def freeze(self, node: Node) -> None:
        """Freeze a node's process like SIGSTOP: its connections stay open without an answer."""
        node.thawed.clear()

    async def thaw(self, node: Node) -> None:
        """Continue a frozen process, and copy the writes that its node has missed."""
        node.thawed.set()
        await self.recover(node)

    def cut_off(self, node: Node) -> None:
        """Separate a node from the other nodes, but not from its clients. The node does not detect this."""
        node.is_cut_off = True

    async def join(self, node: Node) -> None:
        """Connect a node to the others again."""
        node.is_cut_off = False
        await self.catch_up(node)

    async def catch_up(self, node: Node) -> None:
        """Apply the missed changes of collections and aliases to a node, and copy the writes that it has missed."""
        node.is_behind = False
        missed, node.missed = node.missed, []
        for apply in missed:
            await apply(node.client)
        await self.recover(node)

    async def recover(self, node: Node) -> None:
        """Replace each outdated copy of a node by the copy of another node."""
        for name in list(node.outdated):
            source = next(each for each in self.nodes if each is not node and name not in each.outdated)
            if await source.client.collection_exists(name):
                await _copy(source.client, node.client, name)
            node.outdated.discard(name)
        for each in self.nodes:
            each.excluded = {excluded for excluded in each.excluded if excluded[1] is not node}

    def readable(self, collection: str, first: Node) -> list[Node]:
        """Return the nodes whose copies may be read, starting with the called one."""
        if first.is_cut_off:
            return [first]
        nodes = sorted((node for node in self.nodes if not node.is_cut_off), key=lambda node: node is not first)
        return [node for node in nodes if node.is_up and collection not in node.outdated]

    def run_in_background(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task that continues if its caller is cancelled, and return the task."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(lambda each: each.cancelled() or each.exception())  # otherwise asyncio warns
        return task

    async def route_to_leader(self, caller: Node, request: Any) -> Node:
        """Choose the leader of a write, wait while it is frozen, and return it.

        Raises:
            Internal: The leader is unavailable.
        """
        name, ordering = request.collection_name, request.ordering.type
        alive = [node for node in self.nodes if name not in node.outdated and (name, node) not in caller.excluded]
        leader = {q.Strong: self.nodes[-1], q.Medium: (alive or [caller])[-1]}.get(ordering, caller)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.forward_seconds):
                await leader.thawed.wait()
            if leader.is_up and (leader is caller or not (leader.is_cut_off or caller.is_cut_off)):
                return leader
        caller.excluded.add((name, leader))
        if not caller.is_cut_off:
            self.run_in_background(self._exclude_later(caller, name, leader))
        ordering_name = "Strong" if ordering == q.Strong else "Medium"
        raise Internal(f"Failed to apply update with {ordering_name} ordering via leader peer")

    async def _exclude_later(self, caller: Node, name: str, leader: Node) -> None:
        """Exclude a copy on all nodes after a moment, unless its node has recovered in the meantime."""
        await asyncio.sleep(_CONSENSUS_SECONDS)
        if (name, leader) in caller.excluded:
            leader.outdated.add(name)

    async def write(self, request: Any, apply: Apply[Any]) -> Any:
        """Apply a write to all copies. See the module's docstring.

        Raises:
            Internal: Too few copies have accepted the write.
        """
        name = request.collection_name
        nodes = [node for node in reversed(self.nodes) if name not in node.outdated]
        writing = {node: self.run_in_background(self._apply(node, name, apply)) for node in nodes}
        undelayed = [task for node, task in writing.items() if not node.lag]
        if undelayed:
            await asyncio.wait(undelayed)
        required = self.params[name]["write_consistency_factor"]
        done = await _first(list(writing.values()), required)
        if len(done) < required:
            raise Internal(f"{len(done)} of {required}: collection does not have enough active replicas")
        for node, task in writing.items():
            if task.done() and task.exception() is not None:
                node.outdated.add(name)
        return done[0].result()

    async def _apply(self, node: Node, name: str, apply: Apply[Any]) -> Any:
        if not node.is_up or node.is_cut_off:
            raise Internal("away")
        async with asyncio.timeout(self.forward_seconds):
            await node.thawed.wait()
        if node.lag:
            await asyncio.sleep(node.lag)
        if node.missed and not await node.client.collection_exists(name):
            raise Internal("away")
        return await apply(node.client)

    async def aclose(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.thawed.set()
            await self.kill(node)
        await asyncio.gather(*self._background, return_exceptions=True)


@asynccontextmanager
async def running(count: int = 3, forward_seconds: float = 1.0) -> AsyncIterator[Cluster]:
    """Run a cluster on free ports of this machine."""
    cluster = Cluster(count, forward_seconds)
    for node in cluster.nodes:
        await cluster.start(node)
    try:
        yield cluster
    finally:
        await cluster.aclose()


@asynccontextmanager
async def opened(
    cluster: Cluster, try_seconds: float = 5.0, layout: Layout = LAYOUT, lease: float = 30.0
) -> AsyncIterator[QdrantStore]:
    """Open a retriever's store on a cluster. It prefers the nodes in their order."""
    connection = Connection.from_url("http://qdrant", None, 20.0, hosts=cluster.hosts, try_seconds=try_seconds)
    connection._nodes.sort(key=lambda node: cluster.hosts.index(f"127.0.0.1:{node._server['server.port']}"))
    store = await QdrantStore.open(connection, layout, lease)
    try:
        yield store
    finally:
        await store.aclose()


async def _first(tasks: Sequence["asyncio.Task[T]"], count: int) -> list["asyncio.Task[T]"]:
    """Return the tasks that have succeeded once there are ``count`` of them, or fewer if too many tasks fail."""
    succeeded: list[asyncio.Task[T]] = []
    pending: set[asyncio.Task[T]] = set(tasks)
    while pending and len(succeeded) < count:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = task.exception()
            if error is None:
                succeeded.append(task)
            elif not isinstance(error, Internal | TimeoutError):
                raise error
    return succeeded


async def _copy(source: AsyncQdrantClient, target: AsyncQdrantClient, name: str) -> None:
    await target.delete(name, models.FilterSelector(filter=models.Filter()))
    offset: Any = None
    while True:
        points, offset = await source.scroll(name, limit=256, offset=offset, with_payload=True, with_vectors=True)
        if points:
            points_to_write = [
                models.PointStruct(id=each.id, payload=each.payload, vector=each.vector or {}) for each in points
            ]
            await target.upsert(name, points_to_write)
        if offset is None:
            return


def _wait_while_frozen(node: Node) -> Any:
    async def before(_: str) -> None:
        await node.thawed.wait()

    return before
