import asyncio
from pathlib import Path

import pytest
from causeway_testing.servers import eventually
from gateway.clients.file_cache import FileCache
from servicekit.errors import NotFound, Unavailable


class Source:
    """A source that writes files of a given length in two parts, and counts the fetches.

    Between the parts, it waits until `go` is set, and raises `failure`, if any.
    """

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.fetched = 0
        self.go = asyncio.Event()
        self.go.set()
        self.failure: Exception | None = None

    async def fetch(self, path: Path) -> None:
        self.fetched += 1
        path.write_bytes(b"x" * (self.size // 2))
        await self.go.wait()
        if self.failure is not None:
            raise self.failure
        path.write_bytes(b"x" * self.size)


async def use(cache: FileCache, name: str, source: Source) -> bytes:
    async with cache.file(name, source.size, source.fetch) as path:
        return path.read_bytes()


def on_disk(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


async def test_a_file_is_fetched_once(tmp_path: Path) -> None:
    """A file is fetched once, and later readers read it from the disk."""
    cache, source = FileCache(tmp_path, 100), Source()
    assert await use(cache, "a", source) == await use(cache, "a", source) == b"x" * 10
    assert source.fetched == 1


async def test_concurrent_readers_share_a_fetch(tmp_path: Path) -> None:
    """Concurrent readers of a file share one fetch."""
    cache, source = FileCache(tmp_path, 100), Source()
    source.go.clear()
    readers = [asyncio.create_task(use(cache, "a", source)) for _ in range(5)]
    await asyncio.sleep(0)  # all readers begin
    source.go.set()
    assert set(await asyncio.gather(*readers)) == {b"x" * 10}
    assert source.fetched == 1


async def test_the_least_recently_used_file_is_removed(tmp_path: Path) -> None:
    """The least recently used file is removed when another file needs its space."""
    cache, sources = FileCache(tmp_path, 25), {name: Source() for name in "abc"}
    for name in "ababc":
        await use(cache, name, sources[name])
    assert on_disk(tmp_path) == 20
    await use(cache, "b", sources["b"])
    await use(cache, "a", sources["a"])
    assert [source.fetched for source in sources.values()] == [2, 1, 1]


async def test_a_file_in_use_stays(tmp_path: Path) -> None:
    """A file in use is not removed. Meanwhile, further readers can open it, and another file is refused."""
    cache, source, other = FileCache(tmp_path, 15), Source(), Source()
    async with cache.file("a", 10, source.fetch) as path:
        with pytest.raises(Unavailable) as caught:
            await use(cache, "b", other)
        assert caught.value.retry_after is not None
        assert await use(cache, "a", source) == path.read_bytes()
    await use(cache, "b", other)
    assert on_disk(tmp_path) == 10


async def test_a_file_larger_than_the_cache(tmp_path: Path) -> None:
    """A file larger than the cache exists while it is used, and is removed afterwards."""
    cache, source = FileCache(tmp_path, 5), Source()
    assert len(await use(cache, "a", source)) == 10
    assert on_disk(tmp_path) == 0


async def test_a_fetch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A failed fetch leaves no file, and the next reader fetches again. A failure of the disk is `Unavailable`."""
    cache, source = FileCache(tmp_path, 100), Source()
    for failure, expected in ((NotFound("gone"), NotFound), (OSError("disk full"), Unavailable)):
        source.failure = failure
        with pytest.raises(expected):
            await use(cache, "a", source)
        assert on_disk(tmp_path) == 0
    source.failure = None
    assert len(await use(cache, "a", source)) == 10


async def test_a_cancelled_fetch_leaves_no_file(tmp_path: Path) -> None:
    """A cancelled fetch leaves no file. A reader that waits for it fetches the file for all later ones."""
    cache, source = FileCache(tmp_path, 100), Source()
    source.go.clear()
    first, second, third = (asyncio.create_task(use(cache, name, source)) for name in "aba")
    await eventually(lambda: source.fetched == 2)
    first.cancel()
    second.cancel()
    await eventually(lambda: source.fetched == 3)
    assert on_disk(tmp_path) == 5  # the part that the third reader has fetched
    source.go.set()
    assert await third == await use(cache, "a", source) == b"x" * 10
    assert source.fetched == 3
