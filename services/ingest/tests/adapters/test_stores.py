from dataclasses import replace
from typing import Any

import pytest
from causeway_testing.ingest.memory import MemoryPictures, make_job
from ingest.adapters.stores import NatsPictures
from ingest.ports import Pictures
from nats.js.errors import KeyNotFoundError
from servicekit import keys
from servicekit.nats import IngestTransport

JOB = make_job(b"x")
DOCUMENT = JOB.document
NEWER = replace(DOCUMENT, sha256="0" * 64)


class Shelf:
    """A store and its content."""

    def __init__(self, store: Pictures, transport: IngestTransport | None) -> None:
        self.store = store
        self._transport = transport

    async def has(self, document: Any, page: int) -> bytes | None:
        name = (JOB.principal.tenant, JOB.index, document.document_id, document.sha256, page)
        if isinstance(self.store, MemoryPictures):
            return self.store.kept.get(name)
        assert self._transport is not None
        try:
            return (await self._transport.pictures.get(keys.picture_key(*name))).value
        except KeyNotFoundError:
            return None


@pytest.fixture(params=["memory", "nats"])
def shelf(request: pytest.FixtureRequest, transport: IngestTransport) -> Shelf:
    if request.param == "memory":
        return Shelf(MemoryPictures(), None)
    return Shelf(NatsPictures(transport), transport)


async def test_a_picture_is_kept_by_version_and_page(shelf: Shelf) -> None:
    """A picture is read as it was written, up to the largest one. Writing it again changes nothing."""
    largest = bytes(768 * 1024)
    for _ in range(2):
        await shelf.store.put(JOB, DOCUMENT, 1, b"one")
        await shelf.store.put(JOB, DOCUMENT, 12, largest)
    assert await shelf.has(DOCUMENT, 1) == b"one"
    assert await shelf.has(DOCUMENT, 12) == largest
    assert await shelf.has(DOCUMENT, 2) is None
    assert await shelf.has(NEWER, 1) is None


async def test_a_versions_pictures_go_together(shelf: Shelf) -> None:
    """Pictures of another version or document stay. Removing the pictures again is no error."""
    other = replace(DOCUMENT, document_id=f"{DOCUMENT.document_id}.x")
    for document in (DOCUMENT, NEWER, other):
        await shelf.store.put(JOB, document, 1, b"one")
        await shelf.store.put(JOB, document, 2, b"two")
    await shelf.store.remove(JOB, DOCUMENT)
    await shelf.store.remove(JOB, DOCUMENT)
    assert [await shelf.has(document, 1) for document in (DOCUMENT, NEWER, other)] == [None, b"one", b"one"]
    assert await shelf.has(DOCUMENT, 2) is None
