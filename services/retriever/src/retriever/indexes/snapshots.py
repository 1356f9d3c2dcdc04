"""Snapshots of indexes: paths, permissions and limits."""

import asyncio
import posixpath
from pathlib import Path

from embedding.models import EmbeddingModels
from servicekit import keys
from servicekit.errors import Conflict, InvalidRequest, NotFound, PermissionDenied, Unavailable
from servicekit.principal import Principal

from retriever.domain.index import Contents, IndexSpec, IndexSummary
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.storage import snapshot_files, snapshot_reader
from retriever.storage.snapshot_files import StoredSnapshot
from retriever.storage.snapshot_writer import MANIFEST, UNFINISHED, Manifest

_MAX_PATH_LENGTH = 1024
_MAX_NAME_BYTES = 255


class Snapshots:
    """Writes and loads snapshots of indexes. Each tenant has its own directory.

    Args:
        indexes: The indexes.
        directory: The directory of all tenants, created for the first snapshot.
        models: The configured models. Snapshots with vectors of another model are refused.
        max_snapshots: Maximum number of snapshots of a tenant.
    """

    def __init__(
        self, indexes: Indexes, directory: Path, models: EmbeddingModels, max_snapshots: int = 100
    ) -> None:
        self._indexes = indexes
        self._directory = directory
        self._models = models
        self._max_snapshots = max_snapshots
        self._writing: set[Path] = set()
        self._counting = asyncio.Lock()

    async def persist(self, principal: Principal, index_name: str, path: str) -> Contents:
        """Write a snapshot to the subdirectory of ``path`` that has the index's name. Replace an existing one.

        Raises:
            NotFound: The index does not exist.
            InvalidRequest: The path lies outside the tenant's directory.
            Conflict: The directory has other content or a snapshot of another index, or the snapshot is being
                written, or the tenant has too many snapshots.
            PermissionDenied: The index has documents that the caller may not see.
            Unavailable: The snapshot could not be written; an existing one is unchanged.
            RateLimited: Too many compactions and snapshots run or wait.
        """
        index = await self._indexes.get(principal.tenant, index_name)
        directory, _ = await asyncio.to_thread(self._snapshot_directories, principal.tenant, path, index_name)
        await index.check_sees_all(principal)
        async with self._counting:
            # A writer that finishes removes all other files of points, also those of a second writer.
            if directory in self._writing:
                raise Conflict("The snapshot is being written.", resource=path)
            await asyncio.to_thread(self._check_limit, principal.tenant, directory)
            self._writing.add(directory)
        try:
            await asyncio.to_thread(_prepare, directory, index_name, posixpath.join(path, index_name))
            return await index.collection.persist(directory)
        finally:
            self._writing.remove(directory)

    async def list_all(self, principal: Principal) -> list[StoredSnapshot]:
        """Return the tenant's snapshots, ordered by path.

        Raises:
            PermissionDenied: The caller is not an administrator.
        """
        _check_administrator(principal, "list")
        return await asyncio.to_thread(snapshot_files.list_snapshots, self._root(principal.tenant))

    async def delete(self, principal: Principal, path: str) -> None:
        """Delete a snapshot by the path that `list_all` returns.

        Raises:
            PermissionDenied: The caller is not an administrator.
            InvalidRequest: The path lies outside the tenant's directory.
            NotFound: The path has no snapshot.
            Conflict: The snapshot is being written.
            Unavailable: The snapshot could not be deleted.
        """
        _check_administrator(principal, "delete")
        root = self._root(principal.tenant)
        directory = await asyncio.to_thread(self._directory_of, root, path)
        async with self._counting:
            if directory in self._writing:
                raise Conflict("The snapshot is being written.", resource=path)
            try:
                existed = await asyncio.to_thread(snapshot_files.delete, directory, root)
            except OSError as error:
                raise Unavailable("The snapshot directory cannot be written to.") from error
        if not existed:
            raise NotFound(f"There is no snapshot at {path[:200]!r}.", resource=path)

    async def load(self, principal: Principal, path: str, index_name: str, *, overwrite: bool) -> IndexSummary:
        """Create an index from its snapshot below ``path``. Earlier versions wrote the snapshot at ``path`` itself.

        Raises:
            InvalidRequest: The path lies outside the tenant's directory, or the snapshot cannot be loaded, for
                instance because it belongs to another index.
            NotFound: The path has no directory of a snapshot of this index.
            Conflict: The index exists, and ``overwrite`` is not set.
            PermissionDenied: The index to overwrite has documents that the caller may not see.
            Unavailable: The load failed; nothing changed.
            RateLimited: Too many compactions and snapshots run or wait.
        """
        keys.index_name(index_name)
        directories = await asyncio.to_thread(self._snapshot_directories, principal.tenant, path, index_name)

        async def check(existing: Index | None) -> None:
            if existing is not None and not overwrite:
                raise Conflict(f"Index '{index_name}' exists already.", resource=index_name)
            if existing is not None:
                await existing.check_sees_all(principal)

        try:
            manifest, directory = await asyncio.to_thread(_find, *directories)
        except snapshot_reader.NoSnapshot:
            snapshot_path = posixpath.join(path, index_name)
            raise NotFound(f"Path does not exist: {snapshot_path}", resource=snapshot_path) from None
        if manifest.index != index_name:
            message = f"The path has a snapshot of the index '{manifest.index}', not of '{index_name}'."
            raise InvalidRequest(message, field="path")
        check_vectors(manifest, self._models)
        vectors = manifest.embedding_model, manifest.dimension
        spec = IndexSpec(principal.tenant, index_name, *vectors, manifest.settings, manifest.language)
        index = await self._indexes.load(spec, directory, check)
        scope = index.scope(principal)
        return IndexSummary(
            spec, await index.collection.count_documents(scope), await index.collection.count_chunks(scope)
        )

    def _check_limit(self, tenant: str, directory: Path) -> None:
        """Refuse a new snapshot if the tenant has too many, including those that are being written."""
        root = self._root(tenant)
        existing = {
            *snapshot_files.snapshot_directories(root),
            *(path for path in self._writing if path.is_relative_to(root)),
        }
        if directory not in existing and len(existing) >= self._max_snapshots:
            raise Conflict(
                f"There are {len(existing)} snapshots, and the limit is {self._max_snapshots} "
                "(CAUSEWAY_MAX_TENANT_SNAPSHOTS). Delete a snapshot first.",
                resource=directory.name,
            )

    def _root(self, tenant: str) -> Path:
        return (self._directory / keys.snapshots(tenant)).resolve()

    def _snapshot_directories(self, tenant: str, path: str, index_name: str) -> tuple[Path, Path]:
        """Return the directory of an index's snapshot below a path, and the path's own directory."""
        root = self._root(tenant)
        parent = self._directory_of(root, path)
        directory = self._directory_of(root, str(parent / index_name))
        if directory == root:  # reached through a link
            raise InvalidRequest("The path lies outside the snapshot directory.", field="path")
        return directory, parent

    def _directory_of(self, root: Path, path: str) -> Path:
        """Return the directory of a path below a tenant's root."""
        if len(path) > _MAX_PATH_LENGTH or not path.isprintable():
            raise InvalidRequest(f"A path has at most {_MAX_PATH_LENGTH} characters, all printable.", field="path")
        if any(len(part.encode(errors="replace")) > _MAX_NAME_BYTES for part in Path(path).parts):
            raise InvalidRequest(f"A name in a path has at most {_MAX_NAME_BYTES} bytes.", field="path")
        try:
            # An absolute path replaces the root. `resolve` follows links, so the check applies to their targets.
            directory = (root / path).resolve()
            if not directory.is_relative_to(root):
                raise InvalidRequest("The path lies outside the snapshot directory.", field="path")
            return directory
        except (OSError, RuntimeError) as error:  # a link to itself
            raise InvalidRequest("The path is not valid.", field="path") from error


