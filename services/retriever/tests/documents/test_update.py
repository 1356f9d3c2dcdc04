"""Updates of a stored document's fields and generation without new chunks."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from retriever.domain.document import AccessControl, Document
from retriever.domain.filter import Filter, MatchAny
from retriever.domain.listing import TextRange
from retriever.domain.query import Mode
from retriever.domain.scope import EVERYTHING
from retriever.ports.store import Store
from servicekit.errors import InvalidRequest, NotFound, PermissionDenied, StaleGeneration
from servicekit.principal import LOCAL, Principal

SHA = "ab" * 32
TEXTS = [f"the ferry {number}" for number in range(150)]
STORED = Document("d", "f.pdf", sha256=SHA, metadata_json=b'{"year": 2024}', category="old", generation=3)
READER = Principal(LOCAL.tenant)


async def found(bench: Bench, principal: Principal = LOCAL, **filter_: str | int) -> list[str]:
    """Return the texts that a search finds under a condition."""
    conditions = tuple(MatchAny(name.replace("__", "."), (value,)) for name, value in filter_.items())
    results = [
        sorted(
            passage.text
            for passage in await bench.ask("ferry", principal, top=1000, mode=mode, filter=Filter(conditions))
        )
        for mode in Mode
    ]
    assert results[0] == results[1] == results[2]
    return results[0]


async def test_an_update_sets_fields_and_generation(bench: Bench) -> None:
    """An update sets its fields for the document and its chunks. Other fields stay."""
    before = (await bench.put(STORED, TEXTS)).document
    sent = Document(
        "d",
        sha256=SHA,
        content_type="ignored",
        metadata_json=b'{"year": 2025}',
        access=AccessControl(oids=("ann",)),
        category="new",
        language="de",
        generation=4,
    )
    updated = await bench.upserts.update(LOCAL, INDEX, sent)
    assert updated.changed
    assert updated.document == replace(
        before,
        metadata_json=sent.metadata_json,
        access=sent.access,
        category="new",
        language="de",
        generation=4,
        updated_at=updated.document.updated_at,
    )
    assert updated.document.updated_at > before.updated_at
    assert await bench.catalogue.document(LOCAL, INDEX, "d") == updated.document
    assert await found(bench, metadata__year=2025, category="new", language="de") == sorted(TEXTS)
    assert await found(bench, metadata__year=2024) == await found(bench, READER) == []
    collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
    assert await collection.count_chunks(EVERYTHING) == len(TEXTS)
    assert await collection.marked() == []
    _, text = await bench.catalogue.document_with_text(LOCAL, INDEX, "d", TextRange(27))
    assert text.text == "the ferry 0\n\nthe ferry 1\n\nt"


async def test_an_update_without_changes_raises_the_generation(bench: Bench) -> None:
    """An update without other changes raises the generation and reports no change.

    From then on, older generations are refused.
    """
    await bench.put(STORED, TEXTS[:3])
    same = replace(STORED, generation=9, metadata_json=b'{ "year" :2024 }')
    updated = await bench.upserts.update(LOCAL, INDEX, same)
    assert (updated.changed, updated.document.generation) == (False, 9)
    again = await bench.upserts.update(LOCAL, INDEX, same)
    assert (again.changed, again.document) == (False, updated.document)
    for generation in (3, 8):
        with pytest.raises(StaleGeneration):
            await bench.upserts.update(LOCAL, INDEX, replace(STORED, generation=generation))
        with pytest.raises(StaleGeneration):
            await bench.put(replace(STORED, generation=generation), TEXTS[:1])
    assert await found(bench) == TEXTS[:3]


async def test_updates_of_other_content_are_refused(bench: Bench) -> None:
    """An update of another content, name, document, index or tenant causes NotFound and changes nothing."""
    await bench.put(STORED, TEXTS[:3])
    for sent in (
        replace(STORED, sha256="cd" * 32, generation=4),
        replace(STORED, sha256="", generation=4),
        replace(STORED, sourcefile="g.pdf", generation=4),
        replace(STORED, document_id="e", generation=4),
    ):
        with pytest.raises(NotFound):
            await bench.upserts.update(LOCAL, INDEX, sent)
    with pytest.raises(NotFound):
        await bench.upserts.update(LOCAL, "X", STORED)
    with pytest.raises(NotFound):
        await bench.upserts.update(Principal("other", roles=("admin",)), INDEX, replace(STORED, generation=4))
    assert (await bench.catalogue.document(LOCAL, INDEX, "d")).generation == 3


async def test_invalid_updates_are_refused(bench: Bench) -> None:
    """An update refuses the same fields as an upsert, and documents that the caller may not see."""
    await bench.put(replace(STORED, access=AccessControl(oids=("ann",))), TEXTS[:3])
    for sent, field in (
        (replace(STORED, document_id=" "), "document.document_id"),
        (replace(STORED, sha256="x"), "document.sha256"),
        (replace(STORED, metadata_json=b"[]"), "document.metadata_json"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            await bench.upserts.update(LOCAL, INDEX, replace(sent, generation=4))
        assert caught.value.field == field
    with pytest.raises(PermissionDenied):
        await bench.upserts.update(READER, INDEX, replace(STORED, generation=4))


async def test_searches_find_one_version(bench: Bench) -> None:
    """Each search during updates finds all chunks of the document once and in one version."""
    await bench.put(replace(STORED, generation=1), TEXTS[:60])

    async def update() -> None:
        for generation in range(2, 12):
            sent = replace(STORED, metadata_json=b'{"g": %d}' % generation, generation=generation)
            await bench.upserts.update(LOCAL, INDEX, sent)

    updating = asyncio.create_task(update())
    while not updating.done():
        passages = await bench.ask("ferry", top=1000)
        assert sorted(passage.text for passage in passages) == sorted(TEXTS[:60])
        assert len({passage.document.generation for passage in passages}) == 1
        await asyncio.sleep(0)
    await updating


async def test_an_update_survives_a_restart(reopen: Callable[[], Store]) -> None:
    """An update is stored after a restart."""
    bench = await Bench.open(reopen())
    await bench.put(STORED, TEXTS)
    await bench.upserts.update(LOCAL, INDEX, replace(STORED, category="new", generation=4))
    await bench.aclose()
    bench = await Bench.open(reopen())
    assert await found(bench, category="new") == sorted(TEXTS)
    await bench.aclose()
