"""Snapshots of indexes: paths, permissions, and no change after a failure."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.retriever.bench import INDEX, Bench, paused_steps
from embedding.models import EmbeddingModel, EmbeddingModels
from retriever.domain.document import AccessControl, Document
from retriever.domain.index import Contents, IndexSettings
from retriever.domain.query import Mode
from retriever.indexes.snapshots import Snapshots
from retriever.ports.store import Store
from servicekit import keys
from servicekit.errors import Conflict, InvalidRequest, NotFound, PermissionDenied, Unavailable
from servicekit.principal import LOCAL, Principal

OTHER = Principal("other", roles=("admin",))
READER = Principal(LOCAL.tenant, roles=("ask",))


in_memory = pytest.mark.parametrize("kind", ["memory"])
"""For tests of directories, which do not depend on the store."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the directory of snapshots."""
    return tmp_path / "snapshots"


@pytest.fixture
def snapshots(bench: Bench, root: Path) -> Snapshots:
    """Open the snapshots of the bench's indexes."""
    return bench.snapshots(root)


async def texts(bench: Bench, index: str = INDEX, principal: Principal = LOCAL) -> list[str]:
    found = await bench.ask("ferry", principal, indexes=(index,), top=1000, mode=Mode.VECTORS)
    return sorted(passage.text for passage in found)


async def test_a_snapshot_restores_a_deleted_index(bench: Bench, snapshots: Snapshots) -> None:
    """A snapshot restores a deleted index with its settings."""
    await bench.put(Document("d", "f.pdf", metadata_json=b'{"a": 1}', generation=7), ["ferry one", "ferry two"])
    await bench.put(Document("e", generation=8), ["ferry three"])
    await bench.rebuilds().update(LOCAL, INDEX, IndexSettings(dense_weight=0.25), ["dense_weight"])
    before = await bench.ask("ferry", top=10)
    assert await snapshots.persist(LOCAL, INDEX, "backup/today") == Contents(2, 3)
    await bench.catalogue.delete_index(LOCAL, INDEX)
    summary = await snapshots.load(LOCAL, "backup/today", INDEX, overwrite=False)
    assert (summary.spec.name, summary.documents, summary.chunks) == (INDEX, 2, 3)
    assert (await bench.catalogue.index(LOCAL, INDEX)).settings == IndexSettings(dense_weight=0.25)
    assert [(passage.id, passage.document) for passage in await bench.ask("ferry", top=10)] == [
        (passage.id, passage.document) for passage in before
    ]
    # The loaded index accepts a newer generation of a document.
    await bench.put(Document("d", generation=9), ["ferry four"])
    assert await texts(bench) == ["ferry four", "ferry three"]


async def test_an_absolute_path_below_the_directory(bench: Bench, snapshots: Snapshots, root: Path) -> None:
    """A path may be absolute if it is below the tenant's own directory."""
    await bench.put(Document("d", generation=1), ["ferry"])
    place = root / keys.snapshots(LOCAL.tenant) / "x"
    await snapshots.persist(LOCAL, INDEX, str(place))
    assert (place / INDEX / "manifest.json").exists()
    await snapshots.load(LOCAL, str(place), INDEX, overwrite=True)
    with pytest.raises(InvalidRequest):
        await snapshots.load(OTHER, str(place), INDEX, overwrite=False)


@in_memory
async def test_several_indexes_at_one_path(bench: Bench, snapshots: Snapshots) -> None:
    """Each index has its own directory below the path, for any depth of the path and for the root."""
    for name in (INDEX, "other"):
        await bench.put(Document("d", generation=1), [f"ferry of {name}"], index=name)
    for path in ("", f"storage/{INDEX}", "."):
        for name in (INDEX, "other"):
            await snapshots.persist(LOCAL, name, path)
        for name in (INDEX, "other"):
            await snapshots.load(LOCAL, path, name, overwrite=True)
            assert await texts(bench, name) == [f"ferry of {name}"]


async def test_a_snapshot_of_an_earlier_version(bench: Bench, snapshots: Snapshots, root: Path) -> None:
    """A snapshot of an earlier version is at the path itself, and is loaded only under the name of its index."""
    await bench.put(Document("d", generation=1), ["ferry"])
    await snapshots.persist(LOCAL, INDEX, "new")
    mine = root / keys.snapshots(LOCAL.tenant)
    (mine / "new" / INDEX).rename(mine / "old")
    await bench.put(Document("e", generation=2), ["ferry new"])
    await snapshots.load(LOCAL, "old", INDEX, overwrite=True)
    assert await texts(bench) == ["ferry"]
    with pytest.raises(InvalidRequest, match=f"a snapshot of the index '{INDEX}', not of 'copy'"):
        await snapshots.load(LOCAL, "old", "copy", overwrite=True)


