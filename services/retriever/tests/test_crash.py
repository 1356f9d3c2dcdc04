"""After a crash at any time, the next start finds all chunks of exactly one version of each document."""

import asyncio
import itertools
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Document
from retriever.domain.index import IndexSpec
from retriever.domain.query import Mode
from retriever.domain.scope import EVERYTHING
from retriever.ports.store import Collection, Store
from retriever.stores.edge.store import EdgeStore
from servicekit.errors import NotFound
from servicekit.principal import LOCAL

pytestmark = pytest.mark.slow

OLD = [f"the old ferry {number}" for number in range(70)]
NEW = [f"the new ferry {number}" for number in range(150)]


class Photographed:
    """A collection whose files are copied after each step, as a crash would leave them."""

    WRITES = frozenset(
        {
            "publish",
            "put_documents",
            "add_chunks",
            "remove_chunks",
            "put_record",
            "remove_record",
            "mark",
            "unmark",
            "sync",
        }
    )

    def __init__(self, collection: Collection, take: Callable[[str], None]) -> None:
        self._collection = collection
        self._take = take

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._collection, name)
        if name not in self.WRITES:
            return method

        async def step(*arguments: Any, **named: Any) -> Any:
            result = await method(*arguments, **named)
            self._take(name)
            return result

        return step


class PhotographedStore:
    """A store on disk that copies itself after each step."""

    is_shared = False

    def __init__(self, directory: Path, album: Path) -> None:
        self._store = EdgeStore(directory, Scheduler())
        self._directory = directory
        self._album = album
        self._numbers = itertools.count()
        self.photos: list[Path] = []

    async def collections(self) -> list[Collection]:
        return [self._photographed(collection) for collection in await self._store.collections()]

    async def notes(self) -> Mapping[tuple[str, str], bytes]:
        return await self._store.notes()

    async def find(self, tenant: str, name: str) -> Collection | None:
        return next((collection for collection in await self.collections() if collection.spec.name == name), None)

    async def create(self, spec: IndexSpec, *, is_replacement: bool = False) -> Collection:
        return self._photographed(await self._store.create(spec, is_replacement=is_replacement))

    async def tidy(self) -> Sequence[Collection]:
        return [self._photographed(collection) for collection in await self._store.tidy()]

    async def aclose(self) -> None:
        await self._store.aclose()

    def _photographed(self, collection: Collection) -> Collection:
        return cast("Collection", Photographed(collection, self._take))

    def _take(self, step: str) -> None:
        photo = self._album / f"{next(self._numbers):03d}-{step}"
        subprocess.run(["cp", "-a", self._directory, photo], check=True)  # keeps sparse files sparse
        self.photos.append(photo)


async def found_in(directory: Path) -> list[str] | None:
    """Return the document's texts that a retriever on these files finds, or None if the index does not exist."""
    bench = await Bench.open(EdgeStore(directory, Scheduler()))
    try:
        if not await bench.catalogue.indexes(LOCAL):
            return None
        for mode in Mode:
            passages = await bench.ask("old new ferry", top=1000, mode=mode)
            texts = sorted(passage.text for passage in passages)
            collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
            assert await collection.marked() == []
            assert await collection.count_chunks(EVERYTHING) == len(texts)
            try:
                record = await bench.catalogue.document(LOCAL, INDEX, "d")
            except NotFound:
                assert texts == []
            else:
                assert record.chunk_count == len(texts)
                assert {passage.document for passage in passages} == {record}
        return texts
    finally:
        await bench.aclose()


async def photograph(
    tmp_path: Path, before: Callable[[Bench], Awaitable[Any]], then: Callable[[Bench], Awaitable[Any]]
) -> list[tuple[str, list[str] | None]]:
    """Return the name of each step of ``then``, and what a retriever finds after a crash at this step."""
    directory, album = tmp_path / "store", tmp_path / "album"
    album.mkdir()
    store = PhotographedStore(directory, album)
    bench = await Bench.open(cast("Store", store))
    await before(bench)
    store.photos.clear()
    await then(bench)
    photos = list(store.photos)
    await bench.aclose()
    return [(photo.name[4:], await found_in(photo)) for photo in photos]


