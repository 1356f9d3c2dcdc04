"""One job that changes who may see a document, and the files within it."""

import contextlib
from dataclasses import replace

from servicekit.errors import NotFound, StaleGeneration, Unavailable

from ingest.documents.index_writer import Alone
from ingest.documents.report import Report
from ingest.domain import AccessJob, Document, State
from ingest.ports import Index


class AccessChanges:
    """Changes who may see documents that are there.

    Args:
        index: Has them.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    async def run(self, job: AccessJob, report: Report, alone: Alone) -> State:
        """Give the document, and the files within it, the readers that the job names.

        The job waits until every job is over that was accepted before it for the index: one of them may bring a
        version of the document, which would be refused as older than this change. The files within the document
        come first: an attempt that finds the document changed finds all of them changed.

        Returns:
            UNCHANGED where all of them had these readers before.

        Raises:
            NotFound: There is no such document, or who asked for the change may not see it.
            StaleGeneration: A newer version of it is there.
            Unavailable: Older jobs are not over, or the index does not answer.
            Settled: Another worker has the job, or it was cancelled.
        """
        wanted = job.document
        stored = await self._index.find(job, wanted.document_id)
        if stored is None:
            if report.committing:
                # An attempt before this one changed it, and who asked for the change may not see it any more.
                return State.SUCCEEDED
            raise NotFound(f"No such document: '{wanted.document_id}'.", resource=wanted.document_id)
        if stored.generation == wanted.generation:
            return State.SUCCEEDED  # an attempt before this one changed it
        if stored.generation > wanted.generation:
            raise StaleGeneration("A newer version of the document is there already.")
        if not await alone():
            raise Unavailable("Jobs that were accepted earlier for the index are not over yet.")
        within = await self._within(job, stored)
        await report.commit()
        changed = False
        for member in within:
            # Removed meanwhile, or brought again by a newer version of the outer document.
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