async def test_a_snapshot_of_another_index(bench: Bench, snapshots: Snapshots, root: Path) -> None:
    """A snapshot under the name of another index is neither loaded nor overwritten."""
    await bench.put(Document("d", generation=1), ["ferry"])
    await bench.put(Document("d", generation=1), ["bridge"], index="other")
    await snapshots.persist(LOCAL, INDEX, "s")
    mine = root / keys.snapshots(LOCAL.tenant)
    (mine / "s" / INDEX).rename(mine / "s" / "other")
    with pytest.raises(InvalidRequest, match=f"a snapshot of the index '{INDEX}', not of 'other'"):
        await snapshots.load(LOCAL, "s", "other", overwrite=True)
    with pytest.raises(Conflict, match=f"snapshot of the index '{INDEX}' at s/other"):
        await snapshots.persist(LOCAL, "other", "s")
    assert await texts(bench, "other") == ["bridge"]


async def test_paths_are_confined(bench: Bench, snapshots: Snapshots, root: Path, tmp_path: Path) -> None:
    """A path outside the tenant's directory, or an invalid one, is refused by both calls and changes nothing."""
    await bench.put(Document("d", generation=1), ["ferry"])
    await snapshots.persist(LOCAL, INDEX, "good")
    mine = root / keys.snapshots(LOCAL.tenant)
    outside = tmp_path / "outside"
    shutil.copytree(mine / "good" / INDEX, outside / INDEX)
    (mine / "link").symlink_to(outside)
    (mine / "loop").symlink_to(mine / "loop")
    (mine / "up").symlink_to("..")
    before = sorted(tmp_path.rglob("*"))
    for path in (
        "/",
        "..",
        "../good",
        "good/../../x",
        "/etc",
        str(outside),
        "link",
        "link/deeper",
        "up/x",
        "loop",
        "a\0b",
        "a\nb",
        "\ud800",
        "x" * 256,
        "x/" * 600,
        str(root),
        str(root / keys.snapshots("other") / "x"),
    ):
        for call in (
            snapshots.persist(LOCAL, INDEX, path),
            snapshots.load(LOCAL, path, INDEX, overwrite=True),
        ):
            with pytest.raises(InvalidRequest) as caught:
                await call
            assert caught.value.field == "path", path
    assert sorted(tmp_path.rglob("*")) == before
    assert [summary.spec.name for summary in await bench.catalogue.indexes(LOCAL)] == [INDEX]


async def test_missing_paths_and_indexes(bench: Bench, snapshots: Snapshots) -> None:
    """A missing path and an unknown index cause NotFound, and an invalid name of an index causes InvalidRequest. A
    tenant sees only its own snapshots and indexes.
    """
    await bench.put(Document("d", generation=1), ["ferry"])
    await snapshots.persist(LOCAL, INDEX, "mine")
    with pytest.raises(NotFound, match=r"^Path does not exist: no/where/copy$"):
        await snapshots.load(LOCAL, "no/where", "copy", overwrite=False)
    with pytest.raises(NotFound, match=rf"^Path does not exist: mine/{INDEX}$"):
        await snapshots.load(OTHER, "mine", INDEX, overwrite=False)
    with pytest.raises(NotFound, match=r"^No such index: 'X' exists\.$"):
        await snapshots.persist(LOCAL, "X", "x")
    with pytest.raises(NotFound):
        await snapshots.persist(OTHER, INDEX, "x")
    for name in ("", "..", "a/b", "x" * 129):
        with pytest.raises(InvalidRequest):
            await snapshots.load(LOCAL, "mine", name, overwrite=False)
        with pytest.raises(InvalidRequest):
            await snapshots.persist(LOCAL, name, "x")


