import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from causeway.cli.client import Client


@pytest.fixture
def jobs(gateway: Any, cli: Callable[..., Any], tmp_path: Path) -> None:
    """Create a succeeded, a failed and a queued job, in this order."""
    for name in ("good.md", "bad.pdf", "stuck.md"):
        (tmp_path / name).write_text(name)
    for name in ("good.md", "bad.pdf"):
        cli("ingest", tmp_path / name, "-i", "x", "--url", gateway.url)

    async def upload() -> None:
        async with Client(gateway.url) as client:
            await client.upload("x", "stuck.md", tmp_path / "stuck.md")

    asyncio.run(upload())


@pytest.mark.usefixtures("jobs")
def test_jobs_are_listed(gateway: Any, cli: Callable[..., Any]) -> None:
    """The list shows the newest job first, with the reasons of failures. --state filters it. --json prints the
    platform's objects.
    """
    lines = cli("jobs", "list", "--url", gateway.url).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["Job", "job-3", "job-2", "job-1"]
    assert "bad.pdf is encrypted" in lines[2]
    failed = cli("jobs", "list", "--state", "failed", "--json", "--url", gateway.url)
    assert [json.loads(line)["id"] for line in failed.stdout.splitlines()] == ["job-2"]
    assert len(cli("jobs", "list", "-n", "1", "--json", "--url", gateway.url).stdout.splitlines()) == 1
    none = cli("jobs", "list", "--state", "parsing", "--url", gateway.url)
    assert (none.exit_code, none.stdout) == (0, "No job matches.\n")


@pytest.mark.usefixtures("jobs")
def test_jobs_are_cancelled(gateway: Any, cli: Callable[..., Any]) -> None:
    """The command continues after a job that has ended or is unknown, and then exits with code 1."""
    result = cli("jobs", "cancel", "job-1", "none", "job-3", "--url", gateway.url)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "job-1: The job is over.",
        "none: No such job: 'none'.",
        "cancelled: job-3",
    ]
    again = cli("jobs", "cancel", "job-1", "--json", "--url", gateway.url)
    assert json.loads(again.stdout) == {"id": "job-1", "cancelled": False, "message": "The job is over."}


@pytest.mark.usefixtures("jobs")
def test_a_cancellation_that_fails_keeps_the_earlier_outcomes(gateway: Any, cli: Callable[..., Any]) -> None:
    """If the gateway fails, the command ends, after it has printed which jobs it had cancelled."""
    gateway.failing = {"job-2"}
    result = cli("jobs", "cancel", "job-3", "job-2", "job-1", "--url", gateway.url)
    assert (result.exit_code, result.stdout) == (1, "cancelled: job-3\n")
    assert "An internal error." in result.stderr


def test_lanes(gateway: Any, cli: Callable[..., Any]) -> None:
    """The command prints a row for each lane, or an object with --json."""
    rows = cli("jobs", "lanes", "--url", gateway.url).stdout.splitlines()
    assert [row.split()[:2] for row in rows[-2:]] == [["1", "8"], ["2", "3"]]
    lines = cli("jobs", "lanes", "--json", "--url", gateway.url).stdout.splitlines()
    assert json.loads(lines[1]) == {"lane": 2, "jobs": 3, "places": None}


def test_dead_letters(gateway: Any, cli: Callable[..., Any]) -> None:
    """`jobs dead` lists the dead letters with their reasons. `jobs replay` submits them again; an unknown id causes
    exit code 1.
    """
    gateway.dead = ["a", "b", "c"]
    listed = cli("jobs", "dead", "--url", gateway.url).stdout
    assert "a.md" in listed
    assert "It ended every worker." in listed
    assert json.loads(cli("jobs", "dead", "--json", "--url", gateway.url).stdout.splitlines()[0])["id"] == "a"
    result = cli("jobs", "replay", "b", "none", "--url", gateway.url)
    assert (result.exit_code, gateway.dead) == (1, ["a", "c"])
    assert result.stdout.splitlines() == ["submitted again: b", "none: no job with this id was given up"]
    result = cli("jobs", "replay", "--all", "--json", "--url", gateway.url)
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"replayed": ["a", "c"], "not_found": []})
    for command in ("dead", "replay"):
        arguments = ["--all"] if command == "replay" else []
        assert cli("jobs", command, *arguments, "--url", gateway.url).stdout == "No job was given up.\n"


@pytest.mark.parametrize(
    "arguments",
    [["replay"], ["replay", "a", "--all"], ["cancel"], ["bury"], ["list", "-n", "0"], ["list", "-s", "lost"]],
)
def test_wrong_usage(gateway: Any, cli: Callable[..., Any], arguments: list[str]) -> None:
    """Missing or contradicting arguments, and unknown commands or states, cause exit code 2."""
    assert cli("jobs", *arguments, "--url", gateway.url).exit_code == 2


def test_no_gateway_answers(no_gateway: str, cli: Callable[..., Any]) -> None:
    """Without a gateway, the exit code is 3."""
    assert cli("jobs", "list", "--url", no_gateway).exit_code == 3
