import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from causeway.cli import stack_file
from causeway_testing.servers import nats_server
from servicekit import keys
from servicekit.nats import connect
from servicekit.record_streams import record_streams

Run = Callable[..., Any]


ENDED_AT = datetime.now(UTC) - timedelta(hours=1)
"""The time of the requests. NATS stores their records an hour later, when the test begins."""


def record(tenant: str, model: str, **members: Any) -> dict[str, Any]:
    return {"time": ENDED_AT.isoformat(), "tenant": tenant, "model": model, "status": 200, **members}


RECORDS = [
    record("north", "a", input_tokens=100, output_tokens=10, cost=0.5, currency="EUR"),
    record("north", "a", input_tokens=200, output_tokens=20, cost=0.25, currency="EUR"),
    record("north", "b", status=500),
    record("south", "a", input_tokens=1, ingested_bytes=5000),
]


@pytest.fixture
async def run(cli: Callable[..., Any], tmp_path: Path) -> AsyncIterator[Run]:
    """Yield a function that runs ``causeway usage`` with a NATS server that has some records."""
    async with nats_server(tmp_path / "nats") as url:
        stack_file.write(tmp_path, {"url": "", "nats_url": url})
        client = await connect(url, "test")
        jetstream = await record_streams(client)
        for usage in RECORDS:
            await jetstream.publish(keys.usage_subject(usage["tenant"]), json.dumps(usage).encode())
        await client.close()
        yield lambda *arguments: asyncio.to_thread(cli, "usage", *arguments, "--data-dir", tmp_path)


async def rows(run: Run, *arguments: str) -> list[dict[str, Any]]:
    result = await run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


async def test_sums(run: Run) -> None:
    """The command sums requests, failures, tokens, bytes and costs for each group."""
    first, second, third = await rows(run, "--by", "tenant,model")
    assert first == {
        "tenant": "north",
        "model": "a",
        "requests": 2,
        "failed": 0,
        "input_tokens": 300,
        "output_tokens": 30,
        "ingested_bytes": 0,
        "cost": {"EUR": 0.75},
    }
    assert (second["model"], second["requests"], second["failed"], second["cost"]) == ("b", 1, 1, None)
    assert (third["tenant"], third["input_tokens"], third["ingested_bytes"]) == ("south", 1, 5000)


async def test_one_tenant(run: Run) -> None:
    """With --tenant the command counts only the records of this tenant."""
    [row] = await rows(run, "--tenant", "south", "--by", "tenant")
    assert (row["tenant"], row["requests"]) == ("south", 1)


async def test_period(run: Run) -> None:
    """The command counts the requests that ended from --since (inclusive) to --until (exclusive). The time at which
    NATS stored a record does not matter, so each request belongs to one of two adjacent periods. The command can
    group by day.
    """
    [row] = await rows(run, "--by", "day", "--since", ENDED_AT.isoformat())
    assert (row["day"], row["requests"]) == (ENDED_AT.date().isoformat(), 4)
    assert await rows(run, "--until", ENDED_AT.isoformat()) == []
    assert await rows(run, "--since", "30m") == []
    assert await rows(run, "--until", "2020-01-01", "--since", "2019-01-01") == []
    tomorrow = datetime.fromtimestamp(time.time() + 86400, UTC).date().isoformat()
    assert await rows(run, "--since", tomorrow) == []


async def test_a_table(run: Run) -> None:
    """The table has headings, and thousands separators in numbers."""
    result = await run()
    assert "Tokens in" in result.stdout
    assert "5,000" in result.stdout
    assert "0.7500 EUR" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--by", "colour"), "--by does not support colour"), (("--since", "soon"), "--since must have the form")],
)
async def test_wrong_usage(run: Run, arguments: tuple[str, ...], message: str) -> None:
    """An invalid option causes exit code 2, and the message names the option."""
    result = await run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


async def test_no_records(cli: Callable[..., Any], tmp_path: Path) -> None:
    """If there are no records, the output is empty and the exit code is 0."""
    async with nats_server(tmp_path / "nats") as url:
        result = await asyncio.to_thread(cli, "usage", "--json", "--nats-url", url, "--data-dir", tmp_path)
    assert (result.exit_code, result.stdout) == (0, "")