async def test_directories_with_other_files_are_refused(bench: Bench, snapshots: Snapshots, root: Path) -> None:
    """A directory with other files is neither overwritten nor loaded. A snapshot may be written to an empty one."""
    await bench.put(Document("d", generation=1), ["ferry"])
    mine = root / keys.snapshots(LOCAL.tenant)
    (mine / "empty" / INDEX).mkdir(parents=True)
    (mine / "other" / INDEX).mkdir(parents=True)
    (mine / "other" / INDEX / "thesis.pdf").write_bytes(b"x")
    (mine / "file").write_bytes(b"x")
    await snapshots.persist(LOCAL, INDEX, "empty")
    for path in ("other", "file", "file/below"):
        with pytest.raises(Conflict):
            await snapshots.persist(LOCAL, INDEX, path)
    with pytest.raises(InvalidRequest):
        await snapshots.load(LOCAL, "other", INDEX, overwrite=True)
    with pytest.raises(NotFound):
        await snapshots.load(LOCAL, "file", INDEX, overwrite=True)
    assert [path.name for path in (mine / "other" / INDEX).iterdir()] == ["thesis.pdf"]


@in_memory
async def test_an_unfinished_snapshot_is_replaced(bench: Bench, snapshots: Snapshots, root: Path) -> None:
    """The files that a terminated writer left do not prevent the next snapshot."""
    await bench.put(Document("d", generation=1), ["ferry"])
    directory = root / keys.snapshots(LOCAL.tenant) / "x" / INDEX
    directory.mkdir(parents=True)
    for name in (f"{'a' * 32}.points", "manifest.new"):
        (directory / name).touch()
    assert await snapshots.persist(LOCAL, INDEX, "x") == Contents(1, 1)
    assert sorted(path.suffix for path in directory.iterdir()) == [".json", ".points"]


async def test_an_index_is_replaced_only_with_overwrite(bench: Bench, snapshots: Snapshots) -> None:
    """An existing index is replaced only with `overwrite`, and then completely."""
    await bench.put(Document("d", generation=1), ["ferry old"])
    await snapshots.persist(LOCAL, INDEX, "s")
    await bench.put(Document("e", generation=2), ["ferry new"])
    with pytest.raises(Conflict, match=INDEX):
        await snapshots.load(LOCAL, "s", INDEX, overwrite=False)
    assert await texts(bench) == ["ferry new", "ferry old"]
    await snapshots.load(LOCAL, "s", INDEX, overwrite=True)
    assert await texts(bench) == ["ferry old"]


async def test_snapshots_need_access_to_all_documents(bench: Bench, snapshots: Snapshots) -> None:
    """A caller that may not see all documents can neither persist nor replace an index. Access lists are kept."""
    await bench.put(Document("d", access=AccessControl(oids=("ann",)), generation=1), ["ferry secret"])
    with pytest.raises(PermissionDenied):
        await snapshots.persist(READER, INDEX, "s")
    await snapshots.persist(LOCAL, INDEX, "s")
    with pytest.raises(PermissionDenied):
        await snapshots.load(READER, "s", INDEX, overwrite=True)
    await bench.catalogue.delete_index(LOCAL, INDEX)
    await snapshots.load(READER, "s", INDEX, overwrite=False)
    assert await texts(bench, principal=READER) == []
    assert await texts(bench) == ["ferry secret"]


async def test_snapshots_of_another_model_are_refused(bench: Bench, snapshots: Snapshots, root: Path) -> None:
    """A snapshot with vectors of another model is refused, and the error names the model."""
    await bench.put(Document("d", generation=1), ["ferry"])
    await snapshots.persist(LOCAL, INDEX, "s")
    same_name = HashingEmbedder(32)
    same_name.model = bench.embedder.model
    for configured in (HashingEmbedder(32), same_name):
        with_other_model = Snapshots(bench.indexes, root, EmbeddingModels([EmbeddingModel.of(configured)]))
        with pytest.raises(InvalidRequest, match=bench.embedder.model):
            await with_other_model.load(LOCAL, "s", INDEX, overwrite=True)
    assert [summary.spec.name for summary in await bench.catalogue.indexes(LOCAL)] == [INDEX]


async def test_a_damaged_snapshot_changes_nothing(bench: Bench, snapshots: Snapshots, root: Path) -> None:
    """A truncated snapshot does not change the index that it should overwrite."""
    await bench.put(Document("d", generation=1), ["ferry"])
    await snapshots.persist(LOCAL, INDEX, "s")
    await bench.put(Document("e", generation=2), ["ferry new"])
    (points,) = (root / keys.snapshots(LOCAL.tenant) / "s" / INDEX).glob("*.points")
    points.write_bytes(points.read_bytes()[:-1])
    with pytest.raises(InvalidRequest, match="truncated"):
        await snapshots.load(LOCAL, "s", INDEX, overwrite=True)
    assert await texts(bench) == ["ferry", "ferry new"]
    await bench.put(Document("e", generation=3), ["ferry newer"])
    assert await texts(bench) == ["ferry", "ferry newer"]


