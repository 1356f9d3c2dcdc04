"""Jobs that change the access list of a document and of the files within it."""

import contextlib
from dataclasses import replace

from servicekit.errors import NotFound, StaleGeneration, Unavailable

from ingest.documents.index_writer import Alone
from ingest.documents.report import Report
from ingest.domain import AccessJob, Document, State
from ingest.ports import Index


class AccessChanges:
    """Changes the access lists of existing documents.

    Args:
        index: The index.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    async def run(self, job: AccessJob, report: Report, alone: Alone) -> State:
        """Set the readers of the document, and of the files within it, to those of the job.

        The job waits until all jobs for the index that were accepted before it have ended. One of them may bring a
        version of the document, which would be refused as older than this change. The files within the document
        are changed first, so that all of them have changed once the document has.

        Returns:
            UNCHANGED if all of them had these readers before.

        Raises:
            NotFound: The document does not exist, or the caller may not see it.
            StaleGeneration: The index has a newer version.
            Unavailable: Older jobs have not ended, or the index does not answer.
            Settled: Another worker has the job, or it was cancelled.
        """
        wanted = job.document
        stored = await self._index.find(job, wanted.document_id)
        if stored is None:
            if report.committing:
                # A previous attempt changed it, and the caller may not see it any more.
                return State.SUCCEEDED
            raise NotFound(f"No such document: '{wanted.document_id}'.", resource=wanted.document_id)
        if stored.generation == wanted.generation:
            return State.SUCCEEDED  # a previous attempt changed it
        if stored.generation > wanted.generation:
            raise StaleGeneration("The index already has a newer version of the document.")
        if not await alone():
            raise Unavailable("Jobs that were accepted earlier for the index have not ended yet.")
        within = await self._within(job, stored)
        await report.commit()
        changed = False
        for member in within:
            # The file was removed, or a newer version of the outer document brought it again.
            with contextlib.suppress(NotFound, StaleGeneration):
                changed |= await self._change(job, member)
        changed |= await self._change(job, stored)
        return State.SUCCEEDED if changed else State.UNCHANGED

    async def _change(self, job: AccessJob, document: Document) -> bool:
        wanted = job.document
        return await self._index.update(
            job, replace(document, oids=wanted.oids, groups=wanted.groups, generation=wanted.generation)
        )

    async def _within(self, job: AccessJob, outer: Document) -> list[Document]:
        """Return the files within a document, at any depth, the innermost first."""
        found: dict[str, Document] = {}
        left = [outer]
        while left:
            document = left.pop()
            if document.may_have_members:
                inner = await self._index.members(job, document.document_id)
                new = [each for each in inner if each.document_id not in found]
                found |= {each.document_id: each for each in new}
                left += new
        return list(found.values())[::-1]
