"""The locations of the indexes of an installation."""

import uuid

from retriever.domain.index import IndexSpec
from retriever.stores.qdrant.aliases import SPACE, Aliases, Entry
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.location import Location
from retriever.stores.qdrant.server_collection import ServerCollection
from retriever.stores.qdrant.shared_location import SharedLocation
from retriever.stores.qdrant.space import Space


class Locations:
    """Creates the locations of indexes, and stores one object for each space.

    Args:
        connection: The connection to the server.
        layout: The parameters of new collections.

    Attributes:
        aliases: The aliases of the installation.
        spaces: The known spaces by name.
    """

    def __init__(self, connection: Connection, layout: Layout) -> None:
        self._connection = connection
        self._layout = layout
        self.aliases = Aliases(connection, layout.prefix)
        self.spaces: dict[str, Space] = {}

    def at(self, entry: Entry) -> Location:
        """Return the location that an entry names."""
        if self.aliases.is_shared(entry.alias):
            return SharedLocation(self.aliases, self.space(entry.collection), entry.alias)
        collection = ServerCollection(self._connection, self._layout, entry.collection)
        return Location(self.aliases, collection, entry.alias)

    def space(self, name: str) -> Space:
        """Return the space with a name."""
        return self.spaces.setdefault(name, Space(self._connection, self._layout, name))

    def incarnation(self, space: Space, spec: IndexSpec, id_: uuid.UUID) -> SharedLocation:
        """Return the location of an incarnation of an index."""
        return SharedLocation(self.aliases, space, SharedLocation.alias_of(self._layout.prefix, spec, id_))

    def is_space(self, collection: str) -> bool:
        """Return whether a collection is a space of this installation."""
        return collection.rpartition(".")[0] == self._layout.prefix + SPACE