async def test_the_language_of_a_snapshot(bench: Bench, snapshots: Snapshots, root: Path) -> None:
    """A loaded index keeps its language. A snapshot with an unknown language is refused."""
    await bench.rebuilds().create(LOCAL, INDEX, "", IndexSettings(), "de")
    await bench.put(Document("d", generation=1), ["Die Häuser am Fluss"])
    await snapshots.persist(LOCAL, INDEX, "s")
    await bench.catalogue.delete_index(LOCAL, INDEX)
    loaded = await snapshots.load(LOCAL, "s", INDEX, overwrite=False)
    assert loaded.spec.language == "de"
    assert len(await bench.ask("Haus", mode=Mode.TEXT)) == 1
    manifest = root / keys.snapshots(LOCAL.tenant) / "s" / INDEX / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"language": "de"', '"language": "tlh"'))
    with pytest.raises(InvalidRequest, match="language that this service does not know"):
        await snapshots.load(LOCAL, "s", INDEX, overwrite=True)


@pytest.mark.parametrize("index", [INDEX, "new"])
async def test_an_upsert_fails_if_its_index_is_loaded_meanwhile(
    bench: Bench, snapshots: Snapshots, index: str
) -> None:
    """An upsert into an index that is replaced meanwhile raises Unavailable, and a second attempt succeeds. This
    also applies to an index that only this upsert has created.
    """
    await bench.put(Document("d", generation=1), ["ferry"], index=index)
    await snapshots.persist(LOCAL, index, "s")
    if index != INDEX:
        await bench.catalogue.delete_index(LOCAL, index)
    reached, go_on = asyncio.Event(), asyncio.Event()
    first, second = await bench.chunks(["ferry late one", "ferry late two"])
    begin = bench.begin(Document("late", generation=5), index)
    writing = asyncio.create_task(bench.upserts.upsert(paused_steps(begin, [first], [second], reached, go_on)))
    await reached.wait()
    await snapshots.load(LOCAL, "s", index, overwrite=index == INDEX)
    go_on.set()
    with pytest.raises(Unavailable):
        await writing
    assert await texts(bench, index) == ["ferry"]
    await bench.upserts.upsert(paused_steps(begin, [first], [second], reached, go_on))
    assert await texts(bench, index) == ["ferry", "ferry late one", "ferry late two"]


async def test_a_loaded_index_survives_a_restart(reopen: Callable[[], Store], root: Path) -> None:
    """A loaded index survives a restart. Replaced and deleted indexes do not return."""
    bench = await Bench.open(reopen())
    snapshots = bench.snapshots(root)
    await bench.put(Document("d", generation=1), ["ferry old"])
    await snapshots.persist(LOCAL, INDEX, "s")
    await bench.put(Document("e", generation=2), ["ferry new"])
    await bench.put(Document("e", generation=2), ["ferry gone"], index="gone")
    await snapshots.load(LOCAL, "s", INDEX, overwrite=True)
    await bench.catalogue.delete_index(LOCAL, "gone")
    await bench.aclose()

    bench = await Bench.open(reopen())
    assert [summary.spec.name for summary in await bench.catalogue.indexes(LOCAL)] == [INDEX]
    assert await texts(bench) == ["ferry old"]
    await bench.put(Document("x", generation=1), ["ferry anew"], index="gone")
    assert await texts(bench, "gone") == ["ferry anew"]
    await bench.aclose()


@in_memory
async def test_snapshots_are_listed_and_deleted(bench: Bench, snapshots: Snapshots, root: Path) -> None:
    """A tenant lists its own snapshots by path, damaged ones too. Deleting one removes it and its empty directories
    only.
    """
    for name in (INDEX, "other"):
        await bench.put(Document("d", generation=1), ["ferry", "bridge"], index=name)
        await snapshots.persist(LOCAL, name, "a/b")
    await snapshots.persist(LOCAL, INDEX, "c")
    mine = root / keys.snapshots(LOCAL.tenant)
    (mine / "c" / INDEX / "manifest.json").write_text("{")
    listed = await snapshots.list_all(LOCAL)
    assert [(snapshot.path, snapshot.index, snapshot.documents, snapshot.chunks) for snapshot in listed] == [
        (f"a/b/{INDEX}", INDEX, 1, 2),
        ("a/b/other", "other", 1, 2),
        (f"c/{INDEX}", "", 0, 0),
    ]
    assert all(snapshot.size_bytes > 0 and snapshot.created_at.tzinfo for snapshot in listed)
    assert await snapshots.list_all(OTHER) == []
    for path in (f"a/b/{INDEX}", f"c/{INDEX}"):
        await snapshots.delete(LOCAL, path)
        with pytest.raises(NotFound):
            await snapshots.delete(LOCAL, path)
    assert [snapshot.path for snapshot in await snapshots.list_all(LOCAL)] == ["a/b/other"]
    assert sorted(path.name for path in mine.iterdir()) == ["a"]
    with pytest.raises(NotFound, match=f"Path does not exist: c/{INDEX}"):
        await snapshots.load(LOCAL, "c", INDEX, overwrite=True)
    await snapshots.load(LOCAL, "a/b", "other", overwrite=True)


