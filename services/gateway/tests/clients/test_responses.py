"""The contract of the port, on the fake and on the adapter with a real nats-server."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from causeway_testing.gateway.application import FakeResponses
from causeway_testing.servers import free_ports
from gateway.clients.nats_connection import NatsLink
from gateway.clients.responses import NatsResponses
from gateway.domain.responses import (
    CONVERSATION,
    RESPONSE,
    OwnedPage,
    Stored,
    container_ids,
    is_id,
    new_name,
    with_id,
)
from gateway.ports.responses import ResponseStore
from servicekit import response_keys
from servicekit.deadline import Deadline
from servicekit.errors import PayloadTooLarge, Unavailable
from servicekit.key_value import current_keys
from servicekit.principal import Principal

ANN = Principal("local", "ann@example.com", issuer="https://id.example.com")
OTHERS = [
    replace(ANN, user="bob|ä *.>"),
    replace(ANN, tenant="t"),
    replace(ANN, issuer=""),
    replace(ANN, issuer="https://other.example.com"),
    replace(ANN, user="eve", roles=("admin",)),
]


def soon() -> Deadline:
    return Deadline.after(120)


def stored(kind: str = RESPONSE, age: int | None = None) -> Stored:
    made = new_name()
    name = f"{kind}_{made if age is None else f'{age:012x}' + made[12:]}"
    content = [{"type": "input_text", "text": "Tä?\u2028"}]
    item = with_id({"type": "message", "role": "user", "content": content}, name, "i0")
    return Stored(name, "help", {"id": name, "output": []}, (item,), ("resp_x",))


@pytest.fixture(params=["fake", "nats"])
def store(request: pytest.FixtureRequest) -> ResponseStore:
    if request.param == "fake":
        return FakeResponses(limit=3)
    link: NatsLink = request.getfixturevalue("link")
    return NatsResponses(link.responses, link.large_responses, limit=3)


async def test_a_response_is_stored_and_deleted(store: ResponseStore) -> None:
    """A saved response is read until it is deleted."""
    one = stored()
    assert await store.read(ANN, one.id, soon()) is None
    saved = await store.save(ANN, one, soon())
    read = await store.read(ANN, one.id, soon())
    assert read == one
    assert read.revision == saved.revision > 0
    assert await store.delete(ANN, one.id, soon())
    assert not await store.delete(ANN, one.id, soon())
    assert await store.read(ANN, one.id, soon()) is None


async def test_a_response_belongs_to_its_owner(store: ResponseStore) -> None:
    """Another user, tenant or issuer can neither read, change nor delete a response."""
    one = await store.save(ANN, stored(), soon())
    for principal in OTHERS:
        assert await store.read(principal, one.id, soon()) is None
        assert not await store.delete(principal, one.id, soon())
        assert not await store.replace(principal, one, soon())
    assert await store.read(ANN, one.id, soon()) == one


async def test_an_old_revision_changes_nothing(store: ResponseStore) -> None:
    """A replacement with an old revision is refused. A deleted response stays deleted."""
    one = await store.save(ANN, stored(CONVERSATION), soon())
    assert await store.replace(ANN, replace(one, items=()), soon())
    assert not await store.replace(ANN, one, soon())
    now = await store.read(ANN, one.id, soon())
    assert now is not None
    assert now.items == ()
    assert await store.delete(ANN, one.id, soon())
    assert not await store.replace(ANN, now, soon())


async def test_the_oldest_responses_are_removed(store: ResponseStore) -> None:
    """The oldest responses of a user above the limit are removed. Other users keep theirs."""
    other = await store.save(OTHERS[0], stored(), soon())
    several = [stored(age=age) for age in range(5)]
    for one in several:
        await store.save(ANN, one, soon())
    exist = [await store.read(ANN, one.id, soon()) is not None for one in several]
    assert exist == [False, False, True, True, True]
    assert await store.read(OTHERS[0], other.id, soon()) == other


async def test_a_replacement_removes_no_other_response(store: ResponseStore) -> None:
    """A user with the maximum number of responses keeps all of them when one is replaced."""
    several = [await store.save(ANN, stored(age=age), soon()) for age in range(3)]
    assert await store.replace(ANN, replace(several[2], items=()), soon())
    assert all([await store.read(ANN, one.id, soon()) for one in several])


async def test_all_responses_of_a_user_are_deleted(store: ResponseStore) -> None:
    """`forget` deletes all responses of a user, and none of other users."""
    mine, other = await store.save(ANN, stored(), soon()), await store.save(OTHERS[0], stored(), soon())
    assert await store.forget(ANN.tenant, ANN.owner, soon()) == 1
    assert await store.read(ANN, mine.id, soon()) is None
    assert await store.read(OTHERS[0], other.id, soon()) == other


async def test_a_tenants_responses_are_paged(store: ResponseStore) -> None:
    """The responses of a tenant are listed in pages, the newest first.

    The list contains the responses of all users, including one with a long name and one without a name. It contains
    neither conversations nor responses of other tenants.
    """
    owners = [ANN, replace(ANN, user="u" * 100), replace(ANN, user="", issuer="")]
    saved = [await store.save(owner, stored(age=age), soon()) for age, owner in enumerate(owners)]
    await store.save(ANN, stored(CONVERSATION), soon())
    await store.save(replace(ANN, tenant="t"), stored(), soon())
    first = await store.page(ANN.tenant, 2, "", soon())
    second = await store.page(ANN.tenant, 2, first.next_token, soon())
    assert (first.next_token, second.next_token) == (saved[1].id, "")
    found = [*first.found, *second.found]
    assert [(owned.owner, owned.stored) for owned in found] == [
        (owner.owner, one) for owner, one in reversed(list(zip(owners, saved, strict=True)))
    ]
    assert all(0 < owned.size < 1000 for owned in found)
    assert await store.page("unknown", 2, "", soon()) == OwnedPage(())


async def test_a_response_is_found_by_its_id(store: ResponseStore) -> None:
    """A response is found by its id within its tenant until it is deleted."""
    one = await store.save(ANN, stored(), soon())
    found = await store.find(ANN.tenant, one.id, soon())
    assert found is not None
    assert (found.owner, found.stored) == (ANN.owner, one)
    assert await store.find("t", one.id, soon()) is None
    assert await store.delete(ANN, one.id, soon())
    assert await store.find(ANN.tenant, one.id, soon()) is None


async def test_a_response_that_is_too_large_is_refused(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response that is too large is refused, and nothing is stored."""
    monkeypatch.setattr("gateway.clients.large_responses._MAX_BYTES", 2_000_000)
    monkeypatch.setattr("causeway_testing.gateway.application._MAX_RESPONSE_BYTES", 2_000_000)
    large = replace(stored(), object={"x": os.urandom(2_200_000).hex()})
    with pytest.raises(PayloadTooLarge):
        await store.save(ANN, large, soon())
    assert await store.read(ANN, large.id, soon()) is None


