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
    """The callback gets each piece of the answer. The result has the text, sources, steps, trace id and times."""
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
    assert gateway.requests == [
        {"messages": [{"role": "user", "content": "Why?"}], "context": {"overrides": {"index": "x", "top": 3}}}
    ]


async def test_an_answer_in_one_piece(gateway: Any) -> None:
    """The route without streaming returns the same answer."""
    async with Client(gateway.url) as client:
        answer = await client.ask("Why?", {})
    assert answer.text == "It is so [handbook.pdf#page=2]."
    assert answer.sources == ["handbook.pdf#page=2", "other.md#page=1"]
    assert answer.first_ms is None


async def test_an_error_line_ends_the_answer(gateway: Any) -> None:
    """An error line after some pieces raises an error with its message and the trace id."""
    gateway.lines = [b'{"delta":{"content":"So"}}\n', b'{"error":"the model is gone"}\n']
    pieces: list[str] = []
    async with Client(gateway.url) as client:
        with pytest.raises(RequestRefused, match=r"the model is gone \(trace 0af7"):
            await client.ask_streaming("Why?", {}, pieces.append)
    assert pieces == ["So"]


@pytest.mark.parametrize("line", [b"no json\n", b"[]\n", b'{"delta": 3}\n', b'{"context": {"thoughts": 3}}\n'])
async def test_invalid_lines_are_errors(gateway: Any, line: bytes) -> None:
    """A line that violates the protocol raises a `CommandError`."""
    gateway.lines = [line]
    async with Client(gateway.url) as client:
        with pytest.raises(CommandError, match="a line of the answer"):
            await client.ask_streaming("Why?", {}, lambda _: None)


@pytest.mark.parametrize("status", [429, 503])
async def test_retries_while_the_platform_is_busy(gateway: Any, tmp_path: Path, status: int) -> None:
    """The client repeats a request after 429 and 503, not before Retry-After. The gateway gets the file once."""
    gateway.refusals = [(status, {"retry-after": "0.1"}), (status, {"retry-after": "0.1"})]
    (tmp_path / "a.md").write_bytes(b"text")
    begin = time.monotonic()
    async with Client(gateway.url, first_wait=0.01) as client:
        job = await client.upload("x", "a.md", tmp_path / "a.md")
    assert time.monotonic() - begin >= 0.2
    assert job.state == "queued"
    assert gateway.uploads == [("x", "a.md", b"text")]


async def test_attempts_are_bounded(gateway: Any) -> None:
    """After six attempts, the client raises an error with the platform's message."""
    gateway.refusals = [(503, {})] * 50
    async with Client(gateway.url, first_wait=0.001) as client:
        with pytest.raises(RequestRefused, match="come back later"):
            await Library(client).job("job-1")
    assert len(gateway.refusals) == 44


async def test_a_long_retry_after_ends_the_attempts(gateway: Any) -> None:
    """The client does not retry if Retry-After is more than a minute."""
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    gateway.refusals = [(429, {"retry-after": later})]
    async with Client(gateway.url) as client:
        with pytest.raises(RequestRefused) as refused:
            await Library(client).job("job-1")
    assert refused.value.status == 429


async def test_no_retry_after_another_error(gateway: Any, tmp_path: Path) -> None:
    """The client does not retry after another error, and raises the platform's message."""
    (tmp_path / "a").write_bytes(b"text")
    async with Client(gateway.url) as client:
        with pytest.raises(RequestRefused, match=r"refused\.xyz: files of this type") as refused:
            await client.upload("x", "refused.xyz", tmp_path / "a")
    assert refused.value.status == 415


async def test_a_missing_key_is_explained(gateway: Any) -> None:
    """The error for a 401 has the platform's message, and says where the commands read the key."""
    gateway.refusals = [(401, {})]
    async with Client(gateway.url) as client:
        with pytest.raises(RequestRefused, match=r"come back later .* from CAUSEWAY_API_KEY"):
            await Library(client).job("job-1")


async def test_no_gateway_answers(no_gateway: str, tmp_path: Path) -> None:
    """Without a gateway, every call raises an error with the URL."""
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


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:80", "ftp://127.0.0.1", "http://", "", "http://[::1", "http://127.0.0.1:99999"),
        *("http://127.0.0.1?x=1", "http://127.0.0.1#x", "http://a\x07b", "http://a\udcffb"),
    ],
)
async def test_invalid_urls(url: str) -> None:
    """An invalid URL raises a usage error."""
    with pytest.raises(UsageError):
        async with Client(url) as client:
            await client.readiness()


@pytest.mark.parametrize("key", ["secret\n", "secret key", "s\u00e9cret", "secret\udcff"])
async def test_an_invalid_key(key: str) -> None:
    """A key that no header can contain raises a usage error, which does not contain the key."""
    with pytest.raises(UsageError, match="CAUSEWAY_API_KEY") as refused:
        Client("http://127.0.0.1:80", api_key=key)
    assert "cret" not in str(refused.value)


async def test_a_value_that_is_too_long(gateway: Any) -> None:
    """A value that is too long for a URL raises a usage error."""
    async with Client(gateway.url) as client:
        with pytest.raises(UsageError, match="too long"):
            await Library(client).job("x" * 100_000)


async def test_another_server_is_no_gateway(gateway: Any) -> None:
    """A server that is not a gateway raises an error that says so."""
    async with Client(f"{gateway.url}/elsewhere") as client:
        with pytest.raises(Unreachable, match="is not a Causeway gateway"):
            await client.readiness()


async def test_an_invalid_body_is_an_error(gateway: Any) -> None:
    """A response body of another format raises a `CommandError`."""
    gateway.services = {}
    gateway.refusals = [(200, {})]
    async with Client(gateway.url) as client:
        with pytest.raises(CommandError, match="is invalid"):
            await Library(client).job("job-1")


async def test_no_retry_before_the_first_response(no_gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first response of the gateway, the client does not retry a refused connection."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    async with Client(no_gateway) as client:
        with pytest.raises(Unreachable):
            await Library(client).job("job-1")
    assert waits == []


async def test_retries_while_the_gateway_restarts(gateway: Any, tmp_path: Path) -> None:
    """After a response of the gateway, the client retries a refused connection, because the gateway may restart."""
    (tmp_path / "a.md").write_bytes(b"text")
    async with Client(gateway.url, first_wait=0.001) as client:
        await client.upload("x", "a.md", tmp_path / "a.md")
        attempts: list[httpx.Request] = []

        async def refuse(request: httpx.Request) -> None:
            attempts.append(request)
            raise httpx.ConnectError("refused", request=request)

        client._http.event_hooks = {"request": [refuse]}
        with pytest.raises(Unreachable):
            await Library(client).job("job-1")
    assert len(attempts) == 6
