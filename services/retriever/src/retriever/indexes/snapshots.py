"""Snapshots of indexes: where they may lie, who may write and load them."""

import asyncio
import posixpath
from pathlib import Path

from embedding.models import EmbeddingModels
from servicekit import keys
from servicekit.errors import Conflict, InvalidRequest, NotFound, Unavailable
from servicekit.principal import Principal

from retriever.domain.index import Contents, IndexSpec, IndexSummary
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.storage import snapshot_reader
from retriever.storage.snapshot_writer import MANIFEST, Manifest

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
        """Write a snapshot to the subdirectory of ``path`` that has the index's name; replace one that is there.

        Raises:
            NotFound: There is no such index.
            InvalidRequest: The path lies outside the tenant's directory.
            Conflict: Something else is there, or a snapshot of another index.
            PermissionDenied: The index holds documents that the asker may not see.
            Unavailable: It could not be done; a snapshot that was there still is.
        """
        index = await self._indexes.get(principal.tenant, index_name)
        directory, _ = await asyncio.to_thread(self._places, principal.tenant, path, index_name)
        await index.check_sees_all(principal)
        await asyncio.to_thread(_make, directory, index_name, posixpath.join(path, index_name))
        return await index.collection.persist(directory)

    async def load(self, principal: Principal, path: str, index_name: str, *, overwrite: bool) -> IndexSummary:
        """Make an index from its snapshot below ``path``, or from one that an earlier version wrote at ``path``.

        Raises:
            InvalidRequest: The path lies outside the tenant's directory, or what is there cannot be loaded, for
                instance because it is a snapshot of another index.
            NotFound: There is nothing at the path.
            Conflict: The index is there, and not to be overwritten.
            PermissionDenied: It is to be, and holds documents that the asker may not see.
            Unavailable: It could not be done; nothing changed.
        """
        keys.index_name(index_name)
        places = await asyncio.to_thread(self._places, principal.tenant, path, index_name)

        async def check(existing: Index | None) -> None:
            if existing is not None and not overwrite:
                raise Conflict(f"Index '{index_name}' exists already.", resource=index_name)
            if existing is not None:
                await existing.check_sees_all(principal)

        try:
            manifest, directory = await asyncio.to_thread(_find, *places)
        except snapshot_reader.NoSnapshot:
            place = posixpath.join(path, index_name)
            raise NotFound(f"Path does not exist: {place}", resource=place) from None
        if manifest.index != index_name:
            said = f"The snapshot at the path is one of the index '{manifest.index}', not of '{index_name}'."
            raise InvalidRequest(said, field="path")
        self._check_vectors(manifest)
        made_by = manifest.embedding_model, manifest.dimension
        spec = IndexSpec(principal.tenant, index_name, *made_by, manifest.settings)
        index = await self._indexes.load(spec, directory, check)
        scope = index.scope(principal)
        return IndexSummary(
            spec, await index.collection.count_documents(scope), await index.collection.count_chunks(scope)
        )

    def _places(self, tenant: str, path: str, index_name: str) -> tuple[Path, Path]:
        """Return the directory of an index's snapshot below a path, and the path's own directory."""
        if len(path) > _LONGEST_PATH or not path.isprintable():
            raise InvalidRequest(f"A path has at most {_LONGEST_PATH} characters, all printable.", field="path")
        if any(len(part.encode(errors="replace")) > _LONGEST_NAME for part in Path(path).parts):
            raise InvalidRequest(f"A name in a path has at most {_LONGEST_NAME} bytes.", field="path")
        try:
            root = (self._directory / keys.snapshots(tenant)).resolve()
            # An absolute path takes the root's place here. Links are followed, so that what they hide is seen.
            parent = (root / path).resolve()
            place = (parent / index_name).resolve()
            if place == root or not place.is_relative_to(root) or not parent.is_relative_to(root):
                raise InvalidRequest("The path lies outside the snapshot directory.", field="path")
            return place, parent
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


def _find(directory: Path, parent: Path) -> tuple[Manifest, Path]:
    """Return a snapshot's manifest and directory. Earlier versions wrote a snapshot into what is now its parent."""
    if not directory.exists() and (parent / MANIFEST).is_file():
        directory = parent
    return snapshot_reader.read_manifest(directory), directory


def _make(directory: Path, index_name: str, path: str) -> None:
    """Make the directory; when this returns it holds nothing, directories, or a snapshot of the same index."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / MANIFEST).is_file():
            other = snapshot_reader.read_manifest(directory).index
            if other != index_name:
                raise Conflict(f"There is a snapshot of the index '{other}' at {path}.", resource=path)
            return
        # The path of another snapshot may lead through it.
        is_free = all(each.is_dir() for each in directory.iterdir())
    except (FileExistsError, NotADirectoryError):
        is_free = False
    except OSError as error:
        raise Unavailable("The snapshot directory cannot be written to.") from error
    if not is_free:
        raise Conflict(f"There is something else at {path}.", resource=path)