def check_vectors(manifest: Manifest, models: EmbeddingModels) -> None:
    """Raise InvalidRequest if no configured model matches the vectors of a snapshot."""
    if models.find(manifest.embedding_model, manifest.dimension) is None:
        known = "; ".join(f"'{model.name}', {model.dimension} numbers" for model in models)
        raise InvalidRequest(
            f"The snapshot has vectors of the embedding model '{manifest.embedding_model}' with "
            f"{manifest.dimension} numbers each. Configured models: {known}."
            + models.install_hint(manifest.embedding_model),
            field="path",
        )


def _check_administrator(principal: Principal, action: str) -> None:
    if not principal.sees_everything:
        raise PermissionDenied(f"Only administrators can {action} snapshots.")


def _find(directory: Path, parent: Path) -> tuple[Manifest, Path]:
    """Return a snapshot's manifest and directory. Earlier versions wrote a snapshot to the parent directory."""
    if not directory.exists() and (parent / MANIFEST).is_file():
        directory = parent
    return snapshot_reader.read_manifest(directory), directory


def _prepare(directory: Path, index_name: str, path: str) -> None:
    """Create the directory of a snapshot. Refuse a directory with other files or a snapshot of another index."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / MANIFEST).is_file():
            other = snapshot_reader.read_manifest(directory).index
            if other != index_name:
                raise Conflict(f"There is a snapshot of the index '{other}' at {path}.", resource=path)
            return
        # Subdirectories may have other snapshots.
        is_free = all(path.is_dir() or UNFINISHED.fullmatch(path.name) for path in directory.iterdir())
    except (FileExistsError, NotADirectoryError):
        is_free = False
    except OSError as error:
        raise Unavailable("The snapshot directory cannot be written to.") from error
    if not is_free:
        raise Conflict(f"The directory {path} has other content.", resource=path)
