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


class PictureAccess:
    """A store of pictures, and access to its content."""

    def __init__(self, store: Pictures, transport: IngestTransport | None) -> None:
        self.store = store
        self._transport = transport

    async def has(self, document: Any, page: int) -> bytes | None:
        name = (JOB.principal.tenant, JOB.index, document.document_id, document.sha256, page)
        if isinstance(self.store, MemoryPictures):
            return self.store.pictures.get(name)
        assert self._transport is not None
        try:
            return (await self._transport.pictures.get(keys.picture_key(*name))).value
        except KeyNotFoundError:
            return None


@pytest.fixture(params=["memory", "nats"])
def pictures(request: pytest.FixtureRequest, transport: IngestTransport) -> PictureAccess:
    if request.param == "memory":
        return PictureAccess(MemoryPictures(), None)
    return PictureAccess(NatsPictures(transport), transport)


async def test_pictures_are_stored_by_version_and_page(pictures: PictureAccess) -> None:
    """A picture is stored unchanged, even the largest possible one. A repeated write changes nothing."""
    largest = bytes(768 * 1024)
    for _ in range(2):
        await pictures.store.put(JOB, DOCUMENT, 1, b"one")
        await pictures.store.put(JOB, DOCUMENT, 12, largest)
    assert await pictures.has(DOCUMENT, 1) == b"one"
    assert await pictures.has(DOCUMENT, 12) == largest
    assert await pictures.has(DOCUMENT, 2) is None
    assert await pictures.has(NEWER, 1) is None


async def test_pictures_of_a_version_are_removed_together(pictures: PictureAccess) -> None:
    """`remove` keeps the pictures of other versions and documents. A repeated removal is not an error."""
    other = replace(DOCUMENT, document_id=f"{DOCUMENT.document_id}.x")
    for document in (DOCUMENT, NEWER, other):
        await pictures.store.put(JOB, document, 1, b"one")
        await pictures.store.put(JOB, document, 2, b"two")
    await pictures.store.remove(JOB, DOCUMENT)
    await pictures.store.remove(JOB, DOCUMENT)
    assert [await pictures.has(document, 1) for document in (DOCUMENT, NEWER, other)] == [None, b"one", b"one"]
    assert await pictures.has(DOCUMENT, 2) is None