async def nothing(bench: Bench) -> None:
    """Prepare nothing."""


async def put_old(bench: Bench) -> None:
    await bench.put(Document("d", generation=1), OLD)


async def put_new(bench: Bench) -> None:
    await bench.put(Document("d", generation=2), NEW)


async def test_crash_while_replacing(tmp_path: Path) -> None:
    """The old version is found until the new record is stored. Afterwards the new version is found."""
    found = await photograph(tmp_path, put_old, put_new)
    steps = [step for step, _ in found]
    assert steps == ["mark", *["add_chunks"] * 3, "put_record", "sync", "remove_chunks", "unmark"]
    commit = steps.index("put_record")
    assert [texts for _, texts in found] == [sorted(OLD)] * commit + [sorted(NEW)] * (len(steps) - commit)


async def test_crash_while_a_first_document_is_stored(tmp_path: Path) -> None:
    """Before its publication the index does not exist. Afterwards it has the complete document."""
    found = await photograph(tmp_path, nothing, put_new)
    steps = [step for step, _ in found]
    commit = steps.index("publish")
    assert steps[commit - 1] == "put_record"
    assert [texts for _, texts in found] == [None] * commit + [sorted(NEW)] * (len(steps) - commit)


async def test_crash_while_a_small_document_is_stored(tmp_path: Path) -> None:
    """The first small document is stored in one step."""

    async def put_small(bench: Bench) -> None:
        await bench.put(Document("d", generation=1), OLD[:3])

    found = await photograph(tmp_path, nothing, put_small)
    assert found == [("put_documents", None), ("publish", sorted(OLD[:3])), ("sync", sorted(OLD[:3]))]


async def test_crash_while_a_small_document_replaces_another(tmp_path: Path) -> None:
    """After the single step, only the new version is found."""

    async def put_small(bench: Bench) -> None:
        await bench.put(Document("d", generation=2), NEW[:3])

    found = await photograph(tmp_path, put_old, put_small)
    assert found == [(step, sorted(NEW[:3])) for step in ("put_documents", "sync", "remove_chunks", "unmark")]


async def test_crash_while_an_upsert_fails(tmp_path: Path) -> None:
    """At each step of the cleanup of a failed upsert, the old version is complete."""

    async def fail(bench: Bench) -> None:
        async def broken() -> Any:
            yield bench.begin(Document("d", generation=2))
            chunks = await bench.chunks(NEW)
            yield chunks[:64]
            yield chunks[64:128]
            raise ConnectionError

        with pytest.raises(ConnectionError):
            await bench.upserts.upsert(broken())

    found = await photograph(tmp_path, put_old, fail)
    assert [step for step, _ in found] == ["mark", "add_chunks", "add_chunks", "remove_chunks", "unmark"]
    assert [texts for _, texts in found] == [sorted(OLD)] * 5


async def test_crash_while_deleting(tmp_path: Path) -> None:
    """At each step of a deletion, the document is complete or absent."""

    async def delete(bench: Bench) -> None:
        await bench.catalogue.delete_documents(LOCAL, INDEX, ["d"])

    found = await photograph(tmp_path, put_old, delete)
    assert found == [
        ("mark", sorted(OLD)),
        ("remove_record", []),
        ("remove_chunks", []),
        ("unmark", []),
        ("sync", []),
    ]


WRITER = """
import asyncio, sys
from pathlib import Path
import structlog
from retriever.domain.document import Document
from retriever.concurrency.scheduler import Scheduler
from retriever.stores.edge.store import EdgeStore
from causeway_testing.retriever.bench import Bench

async def main(directory, first):
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    bench = await Bench.open(EdgeStore(Path(directory), Scheduler()))
    async def write(name):
        for generation in range(int(first), 10_000):
            texts = [f"ferry {name} {generation} {number}" for number in range(40 + generation % 50)]
            await bench.put(Document(name, generation=generation), texts)
            print(name, generation, flush=True)
    await asyncio.gather(*(write(name) for name in "abc"))

asyncio.run(main(*sys.argv[1:]))
"""


