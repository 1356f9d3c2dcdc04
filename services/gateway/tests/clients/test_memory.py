"""The contract of the port, on the fake and on the adapter with a real nats-server."""

from dataclasses import replace
from pathlib import Path

import pytest
from causeway_testing.gateway.application import FakeMemory
from causeway_testing.servers import free_ports
from gateway.clients.memory import NatsMemory
from gateway.clients.nats_connection import NatsLink
from gateway.domain import Message
from gateway.domain.memory import StoredSession, new_name
from gateway.ports.memory import Memory
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from servicekit.principal import Principal

ANN = Principal("local", "ann@example.com")
OTHERS = [
    (Principal("local", "bob|ä *.>"), "help"),
    (replace(ANN, tenant="t"), "help"),
    (replace(ANN, issuer="https://id"), "help"),
    (ANN, "staff"),
]
MESSAGES = (Message("user", "Tä?\n"), Message("assistant", "\u2028 nine"))


def soon() -> Deadline:
    return Deadline.after(120)


@pytest.fixture(params=["fake", "nats"])
def memory(request: pytest.FixtureRequest) -> Memory:
    if request.param == "fake":
        return FakeMemory()
    link: NatsLink = request.getfixturevalue("link")
    return NatsMemory(link.memory)


async def test_a_session_is_stored_and_deleted(memory: Memory) -> None:
    """A session is empty at first, has its messages after a replacement, and is gone after the deletion."""
    name = new_name()
    assert await memory.read(ANN, "help", name, soon()) is None
    begun = await memory.begin(ANN, "help", name, soon())
    assert await memory.read(ANN, "help", name, soon()) == begun == StoredSession((), begun.revision)
    assert await memory.replace(ANN, "help", name, MESSAGES, begun.revision, soon())
    kept = await memory.read(ANN, "help", name, soon())
    assert kept is not None
    assert (kept.messages, kept.revision > begun.revision) == (MESSAGES, True)
    assert await memory.delete(ANN, "help", name, soon())
    assert await memory.read(ANN, "help", name, soon()) is None
    assert not await memory.delete(ANN, "help", name, soon())


async def test_all_sessions_of_a_user_are_deleted(memory: Memory) -> None:
    """`forget` deletes all sessions of a user with all front ends, and none of other users."""
    for principal, profile in (*OTHERS, (ANN, "help")):
        await memory.begin(principal, profile, "s", soon())
    assert await memory.forget(ANN.tenant, ANN.owner, soon()) == 2
    assert [await memory.read(*caller, "s", soon()) is None for caller in OTHERS] == [False, False, False, True]
    assert await memory.forget(ANN.tenant, ANN.owner, soon()) == 0


async def test_a_session_belongs_to_its_caller(memory: Memory) -> None:
    """Another user, tenant or front end can neither read, change nor delete a session."""
    name = new_name()
    begun = await memory.begin(ANN, "help", name, soon())
    for principal, profile in OTHERS:
        assert await memory.read(principal, profile, name, soon()) is None
        assert not await memory.delete(principal, profile, name, soon())
        assert not await memory.replace(principal, profile, name, MESSAGES, begun.revision, soon())
    assert await memory.read(ANN, "help", name, soon()) == begun


async def test_an_old_revision_changes_nothing(memory: Memory) -> None:
    """A replacement with an old revision is refused. A deleted session stays deleted."""
    name = new_name()
    begun = await memory.begin(ANN, "help", name, soon())
    assert await memory.replace(ANN, "help", name, MESSAGES, begun.revision, soon())
    assert not await memory.replace(ANN, "help", name, (), begun.revision, soon())
    kept = await memory.read(ANN, "help", name, soon())
    assert kept is not None
    assert kept.messages == MESSAGES
    assert await memory.delete(ANN, "help", name, soon())
    assert not await memory.replace(ANN, "help", name, MESSAGES, kept.revision, soon())
    assert await memory.read(ANN, "help", name, soon()) is None


async def test_the_bucket_is_bounded(link: NatsLink) -> None:
    """The bucket has limits of bytes and age, and drops its oldest entries."""
    bucket = await link.memory()
    info = (await bucket.status()).stream_info.config
    assert (info.max_bytes, info.max_age, info.max_msgs_per_subject) == (64 * 1024 * 1024, 24 * 3600, 1)
    assert (info.discard, info.name) == ("old", f"KV_{keys.MEMORY_BUCKET}")
    assert await link.memory() is bucket


async def test_a_call_without_nats_is_unavailable(tmp_path: Path) -> None:
    """A call without NATS fails with Unavailable."""
    [port] = free_ports(1)
    async with NatsLink(f"nats://127.0.0.1:{port}") as link:
        with pytest.raises(Unavailable, match="memory of conversations"):
            await NatsMemory(link.memory).read(ANN, "help", new_name(), soon())
