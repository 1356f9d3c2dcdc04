"""The contract of the port, on the fake and on the adapter with a real nats-server."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from causeway_testing.gateway.application import FakeHistory
from causeway_testing.servers import free_ports, nats_server
from gateway.clients.chat_history import NatsHistory
from gateway.clients.nats_connection import NatsLink
from gateway.ports.chat_history import History
from servicekit.deadline import Deadline
from servicekit.errors import Conflict, InvalidRequest, NotFound, PayloadTooLarge, Unavailable
from servicekit.principal import LOCAL, Principal

Ready = Callable[[NatsLink], Awaitable[None]]
ANN = Principal("local", "ann@example.com")
BOB = Principal("local", "bob|ä *.>")
OTHERS_ANN = Principal("another tenant", "ann@example.com")
LIMIT = 8
STRANGE_IDS = ("a.b", "*", ">", "ä b", "../x", "x" * 200, "-")


def soon() -> Deadline:
    return Deadline.after(120)


@pytest.fixture(params=["fake", "nats"])
def history(request: pytest.FixtureRequest) -> History:
    if request.param == "fake":
        return FakeHistory(limit=LIMIT)
    link: NatsLink = request.getfixturevalue("link")
    return NatsHistory(link.history, limit=LIMIT)


async def test_a_conversation_is_kept_as_it_was_saved(history: History) -> None:
    """A conversation is stored byte for byte under any id. A second save replaces it."""
    for conversation in STRANGE_IDS:
        await history.save(ANN, conversation, "old", b'[["a",{}]]', soon())
        saved = await history.save(ANN, conversation, "T\u00e4 \u2028", b'[["q", {"x" : 1.0}]]', soon())
        assert await history.read(ANN, conversation, soon()) == b'[["q", {"x" : 1.0}]]'
        assert saved.timestamp > 1_700_000_000_000
    listed = (await history.page(ANN, 100, "", soon())).conversations
    assert {conversation.id for conversation in listed} == set(STRANGE_IDS)
    assert {conversation.title for conversation in listed} == {"T\u00e4 \u2028"}


async def test_all_conversations_of_a_user_are_deleted(history: History) -> None:
    """`forget` deletes all conversations of a user, and none of other users."""
    for principal, conversation in ((ANN, "a"), (ANN, "b"), (BOB, "a"), (OTHERS_ANN, "a")):
        await history.save(principal, conversation, "t", b"[]", soon())
    assert await history.forget(ANN.tenant, ANN.owner, soon()) == 2
    with pytest.raises(NotFound):
        await history.read(ANN, "a", soon())
    assert (await history.page(ANN, 9, "", soon())).conversations == ()
    for principal in (BOB, OTHERS_ANN):
        assert await history.read(principal, "a", soon()) == b"[]"
    assert await history.forget(ANN.tenant, ANN.owner, soon()) == 0


async def test_conversations_under_a_former_name_are_found(history: History) -> None:
    """A conversation under the former name is read, listed once, moved by a save, and deleted.

    Other issuers do not see it.
    """
    issued = replace(ANN, issuer="https://a.example", has_former_name=True)
    strangers = [replace(ANN, issuer=f"https://{name}.example") for name in "bc"]
    for conversation in ("old", "older"):
        await history.save(ANN, conversation, "before", b"[1]", soon())
    assert await history.read(issued, "old", soon()) == b"[1]"
    await history.save(issued, "old", "after", b"[2]", soon())
    listed = {
        conversation.id: conversation.title
        for conversation in (await history.page(issued, 9, "", soon())).conversations
    }
    assert listed == {"old": "after", "older": "before"}
    assert await history.read(issued, "old", soon()) == b"[2]"
    for stranger in (strangers[0], ANN):
        with pytest.raises(NotFound):
            await history.read(stranger, "old", soon())
    await history.delete(issued, "older", soon())
    for principal in (issued, ANN, *strangers):
        with pytest.raises(NotFound):
            await history.read(principal, "older", soon())


async def test_conversations_are_listed_latest_first(history: History) -> None:
    """Pages list the conversations that were saved last first. An invalid token is refused."""
    for number in range(5):
        await history.save(ANN, f"c{number}", "", b"[]", soon())
        await asyncio.sleep(0.002)
    await history.save(ANN, "c1", "", b"[]", soon())
    seen, token = [], ""
    for _ in range(3):
        part = await history.page(ANN, 2, token, soon())
        seen += [conversation.id for conversation in part.conversations]
        token = part.next_token
    assert seen == ["c1", "c4", "c3", "c2", "c0"]
    assert token == ""
    with pytest.raises(InvalidRequest):
        await history.page(ANN, 2, "nonsense", soon())


async def test_users_do_not_see_conversations_of_others(history: History) -> None:
    """Users and tenants do not see each other's conversations, even under the same id."""
    callers = (ANN, BOB, OTHERS_ANN, LOCAL)
    for principal in callers:
        assert (await history.page(principal, 10, "", soon())).conversations == ()
        await history.save(principal, "c", principal.user, f'["{principal.tenant}"]'.encode(), soon())
    for principal in callers:
        [listed] = (await history.page(principal, 10, "", soon())).conversations
        assert listed.title == principal.user
        assert await history.read(principal, "c", soon()) == f'["{principal.tenant}"]'.encode()
    await history.delete(ANN, "c", soon())
    with pytest.raises(NotFound):
        await history.read(ANN, "c", soon())
    for principal in (BOB, OTHERS_ANN, LOCAL):
        assert await history.read(principal, "c", soon())


