"""The interfaces for indexes: text documents, the management of indexes, and embeddings."""

from collections.abc import Collection, Sequence
from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.documents import Job
from gateway.domain.embeddings import EmbeddingModel, Embeddings
from gateway.domain.indexes import IndexRebuild, IndexSettings, IndexSummary, StoredSnapshot
from gateway.domain.text_documents import DocumentPage, Equals, TextDocument


class Texts(Protocol):
    """Adds documents that clients send as text."""

    async def submit(
        self,
        principal: Principal,
        index: str,
        documents: Sequence[TextDocument],
        deadline: Deadline,
        *,
        existing_only: bool = False,
    ) -> Job:
        """Enqueue one job for all documents and return the job. The returned job is durable.

        Args:
            principal: The caller.
            index: The name of the index. Ingest creates a missing index.
            documents: At least one document. Their ids differ.
            deadline: The time by which the queue must have accepted the job.
            existing_only: Ignore documents that the index does not contain.

        Raises:
            InvalidRequest: The name of the index is invalid.
            Unavailable: The queue cannot be reached, or is full. The job was not accepted.
            RateLimited: Too many jobs of the tenant wait.
        """
        ...

    async def finished(self, principal: Principal, job: Job, deadline: Deadline) -> Job:
        """Wait for the end of a job and return it with its outcomes. At the deadline, return its current state.

        Raises:
            Conflict: The job was cancelled.
            CausewayError: The job failed. The class depends on the reason.
        """
        ...


class Indexes(Protocol):
    """Manages the indexes of a tenant.

    Each method for an index, except `create` and `load`, raises `NotFound` if the index does not exist for the
    principal.
    """

    async def summaries(self, principal: Principal, deadline: Deadline) -> tuple[IndexSummary, ...]:
        """Return the indexes, ordered by name."""
        ...

    async def summary(self, principal: Principal, index: str, deadline: Deadline) -> IndexSummary:
        """Return one index."""
        ...

    async def documents(
        self,
        principal: Principal,
        index: str,
        *,
        offset: int,
        limit: int,
        text_length: int,
        conditions: Sequence[Equals],
        deadline: Deadline,
    ) -> DocumentPage:
        """Return documents that meet all conditions, ordered by id.

        Each document has the first ``text_length`` code points of its text.
        """
        ...

    async def create(
        self, principal: Principal, index: str, settings: IndexSettings, deadline: Deadline
    ) -> IndexSettings:
        """Create an empty index and return its settings.

        Raises:
            Conflict: The index exists.
            InvalidRequest: A setting is invalid. The error names the setting.
        """
        ...

    async def update(
        self,
        principal: Principal,
        index: str,
        settings: IndexSettings,
        names: Collection[str],
        deadline: Deadline,
    ) -> IndexSettings:
        """Change the named settings of an index and return all its settings.

        Raises:
            Conflict: The index is being rebuilt.
            PermissionDenied: The principal is not an administrator.
            InvalidRequest: A setting is invalid, or only a rebuild can change it. The error names the setting.
        """
        ...

    async def rebuild(
        self, principal: Principal, index: str, settings: IndexSettings, deadline: Deadline
    ) -> IndexRebuild:
        """Start to rebuild an index in the background. If the same rebuild already runs, return its progress.

        Raises:
            Conflict: A different rebuild of the index runs.
            PermissionDenied: The principal is not an administrator.
            InvalidRequest: A setting is invalid. The error names the setting.
        """
        ...

    async def last_rebuild(self, principal: Principal, index: str, deadline: Deadline) -> IndexRebuild:
        """Return the running rebuild or the last rebuild. Raise `NotFound` also for an index without a rebuild."""
        ...

    async def delete(self, principal: Principal, index: str, deadline: Deadline) -> None:
        """Delete an index with all its contents.

        Raises:
            PermissionDenied: The index has documents that the principal may not see.
        """
        ...

    async def persist(self, principal: Principal, index: str, path: str, deadline: Deadline) -> None:
        """Write a snapshot to ``path/index``, and replace an existing one. An empty path: the snapshot directory.

        Raises:
            Conflict: The directory has other content, the snapshot is being written, or the tenant has too many
                snapshots.
            PermissionDenied: The index has documents that the principal may not see.
            InvalidRequest: The path leads out of the snapshot directory.
        """
        ...

    async def list_snapshots(self, principal: Principal, deadline: Deadline) -> tuple[StoredSnapshot, ...]:
        """Return the tenant's snapshots, ordered by path.

        Raises:
            PermissionDenied: The principal is not an administrator.
        """
        ...

    async def delete_snapshot(self, principal: Principal, path: str, deadline: Deadline) -> None:
        """Delete a snapshot.

        Args:
            principal: The caller.
            path: The path, as in `StoredSnapshot`.
            deadline: The time by which the call must end.

        Raises:
            NotFound: The path has no snapshot.
            Conflict: The snapshot is being written.
            PermissionDenied: The principal is not an administrator.
            InvalidRequest: The path leads out of the snapshot directory.
        """
        ...

    async def load(
        self, principal: Principal, index: str, path: str, deadline: Deadline, *, overwrite: bool = False
    ) -> None:
        """Create an index from its snapshot ``path/index``.

        Raises:
            NotFound: The snapshot does not exist. The message names its path.
            Conflict: The index exists, and ``overwrite`` is False.
            PermissionDenied: The index to overwrite has documents that the principal may not see.
            InvalidRequest: The path leads out of the snapshot directory, or is not a snapshot of the index.
        """
        ...


class Embedder(Protocol):
    """Computes vectors of texts with the embedding models of the indexes."""

    async def embed(self, principal: Principal, model: str, texts: Sequence[str], deadline: Deadline) -> Embeddings:
        """Return the texts' vectors.

        Args:
            principal: The caller.
            model: The name of the model, or empty for the default model.
            texts: The texts. They must not be blank.
            deadline: The time by which the call must end.

        Raises:
            NotFound: The model does not exist.
            InvalidRequest: A text is blank, or too long.
        """
        ...

    async def models(self, principal: Principal, deadline: Deadline) -> tuple[EmbeddingModel, ...]:
        """Return the models, the default model first."""
        ...
