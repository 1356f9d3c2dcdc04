"""The location of an index in a shared collection (`space`).

::

    <prefix>-space.<tenant>.<index>.<incarnation>    an alias of the space

Each build of an index is an incarnation with a UUID. The points and all calls contain the UUID (`incarnation`). The
alias names the current incarnation. `tidying` removes the points of incarnations that have no alias and whose
lease has expired, some at a time. The point with the specification is removed last.
"""

import uuid

from qdrant_client import AsyncQdrantClient, models
from servicekit import keys

from retriever.domain.index import IndexSpec
from retriever.stores import payload
from retriever.stores.qdrant import schema
from retriever.stores.qdrant.aliases import SPACE, Aliases
from retriever.stores.qdrant.failures import Missing
from retriever.stores.qdrant.incarnation import Incarnation
from retriever.stores.qdrant.layout import ORDERING
from retriever.stores.qdrant.location import Location
from retriever.stores.qdrant.space import Space

_CURRENT_SECONDS = 0.5
_DELETE_BATCH = 500


class SharedLocation(Location):
    """One incarnation of an index. It overrides the methods that differ in a shared collection.

    Args:
        aliases: The aliases of the installation.
        space: The collection.
        alias: The alias of the incarnation.

    Attributes:
        incarnation: The id in the points.
    """

    def __init__(self, aliases: Aliases, space: Space, alias: str) -> None:
        id_ = uuid.UUID(alias.rpartition(".")[2])
        super().__init__(aliases, space, alias, Incarnation(space.connection, id_))
        self.key = alias
        self.incarnation = id_.hex
        self._space = space

    @staticmethod
    def alias_of(prefix: str, spec: IndexSpec, incarnation: uuid.UUID) -> str:
        """Return the alias of an incarnation."""
        return f"{keys.server_alias(prefix + SPACE, spec.tenant, spec.name)}.{incarnation.hex}"

    async def create(self, spec: IndexSpec) -> None:
        """Create the space if it does not exist.

        Raises:
            Unavailable: The server fails to create the space.
        """
        await self._space.create_once(spec.dimension)
        self.copies.replicas = self._space.replicas

    async def adapt(self) -> None:
        """Read the parameters of the space.

        Raises:
            Missing: The space does not exist.
        """
        await self._space.adapt_once()
        self.copies.replicas = self._space.replicas

    async def is_aliased(self) -> bool:
        """Return whether this is the current incarnation. One call serves all concurrent callers."""
        current = await self.aliases.read(_CURRENT_SECONDS)
        return current.get(self.aliases.index_of(self.alias) or "") == self.entry

    async def remove(self) -> None:
        """Remove the index at once. The next `tidy` removes its points."""
        try:
            # The lease expires first, so that a new index of the same name does not continue this incarnation.
            await self._set_expiry(schema.GIVEN_UP)
        except Missing:
            return
        if self.alias in (await self.aliases.read_each()).names:
            gone = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=self.alias))
            await self.aliases.change([gone])

    async def take_alias_of(self, alias: str) -> None:
        """Rename another incarnation's alias to the alias of this incarnation.

        Raises:
            DeadlineExceeded, Unavailable: The cluster does not decide, or the other alias does not exist.
        """
        renamed = models.RenameAlias(old_alias_name=alias, new_alias_name=self.alias)
        await self.aliases.change([models.RenameAliasOperation(rename_alias=renamed)])

    async def begin_clearing(self, until: float) -> bool:
        """Mark an old incarnation, so that no process uses it any more. Return whether it may be cleared.

        The cluster may point the alias here late. So this method reads the aliases after it has set the mark.

        Args:
            until: The expiry of the lease of the incarnation.
        """
        if until == schema.CLEARING:
            return True
        await self._set_expiry(schema.CLEARING)
        if self.alias not in (await self.aliases.read_each()).names:
            return True
        await self._set_expiry(schema.GIVEN_UP)
        return False

    async def clear(self, limit: int) -> bool:
        """Remove points of an old incarnation. Return whether all are removed.

        Args:
            limit: Maximum number of points to remove.
        """
        others = models.Filter(must_not=[models.HasIdCondition(has_id=[self.index_point])])
        removed = 0
        async for page in self.copies.pages(others, fields=False, size=_DELETE_BATCH):
            await self._delete([str(point.id) for point in page])
            removed += len(page)
            if removed >= limit:
                return False
        if await self.copies.payloads_of_any(others, fields=()):
            return False
        await self._delete([self.index_point])
        return True

    async def _payload(self) -> payload.Payload:
        content = await super()._payload()
        return {} if content.get(schema.UNTIL) == schema.CLEARING else content

    async def _set_expiry(self, until: float) -> None:
        """Set the expiry of the lease."""
        await self.calls.write(
            AsyncQdrantClient.set_payload,
            self.name,
            payload={schema.UNTIL: until},
            points=[self.index_point],
            wait=True,
            ordering=ORDERING,
        )

    async def _delete(self, ids: list[str]) -> None:
        points = models.PointIdsList(points=[*ids])
        await self.calls.write(AsyncQdrantClient.delete, self.name, points, wait=True, ordering=ORDERING)