async def test_a_deleted_conversation_is_not_found(history: History) -> None:
    """A deleted conversation is not listed or found, and can be saved again."""
    await history.save(ANN, "c", "t", b"[]", soon())
    await history.save(ANN, "d", "t", b"[]", soon())
    await history.delete(ANN, "c", soon())
    assert [conversation.id for conversation in (await history.page(ANN, 10, "", soon())).conversations] == ["d"]
    for wrong in ("c", "none", *STRANGE_IDS):
        with pytest.raises(NotFound):
            await history.read(ANN, wrong, soon())
        with pytest.raises(NotFound) as caught:
            await history.delete(ANN, wrong, soon())
        assert caught.value.resource == wrong
    await history.save(ANN, "c", "t", b'["again"]', soon())
    assert await history.read(ANN, "c", soon()) == b'["again"]'


async def test_a_conversation_that_is_too_long_is_refused(history: History) -> None:
    """A conversation that is too large is refused, and its stored version does not change."""
    await history.save(ANN, "c", "t", b"[]", soon())
    noise = os.urandom(1_200_000)
    with pytest.raises(PayloadTooLarge) as caught:
        await history.save(ANN, "c", "t", noise, soon())
    assert caught.value.field == "answers"
    assert await history.read(ANN, "c", soon()) == b"[]"


async def test_a_long_conversation_is_kept(link: NatsLink) -> None:
    """A conversation of 4 MB is stored compressed in a broker with messages of at most 1 MiB."""
    history = NatsHistory(link.history)
    answers = b'["' + b"".join(b"Paragraph %d of the handbook says so. " % n for n in range(110_000)) + b'"]'
    assert len(answers) > 4_000_000
    await history.save(ANN, "c", "t", answers, soon())
    assert await history.read(ANN, "c", soon()) == answers


async def test_the_number_of_conversations_is_limited(history: History) -> None:
    """A user with the maximum number of conversations must delete one before saving a new one."""
    for number in range(LIMIT):
        await history.save(ANN, str(number), "", b"[]", soon())
    with pytest.raises(Conflict):
        await history.save(ANN, "one more", "", b"[]", soon())
    await history.save(ANN, "2", "", b"[1]", soon())
    await history.save(BOB, "one more", "", b"[]", soon())
    await history.delete(ANN, "0", soon())
    await history.save(ANN, "one more", "", b"[]", soon())


async def test_calls_succeed_after_an_outage_of_nats(tmp_path: Path, ready: Ready) -> None:
    """Calls fail with Unavailable while NATS cannot be reached. Afterwards, stored conversations can be read."""
    directory, [port] = tmp_path / "nats", free_ports(1)
    async with NatsLink(f"nats://127.0.0.1:{port}", retry=0.05) as link:
        history = NatsHistory(link.history)
        with pytest.raises(Unavailable):
            await history.page(ANN, 1, "", soon())
        async with nats_server(directory, port):
            await ready(link)
            await history.save(ANN, "c", "t", b"[]", soon())
        for call in (
            lambda: history.save(ANN, "c", "t", b"[]", Deadline.after(0.5)),
            lambda: history.read(ANN, "c", Deadline.after(0.5)),
            lambda: history.page(ANN, 1, "", Deadline.after(0.5)),
            lambda: history.delete(ANN, "c", Deadline.after(0.5)),
        ):
            with pytest.raises(Unavailable) as caught:
                await call()
            assert caught.value.retry_after is not None
        async with nats_server(directory, port):
            await ready(link)
            assert await history.read(ANN, "c", soon()) == b"[]"
