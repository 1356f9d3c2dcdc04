"""What the routes need that manage indexes. Adapters: `clients`. Fakes: `causeway_testing.gateway.indexes`.

Adapters and fakes pass the same tests.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.documents import Job
from gateway.domain.embeddings import EmbeddingModel, Embeddings
from gateway.domain.indexes import IndexRebuild, IndexSettings, IndexSummary, StoredSnapshot
from gateway.domain.text_documents import DocumentPage, Equals, TextDocument


class Texts(Protocol):
    """Takes documents in that come as text."""

    async def submit(
        self,
        principal: Principal,
        index: str,
        documents: Sequence[TextDocument],
        deadline: Deadline,
        *,
        existing_only: bool = False,
    ) -> Job:
        """Queues one job for all of them and returns it; what is returned is not lost.

        Args:
            principal: Who asks.
            index: Made where it does not exist.
            documents: At least one, each with another id.
            deadline: When the job must be accepted.
            existing_only: Those that the index does not have are left out.

        Raises:
            InvalidRequest: The index has no proper name.
            Unavailable: The queue cannot be reached; nothing was accepted.
        """
        ...

    async def finished(self, principal: Principal, job: Job, deadline: Deadline) -> Job:
        """The job once it is over, with its outcomes; as it stands where the deadline comes first.

        Raises:
            CausewayError: What the job failed of.
        """
        ...


class Indexes(Protocol):
    """Manages the indexes of a tenant. One that does not exist for the principal is NotFound."""

    async def summaries(self, principal: Principal, deadline: Deadline) -> tuple[IndexSummary, ...]:
        """The indexes, ordered by name."""
        ...

    async def summary(self, principal: Principal, index: str, deadline: Deadline) -> IndexSummary:
        """One of them."""
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
        """Documents that meet all conditions, ordered by id, each with so many code points of its text."""
        ...

    async def create(
        self, principal: Principal, index: str, settings: IndexSettings, deadline: Deadline
    ) -> IndexSettings:
        """Makes an index with nothing in it; the settings that it has.

        Raises:
            Conflict: It is there.
            InvalidRequest: Naming the setting.
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
        """Gives an index those of the settings that are named; all that it has then.

        Raises:
            Conflict: It is being rebuilt.
            PermissionDenied: The principal is no administrator.
            InvalidRequest: Naming the setting; the model is none that can be changed so.
        """
        ...

    async def rebuild(
        self, principal: Principal, index: str, settings: IndexSettings, deadline: Deadline
    ) -> IndexRebuild:
        """Begins to rebuild an index in the background.

        Raises:
            Conflict: It is being rebuilt otherwise.
            PermissionDenied: The principal is no administrator.
            InvalidRequest: Naming the setting.
        """
        ...

    async def last_rebuild(self, principal: Principal, index: str, deadline: Deadline) -> IndexRebuild:
        """The rebuild that goes on, or the last one; NotFound as well where there was none."""
        ...

    async def delete(self, principal: Principal, index: str, deadline: Deadline) -> None:
        """Removes an index with everything in it."""
        ...

    async def persist(self, principal: Principal, index: str, path: str, deadline: Deadline) -> None:
        """Write a snapshot to ``path/index``; an empty path is the snapshots' directory.

        Raises:
            Conflict: Something else is there, or the tenant has as many snapshots as it may have.
            InvalidRequest: The path leads out of the snapshots' directory.
        """
        ...

    async def stored(self, principal: Principal, deadline: Deadline) -> tuple[StoredSnapshot, ...]:
        """Return the tenant's snapshots, ordered by path.

        Raises:
            PermissionDenied: The principal is no administrator.
        """
        ...

    async def delete_snapshot(self, principal: Principal, path: str, deadline: Deadline) -> None:
        """Delete a snapshot.

        Args:
            principal: Who asks.
            path: As of `StoredSnapshot`.
            deadline: When it must be over.

        Raises:
            NotFound: The path has no snapshot.
            PermissionDenied: The principal is no administrator.
            InvalidRequest: The path leads out of the snapshots' directory.
        """
        ...

    async def load(
        self, principal: Principal, index: str, path: str, deadline: Deadline, *, overwrite: bool = False
    ) -> None:
        """Make an index from its snapshot ``path/index``.

        Raises:
            NotFound: There is none; the message names its path.
            Conflict: The index is there, and is not to be overwritten.
            InvalidRequest: The path leads out of the snapshots' directory, or what is there is no snapshot of it.
        """
        ...


class Embedder(Protocol):
    """Turns texts into vectors, as those of the indexes are made."""

    async def embed(self, principal: Principal, model: str, texts: Sequence[str], deadline: Deadline) -> Embeddings:
        """The texts' vectors.

        Args:
            principal: Who asks.
            model: Empty: the default one.
            texts: None of them blank.
            deadline: When it must be over.

        Raises:
            NotFound: No such model.
            InvalidRequest: A text is blank, or too long.
        """
        ...

    async def models(self, principal: Principal, deadline: Deadline) -> tuple[EmbeddingModel, ...]:
        """The models, the default one first."""
        ...
