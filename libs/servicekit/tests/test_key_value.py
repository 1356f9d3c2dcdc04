import json
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from nats.js.kv import KeyValue
from servicekit import key_value
from servicekit.buckets import api_keys_bucket


@pytest.fixture
async def bucket(client: Client) -> KeyValue:
    return await api_keys_bucket(client)


async def test_an_empty_bucket_has_no_entries(bucket: KeyValue) -> None:
    """An empty bucket returns at once."""
    assert await key_value.current_entries(bucket) == []


async def test_all_entries_are_returned_each_time(bucket: KeyValue) -> None:
    """All entries are returned for every order of messages and tasks. Deleted entries are not."""
    for number in range(20):
        await bucket.put(f"a.{number}", b"%d" % number)
    await bucket.put("b.1", b"x")
    await bucket.delete("a.3")
    await bucket.purge("a.4")
    expected = {f"a.{number}" for number in range(20)} - {"a.3", "a.4"}
    for _ in range(50):
        assert {entry.key for entry in await key_value.current_entries(bucket, "a.*")} == expected
    assert {entry.key for entry in await key_value.current_entries(bucket)} == expected | {"b.1"}


async def test_listings_leave_no_consumers(bucket: KeyValue) -> None:
    """After listings, the server has no consumer of the bucket, whose number it limits."""
    await bucket.put("a", b"1")
    assert len(await key_value.current_entries(bucket)) == 1
    assert await key_value.current_keys(bucket) == ["a"]
    assert await bucket._js.consumers_info(bucket._stream) == []


async def test_later_changes_are_delivered(bucket: KeyValue) -> None:
    """Puts and deletions are reported in order, and other keys are not reported."""

    async def next_change() -> object:
        while (entry := await key_value.next_update(watcher, 5)) is None:
            pass
        return entry.value, entry.operation

    await bucket.put("a.1", b"old")
    async with key_value.watched(bucket, "a.*") as (entries, watcher):
        assert [(entry.key, entry.value) for entry in entries] == [("a.1", b"old")]
        await bucket.put("b.1", b"other")
        await bucket.put("a.1", b"new")
        assert await next_change() == (b"new", None)
        await bucket.delete("a.1")
        assert await next_change() == (b"", "DEL")
        with pytest.raises(nats.errors.TimeoutError):
            assert await key_value.next_update(watcher, 0.2) or await key_value.next_update(watcher, 0.2)


async def test_recent_names_match_the_pattern(bucket: KeyValue) -> None:
    """The names that match the pattern are returned. An empty bucket and a pattern without keys return no names."""
    assert await key_value.recent_keys(bucket) == []
    for name in ("a.1", "a.2", "b.1"):
        await bucket.put(name, b"x")
    assert sorted(await key_value.recent_keys(bucket, "a.*")) == ["a.1", "a.2"]
    assert sorted(await key_value.recent_keys(bucket)) == ["a.1", "a.2", "b.1"]
    assert await key_value.recent_keys(bucket, "c.*") == []


async def test_recent_names_come_in_pages(bucket: KeyValue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page begins after the page before."""
    jetstream: Any = bucket._js
    offsets: list[int] = []

    async def answer(subject: str, request: bytes, **_: float) -> dict[str, Any]:
        offset = json.loads(request)["offset"]
        offsets.append(offset)
        page = [f"{bucket._pre}a.{number}" for number in range(5)][offset : offset + 2]
        return {"state": {"subjects": dict.fromkeys(page, 1)}, "total": 5}

    monkeypatch.setattr(jetstream, "_api_request", answer)
    assert await key_value.recent_keys(bucket) == [f"a.{number}" for number in range(5)]
    assert offsets == [0, 2, 4]