def large_one() -> Stored:
    """Return a response that is larger than a message of NATS."""
    one = stored()
    return replace(one, object={**one.object, "status": "queued", "instructions": os.urandom(1_200_000).hex()})


async def test_a_large_response_is_stored_like_others(store: ResponseStore) -> None:
    """A large response is read, replaced, found and deleted like any other response."""
    one = large_one()
    saved = await store.save(ANN, one, soon())
    for each in OTHERS:
        assert await store.read(each, one.id, soon()) is None
    later = replace(large_one(), id=one.id, items=(*one.items, *one.items), revision=saved.revision)
    assert await store.replace(ANN, later, soon())
    assert not await store.replace(ANN, saved, soon())
    assert await store.read(ANN, one.id, soon()) == later
    found = await store.find(ANN.tenant, one.id, soon())
    assert found is not None
    assert (found.owner, found.stored.status, found.size > 1_000_000) == (ANN.owner, "queued", True)
    small = replace(stored(), id=one.id)
    assert await store.save(ANN, small, soon()) == small
    assert await store.read(ANN, one.id, soon()) == small
    assert await store.delete(ANN, one.id, soon())
    assert await store.read(ANN, one.id, soon()) is None


async def pieces(link: NatsLink) -> int:
    jetstream = await link.large_responses()
    return (await jetstream.stream_info(f"OBJ_{response_keys.LARGE_RESPONSES_BUCKET}")).state.messages


