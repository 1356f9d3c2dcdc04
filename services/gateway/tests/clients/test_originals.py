"""The contract of the port `Originals`: the fake, and the adapter with a real nats-server and with an S3 store."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from causeway_testing.gateway.application import FakeOriginals
from causeway_testing.servers import free_ports, nats_server
from gateway.clients.file_cache import FileCache
from gateway.clients.health_probes import OriginalsProbe
from gateway.clients.ingest import NatsIngest
from gateway.clients.nats_connection import NatsLink
from gateway.clients.originals import CachedOriginals
from gateway.clients.text_documents import NatsTexts
from gateway.domain.documents import Upload
from gateway.domain.text_documents import TextDocument
from gateway.ports.documents import Originals
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import NotFound, Unavailable
from servicekit.nats import IngestTransport
from servicekit.original_settings import OriginalSettings
from servicekit.original_store import NatsOriginalStore, OriginalStore
from servicekit.principal import LOCAL, Principal
from servicekit.s3_originals import S3OriginalStore
from structlog.testing import capture_logs

Ready = Callable[[NatsLink], Awaitable[None]]
STRANGER = Principal("another tenant")
Put = Callable[[bytes], Awaitable[str]]


def soon() -> Deadline:
    return Deadline.after(120)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir()
    return path


async def uploaded(link: NatsLink, content: bytes, store: OriginalStore | None = None) -> str:
    ingest = NatsIngest(link.ingest, store or NatsOriginalStore(link.ingest))
    job = await ingest.submit(LOCAL, Upload("docs", "a.bin", content), soon())
    return keys.original_object(LOCAL.tenant, "docs", job.id)


@pytest.fixture(params=["fake", "nats", "s3"])
def store(request: pytest.FixtureRequest, cache: Path) -> tuple[Originals, Put]:
    """Return the originals, and a function that stores one and returns its name."""
    if request.param == "fake":
        fake = FakeOriginals()

        async def remember(content: bytes) -> str:
            name = keys.original_object(LOCAL.tenant, "docs", uuid.uuid4().hex)
            fake.contents[LOCAL.tenant, name] = content
            return name

        return fake, remember
    link: NatsLink = request.getfixturevalue("link")
    if request.param == "nats":
        store: OriginalStore = NatsOriginalStore(link.ingest)
    else:
        store = S3OriginalStore(request.getfixturevalue("s3_settings"))

    async def upload(content: bytes) -> str:
        return await uploaded(link, content, store)

    return CachedOriginals(store, FileCache(cache, 10_000_000)), upload


@pytest.mark.parametrize("size", [1, 200_000, 131_072 * 3])
async def test_an_original_is_read_unchanged(store: tuple[Originals, Put], size: int) -> None:
    """An original is read byte for byte, in one or several pieces, and repeatedly."""
    originals, put = store
    content = bytes(index % 251 for index in range(size))
    name = await put(content)
    for _ in range(2):
        async with originals.open(LOCAL, name, size, soon()) as path:
            assert path.read_bytes() == content


async def test_a_missing_original_is_not_found(store: tuple[Originals, Put]) -> None:
    """A missing original and one of another tenant cause NotFound."""
    originals, put = store
    stored = await put(b"x")
    for principal, name in ((LOCAL, keys.original_object(LOCAL.tenant, "docs", "0" * 32)), (STRANGER, stored)):
        with pytest.raises(NotFound):
            async with originals.open(principal, name, 1, soon()):
                pass


async def test_a_deleted_original_is_not_found(store: tuple[Originals, Put]) -> None:
    """A deleted original is not found. A deletion for another index or tenant has no effect."""
    originals, put = store
    kept, gone = await put(b"kept"), await put(b"gone")
    await originals.forget(LOCAL, "other", [kept])
    await originals.forget(STRANGER, "docs", [kept])
    await originals.forget(LOCAL, "docs", [gone, gone, "nonsense"])
    async with originals.open(LOCAL, kept, 4, soon()) as path:
        assert path.read_bytes() == b"kept"
    with pytest.raises(NotFound):
        async with originals.open(LOCAL, gone, 4, soon()):
            pass


async def test_concurrent_readers_get_their_originals(store: tuple[Originals, Put]) -> None:
    """Concurrent readers of several originals each get their own."""
    originals, put = store
    contents = [bytes([number]) * 150_000 for number in range(4)]
    names = [await put(content) for content in contents]

    async def read(number: int) -> bool:
        async with originals.open(LOCAL, names[number], 150_000, soon()) as path:
            return path.read_bytes() == contents[number]

    assert all(await asyncio.gather(*(read(number % 4) for number in range(20))))


async def test_an_original_is_cached_on_the_disk(link: NatsLink, cache: Path) -> None:
    """The second reader of an original needs no NATS."""
    content = b"content" * 1000
    name = await uploaded(link, content)
    connections = 0

    async def transport() -> IngestTransport:
        nonlocal connections
        connections += 1
        return await link.ingest()

    originals = CachedOriginals(NatsOriginalStore(transport), FileCache(cache, 10_000))
    for _ in range(3):
        async with originals.open(LOCAL, name, len(content), soon()) as path:
            assert path.parent == cache
    assert connections == 1


async def test_a_read_during_an_outage_of_nats_is_unavailable(tmp_path: Path, cache: Path, ready: Ready) -> None:
    """A read fails with Unavailable while NATS cannot be reached, and leaves no file."""
    directory, [port] = tmp_path / "nats", free_ports(1)
    async with NatsLink(f"nats://127.0.0.1:{port}", retry=0.05) as link:
        originals = CachedOriginals(NatsOriginalStore(link.ingest), FileCache(cache, 10_000))
        async with nats_server(directory, port):
            await ready(link)
            name = await uploaded(link, b"x")
        with pytest.raises(Unavailable):
            async with originals.open(LOCAL, name, 1, Deadline.after(0.5)):
                pass
        with capture_logs() as logs:
            await originals.forget(LOCAL, "docs", [name])  # raises nothing
    # docs/originals.md quotes this log message. Ingest has the same one.
    assert [(line["event"], line["name"]) for line in logs if "name" in line] == [
        ("cannot remove an unused original", name)
    ]
    assert list(cache.iterdir()) == []


async def test_a_missing_bucket_refuses_uploads_and_reads(
    link: NatsLink, cache: Path, s3_settings: OriginalSettings
) -> None:
    """Uploads, texts and reads are refused without the bucket, no job is queued, and the probe names the bucket."""
    store = S3OriginalStore(s3_settings.model_copy(update={"s3_bucket": "not-there"}))
    with pytest.raises(Unavailable, match="no bucket"):
        await uploaded(link, b"x", store)
    texts = NatsTexts(link.ingest, store)
    with pytest.raises(Unavailable, match="no bucket"):
        await texts.submit(LOCAL, "docs", [TextDocument("a", "A text.", b"{}", "0" * 64)], soon())
    assert (await (await link.ingest()).jetstream.stream_info(keys.INGEST_STREAM)).state.messages == 0
    originals = CachedOriginals(store, FileCache(cache, 10_000))
    name = keys.original_object(LOCAL.tenant, "docs", "0" * 32)
    with pytest.raises(Unavailable, match="no bucket"):
        async with originals.open(LOCAL, name, 1, soon()):
            pass
    await originals.forget(LOCAL, "docs", [name])  # raises nothing
    assert "not-there" in str(await OriginalsProbe(store).check(soon()))
    assert await OriginalsProbe(S3OriginalStore(s3_settings)).check(soon()) is None
    assert list(cache.iterdir()) == []
