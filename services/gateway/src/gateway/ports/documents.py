"""The services that add documents and store them."""

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
        """Store the original and enqueue its job; the returned job is durable.

        Raises:
            Unavailable: The queue cannot be reached, or is full; nothing was accepted.
            RateLimited: Too many jobs of the tenant wait already.
        """
        ...

    async def change_access(self, principal: Principal, change: AccessChange, deadline: Deadline) -> Job:
        """Enqueue a change of a document's access list and return the job; the returned job is durable.

        The order of the jobs decides between the change and the queued versions of the document.

        Raises:
            Unavailable, RateLimited: As in `submit`.
        """
        ...

    async def job(self, principal: Principal, job_id: str, deadline: Deadline) -> Job:
        """Return the present state of a job.

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
        """Return the documents whose fields each have one of the given values and that the principal may see.

        Args:
            principal: The caller.
            index: The index to search.
            values: By field: ``sourcefile``, ``category``, ``metadata.<key>``.
            deadline: When the call must end.

        Raises:
            NotFound: The index does not exist for the principal.
        """
        ...

    async def read(
        self, principal: Principal, index: str, document_id: str, part: TextRange, deadline: Deadline
    ) -> ReadDocument:
        """Return a document with a part of its text.

        Raises:
            NotFound: The index or the document does not exist for the principal.
            InvalidRequest: The part is too long.
        """
        ...

    async def passages(
        self, principal: Principal, index: str, document_id: str, first: int, count: int, deadline: Deadline
    ) -> PassagePage:
        """Return a document with its passages from a number on, at most 100.

        Raises:
            NotFound: The index or the document does not exist for the principal.
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
        """Provide a file with an original's bytes until the block ends. It checks no permission.

        Raises:
            NotFound: There is no such original.
            Unavailable: The store does not answer.
        """
        ...

    async def forget(self, principal: Principal, index: str, names: Sequence[str]) -> None:
        """Remove originals after their documents are deleted; originals that another index also has remain.

        It raises nothing: an original that remains has no document, so no caller can reach it. The failure is
        logged.
        """
        ...
