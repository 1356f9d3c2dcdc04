"""Backups of all tenants' indexes: a restore reproduces the saved index, or changes nothing."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import AccessControl, Document
from retriever.domain.index import Contents, IndexSettings
from retriever.domain.query import Mode
from retriever.indexes.backups import Backups
from retriever.stores.edge.store import EdgeStore
from servicekit.errors import Conflict, DeadlineExceeded, InvalidRequest, NotFound
from servicekit.principal import LOCAL, Principal

OTHER = Principal("other", roles=("admin",))


@pytest.fixture
def backups(edge_bench: Bench, tmp_path: Path) -> Backups:
    """Open backups of the bench's indexes."""
    return Backups(edge_bench.indexes, tmp_path / "passing", edge_bench.models)


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Bench]:
    """Open another, empty store."""
    scheduler = Scheduler()
    bench = await Bench.open(EdgeStore(tmp_path / "empty", scheduler), scheduler)
    yield bench
    await bench.aclose()


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def saved(backups: Backups, tenant: str = LOCAL.tenant, index: str = INDEX) -> tuple[bytes, Sequence[bytes]]:
    manifest, *points = [part async for part in backups.save(tenant, index)]
    return manifest, points


async def found(bench: Bench, principal: Principal = LOCAL) -> list[tuple[str, str, Document]]:
    passages = await bench.ask("ferry", principal, top=100, mode=Mode.VECTORS)
    return sorted((passage.id, passage.text, passage.document) for passage in passages)


async def test_a_restore_reproduces_the_saved_indexes(
    edge_bench: Bench, backups: Backups, empty: Bench, tmp_path: Path
) -> None:
    """A restore reproduces the ids, texts, records and settings for every tenant, and leaves no file."""
    secret = Document("s", "secret.md", access=AccessControl(oids=("ann",)), generation=5)
    await edge_bench.put(secret, ["ferry in secret"])
    await edge_bench.put(Document("d", metadata_json=b'{"a": 1}', generation=7), ["ferry one", "ferry two"])
    await edge_bench.put(Document("d", generation=2), ["ferry of another"], principal=OTHER)
    await edge_bench.rebuilds().update(LOCAL, INDEX, IndexSettings(dense_weight=0.25), ["dense_weight"])
    names = await backups.names()
    assert names == [(LOCAL.tenant, INDEX), (OTHER.tenant, INDEX)]
    into = Backups(empty.indexes, tmp_path / "passing", empty.models)
    counts = []
    for tenant, name in names:
        manifest, points = await saved(backups, tenant, name)
        counts.append(await into.restore(tenant, name, manifest, pieces(*points)))
    assert counts == [Contents(2, 3), Contents(1, 1)]
    for principal in (LOCAL, OTHER, Principal(LOCAL.tenant, oids=("ann",)), Principal(LOCAL.tenant, oids=("bob",))):
        assert await found(empty, principal) == await found(edge_bench, principal)
    assert (await empty.catalogue.index(LOCAL, INDEX)).settings == IndexSettings(dense_weight=0.25)
    assert list((tmp_path / "passing").iterdir()) == []


@pytest.mark.parametrize("harm", ["cut off", "longer", "other bytes"])
async def test_a_damaged_backup_changes_nothing(
    edge_bench: Bench, backups: Backups, empty: Bench, tmp_path: Path, harm: str
) -> None:
    """A damaged backup is refused, and leaves neither an index nor a file."""
    await edge_bench.put(Document("d", generation=1), ["ferry one"])
    manifest, points = await saved(backups)
    whole = b"".join(points)
    harmed = {"cut off": whole[:-1], "longer": whole + b"x", "other bytes": b"\0\0\0\1x" + whole[5:]}[harm]
    into = Backups(empty.indexes, tmp_path / "passing", empty.models)
    with pytest.raises(InvalidRequest):
        await into.restore(LOCAL.tenant, INDEX, manifest, pieces(harmed))
    assert await into.names() == []
    assert list((tmp_path / "passing").iterdir()) == []


async def test_an_existing_index_is_never_replaced(edge_bench: Bench, backups: Backups) -> None:
    """A restore over an existing index is refused and changes nothing. An unknown index cannot be saved."""
    await edge_bench.put(Document("d", generation=1), ["ferry one"])
    manifest, points = await saved(backups)
    await edge_bench.put(Document("e", generation=2), ["ferry two"])
    before = await found(edge_bench)
    with pytest.raises(Conflict):
        await backups.restore(LOCAL.tenant, INDEX, manifest, pieces(*points))
    assert await found(edge_bench) == before
    with pytest.raises(NotFound):
        await saved(backups, index="nowhere")


async def test_a_stalled_reader_does_not_block_other_backups(
    edge_bench: Bench, backups: Backups, tmp_path: Path
) -> None:
    """If a client stops reading a backup, it fails, its snapshot is removed, and other backups continue."""
    await edge_bench.put(Document("d", generation=1), ["ferry one"])
    _, expected = await saved(backups)
    impatient = Backups(edge_bench.indexes, tmp_path / "passing", edge_bench.models, stall_seconds=0.05)
    async with aclosing(impatient.save(LOCAL.tenant, INDEX)) as stalled:
        await anext(stalled)
        async with asyncio.timeout(20):
            _, points = await saved(impatient)
        assert points == expected
        assert list((tmp_path / "passing").iterdir()) == []
        with pytest.raises(DeadlineExceeded):
            await anext(stalled)


async def test_a_stalled_sender_does_not_block_other_restores(
    edge_bench: Bench, backups: Backups, empty: Bench, tmp_path: Path
) -> None:
    """If a client stops sending a backup, the restore fails, and later restores succeed."""
    await edge_bench.put(Document("d", generation=1), ["ferry one"])
    manifest, points = await saved(backups)
    into = Backups(empty.indexes, tmp_path / "passing", empty.models, stall_seconds=0.05)

    async def silent() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with asyncio.timeout(20):
        with pytest.raises(DeadlineExceeded):
            await into.restore(LOCAL.tenant, INDEX, manifest, silent())
        assert await into.restore(LOCAL.tenant, INDEX, manifest, pieces(*points)) == Contents(1, 1)


async def test_directories_of_killed_processes_are_removed(
    edge_bench: Bench, backups: Backups, tmp_path: Path
) -> None:
    """A backup removes the old temporary directories of terminated processes, but not those of running ones."""
    await edge_bench.put(Document("d", generation=1), ["ferry one"])
    old, new = tmp_path / "passing" / "old", tmp_path / "passing" / "new"
    for directory in (old, new):
        directory.mkdir(parents=True)
    os.utime(old, (0, 0))
    await saved(backups)
    assert list((tmp_path / "passing").iterdir()) == [new]