def note(acknowledged: dict[str, int], line: bytes) -> None:
    """Record a line of the writer unless it is incomplete."""
    if line.endswith(b"\n"):
        name, generation = line.decode().split()
        acknowledged[name] = int(generation)


async def test_killed_while_writing(tmp_path: Path) -> None:
    """After SIGKILL at any time, each acknowledged document exists in exactly one version."""
    directory = tmp_path / "store"
    acknowledged: dict[str, int] = {}
    for first, lines in ((1, 4), (1000, 9), (2000, 14)):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, directory, str(first), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(lines):
            note(acknowledged, await process.stdout.readline())
        await asyncio.sleep(random.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        for line in (await process.stdout.read()).splitlines(keepends=True):
            note(acknowledged, line)

        bench = await Bench.open(EdgeStore(directory, Scheduler()))
        for name, generation in acknowledged.items():
            passages = await bench.ask(f"ferry {name}", top=1000, mode=Mode.VECTORS)
            mine = [passage for passage in passages if passage.document.document_id == name]
            stored = (await bench.catalogue.document(LOCAL, INDEX, name)).generation
            assert stored >= generation
            texts = {f"ferry {name} {stored} {number}" for number in range(40 + stored % 50)}
            assert sorted(passage.text for passage in mine) == sorted(texts)
        await bench.aclose()


COMPACTING_WRITER = """
import asyncio, os, signal, sys
from pathlib import Path
import structlog
from retriever.domain.document import Document
from retriever.concurrency.scheduler import Scheduler
from retriever.stores.edge.store import EdgeStore
from causeway_testing.retriever.bench import INDEX, Bench
from servicekit.principal import LOCAL

def die_at(stage):
    def processor(_logger, _method, event):
        if event.get("stage") == stage:
            os.kill(os.getpid(), signal.SIGKILL)
        raise structlog.DropEvent
    return processor

async def main(directory, first, stage):
    structlog.configure(processors=[die_at(stage)])
    bench = await Bench.open(EdgeStore(Path(directory), Scheduler()))
    written = asyncio.Event()
    async def write(name):
        for generation in range(int(first), 10_000):
            texts = [f"ferry {name} {generation} {number}" for number in range(40 + generation % 50)]
            await bench.put(Document(name, generation=generation), texts)
            print(name, generation, flush=True)
            written.set()
    async def compact():
        await written.wait()
        while True:
            await bench.catalogue.compact(LOCAL, INDEX)
    await asyncio.gather(compact(), *(write(name) for name in "abc"))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("stage", ["copying", "building", "replaying", "swapping", "swapped", "any"])
async def test_killed_while_compacting(tmp_path: Path, stage: str) -> None:
    """A process that is killed at any stage of a compaction keeps all acknowledged documents, each once. The next
    start removes the unfinished files.
    """
    directory = tmp_path / "store"
    acknowledged: dict[str, int] = {}
    for first in (1, 1000):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", COMPACTING_WRITER, directory, str(first), stage, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        if stage == "any":
            for _ in range(5):
                note(acknowledged, await process.stdout.readline())
            await asyncio.sleep(random.random() * 2)
            process.send_signal(signal.SIGKILL)
        for line in (await process.stdout.read()).splitlines(keepends=True):
            note(acknowledged, line)
        assert await process.wait() == -signal.SIGKILL
        assert acknowledged

        bench = await Bench.open(EdgeStore(directory, Scheduler()))
        (collection,) = await bench.store.collections()
        passages = await bench.ask("ferry", top=1000, mode=Mode.VECTORS)
        expected = []
        for name, generation in acknowledged.items():
            record = await bench.catalogue.document(LOCAL, INDEX, name)
            assert record.generation >= generation
            assert record.chunk_count == 40 + record.generation % 50
            expected += [f"ferry {name} {record.generation} {number}" for number in range(record.chunk_count)]
        mine = [passage.text for passage in passages if passage.document.document_id in acknowledged]
        assert sorted(mine) == sorted(expected)
        assert await collection.count_chunks(EVERYTHING) == len(passages)
        assert await collection.marked() == []
        assert list((directory / ".building").iterdir()) == []
        assert len([path for path in directory.glob("*/*") if path.is_dir()]) == 1
        await bench.aclose()
