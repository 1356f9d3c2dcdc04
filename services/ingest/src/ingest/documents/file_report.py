"""Collects the progress and the warnings of a job with a file, including the files within it."""

from collections.abc import Iterable
from dataclasses import replace

from ingest.documents.report import Report
from ingest.domain import JobWarning, Progress, State
from ingest.parsing.content import MemberLimits


class FileReport:
    """Adds up the progress of a file and of the files within it, and tracks how many more files may be unpacked.

    Args:
        report: Records the progress.
        remaining: How many more files, and how many more bytes, may be unpacked from the file, at any depth.
    """

    def __init__(self, report: Report, remaining: MemberLimits) -> None:
        self.remaining = remaining
        self._report = report
        self._progress = Progress()
        self._documents = (0, 1)  # how many are done, and how many are known
        self._warnings: list[JobWarning] = []
        report.set_warnings(())

    async def report_pages(self, done: int, total: int) -> None:
        """Report how many pages of the outermost file have been read."""
        self._progress = replace(self._progress, pages_done=done, pages_total=total)
        await self._report_progress()

    async def report_chunks(self, chunks: int, *, outermost: bool) -> None:
        """Report that a document was read and split into this number of chunks.

        If it is the outermost document, the state of the job becomes INDEXING.
        """
        self._progress = replace(self._progress, chunks_total=self._progress.chunks_total + chunks)
        await self._report_progress(State.INDEXING if outermost else None)

    async def report_stored(self, chunks: int) -> None:
        """Report that this number of further chunks was stored."""
        self._progress = replace(self._progress, chunks_done=self._progress.chunks_done + chunks)
        await self._report_progress()

    async def commit(self) -> None:
        """See `Report.commit`."""
        await self._report.commit()

    def count_member(self, size: int) -> None:
        """Count an unpacked file, and subtract it and its size in bytes from the remaining limits."""
        self.remaining = MemberLimits(max(0, self.remaining.count - 1), max(0, self.remaining.bytes - size))
        done, total = self._documents
        self._documents = (done, total + 1)

    async def report_member(self) -> None:
        """Report that a file within the file is done."""
        done, total = self._documents
        self._documents = (done + 1, total)
        await self._report_progress()

    def warn(self, warnings: Iterable[JobWarning]) -> None:
        """Add warnings. The next record of the job contains them."""
        self._warnings += warnings
        self._report.set_warnings(self._warnings)

    async def _report_progress(self, state: State | None = None) -> None:
        # The progress counts documents only if the file contains other files.
        done, total = self._documents if self._documents[1] > 1 else (0, 0)
        progress = replace(self._progress, documents_done=done, documents_total=total)
        await self._report.record_progress(progress, state)
