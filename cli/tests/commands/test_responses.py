import json
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def responses(gateway: Any) -> None:
    """One that waits, one that failed, one that is complete, in this order."""
    for name, status in (("resp_c", "queued"), ("resp_b", "failed"), ("resp_a", "completed")):
        gateway.responses[name] = {
            "id": name,
            "status": status,
            "reason": "server_error" if status == "failed" else None,
            "model": "m",
            "background": status == "queued",
            "user": "ann",
            "created_at": "2026-03-01T10:00:00+00:00",
            "completed_at": None,
            "bytes": 2000,
        }


def test_responses_are_listed(gateway: Any, cli: Callable[..., Any]) -> None:
    """The newest first, over several pages, so many as were asked for; as the platform has them with --json."""
    lines = cli("responses", "list", "--url", gateway.url).stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["resp_c", "queued"],
        ["resp_b", "failed"],
        ["resp_a", "completed"],
    ]
    assert lines[1].split()[2:] == ["m", "yes", "ann", "2026-03-01", "10:00:00", "2000"]
    machine = cli("responses", "list", "--json", "--url", gateway.url).stdout.splitlines()
    assert [json.loads(line) for line in machine] == list(gateway.responses.values())
    assert len(cli("responses", "list", "-n", "1", "--json", "--url", gateway.url).stdout.splitlines()) == 1
    gateway.responses.clear()
    assert cli("responses", "list", "--url", gateway.url).stdout == "There are no responses.\n"


def test_one_is_shown(gateway: Any, cli: Callable[..., Any]) -> None:
    """What is known of it; exit code 1 where no response has the id."""
    shown = cli("responses", "show", "resp_b", "--url", gateway.url).stdout.splitlines()
    assert shown[:3] == ["Response: resp_b", "Status: failed", "Reason: server_error"]
    assert "Background: no" in shown
    machine = cli("responses", "show", "resp_b", "--json", "--url", gateway.url)
    assert json.loads(machine.stdout) == gateway.responses["resp_b"]
    none = cli("responses", "show", "none", "--url", gateway.url)
    assert none.exit_code == 1
    assert "No such response" in none.stderr


def test_responses_are_cancelled(gateway: Any, cli: Callable[..., Any]) -> None:
    """Each that can be; exit code 1 where one is over, which does not keep the others."""
    result = cli("responses", "cancel", "resp_a", "resp_c", "--url", gateway.url)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == ["resp_a: The response is over.", "cancelled: resp_c"]
    again = cli("responses", "cancel", "resp_a", "--json", "--url", gateway.url)
    said = {"id": "resp_a", "cancelled": False, "message": "The response is over."}
    assert json.loads(again.stdout) == said


def test_responses_are_deleted(gateway: Any, cli: Callable[..., Any]) -> None:
    """With --yes where it cannot ask; exit code 1 where one is unknown, which does not keep the others."""
    arguments = ("responses", "delete", "none", "resp_a", "--url", gateway.url)
    refused = cli(*arguments)
    assert (refused.exit_code, "say --yes" in refused.stderr) == (2, True)
    assert "resp_a" in gateway.responses
    result = cli(*arguments, "--yes")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == ["none: No such response: 'none'.", "deleted: resp_a"]
    assert list(gateway.responses) == ["resp_c", "resp_b"]
    machine = cli("responses", "delete", "resp_b", "--yes", "--json", "--url", gateway.url)
    assert (machine.exit_code, json.loads(machine.stdout)["deleted"]) == (0, True)


@pytest.mark.parametrize("arguments", [["show"], ["cancel"], ["delete", "--yes"], ["bury"], ["list", "-n", "0"]])
def test_wrong_usage(gateway: Any, cli: Callable[..., Any], arguments: list[str]) -> None:
    """Nothing to do, no such command, no such number: exit code 2."""
    assert cli("responses", *arguments, "--url", gateway.url).exit_code == 2


@pytest.mark.parametrize("command", ["list", "show", "cancel", "delete"])
def test_help_has_examples(cli: Callable[..., Any], command: str) -> None:
    """And the exit codes."""
    text = cli("responses", command, "--help").stdout
    assert f"causeway responses {command}" in text
    assert "Exit codes" in text


def test_no_gateway_answers(no_gateway: str, cli: Callable[..., Any]) -> None:
    """Exit code 3."""
    assert cli("responses", "list", "--url", no_gateway).exit_code == 3
