"""A collection that many indexes with the same model, vector length and vector storage share.

::

    <prefix>-space.<digest of model, dimension, quantization, and whether vectors are on the disk>

Earlier versions of the retriever do not use spaces. They remove collections without an alias whose names begin
with ``<prefix>.``. So names of spaces begin differently.
"""

import hashlib
import time
import uuid
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from qdrant_client import models

from retriever.domain.index import IndexSpec
from retriever.stores import payload
from retriever.stores.payload import FACTS, NUMBERS
from retriever.stores.qdrant import schema
from retriever.stores.qdrant.aliases import SPACE
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.copies import Copies
from retriever.stores.qdrant.incarnation import FIELD
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.server_collection import ServerCollection

_LINKS = 16
_spec = msgspec.json.Decoder(IndexSpec)

PAYLOAD_INDEXES: tuple[tuple[str, models.PayloadSchemaParams], ...] = (
    (FIELD, models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)),
    (FACTS, models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, enable_hnsw=False)),
    (
        f"{NUMBERS}[].key",
        models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, enable_hnsw=False),
    ),
    (f"{NUMBERS}[].value", models.FloatIndexParams(type=models.FloatIndexType.FLOAT, enable_hnsw=False)),
    ("number", models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, enable_hnsw=False)),
)
"""A graph connects only points of one incarnation. With `enable_hnsw=False`, `payload_m` adds no graphs for other
fields."""


class StoredIncarnation(NamedTuple):
    """An incarnation with points in a space.

    Attributes:
        incarnation: The id.
        spec: The specification of the index.
        until: The expiry of its lease as a Unix time.
        is_replacement: Whether it will replace another incarnation.
    """

    incarnation: uuid.UUID
    spec: IndexSpec
    until: float
    is_replacement: bool


class Space(ServerCollection):
    """A shared collection."""

    def __init__(self, connection: Connection, layout: Layout, name: str) -> None:
        super().__init__(connection, layout, name)
        self._is_known = False

    @staticmethod
    def name_of(layout: Layout, spec: IndexSpec) -> str:
        """Return the name of the space that an index belongs to."""
        kind = spec.embedding_model, spec.dimension, layout.vectors.quantization, layout.vectors.on_disk
        return f"{layout.prefix}{SPACE}.{hashlib.sha256(msgspec.json.encode(kind)).hexdigest()[:32]}"

    async def create_once(self, dimension: int) -> None:
        """Create the collection if it does not exist. Only the first call checks this.

        Raises:
            Unavailable: The server fails to create the collection.
        """
        if not self._is_known:
            await self.create(dimension, PAYLOAD_INDEXES, models.HnswConfigDiff(m=0, payload_m=_LINKS))
            self._is_known = True

    async def adapt_once(self) -> None:
        """Read the parameters of the collection once.

        Raises:
            Missing: The collection does not exist.
        """
        if not self._is_known:
            await self.adapt()
            self._is_known = True

    async def incarnations(self, *facts: str) -> list[StoredIncarnation]:
        """Return the incarnations with points in the collection, published or not.

        Args:
            facts: Limits the result to incarnations whose point has these facts.

        Raises:
            Missing: The collection does not exist.
        """
        found = await self._read(schema.INDEX, facts, [FIELD, "spec", schema.UNTIL, "beside"])
        return sorted(
            StoredIncarnation(
                uuid.UUID(content[FIELD]), _spec.decode(content["spec"]), content[schema.UNTIL], content["beside"]
            )
            for content in found.values()
        )

    async def notes(self) -> dict[str, bytes]:
        """Return the notes by incarnation.

        Raises:
            Missing: The collection does not exist.
        """
        found = await self._read(schema.INDEX, (), [FIELD, schema.NOTE])
        return {content[FIELD]: schema.note(content) for content in found.values()}

    async def with_abandoned_marks(self) -> set[str]:
        """Return the incarnations with expired marks, which a terminated process may have left. Use one call.

        Raises:
            Missing: The collection does not exist.
        """
        found = await self._read(payload.MARK, (), [FIELD, schema.UNTIL])
        now = time.time()
        return {content[FIELD] for content in found.values() if content[schema.UNTIL] < now}

    async def _read(self, kind: str, facts: Sequence[str], fields: Sequence[str]) -> dict[str, payload.Payload]:
        """Return the payloads of points of all incarnations."""
        copies = Copies(self.connection, self.name, self.replicas)
        return await copies.payloads_of_any(schema.has_facts(payload.kind(kind), *facts), fields)