async def test_only_pieces_of_stored_versions_exist(link: NatsLink) -> None:
    """Only the pieces of stored versions exist. The pieces of deleted and displaced responses are removed."""
    store = NatsResponses(link.responses, link.large_responses, limit=3)
    assert not await store.delete(ANN, large_one().id, soon())
    bucket = await link.responses()
    one = await store.save(ANN, large_one(), soon())
    assert await pieces(link) == 3
    assert await store.replace(ANN, one, soon())
    assert not await store.replace(ANN, one, soon())
    await store.save(ANN, one, soon())
    assert await pieces(link) == 3
    assert await store.delete(ANN, one.id, soon())
    assert await pieces(link) == 0
    for age in range(5):
        await store.save(ANN, replace(large_one(), id=stored(age=age).id), soon())
    await store.save(OTHERS[0], large_one(), soon())
    assert await pieces(link) == 3 * 4
    assert await store.forget(ANN.tenant, ANN.owner, soon()) == 3
    assert await pieces(link) == 3
    assert len(await current_keys(bucket)) == 1


@pytest.mark.parametrize("error", [nats.errors.TimeoutError, asyncio.CancelledError])
async def test_a_failed_write_leaves_no_pieces(link: NatsLink, error: type[BaseException]) -> None:
    """A write that fails or is cancelled half way leaves no pieces."""
    store = NatsResponses(link.responses, link.large_responses, limit=3)
    jetstream = await link.large_responses()
    publish, calls = jetstream.publish, 0

    async def failing(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise error
        return await publish(*arguments, **options)

    jetstream.publish = failing  # type: ignore[method-assign]  # fails at the second piece
    with pytest.raises((Unavailable, asyncio.CancelledError)):
        await store.save(ANN, large_one(), soon())
    assert calls == 2
    assert await pieces(link) == 0


async def test_a_response_with_missing_pieces_is_not_found(link: NatsLink) -> None:
    """A response with missing pieces is not found."""
    store = NatsResponses(link.responses, link.large_responses, limit=3)
    one = await store.save(ANN, large_one(), soon())
    jetstream = await link.large_responses()
    config = (await jetstream.stream_info(f"OBJ_{response_keys.LARGE_RESPONSES_BUCKET}")).config
    assert (config.max_bytes, config.max_age, config.discard) == (256 * 1024 * 1024, 30 * 86400 + 3600, "old")
    await jetstream.purge_stream(f"OBJ_{response_keys.LARGE_RESPONSES_BUCKET}", keep=1)
    assert await store.read(ANN, one.id, soon()) is None
    assert await store.delete(ANN, one.id, soon())


async def test_the_bucket_is_bounded(link: NatsLink) -> None:
    """The bucket has limits of bytes and age, and drops its oldest entries."""
    bucket = await link.responses()
    info = (await bucket.status()).stream_info.config
    assert (info.max_bytes, info.max_age, info.max_msgs_per_subject) == (256 * 1024 * 1024, 30 * 86400, 1)
    assert (info.discard, info.name, info.allow_msg_ttl) == ("old", f"KV_{response_keys.RESPONSES_BUCKET}", True)
    assert await link.responses() is bucket


async def test_a_call_without_nats_is_unavailable(tmp_path: Path) -> None:
    """A call without NATS fails with Unavailable."""
    [port] = free_ports(1)
    async with NatsLink(f"nats://127.0.0.1:{port}") as link:
        with pytest.raises(Unavailable, match="store of responses"):
            await NatsResponses(link.responses, link.large_responses, limit=3).read(ANN, stored().id, soon())


def test_ids_sort_by_age_and_name_owners() -> None:
    """Ids sort by age, and the id of an item contains the ids of its owners. Malformed ids are not accepted."""
    names = [new_name() for _ in range(3)]
    assert [name[:12] for name in names] == sorted(name[:12] for name in names)
    assert is_id(f"resp_{names[0]}", RESPONSE)
    for wrong in ("", "resp_", f"conv_{names[0]}", f"resp_{names[0]}x", "resp_" + "G" * 32):
        assert not is_id(wrong, RESPONSE)
    item = with_id({"type": "function_call"}, f"resp_{names[0]}", "i2")
    assert container_ids(item["id"]) == (f"resp_{names[0]}", f"conv_{names[0]}")
    assert container_ids("msg_1") == ()
