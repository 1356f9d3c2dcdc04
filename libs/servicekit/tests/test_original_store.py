"""The contract of the store of originals: in NATS, in a bucket, and in a bucket after NATS."""

import asyncio
import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from causeway_testing.s3 import keys_in, request
from causeway_testing.servers import free_ports, measured
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from servicekit import keys
from servicekit.errors import InvalidRequest, NotFound, Unavailable
from servicekit.nats import IngestTransport
from servicekit.original_settings import OriginalSettings
from servicekit.original_store import MovedOriginalStore, NatsOriginalStore, OriginalStore, create_original_store
from servicekit.s3_originals import S3OriginalStore

SMALL = b"An original.\n" * 20_000
LARGE = bytes(range(251)) * 80_000
"""Several parts."""
NAME = keys.original_object("north", "handbook", "0" * 32)
FACTS = {"suffix": ".html", "etag": 'W/"1ä\r\n"', "last-modified": "Sat, 21 Nov 2026 10:00:00 GMT"}


def in_nats(transport: IngestTransport) -> NatsOriginalStore:
    async def ready() -> IngestTransport:
        return transport

    return NatsOriginalStore(ready)


@pytest.fixture(params=["nats", "s3", "moved"])
def store(request: pytest.FixtureRequest) -> OriginalStore:
    """Return an empty store."""
    if request.param == "s3":
        return S3OriginalStore(request.getfixturevalue("s3_settings"))
    former = in_nats(request.getfixturevalue("transport"))
    if request.param == "nats":
        return former
    return MovedOriginalStore(S3OriginalStore(request.getfixturevalue("s3_settings")), former)


async def read(store: OriginalStore, name: str = NAME) -> bytes:
    target = io.BytesIO()
    async with asyncio.timeout(60):
        await store.read(name, target)
    return target.getvalue()


@pytest.mark.parametrize("content", [b"", SMALL, LARGE], ids=["empty", "small", "large"])
async def test_a_stored_original_is_read(store: OriginalStore, content: bytes) -> None:
    """An original is read unchanged, with facts of any characters, and the store reports no problem."""
    with pytest.raises(NotFound):
        await read(store)
    assert await store.facts(NAME) is None
    await store.put(
        NAME, io.BytesIO(content), FACTS if not isinstance(store, NatsOriginalStore) else {"suffix": "ä"}
    )
    assert await read(store) == content
    facts = await store.facts(NAME)
    assert facts == (FACTS if not isinstance(store, NatsOriginalStore) else {"suffix": "ä"})
    assert await store.problem() is None


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
async def test_a_second_write_changes_nothing(store: OriginalStore, content: bytes) -> None:
    """The first original keeps its bytes and its facts. A source is read from its current position."""
    source = io.BytesIO(b"skipped" + content)
    source.seek(7)
    await store.put(NAME, source, {"suffix": ".a"})
    await store.put(NAME, io.BytesIO(content[::-1]), {"suffix": ".b"})
    assert await read(store) == content
    assert await store.facts(NAME) == {"suffix": ".a"}


async def test_one_of_several_concurrent_writers_wins(store: OriginalStore) -> None:
    """Of several concurrent writers one wins, with its complete original and its own facts."""
    await asyncio.gather(*(store.put(NAME, io.BytesIO(SMALL * n), {"n": str(n)}) for n in range(1, 6)))
    facts = await store.facts(NAME)
    assert facts is not None
    assert await read(store) == SMALL * int(facts["n"])


async def test_a_removed_original_is_missing(store: OriginalStore) -> None:
    """Other originals stay. Removing again is no error, and the name can be used again."""
    other = keys.original_object("north", "handbook", "1" * 32)
    for name in (NAME, other):
        await store.put(name, io.BytesIO(SMALL))
    await store.remove(NAME)
    await store.remove(NAME)
    with pytest.raises(NotFound):
        await read(store)
    assert await read(store, other) == SMALL
    await store.put(NAME, io.BytesIO(b"again"))
    assert await read(store) == b"again"


