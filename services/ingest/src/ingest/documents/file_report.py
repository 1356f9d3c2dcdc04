"""What a worker says of a job with a file: how far it is, over the files within it, and what was not read."""

from collections.abc import Iterable
from dataclasses import replace

from ingest.documents.report import Report
from ingest.domain import JobWarning, Progress, State
from ingest.parsing.content import Room


class FileReport:
    """Adds up what is said of a file and of the files within it, and how much room is left for more of them.

    Args:
        report: Records it.
        room: For files within the file, at any depth.
    """

    def __init__(self, report: Report, room: Room) -> None:
        self.room = room
        self._report = report
        self._progress = Progress()
        self._documents = (0, 1)
        self._warnings: list[JobWarning] = []
        report.warn(())

    async def read(self, done: int, total: int) -> None:
        """Say how many pages of the outermost file are read."""
        self._progress = replace(self._progress, pages_done=done, pages_total=total)
        await self._say()

    async def cut(self, chunks: int, *, outermost: bool) -> None:
        """Say that a document was read, and has so many chunks."""
        self._progress = replace(self._progress, chunks_total=self._progress.chunks_total + chunks)
        await self._say(State.INDEXING if outermost else None)

    async def stored(self, chunks: int) -> None:
        """Say that so many more chunks were taken."""
        self._progress = replace(self._progress, chunks_done=self._progress.chunks_done + chunks)
        await self._say()

    async def commit(self) -> None:
        """See `Report.commit`."""
        await self._report.commit()

    def found_member(self, size: int) -> None:
        """Count a file that was unpacked."""
        self.room = Room(max(0, self.room.count - 1), max(0, self.room.bytes - size))
        done, total = self._documents
        self._documents = (done, total + 1)

    async def finished_member(self) -> None:
        """Say that a file within the file is done."""
        done, total = self._documents
        self._documents = (done + 1, total)
        await self._say()

    def warn(self, warnings: Iterable[JobWarning]) -> None:
        """Add warnings; the next record holds them."""
        self._warnings += warnings
        self._report.warn(self._warnings)

    async def _say(self, state: State | None = None) -> None:
        done, total = self._documents if self._documents[1] > 1 else (0, 0)
        said = replace(self._progress, documents_done=done, documents_total=total)
        await self._report.progress(said, state)
