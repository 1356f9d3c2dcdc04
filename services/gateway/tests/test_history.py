from gateway.domain import Message
from gateway.history import exchanges, left_out
from hypothesis import given
from hypothesis import strategies as st

ROLES = ["system", "developer", "user", "assistant", "tool"]
ROLE = dict(zip("sduat", ROLES, strict=True))


def said(roles: str) -> list[Message]:
    return [Message(ROLE[role], role) for role in roles]


def test_an_exchange_ends_with_its_answer() -> None:
    """Questions in a row belong to one answer, answers in a row to one question."""
    assert exchanges(said("uauuauaa")) == [[0, 1], [2, 3, 4], [5, 6, 7]]


def test_the_systems_messages_belong_to_none() -> None:
    """Wherever they stand."""
    assert exchanges(said("suadsua")) == [[1, 2], [5, 6]]


def test_what_came_since_the_latest_answer_belongs_to_the_question() -> None:
    """Files that came with it, half of an exchange."""
    assert exchanges(said("uauu")) == [[0, 1]]
    assert exchanges(said("uu")) == []


def test_a_greeting_is_an_exchange() -> None:
    """Some assistants speak first."""
    assert exchanges(said("aua")) == [[0], [1, 2]]


def test_the_latest_exchanges_stay() -> None:
    """As many as fit in a row: none that is older than one that does not."""
    found = exchanges(said("uauaua"))
    assert left_out(found, [1] * 6, 6) == frozenset()
    assert left_out(found, [1] * 6, 5) == {0, 1}
    assert left_out(found, [1, 1, 9, 9, 1, 1], 5) == {0, 1, 2, 3}
    assert left_out(found, [1] * 6, 0) == {0, 1, 2, 3, 4, 5}


@given(st.lists(st.tuples(st.sampled_from(ROLES), st.integers(0, 50)), max_size=20), st.integers(-10, 300))
def test_what_stays_fits(messages: list[tuple[str, int]], room: int) -> None:
    """And is what was said last, in whole exchanges; nobody could leave out less."""
    history = [Message(role, "x") for role, _ in messages]
    found = exchanges(history)
    sizes = [messages[at][1] for exchange in found for at in exchange]
    out = left_out(found, sizes, room)
    kept = [exchange for exchange in found if not out & set(exchange)]
    assert kept == found[len(found) - len(kept) :]
    assert out == {at for exchange in found[: len(found) - len(kept)] for at in exchange}
    total = sum(messages[at][1] for exchange in kept for at in exchange)
    assert not kept or total <= room
    if len(kept) < len(found):
        assert total + sum(messages[at][1] for at in found[len(found) - len(kept) - 1]) > room
    assert not any(history[at].role in ("system", "developer") for at in out)
