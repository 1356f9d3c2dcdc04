"""Synchronises an index with files: ingests changed files and deletes the documents of missing files."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from causeway.cli import folder
from causeway.cli.client import Client
from causeway.cli.errors import CommandError
from causeway.cli.folder import Mark, Snapshot
from causeway.cli.ingesting import Outcome, Source, Watcher, ingest
from causeway.cli.library import Library
from servicekit import keys

_RETRY_SECONDS = 5.0

Shown = Callable[[int], AbstractContextManager[Watcher]]
"""Shows the progress of a number of files."""


@dataclass(frozen=True, slots=True)
class Order:
    """The options of a synchronisation.

    Attributes:
        index: The index.
        at_once: The number of files that are ingested concurrently.
        patience: The seconds without progress after which a file counts as failed.
        pictures: Store pictures of pages. The command then sends each file, because only the platform knows which
            pictures are missing.
        delete_missing: Delete documents of the index that were uploaded as files and have no file any more.
    """

    index: str
    at_once: int
    patience: float
    pictures: bool = False
    delete_missing: bool = False


class Mirror:
    """Keeps an index equal to a set of files.

    Args:
        client: The platform's client.
        order: The options.
        shown: Shows the progress.
        retry: Seconds until `watch` repeats a failed synchronisation.
    """

    def __init__(self, client: Client, order: Order, shown: Shown, *, retry: float = _RETRY_SECONDS) -> None:
        self._client = client
        self._library = Library(client)
        self._order = order
        self._shown = shown
        self._retry = retry

    async def bring(self, sources: Sequence[Source]) -> list[Outcome]:
        """Ingest new and changed files, and delete documents of missing files.

        Raises:
            Unreachable: The platform cannot be reached.
        """
        documents = await self._library.documents(self._order.index)
        missing: list[Source] = []
        if self._order.delete_missing:
            names = {source.name for source in sources}
            missing = [
                Source(Path(each.name), each.name)
                for each in documents
                if each.from_file and each.name not in names and each.id == keys.document_id(each.name)
            ]
        stored = {} if self._order.pictures else {each.name: each for each in documents if each.from_file}
        with self._shown(len(sources) + len(missing)) as watcher:
            outcomes = await ingest(
                self._client,
                self._order.index,
                sources,
                watcher,
                at_once=self._order.at_once,
                patience=self._order.patience,
                stored=stored,
                pictures=self._order.pictures,
            )
            return [*outcomes, *await self._remove(missing, watcher)]

    async def watch(self, paths: Sequence[Path], complain: Callable[[str], None], *, poll: float = 0) -> None:
        """Synchronise now, and after each change of a file, until cancelled.

        Args:
            paths: Files and directories.
            complain: Gets the reason of each failure before the next attempt.
            poll: See `folder.changes`.
        """
        marks: Mapping[str, Mark] | None = None
        async for _ in folder.changes(paths, poll=poll):
            while True:
                snapshot = await asyncio.to_thread(Snapshot.of, paths)
                try:
                    await self._step(snapshot, marks)
                except CommandError as error:
                    complain(str(error))
                    await asyncio.sleep(self._retry)
                else:
                    marks = snapshot.marks
                    break

    async def _step(self, snapshot: Snapshot, marks: Mapping[str, Mark] | None) -> None:
        changed = snapshot.changed_since(marks or {})
        if marks is None:
            await self.bring(changed)
            return
        gone = [Source(Path(name), name) for name in marks if name not in snapshot.sources]
        if not changed and not gone:
            return
        with self._shown(len(changed) + len(gone)) as watcher:
            await ingest(
                self._client,
                self._order.index,
                changed,
                watcher,
                at_once=self._order.at_once,
                patience=self._order.patience,
                pictures=self._order.pictures,
            )
            await self._remove(gone, watcher)

    async def _remove(self, sources: Iterable[Source], watcher: Watcher) -> list[Outcome]:
        outcomes = [Outcome(source, "removed") for source in sources]
        if outcomes:
            ids = [keys.document_id(outcome.source.name) for outcome in outcomes]
            await self._library.remove(self._order.index, ids)
        for outcome in outcomes:
            watcher.started(outcome.source)
            watcher.finished(outcome)
        return outcomes
