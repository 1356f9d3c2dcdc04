import json
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def responses(gateway: Any) -> None:
    """Store a queued, a failed and a completed response, in this order."""
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
    """The command reads several pages and lists the newest response first, up to --limit. --json prints the
    platform's objects.
    """
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


def test_a_response_is_shown(gateway: Any, cli: Callable[..., Any]) -> None:
    """The command prints the response's properties. An unknown id causes exit code 1."""
    shown = cli("responses", "show", "resp_b", "--url", gateway.url).stdout.splitlines()
    assert shown[:3] == ["Response: resp_b", "Status: failed", "Reason: server_error"]
    assert "Background: no" in shown
    machine = cli("responses", "show", "resp_b", "--json", "--url", gateway.url)
    assert json.loads(machine.stdout) == gateway.responses["resp_b"]
    none = cli("responses", "show", "none", "--url", gateway.url)
    assert none.exit_code == 1
    assert "No such response" in none.stderr


def test_responses_are_cancelled(gateway: Any, cli: Callable[..., Any]) -> None:
    """The command continues after a response that has ended, and then exits with code 1."""
    result = cli("responses", "cancel", "resp_a", "resp_c", "--url", gateway.url)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == ["resp_a: The response is over.", "cancelled: resp_c"]
    again = cli("responses", "cancel", "resp_a", "--json", "--url", gateway.url)
    expected = {"id": "resp_a", "cancelled": False, "message": "The response is over."}
    assert json.loads(again.stdout) == expected


def test_responses_are_deleted(gateway: Any, cli: Callable[..., Any]) -> None:
    """Without a terminal, the command needs --yes. It continues after an unknown response, and then exits with code
    1.
    """
    arguments = ("responses", "delete", "none", "resp_a", "--url", gateway.url)
    refused = cli(*arguments)
    assert (refused.exit_code, "use --yes" in refused.stderr) == (2, True)
    assert "resp_a" in gateway.responses
    result = cli(*arguments, "--yes")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == ["none: No such response: 'none'.", "deleted: resp_a"]
    assert list(gateway.responses) == ["resp_c", "resp_b"]
    machine = cli("responses", "delete", "resp_b", "--yes", "--json", "--url", gateway.url)
    assert (machine.exit_code, json.loads(machine.stdout)["deleted"]) == (0, True)


@pytest.mark.parametrize("arguments", [["show"], ["cancel"], ["delete", "--yes"], ["bury"], ["list", "-n", "0"]])
def test_wrong_usage(gateway: Any, cli: Callable[..., Any], arguments: list[str]) -> None:
    """Missing arguments, unknown commands and invalid numbers cause exit code 2."""
    assert cli("responses", *arguments, "--url", gateway.url).exit_code == 2


def test_no_gateway_answers(no_gateway: str, cli: Callable[..., Any]) -> None:
    """Without a gateway, the exit code is 3."""
    assert cli("responses", "list", "--url", no_gateway).exit_code == 3
