"""The published Codex with the configuration of docs/clients.md."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.model_answers import DONE, STREAM, Answer, chunk, sse
from causeway_testing.recipes import HOME, NODE

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "clients.md"
CODEX = HERE / "codex" / "node_modules" / "@openai" / "codex" / "bin" / "codex.js"
_FUNCTION = {"name": "exec_command", "arguments": json.dumps({"cmd": "echo tide-$((6*7))"})}
_CALL = {"index": 0, "id": "call_1", "type": "function", "function": _FUNCTION}
TOOL_CALL = Answer(
    (sse(chunk({"role": "assistant", "content": None, "tool_calls": [_CALL]})), sse(chunk({}, "tool_calls")), DONE),
    content_type=STREAM,
)
"""The model calls the tool that runs a command."""
TEXT = Answer((sse(chunk({"content": "At six."})), sse(chunk({}, "stop")), DONE), content_type=STREAM)


async def test_a_turn_with_a_tool(platform: Any, tmp_path: Path) -> None:
    """Codex runs the model's command, returns its output to the model, and shows the answer."""
    [documented] = re.findall(r"^## Codex\n.*?^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (home / "config.toml").write_text(documented.replace(HOME, platform.url).replace("extractive", "scripted"))
    platform.model.script(TOOL_CALL, TEXT)
    variables = (f"CODEX_HOME={home}", f"CAUSEWAY_API_KEY={platform.key}")
    options = ("--skip-git-repo-check", "--sandbox", "danger-full-access", "--json")
    printed = await platform.run("env", *variables, NODE, CODEX, "exec", *options, "When is the tide?", cwd=work)
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    outputs = [item["aggregated_output"].strip() for item in items if item["type"] == "command_execution"]
    messages = [item["text"] for item in items if item["type"] == "agent_message"]
    assert (outputs, messages) == (["tide-42"], ["At six."]), printed
    sent = platform.model.requests[-1].json()["messages"]
    assert [message["role"] for message in sent[-2:]] == ["assistant", "tool"]
    assert "tide-42" in sent[-1]["content"]
