"""What the gateway needs of the services that take documents in and keep them."""

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
    """Takes documents in."""

    async def submit(self, principal: Principal, upload: Upload, deadline: Deadline) -> Job:
        """Stores the original, enqueues its job and returns it; what is returned is not lost.

        Raises:
            Unavailable: The queue cannot be reached, or is full; nothing was accepted.
            RateLimited: Too many jobs of the tenant wait already.
        """
        ...

    async def change_access(self, principal: Principal, change: AccessChange, deadline: Deadline) -> Job:
        """Enqueues a change of who may see a document, and returns its job; what is returned is not lost.

        The order of the jobs decides between it and the versions of the document that are on their way.

        Raises:
            Unavailable, RateLimited: As `submit`.
        """
        ...

    async def job(self, principal: Principal, job_id: str, deadline: Deadline) -> Job:
        """A job as it stands now.

        Raises:
            NotFound: No such job of this tenant.
        """
        ...


class Catalogue(Protocol):
    """Knows the documents of the indexes."""

    async def remove(
        self, principal: Principal, index: str, document_ids: Sequence[str], deadline: Deadline
    ) -> Removal:
        """Removes documents with all their chunks.

        Raises:
            NotFound: The index does not exist for the principal.
        """
        ...

    async def find(
        self, principal: Principal, index: str, values: Mapping[str, Sequence[str]], deadline: Deadline
    ) -> tuple[StoredDocument, ...]:
        """The documents whose fields each have one of some values, as far as the principal may see them.

        Args:
            principal: Who asks.
            index: Where to look.
            values: By field: ``sourcefile``, ``category``, ``metadata.<key>``.
            deadline: When it must be over.

        Raises:
            NotFound: The index does not exist for the principal.
        """
        ...

    async def read(
        self, principal: Principal, index: str, document_id: str, part: TextRange, deadline: Deadline
    ) -> ReadDocument:
        """A document with a part of its text.

        Raises:
            NotFound: There is no such index or document, or not for the principal.
            InvalidRequest: So much text is not given at once.
        """
        ...

    async def passages(
        self, principal: Principal, index: str, document_id: str, first: int, count: int, deadline: Deadline
    ) -> PassagePage:
        """A document with its passages from a number on, at most 100.

        Raises:
            NotFound: There is no such index or document, or not for the principal.
        """
        ...

    async def page(
        self, principal: Principal, index: str, count: int, token: str, deadline: Deadline
    ) -> StoredPage:
        """Some of the documents of an index that the principal may see.

        Raises:
            NotFound: The index does not exist for the principal.
            InvalidRequest: The token is none that a page had.
        """
        ...


class Originals(Protocol):
    """Has the originals of documents."""

    def open(
        self, principal: Principal, name: str, size_bytes: int, deadline: Deadline
    ) -> AbstractAsyncContextManager[Path]:
        """A file with an original's bytes, until the block is left. Who may see it is for others to ask.

        Raises:
            NotFound: There is none.
            Unavailable: It cannot be fetched now.
        """
        ...

    async def forget(self, principal: Principal, index: str, names: Sequence[str]) -> None:
        """Removes originals, once their documents are gone; those that came into another index stay.

        It raises nothing: what is left behind leads nowhere any more, and is logged.
        """
        ...
