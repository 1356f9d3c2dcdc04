"""Snapshots of indexes: where they may lie, who may write and load them."""

import asyncio
from pathlib import Path

from embedding.models import EmbeddingModels
from servicekit import keys
from servicekit.errors import Conflict, InvalidRequest, NotFound, Unavailable
from servicekit.principal import Principal

from retriever.catalogue import check_sees_all
from retriever.domain import Contents, IndexSpec, IndexSummary
from retriever.index import Index
from retriever.indexes import Indexes
from retriever.store import snapshot_reader
from retriever.store.snapshot import MANIFEST, Manifest

_LONGEST_PATH = 1024
_LONGEST_NAME = 255


class Snapshots:
    """Writes indexes to a directory, and makes indexes from what is there. Each tenant has a directory in it.

    Args:
        indexes: The indexes.
        directory: Made when the first snapshot is written.
        models: Those that are configured; what no one of them made is not loaded.
    """

    def __init__(self, indexes: Indexes, directory: Path, models: EmbeddingModels) -> None:
        self._indexes = indexes
        self._directory = directory
        self._models = models

    async def persist(self, principal: Principal, index_name: str, path: str) -> Contents:
        """Writes a snapshot, in the place of one that is there.

        Raises:
            NotFound: There is no such index.
            InvalidRequest: The path lies outside the tenant's directory.
            Conflict: Something else is there.
            PermissionDenied: The index holds documents that the asker may not see.
            Unavailable: It could not be done; a snapshot that was there still is.
        """
        index = await self._indexes.get(principal.tenant, index_name)
        directory = await asyncio.to_thread(self._place, principal.tenant, path)
        await check_sees_all(index, principal)
        await asyncio.to_thread(_make, directory, path)
        return await index.collection.persist(directory)

    async def load(self, principal: Principal, path: str, index_name: str, *, overwrite: bool) -> IndexSummary:
        """Makes an index from a snapshot.

        Raises:
            InvalidRequest: The path lies outside the tenant's directory, or what is there cannot be loaded.
            NotFound: There is nothing at the path.
            Conflict: The index is there, and not to be overwritten.
            PermissionDenied: It is to be, and holds documents that the asker may not see.
            Unavailable: It could not be done; nothing changed.
        """
        keys.index_name(index_name)
        directory = await asyncio.to_thread(self._place, principal.tenant, path)

        async def check(existing: Index | None) -> None:
            if existing is not None and not overwrite:
                raise Conflict(f"Index '{index_name}' exists already.", resource=index_name)
            if existing is not None:
                await check_sees_all(existing, principal)

        try:
            manifest = await asyncio.to_thread(snapshot_reader.read_manifest, directory)
        except snapshot_reader.NoSnapshot:
            raise NotFound(f"Path does not exist: {path}", resource=path) from None
        self._check_vectors(manifest)
        made_by = manifest.embedding_model, manifest.dimension
        spec = IndexSpec(principal.tenant, index_name, *made_by, manifest.settings)
        index = await self._indexes.load(spec, directory, check)
        scope = index.scope(principal)
        return IndexSummary(
            spec, await index.collection.count_documents(scope), await index.collection.count_chunks(scope)
        )

    def _place(self, tenant: str, path: str) -> Path:
        """The directory that a path names."""
        if not path.strip() or len(path) > _LONGEST_PATH or not path.isprintable():
            raise InvalidRequest(f"A path has 1 to {_LONGEST_PATH} printable characters.", field="path")
        if any(len(part.encode(errors="replace")) > _LONGEST_NAME for part in Path(path).parts):
            raise InvalidRequest(f"A name in a path has at most {_LONGEST_NAME} bytes.", field="path")
        try:
            root = (self._directory / keys.snapshots(tenant)).resolve()
            # An absolute path takes the root's place here. Links are followed, so that what they hide is seen.
            place = (root / path).resolve()
            if place == root or not place.is_relative_to(root):
                raise InvalidRequest("The path lies outside the snapshot directory.", field="path")
            return place
        except (OSError, RuntimeError) as error:  # a link to itself
            raise InvalidRequest("That is no path.", field="path") from error

    def _check_vectors(self, manifest: Manifest) -> None:
        if self._models.fitting(manifest.embedding_model, manifest.dimension) is None:
            known = "; ".join(f"'{model.name}', {model.dimension} numbers" for model in self._models)
            raise InvalidRequest(
                f"The snapshot has vectors of the embedding model '{manifest.embedding_model}' with "
                f"{manifest.dimension} numbers each. Configured are: {known}.",
                field="path",
            )


def _make(directory: Path, path: str) -> None:
    """Makes the directory, if it is not there; it holds nothing, or a snapshot, when this returns."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        is_free = (directory / MANIFEST).is_file() or not any(directory.iterdir())
    except (FileExistsError, NotADirectoryError):
        is_free = False
    except OSError as error:
        raise Unavailable("The snapshot directory cannot be written to.") from error
    if not is_free:
        raise Conflict(f"There is something else at {path}.", resource=path)
