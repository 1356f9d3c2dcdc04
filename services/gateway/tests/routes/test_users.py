"""The deletion of the stored data of one user."""

import time
from dataclasses import replace
from typing import Any

import httpx
import pytest
from gateway.domain.responses import Stored, new_name
from servicekit.deadline import Deadline
from servicekit.principal import LOCAL

ANN = replace(LOCAL, user="ann/b@example.com")
OTHERS = [replace(ANN, user="bob"), replace(ANN, tenant="t"), replace(ANN, issuer="https://id")]


def soon() -> Deadline:
    return Deadline.after(10)


async def store_data(fakes: Any, principal: Any) -> None:
    for kind in ("resp", "conv"):
        await fakes.responses.save(principal, Stored(f"{kind}_{new_name()}", "", {"output": []}), soon())
    await fakes.history.save(principal, "c", "t", b"[]", soon())
    await fakes.memory.begin(principal, "default", f"{time.time_ns()}", soon())


async def stored_counts(fakes: Any, principal: Any) -> tuple[int, int, int]:
    responses = len(fakes.responses.kept.get((principal.tenant, principal.owner), {}))
    chats = len((await fakes.history.page(principal, 10, "", soon())).conversations)
    sessions = [key for key in fakes.memory.sessions if key[:2] == (principal.tenant, principal.owner)]
    return responses, chats, len(sessions)


@pytest.mark.parametrize("issuer", ["", "https://id"])
async def test_the_data_of_a_user_is_deleted(client: httpx.AsyncClient, fakes: Any, issuer: str) -> None:
    """All data of one user name and issuer is deleted, and no other data. A second deletion finds nothing."""
    users = [ANN, *OTHERS]
    for principal in users:
        await store_data(fakes, principal)
    for counts in ({"responses": 2, "chats": 1, "sessions": 1}, {"responses": 0, "chats": 0, "sessions": 0}):
        answer = await client.delete("/users/ann%2Fb@example.com", params={"issuer": issuer} if issuer else None)
        assert answer.json() == {"user": ANN.user, "issuer": issuer or None, "deleted": counts}
    deleted_user = replace(ANN, issuer=issuer)
    assert await stored_counts(fakes, deleted_user) == (0, 0, 0)
    for principal in users:
        assert principal == deleted_user or await stored_counts(fakes, principal) == (2, 1, 1)
