"""Comparison of the nodes of a Qdrant cluster: which nodes respond, but must not be used.

A node that has just started can return old aliases for a moment. A node without a connection to the others has old
copies. A node that has lost its disk can form a separate cluster. Such a node has no index, and would create new
indexes apart from the other nodes.
"""

import asyncio
import uuid
from collections.abc import Sequence
from functools import partial

from qdrant_client import AsyncQdrantClient
from servicekit.errors import CausewayError

from retriever.stores.qdrant.failures import Missing, Transient
from retriever.stores.qdrant.layout import CONSISTENCY, quorum
from retriever.stores.qdrant.node import Node, Read

_EMPTY = "it has no index, although another node has one"
_NO_POINT = str(uuid.UUID(int=0))

_Aliases = set[tuple[str, str]]


class Comparison:
    """Compares a node with the other nodes.

    Args:
        nodes: All nodes.
        seconds: Maximum time of a call.
    """

    def __init__(self, nodes: Sequence[Node], seconds: float) -> None:
        self._nodes = nodes
        self._seconds = seconds

    async def run(self) -> None:
        """Avoid nodes that store no index although another node stores one.

        Raises:
            DeadlineExceeded, Unavailable: Half of the nodes or more do not respond, or refuse the API key.
        """
        replies = await asyncio.gather(*[self._aliases(node) for node in self._nodes], return_exceptions=True)
        failures = [reply for reply in replies if isinstance(reply, BaseException)]
        if len(replies) - len(failures) < quorum(len(replies)):
            raise failures[0].error if isinstance(failures[0], Transient) else failures[0]
        if any(reply for reply in replies if isinstance(reply, set)):
            for node, reply in zip(self._nodes, replies, strict=True):
                if reply == set():
                    node.avoid(_EMPTY)

    async def reason_to_avoid(self, node: Node, *, is_new: bool) -> str | None:
        """Return why a node that responds must not be used yet, or None if it may be used.

        Args:
            node: The node.
            is_new: Whether the node has just started to respond. Then its aliases must be those of a healthy node.
        """
        try:
            own = await self._aliases(node)
            others = [other for other in self._nodes if not other.is_avoided]
            if not others:
                return None
            reference = await self._aliases(others[0])
            if reference and not own:
                return _EMPTY
            for _, collection in sorted(own & reference)[:1]:
                # If the healthy node fails as well, copies are lost, and this node is not the cause.
                if not await self._reads(node, collection) and await self._reads(others[0], collection):
                    return "it does not reach enough copies"
        except (Transient, Missing, CausewayError) as error:
            return str(error)
        return "its aliases differ from those of another node" if is_new and own != reference else None

    async def _aliases(self, node: Node) -> _Aliases:
        read: Read = partial(node.call, self._seconds)
        reply = await read(AsyncQdrantClient.get_aliases)
        return {(alias.alias_name, alias.collection_name) for alias in reply.aliases}

    async def _reads(self, node: Node, collection: str) -> bool:
        """Return whether a node reads more than half of the copies of a collection."""
        read: Read = partial(node.call, self._seconds)
        try:
            await read(AsyncQdrantClient.retrieve, collection, [_NO_POINT], consistency=CONSISTENCY)
        except (Transient, Missing, CausewayError):
            return False
        return True