async def test_many_readers_and_writers_at_once(store: OriginalStore) -> None:
    """Concurrent readers and writers get their own originals."""
    names = [keys.original_object("north", "handbook", f"{number:032x}") for number in range(8)]
    await asyncio.gather(*(store.put(name, io.BytesIO(name.encode() * 10_000)) for name in names))
    found = await asyncio.gather(*(read(store, name) for name in names * 3))
    assert found == [name.encode() * 10_000 for name in names * 3]


async def test_originals_from_before_the_bucket_are_read_in_nats(
    transport: IngestTransport, s3_settings: OriginalSettings
) -> None:
    """Originals from before the bucket are read and removed in NATS. New ones are written only to the bucket."""
    former = in_nats(transport)
    await former.put(NAME, io.BytesIO(SMALL), {"suffix": ".a"})

    async def ready() -> IngestTransport:
        return transport

    store = create_original_store(s3_settings, ready)
    assert await read(store) == SMALL
    assert await store.facts(NAME) == {"suffix": ".a"}
    new = keys.texts_object("north", "1" * 32)
    await store.put(new, io.BytesIO(b"new"))
    assert keys_in(s3_settings) == [f"originals/{new}"]
    with pytest.raises(NotFound):
        await read(former, new)
    await store.remove(NAME)
    with pytest.raises(NotFound):
        await read(former)
    assert isinstance(create_original_store(OriginalSettings(), ready), NatsOriginalStore)


class Sent(io.BytesIO):
    """A large source that reports the read of its third part for sending, after the read for its SHA-256.

    Args:
        content: Its bytes.
        reached: Called at this moment, from the reading thread.
    """

    def __init__(self, content: bytes, reached: Callable[[], object]) -> None:
        super().__init__(content)
        self._reached = reached
        self._begun = 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._begun += 1
        return super().seek(offset, whence)

    def read(self, size: int | None = -1, /) -> bytes:
        if self._begun >= 2 and self.tell() >= 16 * 1024**2:
            self._reached()
        return super().read(size)


def uploads_in(settings: OriginalSettings) -> int:
    """Return the number of incomplete uploads in a bucket."""
    status, body = request(settings.s3_endpoint, "GET", f"/{settings.s3_bucket}?uploads")
    assert status == 200
    return body.count("<UploadId>")


async def test_a_source_that_fails_leaves_nothing(s3_settings: OriginalSettings) -> None:
    """A failing source raises its error and leaves neither an original nor a part. The next writer succeeds."""

    def fail() -> None:
        raise ZeroDivisionError

    store = S3OriginalStore(s3_settings)
    with pytest.raises(Unavailable):
        await store.put(NAME, Sent(LARGE, fail))
    assert (keys_in(s3_settings), uploads_in(s3_settings)) == ([], 0)
    await store.put(NAME, io.BytesIO(LARGE))
    assert await read(store) == LARGE


async def test_a_cancelled_writer_leaves_no_original(s3_settings: OriginalSettings) -> None:
    """A cancelled writer leaves no original, and the next writer succeeds."""
    store = S3OriginalStore(s3_settings)
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    source = Sent(bytes(60_000_000), lambda: loop.call_soon_threadsafe(started.set))
    writing = asyncio.create_task(store.put(NAME, source))
    await started.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert keys_in(s3_settings) == []
    with pytest.raises(NotFound):
        await read(store)
    await store.put(NAME, io.BytesIO(LARGE))
    assert await read(store) == LARGE


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "/a", "a%2Fb", "a\\b", "a b", "ä", "a\n", "a" * 600]
)
async def test_an_invalid_name_is_refused(s3_settings: OriginalSettings, name: str) -> None:
    """An invalid name is refused before any request, because its key could belong to another original."""
    store = S3OriginalStore(s3_settings)
    for call in (store.put(name, io.BytesIO(b"x")), store.read(name, io.BytesIO()), store.remove(name)):
        with pytest.raises(InvalidRequest, match="Not a name of an original"):
            await call
    with pytest.raises(InvalidRequest):
        await store.facts(name)
    assert keys_in(s3_settings) == []


@given(st.text(), st.text(), st.uuids())
def test_names_of_originals_are_names_of_objects(tenant: str, index: str, job: object) -> None:
    """The name of an original is a valid object name, for any tenant and index."""
    from servicekit import s3_originals

    for name in (keys.original_object(tenant, index, str(job)), keys.texts_object(tenant, str(job))):
        s3_originals._check(name)
        s3_originals._check(keys.member_object(name, 1))


