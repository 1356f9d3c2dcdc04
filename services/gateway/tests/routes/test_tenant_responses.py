"""Administrators list, cancel and delete the responses of their tenant, and cannot read the texts."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from causeway_testing.servers import eventually
from gateway.domain.responses import Stored, new_name
from gateway.main import build
from gateway.settings import Settings
from servicekit.deadline import Deadline
from servicekit.principal import LOCAL

PATH = "/responses"
ANN = replace(LOCAL, user="ann", issuer="https://id.example.com")
SECRET = "tern"


def soon() -> Deadline:
    return Deadline.after(10)


def stored(age: int = 0, **members: Any) -> Stored:
    name = f"resp_{age:012x}{new_name()[12:]}"
    part = {"type": "output_text", "text": SECRET}
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    begun = {"id": name, "status": "completed", "model": "m", "created_at": 1_700_000_000, "usage": usage}
    texts = {"instructions": SECRET, "metadata": {"a": SECRET}, "output": [{"type": "message", "content": [part]}]}
    item = {"type": "message", "role": "user", "content": SECRET}
    return Stored(name, "help", {**begun, **texts, **members}, (item,))


async def test_responses_are_listed_without_texts(client: httpx.AsyncClient, fakes: Any) -> None:
    """Responses of all users are listed in pages, the newest first, with exactly these fields."""
    first = await fakes.responses.save(ANN, stored(completed_at=1_700_000_002.0), soon())
    error = {"code": "server_error", "message": SECRET}
    failed = await fakes.responses.save(
        LOCAL, stored(age=1, status="failed", error=error, background=True, usage=None), soon()
    )
    await fakes.responses.save(replace(ANN, tenant="t"), stored(), soon())
    page = (await client.get(PATH, params={"limit": 1})).json()
    following = await client.get(PATH, params={"page_token": page["next_page_token"]})
    assert following.json()["next_page_token"] is None
    [newest], [oldest] = page["responses"], following.json()["responses"]
    assert newest.pop("bytes") > 0
    assert newest == {
        "id": failed.id,
        "status": "failed",
        "reason": "server_error",
        "model": "m",
        "background": True,
        "user": None,
        "issuer": None,
        "frontend": "help",
        "created_at": "2023-11-14T22:13:20+00:00",
        "completed_at": None,
        "input_tokens": None,
        "output_tokens": None,
    }
    assert (oldest["user"], oldest["issuer"]) == (ANN.user, ANN.issuer)
    assert (oldest["input_tokens"], oldest["completed_at"]) == (7, "2023-11-14T22:13:22+00:00")
    shown = await client.get(f"{PATH}/{first.id}")
    assert shown.json() == oldest
    assert SECRET not in following.text + shown.text + str(page)


async def test_input_and_output_are_not_shown(client: httpx.AsyncClient, fakes: Any) -> None:
    """The input and the output of a user's response are not shown."""
    answer = (await client.post("/v1/responses", json={"input": f"When, {SECRET}?", "user": SECRET})).json()
    assert answer["output"][0]["content"][0]["text"] == "At nine."
    shown = (await client.get(f"{PATH}/{answer['id']}")).text
    assert SECRET not in shown
    assert "nine" not in shown


@pytest.mark.parametrize("runs", [False, True], ids=["waits", "runs"])
async def test_a_background_response_is_cancelled(fakes: Any, settings: Settings, runs: bool) -> None:
    """A background response is cancelled, and its user sees the status. A second cancellation changes nothing."""
    app, background = build(settings, fakes.services())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        waiting = (await client.post("/v1/responses", json={"input": "When?", "background": True})).json()
        fakes.generator.gate = asyncio.Event()
        working = []
        if runs:
            working.append(asyncio.ensure_future(background.run_job(await fakes.response_jobs.take(0))))
            await eventually(lambda: bool(fakes.generator.prompts))
        for _ in range(2):
            answer = await client.post(f"{PATH}/{waiting['id']}/cancel")
            assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
        await asyncio.gather(*working)
        assert len(fakes.generator.prompts) == len(working)
        assert (await client.get(f"/v1/responses/{waiting['id']}")).json()["status"] == "cancelled"


@pytest.mark.parametrize(
    ("members", "message"),
    [({}, "the status completed"), ({"status": "in_progress", "background": False}, "Only a background response")],
    ids=["over", "foreground"],
)
async def test_other_responses_cannot_be_cancelled(
    client: httpx.AsyncClient, fakes: Any, members: dict[str, Any], message: str
) -> None:
    """The cancellation of an ended or a foreground response is refused with 409, and the response is unchanged."""
    one = await fakes.responses.save(ANN, stored(**members), soon())
    answer = await client.post(f"{PATH}/{one.id}/cancel")
    assert answer.status_code == 409
    assert message in answer.text
    assert await fakes.responses.read(ANN, one.id, soon()) == one


async def test_a_response_is_deleted(client: httpx.AsyncClient, fakes: Any) -> None:
    """The deletion of a response also deletes its events. Other responses stay."""
    one, other = [(await client.post("/v1/responses", json={"input": "When?"})).json()["id"] for _ in range(2)]
    assert (await client.delete(f"{PATH}/{one}")).json() == {"id": one, "deleted": True}
    assert (await client.get(f"/v1/responses/{one}")).status_code == 404
    assert (await client.get(f"/v1/responses/{other}")).status_code == 200
    last = await fakes.response_log.last(LOCAL, one, soon())
    assert last.deleted


async def test_a_response_of_a_dead_gateway_has_failed(client: httpx.AsyncClient, fakes: Any) -> None:
    """A response whose gateway died is shown as failed."""
    one = await fakes.responses.save(ANN, stored(status="in_progress", output=[], usage=None), soon())
    [shown] = (await client.get(PATH)).json()["responses"]
    assert (shown["id"], shown["status"], shown["reason"]) == (one.id, "failed", "server_error")


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_a_response_of_another_tenant_does_not_exist(
    client: httpx.AsyncClient, fakes: Any, method: str
) -> None:
    """A response of another tenant is not found and is unchanged."""
    other_tenant = replace(ANN, tenant="t")
    one = await fakes.responses.save(other_tenant, stored(), soon())
    for name in (one.id, "resp_*", f"conv_{new_name()}"):
        path = f"{PATH}/{name}/cancel" if method == "POST" else f"{PATH}/{name}"
        assert (await client.request(method, path)).status_code == 404
    assert await fakes.responses.read(other_tenant, one.id, soon()) == one
    assert (await client.get(PATH)).json() == {"responses": [], "next_page_token": None}


@pytest.mark.parametrize("query", [{"limit": "0"}, {"limit": "101"}, {"page_token": "resp_x"}], ids=str)
async def test_an_invalid_page_is_refused(client: httpx.AsyncClient, query: dict[str, str]) -> None:
    """An invalid limit or page token is refused with 400."""
    assert (await client.get(PATH, params=query)).status_code == 400
