import json
from collections.abc import Callable
from typing import Any

import pytest


def test_an_answer_with_citations_steps_and_trace(gateway: Any, cli: Callable[..., Any]) -> None:
    """The command prints the text, the cited file and page, the steps with their times, and the trace."""
    result = cli("ask", "Why?", "--index", "x", "--mode", "text", "--top", "5", "--url", gateway.url)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "It is so [handbook.pdf#page=2]."
    assert "  1. handbook.pdf, page 2" in lines
    assert any("Results" in line and "4.5 ms" in line for line in lines)
    assert any("0af7651916cd43dd8448eb211c80319c" in line for line in lines)
    overrides = gateway.requests[0]["context"]["overrides"]
    assert overrides == {"index": "x", "retrieval_mode": "text", "top": 5}


def test_no_index_is_sent_by_default(gateway: Any, cli: Callable[..., Any]) -> None:
    """Without --index the request names no index, so that the platform uses its default."""
    assert cli("ask", "Why?", "--url", gateway.url).exit_code == 0
    assert "index" not in gateway.requests[0]["context"]["overrides"]


def test_json(gateway: Any, cli: Callable[..., Any]) -> None:
    """--json prints one object with the answer, citations, steps and trace."""
    result = cli("ask", "Why?", "--json", "--url", gateway.url)
    found = json.loads(result.stdout)
    assert found["answer"] == "It is so [handbook.pdf#page=2]."
    assert found["citations"] == [{"sourcepage": "handbook.pdf#page=2", "file": "handbook.pdf", "page": "2"}]
    assert found["steps"][0] == {"title": "Results", "duration_ms": 4.5}
    assert found["trace_id"] == "0af7651916cd43dd8448eb211c80319c"


STEPS = [
    {"name": "find index", "duration_ms": 1.25},
    {"name": "retrieve", "duration_ms": 9.5, "steps": [{"name": "embed", "duration_ms": 2.125}]},
    {"name": "generate", "duration_ms": 70.001},
]


def test_a_trace(gateway: Any, cli: Callable[..., Any]) -> None:
    """--trace prints the trace id and each step with its time. The steps of a service are indented below the step
    of the gateway that called it.
    """
    thoughts = [{"title": "Answer", "description": "", "props": {"duration_ms": 70.001, "steps": STEPS}}]
    gateway.lines = [
        b'{"delta":{"content":"So"}}\n',
        json.dumps({"context": {"thoughts": thoughts}}).encode() + b"\n",
    ]
    result = cli("ask", "Why?", "--trace", "--url", gateway.url)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    at = lines.index("Trace 0af7651916cd43dd8448eb211c80319c")
    assert [line.split() for line in lines[at + 1 : at + 5]] == [
        ["find", "index", "1.250", "ms"],
        ["retrieve", "9.500", "ms"],
        ["embed", "2.125", "ms"],
        ["generate", "70.001", "ms"],
    ]
    assert lines[at + 3].index("embed") > lines[at + 2].index("retrieve")
    assert "whole answer" in lines[at + 5]
    shown = json.loads(cli("ask", "Why?", "--trace", "--json", "--url", gateway.url).stdout)
    assert shown["trace"] == STEPS


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_answer_that_breaks_off(gateway: Any, cli: Callable[..., Any], options: list[str]) -> None:
    """If the answer breaks off, the exit code is 1, and only stderr has the error."""
    gateway.lines = [b'{"delta":{"content":"So"}}\n', b'{"error":"the model is gone"}\n']
    result = cli("ask", "Why?", "--url", gateway.url, *options)
    assert result.exit_code == 1
    assert "the model is gone" in result.stderr
    assert "gone" not in result.stdout


def test_control_characters_do_not_reach_the_terminal(gateway: Any, cli: Callable[..., Any]) -> None:
    """The command removes control characters from an answer, keeps line ends, and replaces tabs by spaces."""
    gateway.lines = [b'{"delta":{"content":"a\\u001b[2J\\u009b1m\\u0007b\\n\\tc"}}\n']
    result = cli("ask", "Why?", "--url", gateway.url)
    assert result.stdout.startswith("a[2J1mb\n        c\n")
    assert "\x1b" not in result.stdout


def test_a_refused_question(gateway: Any, cli: Callable[..., Any]) -> None:
    """If the platform refuses the question, the exit code is 1, stderr has the reason, and stdout is empty."""
    gateway.lines = [b'{"error":"No such index."}\n']
    result = cli("ask", "Why?", "--url", gateway.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "No such index." in result.stderr


@pytest.mark.parametrize(
    ("indexes", "message"),
    [
        (["handbook", "staff"], "Existing indexes: handbook, staff. Choose one with --index."),
        ([], "causeway ingest"),
    ],
)
def test_an_unknown_index(gateway: Any, cli: Callable[..., Any], indexes: list[str], message: str) -> None:
    """For an unknown index, the message names the existing ones, or the command that creates one."""
    gateway.indexes = indexes
    result = cli("ask", "Why?", "--index", "nope", "--url", gateway.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "No such index: 'nope' exists. " in result.stderr
    assert message in result.stderr


def test_no_gateway_answers(no_gateway: str, cli: Callable[..., Any]) -> None:
    """Without a gateway, the exit code is 3, and the message says how to start the platform."""
    result = cli("ask", "Why?", "--url", no_gateway)
    assert result.exit_code == 3
    assert "causeway up" in result.stderr


@pytest.mark.parametrize("options", [["--mode", "magic"], ["--top", "0"], ["--nonsense"]])
def test_wrong_usage(cli: Callable[..., Any], options: list[str]) -> None:
    """Invalid options cause exit code 2."""
    assert cli("ask", "Why?", *options).exit_code == 2