async def test_a_missing_bucket_is_unavailable(s3_settings: OriginalSettings) -> None:
    """Every call raises an error that is not NotFound, and the reported problem names the bucket."""
    store = S3OriginalStore(s3_settings.model_copy(update={"s3_bucket": "not-there"}))
    measured("causeway_s3_call_duration_seconds_count")
    problem = await store.problem()
    assert problem is not None
    assert "no bucket 'not-there'" in problem
    await refused(store, "no bucket 'not-there'")
    kinds = {labels.get("error_type") for labels, _ in measured("causeway_s3_call_duration_seconds_count")}
    assert "NoSuchBucket" in kinds


async def refused(store: OriginalStore, match: str) -> None:
    for call in (
        store.put(NAME, io.BytesIO(b"x")),
        store.put(NAME, io.BytesIO(LARGE)),
        store.read(NAME, io.BytesIO()),
        store.remove(NAME),
    ):
        with pytest.raises(Unavailable, match=match) as caught:
            await call
        assert "secret" not in caught.value.message
    with pytest.raises(Unavailable, match=match):
        await store.facts(NAME)


async def test_an_unavailable_store_is_reported(s3_settings: OriginalSettings) -> None:
    """Every call raises Unavailable."""
    [port] = free_ports(1)
    away = s3_settings.model_copy(update={"s3_endpoint": f"http://127.0.0.1:{port}"})
    store = S3OriginalStore(away)
    await refused(store, "cannot be reached")
    assert await store.problem() is not None


async def test_damaged_bytes_are_detected(s3_settings: OriginalSettings) -> None:
    """Bytes that differ from the stored ones are detected by their SHA-256."""
    import obstore

    store = S3OriginalStore(s3_settings)
    wrong = {"sha256": hashlib.sha256(b"right").hexdigest()}
    await obstore.put_async(store._store, NAME, b"wrong", attributes=wrong)
    with pytest.raises(Unavailable, match="SHA-256"):
        await read(store)


async def test_facts_that_are_too_long_are_omitted(s3_settings: OriginalSettings) -> None:
    """A fact that is too long is left out, because the store would refuse it. The others stay."""
    store = S3OriginalStore(s3_settings)
    await store.put(NAME, io.BytesIO(b"x"), {"etag": "ä" * 5000, "suffix": ".html"})
    assert await store.facts(NAME) == {"suffix": ".html"}


async def test_a_renewed_access_key_is_used(s3_settings: OriginalSettings) -> None:
    """The files of the access key are read when a request needs them."""
    from servicekit import s3_originals

    credentials = s3_originals._credentials(s3_settings)
    assert credentials is not None
    assert (credentials()["access_key_id"], credentials()["secret_access_key"]) == ("test", "secret")


def test_an_access_key_needs_a_bucket(tmp_path: Path) -> None:
    """An access key without a bucket is refused. Otherwise, NATS would store the originals without a warning."""
    with pytest.raises(ValidationError, match="needs CAUSEWAY_S3_BUCKET"):
        OriginalSettings(s3_access_key_file=tmp_path / "a", s3_secret_key_file=tmp_path / "b")


def test_unusable_settings_are_refused(s3_settings: OriginalSettings, tmp_path: Path) -> None:
    """An incomplete access key, and missing or empty files, are refused with the variable's name."""
    with pytest.raises(ValidationError, match="belong together"):
        OriginalSettings(s3_bucket="abc", s3_access_key_file=tmp_path / "a")
    for bucket in ("A", "ab", "../x", "a" * 64):
        with pytest.raises(ValidationError):
            OriginalSettings(s3_bucket=bucket)
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("no certificate")
    for setting, path in (
        ("s3_access_key_file", tmp_path / "missing"),
        ("s3_secret_key_file", tmp_path / "empty"),
        ("s3_ca_file", tmp_path / "missing"),
        ("s3_ca_file", tmp_path / "text"),
    ):
        with pytest.raises(InvalidRequest, match=f"CAUSEWAY_{setting.upper()}"):
            S3OriginalStore(s3_settings.model_copy(update={setting: path}))
