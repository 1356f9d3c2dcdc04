import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway.cli.client import Client
from causeway.cli.errors import CommandError, RequestRefused, Unreachable, UsageError
from causeway.cli.library import Library


async def test_an_answer_streams(gateway: Any) -> None:
    """Pieces come one by one; sources, complete steps, trace and times are there at the end."""
    pieces: list[str] = []
    async with Client(gateway.url) as client:
        answer = await client.ask_streaming("Why?", {"index": "x", "top": 3}, pieces.append)
    assert pieces == ["It", " is ", "so [handbook.pdf#page=2]."]
    assert answer.text == "".join(pieces)
    assert [citation.page for citation in answer.citations] == ["2"]
    assert [step.title for step in answer.steps] == ["Results", "Answer"]
    assert answer.trace_id
    assert answer.first_ms is not None
    assert 0 < answer.first_ms <= answer.total_ms
    assert gateway.asked == [
        {"messages": [{"role": "user", "content": "Why?"}], "context": {"overrides": {"index": "x", "top": 3}}}
    ]


async def test_an_answer_comes_as_one(gateway: Any) -> None:
    """The unary route gives the same answer."""
    async with Client(gateway.url) as client:
        answer = await client.ask("Why?", {})
    assert answer.text == "It is so [handbook.pdf#page=2]."
    assert answer.sources == ["handbook.pdf#page=2", "other.md#page=1"]
    assert answer.first_ms is None


async def test_an_error_line_ends_the_answer(gateway: Any) -> None:
    """What came before it was shown; its text and the trace are in the error."""
    gateway.lines = [b'{"delta":{"content":"So"}}\n', b'{"error":"the model is gone"}\n']
    pieces: list[str] = []
    async with Client(gateway.url) as client:
        with pytest.raises(RequestRefused, match=r"the model is gone \(trace 0af7"):
            await client.ask_streaming("Why?", {}, pieces.append)
    assert pieces == ["So"]


@pytest.mark.parametrize("line", [b"no json\n", b"[]\n", b'{"delta": 3}\n', b'{"context": {"thoughts": 3}}\n'])
async def test_a_line_that_is_none_is_an_error(gateway: Any, line: bytes) -> None:
    """Something that does not follow the protocol is a message, not a stack."""
    gateway.lines = [line]
    async with Client(gateway.url) as client:
        with pytest.raises(CommandError, match="a line of the answer"):
            await client.ask_streaming("Why?", {}, lambda _: None)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_platform_is_asked_again(gateway: Any, tmp_path: Path, status: int) -> None:
    """429 and 503 are tried again, not before Retry-After; the file arrives once, whole."""
    gateway.refusals = [(status, {"retry-after": "0.3"}), (status, {"retry-after": "0.3"})]
    (tmp_path / "a.md").write_bytes(b"text")
    begin = time.monotonic()
    async with Client(gateway.url, first_wait=0.01) as client:
        job = await client.upload("x", "a.md", tmp_path / "a.md")
    assert time.monotonic() - begin >= 0.6
    assert job.state == "queued"
    assert gateway.uploads == [("x", "a.md", b"text")]


async def test_attempts_are_bounded(gateway: Any) -> None:
    """A platform that stays busy is given up with its own message."""
    gateway.refusals = [(503, {})] * 50
    async with Client(gateway.url, first_wait=0.001) as client:
        with pytest.raises(RequestRefused, match="come back later"):
            await Library(client).job("job-1")
    assert len(gateway.refusals) == 44


async def test_a_long_wait_is_not_waited_for(gateway: Any) -> None:
    """A Retry-After beyond a minute, here as a date, is given up at once."""
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    gateway.refusals = [(429, {"retry-after": later})]
    async with Client(gateway.url) as client:
        with pytest.raises(RequestRefused) as refused:
            await Library(client).job("job-1")
    assert refused.value.status == 429


async def test_a_wrong_request_is_not_tried_again(gateway: Any, tmp_path: Path) -> None:
    """Other errors are final; the message is the platform's."""
    (tmp_path / "a").write_bytes(b"text")
    async with Client(gateway.url) as client:
        with pytest.raises(RequestRefused, match=r"refused\.xyz: files of this type") as refused:
            await client.upload("x", "refused.xyz", tmp_path / "a")
    assert refused.value.status == 415


async def test_a_key_that_is_missing(gateway: Any) -> None:
    """The platform's message, and where commands take a key from."""
    gateway.refusals = [(401, {})]
    async with Client(gateway.url) as client:
        with pytest.raises(RequestRefused, match=r"come back later .* from CAUSEWAY_API_KEY"):
            await Library(client).job("job-1")


async def test_no_gateway_answers(no_gateway: str, tmp_path: Path) -> None:
    """Every call says so, with the URL; what is tried again ends, too."""
    (tmp_path / "a").write_bytes(b"text")
    async with Client(no_gateway, first_wait=0.001) as client:
        for call in (
            client.readiness(),
            client.ask("Why?", {}),
            client.ask_streaming("Why?", {}, lambda _: None),
            client.upload("x", "a", tmp_path / "a"),
        ):
            with pytest.raises(Unreachable, match=f"no server answers at {no_gateway}"):
                await call


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://127.0.0.1", "http://", ""])
async def test_what_is_no_url(url: str) -> None:
    """A wrong URL is wrong usage, not a stack."""
    with pytest.raises(UsageError):
        async with Client(url) as client:
            await client.readiness()


async def test_another_server_is_no_gateway(gateway: Any) -> None:
    """Something else that answers there is not taken for the platform."""
    async with Client(f"{gateway.url}/elsewhere") as client:
        with pytest.raises(Unreachable, match="is not a Causeway gateway"):
            await client.readiness()


async def test_an_answer_that_is_none_is_an_error(gateway: Any) -> None:
    """A body of another shape is a message, not a stack."""
    gateway.services = {}
    gateway.refusals = [(200, {})]
    async with Client(gateway.url) as client:
        with pytest.raises(CommandError, match="is invalid"):
            await Library(client).job("job-1")


async def test_where_nothing_listens_is_tried_once(no_gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command says at once that the platform does not run, and waits only for one that has answered before."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    async with Client(no_gateway) as client:
        with pytest.raises(Unreachable):
            await Library(client).job("job-1")
    assert waits == []


async def test_a_gateway_that_goes_is_waited_for(gateway: Any, tmp_path: Path) -> None:
    """Once it has answered, a refused connection may be a restart."""
    (tmp_path / "a.md").write_bytes(b"text")
    async with Client(gateway.url, first_wait=0.001) as client:
        await client.upload("x", "a.md", tmp_path / "a.md")
        tries: list[httpx.Request] = []

        async def refuse(request: httpx.Request) -> None:
            tries.append(request)
            raise httpx.ConnectError("refused", request=request)

        client._http.event_hooks = {"request": [refuse]}
        with pytest.raises(Unreachable):
            await Library(client).job("job-1")
    assert len(tries) == 6
