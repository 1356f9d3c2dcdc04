"""Runs jobs that change the access list of a document and of the files within it."""

import contextlib
from dataclasses import replace

from servicekit.errors import NotFound, StaleGeneration

from ingest.documents.index_writer import EarlierJobsEnded
from ingest.documents.report import Report
from ingest.domain import AccessJob, Document, State
from ingest.ports import Index


class EarlierJobsPending(Exception):
    """Jobs that were accepted earlier for the index have not ended. The job must run again later."""


class AccessChanges:
    """Changes the access lists of existing documents.

    Args:
        index: The index.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    async def run(self, job: AccessJob, report: Report, earlier_jobs_ended: EarlierJobsEnded) -> State:
        """Set the readers of the document, and of the files within it, to those of the job.

        The job waits until all earlier jobs for the index have ended. Otherwise, the index would refuse the version
        that an earlier job stores after this change. The method changes the files within the document before the
        document, so that a changed document contains only changed files.

        Returns:
            UNCHANGED if the document and all files within it had these readers before; otherwise SUCCEEDED.

        Raises:
            NotFound: The document does not exist, or the caller may not see it.
            StaleGeneration: The index has a newer version.
            EarlierJobsPending: Earlier jobs for the index have not ended.
            Unavailable, DeadlineExceeded: The index does not answer.
            OwnershipLost: Another worker runs the job, or the job was cancelled.
        """
        requested = job.document
        stored = await self._index.find(job, requested.document_id)
        if stored is None:
            if report.committing:
                # A previous attempt changed the document, and the caller may no longer see it.
                return State.SUCCEEDED
            raise NotFound(f"No such document: '{requested.document_id}'.", resource=requested.document_id)
        if stored.generation == requested.generation:
            return State.SUCCEEDED  # a previous attempt changed the document
        if stored.generation > requested.generation:
            raise StaleGeneration("The index already has a newer version of the document.")
        if not await earlier_jobs_ended():
            raise EarlierJobsPending
        members = await self._members_within(job, stored)
        await report.commit()
        changed = False
        for member in members:
            # The file was removed, or a newer version of the outer document stored the file again.
            with contextlib.suppress(NotFound, StaleGeneration):
                changed |= await self._change(job, member)
        changed |= await self._change(job, stored)
        return State.SUCCEEDED if changed else State.UNCHANGED

    async def _change(self, job: AccessJob, document: Document) -> bool:
        requested = job.document
        return await self._index.update(
            job, replace(document, oids=requested.oids, groups=requested.groups, generation=requested.generation)
        )

    async def _members_within(self, job: AccessJob, outer: Document) -> list[Document]:
        """Return the files within a document at any depth, the innermost files first."""
        members: dict[str, Document] = {}
        pending = [outer]
        while pending:
            document = pending.pop()
            if document.may_have_members:
                inner = await self._index.members(job, document.document_id)
                new = [member for member in inner if member.document_id not in members]
                members |= {member.document_id: member for member in new}
                pending += new
        return list(members.values())[::-1]
