"""The interfaces for documents: ingest, the catalogue of indexed documents, and the store of originals."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.documents import (
    AccessChange,
    Job,
    PassagePage,
    ReadDocument,
    Removal,
    StoredDocument,
    StoredPage,
    TextRange,
    Upload,
)


class Ingest(Protocol):
    """Adds documents."""

    async def submit(self, principal: Principal, upload: Upload, deadline: Deadline) -> Job:
        """Store the original, enqueue its job and return the job. The returned job is durable.

        Raises:
            Unavailable: The queue cannot be reached, or is full. The job was not accepted.
            RateLimited: Too many jobs of the tenant wait.
        """
        ...

    async def change_access(self, principal: Principal, change: AccessChange, deadline: Deadline) -> Job:
        """Enqueue a change of a document's access list and return the job. The returned job is durable.

        Changes and new versions of a document take effect in the order of their jobs.

        Raises:
            Unavailable, RateLimited: As in `submit`.
        """
        ...

    async def job(self, principal: Principal, job_id: str, deadline: Deadline) -> Job:
        """Return the current state of a job.

        Raises:
            NotFound: The tenant has no such job.
        """
        ...


class Catalogue(Protocol):
    """Lists, reads and removes the documents of indexes."""

    async def remove(
        self, principal: Principal, index: str, document_ids: Sequence[str], deadline: Deadline
    ) -> Removal:
        """Remove documents with all their chunks.

        Raises:
            NotFound: The index does not exist for the principal.
        """
        ...

    async def find(
        self, principal: Principal, index: str, values: Mapping[str, Sequence[str]], deadline: Deadline
    ) -> tuple[StoredDocument, ...]:
        """Return the documents that the principal may see and whose fields each have one of the given values.

        Args:
            principal: The caller.
            index: The index to search.
            values: The values of each field: ``document_id``, ``sourcefile``, ``category``, ``metadata.<key>``.
                Without fields, all documents match.
            deadline: The time by which the call must end.

        Raises:
            NotFound: The index does not exist for the principal.
        """
        ...

    async def read(
        self, principal: Principal, index: str, document_id: str, part: TextRange, deadline: Deadline
    ) -> ReadDocument:
        """Return a document with a part of its text.

        Raises:
            NotFound: The index or the document does not exist, or the principal may not see it.
            InvalidRequest: The part is too long.
        """
        ...

    async def passages(
        self, principal: Principal, index: str, document_id: str, first: int, count: int, deadline: Deadline
    ) -> PassagePage:
        """Return a document with some of its passages, in their order in the document.

        Args:
            principal: The caller.
            index: The index of the document.
            document_id: The id of the document.
            first: The number of the first passage to return, counted from 0.
            count: The maximum number of passages to return, 1 to 100.
            deadline: The time by which the call must end.

        Raises:
            NotFound: The index or the document does not exist, or the principal may not see it.
        """
        ...

    async def page(
        self, principal: Principal, index: str, count: int, token: str, deadline: Deadline
    ) -> StoredPage:
        """Return a page of the documents of an index that the principal may see.

        Raises:
            NotFound: The index does not exist for the principal.
            InvalidRequest: The token is invalid.
        """
        ...


class Originals(Protocol):
    """Stores the originals of documents."""

    def open(
        self, principal: Principal, name: str, size_bytes: int, deadline: Deadline
    ) -> AbstractAsyncContextManager[Path]:
        """Provide a file with an original's bytes until the block ends. The function checks no permission.

        Raises:
            NotFound: The original does not exist.
            Unavailable: The store is not available.
        """
        ...

    async def forget(self, principal: Principal, index: str, names: Sequence[str]) -> None:
        """Remove the originals of an index's deleted documents. Ignore originals that belong to another index.

        The function logs a failure and does not raise it. A remaining original has no document, so no caller can
        read it.
        """
        ...