@in_memory
async def test_only_snapshots_of_the_tenant_are_deleted(bench: Bench, snapshots: Snapshots, root: Path) -> None:
    """A path outside the tenant's directory, or one without a snapshot, deletes nothing."""
    for principal in (LOCAL, OTHER):
        await bench.put(Document("d", generation=1), ["ferry"], principal=principal)
        await snapshots.persist(principal, INDEX, "a")
    before = sorted(root.rglob("*"))
    other = root / keys.snapshots(OTHER.tenant) / "a" / INDEX
    assert other in before
    for path in ("..", "a/../../x", "/etc", str(other), "x" * 2000):
        with pytest.raises(InvalidRequest):
            await snapshots.delete(LOCAL, path)
    for path in ("", "a", "x", f"a/{INDEX}/x"):
        with pytest.raises(NotFound):
            await snapshots.delete(LOCAL, path)
    assert sorted(root.rglob("*")) == before


async def test_a_snapshot_has_one_writer(
    bench: Bench, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot that is being written is neither written a second time nor deleted."""
    await bench.put(Document("d", generation=1), ["ferry"])
    collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
    real, begun, proceed = collection.persist, asyncio.Event(), asyncio.Event()

    async def persist(directory: Path) -> Contents:
        begun.set()
        await proceed.wait()
        return await real(directory)

    monkeypatch.setattr(collection, "persist", persist)
    first = asyncio.create_task(snapshots.persist(LOCAL, INDEX, "a"))
    await begun.wait()
    for second in (snapshots.persist(LOCAL, INDEX, "a"), snapshots.delete(LOCAL, f"a/{INDEX}")):
        with pytest.raises(Conflict, match="being written"):
            await second
    proceed.set()
    await first
    await snapshots.persist(LOCAL, INDEX, "a")


async def test_snapshots_are_for_administrators(bench: Bench, snapshots: Snapshots) -> None:
    """Only administrators can list and delete snapshots."""
    await bench.put(Document("d", generation=1), ["ferry"])
    await snapshots.persist(LOCAL, INDEX, "a")
    with pytest.raises(PermissionDenied):
        await snapshots.list_all(READER)
    with pytest.raises(PermissionDenied):
        await snapshots.delete(READER, f"a/{INDEX}")
    assert len(await snapshots.list_all(LOCAL)) == 1


async def test_the_number_of_snapshots_is_limited(bench: Bench, root: Path) -> None:
    """A snapshot above the limit of a tenant is refused before anything is written, even with concurrent calls. At
    the limit, an existing one can be replaced. A deletion makes room for another one.
    """
    snapshots = Snapshots(bench.indexes, root, bench.models, max_snapshots=2)
    await bench.put(Document("d", generation=1), ["ferry"])
    written = await asyncio.gather(
        *(snapshots.persist(LOCAL, INDEX, path) for path in "abc"), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in written) == ["Conflict", "Contents", "Contents"]
    assert len(await snapshots.list_all(LOCAL)) == 2
    assert len(list((root / keys.snapshots(LOCAL.tenant)).iterdir())) == 2
    with pytest.raises(Conflict, match="There are 2 snapshots, and the limit is 2"):
        await snapshots.persist(LOCAL, INDEX, "d")
    [first, _] = await snapshots.list_all(LOCAL)
    await snapshots.persist(LOCAL, INDEX, first.path.rpartition("/")[0])
    await snapshots.delete(LOCAL, first.path)
    await snapshots.persist(LOCAL, INDEX, "d")
    await bench.put(Document("d", generation=1), ["ferry"], index=INDEX, principal=OTHER)
    await snapshots.persist(OTHER, INDEX, "d")
