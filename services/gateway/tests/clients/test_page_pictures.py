from dataclasses import replace
from typing import Any

import pytest
from causeway_testing.gateway.application import FakePictures
from causeway_testing.servers import nats_server
from gateway.clients.page_pictures import NatsPictures
from gateway.domain import Passage
from gateway.ports.answering import Pictures
from servicekit import keys, nats
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from servicekit.principal import LOCAL

PAGE = Passage("p", "docs", "d", "a.pdf", "a.pdf#page=3", "text", 1.0, page=3, sha256="5" * 64, has_pictures=True)
OTHERS = [replace(PAGE, page=4), replace(PAGE, document_id="d.x"), replace(PAGE, index="docs.x")]


def key_of(page: Passage) -> tuple[str, str, str, str, int]:
    return LOCAL.tenant, page.index, page.document_id, page.sha256, page.page


@pytest.fixture(params=["fake", "nats"])
async def pictures(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    """Return a picture of each page, whose content is the page's name."""
    if request.param == "fake":
        yield FakePictures({key_of(passage): passage.sourcepage.encode() for passage in (PAGE, *OTHERS)})
        return
    async with nats_server(tmp_path) as url:
        client = await nats.connect(url, "test")
        transport = await nats.ingest_transport(client)
        for each in (PAGE, *OTHERS):
            await transport.pictures.put(keys.picture_key(*key_of(each)), each.sourcepage.encode())

        async def connected() -> Any:
            return transport

        yield NatsPictures(connected)
        await client.close()


async def readable(pictures: Pictures) -> list[bool]:
    return [await pictures.read(LOCAL, passage, Deadline.after(120)) is not None for passage in (PAGE, *OTHERS)]


async def test_a_page_has_its_picture(pictures: Pictures) -> None:
    """A picture is read only with the page's version and tenant."""
    assert await pictures.read(LOCAL, PAGE, Deadline.after(120)) == b"a.pdf#page=3"
    assert await pictures.read(LOCAL, replace(PAGE, sha256="6" * 64), Deadline.after(120)) is None
    assert await pictures.read(replace(LOCAL, tenant="another"), PAGE, Deadline.after(120)) is None


async def test_pictures_of_documents_are_deleted(pictures: Pictures) -> None:
    """The pictures of the named documents are deleted, and no others."""
    await pictures.forget(LOCAL, "docs", [])
    await pictures.forget(replace(LOCAL, tenant="another"), "docs", ["d"])
    assert await readable(pictures) == [True, True, True, True]
    await pictures.forget(LOCAL, "docs", ["d", "unknown"])
    assert await readable(pictures) == [False, False, True, True]


async def test_pictures_of_an_index_are_deleted(pictures: Pictures) -> None:
    """The pictures of an index are deleted, and no others."""
    await pictures.forget(LOCAL, "docs")
    assert await readable(pictures) == [False, False, False, True]


async def test_a_broker_that_cannot_be_reached() -> None:
    """While the broker cannot be reached, a read fails with Unavailable, and a deletion raises nothing."""

    async def unavailable() -> Any:
        raise Unavailable("NATS is unavailable.")

    pictures = NatsPictures(unavailable)
    with pytest.raises(Unavailable):
        await pictures.read(LOCAL, PAGE, Deadline.after(120))
    await pictures.forget(LOCAL, "docs")
