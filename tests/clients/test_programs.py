"""More features of the clients: tools, structured answers, lists of models, embeddings and errors."""

import json
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.model_answers import DONE, STREAM, Answer, chunk, completion, sse
from causeway_testing.recipes import NODE, PYTHON

pytestmark = pytest.mark.asyncio(loop_scope="session")

HERE = Path(__file__).parent
ANSWER = "4 January to 19 March 2027"
SOURCE = "brannoch-bridge-maintenance-plan.pdf#page=4"
PLACE = {"place": "Kelsay"}
TIDE = {"place": "Kelsay", "hour": 6}
CALL = ["tide", PLACE]
_FUNCTION = {"name": "tide", "arguments": json.dumps(PLACE)}
_CALL = {"id": "call_1", "type": "function", "function": _FUNCTION}
_MESSAGE = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
CALLS = completion("", message=_MESSAGE, finish_reason="tool_calls")
"""The model calls the tool of the client."""
STREAMED_CALLS = Answer(
    (
        sse(chunk({"role": "assistant", "content": None, "tool_calls": [{"index": 0, **_CALL}]})),
        sse(chunk({}, "tool_calls")),
        DONE,
    ),
    content_type=STREAM,
)
SIX = completion("At six.")
STREAMED_SIX = Answer((sse(chunk({"content": "At six."})), sse(chunk({}, "stop")), DONE), content_type=STREAM)
PARSED = completion(json.dumps(TIDE))
TOOLS = ["ask", "fetch", "list_indexes", "search"]
_SEARCH = {"name": "search", "arguments": json.dumps({"query": "pivot bearing renewal", "index": "handbook"})}
SEARCHES = completion(
    "",
    message={**_MESSAGE, "tool_calls": [{**_CALL, "function": _SEARCH}]},
    finish_reason="tool_calls",
)
"""The model calls a tool of the platform."""


async def test_openai_for_python(platform: Any) -> None:
    """All features of the package work: those with the index, and those with the scripted model."""
    platform.model.script(CALLS, SIX, STREAMED_CALLS, PARSED)
    found = await platform.outcome(PYTHON, HERE / "python" / "openai_client.py")
    assert ANSWER in found["chat"]
    assert found["stream"] == found["chat"]
    assert SOURCE in found["sources"]
    assert found["tokens"] == found["stream_tokens"] > 0
    assert found["tool"] == ["tool_calls", *CALL]
    assert found["after_tool"] == "At six."
    assert found["streamed_tool"] == CALL
    assert found["parsed"] == TIDE
    assert found["assistant"] == ["harbour-master", found["chat"]]
    assert found["assistants"] == ["extractive", "scripted", "harbour-master"]
    assert found["models"] == ["extractive", "scripted"]
    assert found["vectors"] == [384, 384]
    assert found["error"] == [404, True]


async def test_openai_for_node(platform: Any) -> None:
    """Tools, an answer with a schema, the list of models, embeddings and errors work."""
    platform.model.script(CALLS, SIX, STREAMED_CALLS, PARSED)
    assert await platform.outcome(NODE, HERE / "node" / "client.mjs", "openai") == {
        "tool": CALL,
        "after_tool": "At six.",
        "streamed_tool": CALL,
        "parsed": TIDE,
        "models": ["extractive", "scripted"],
        "vectors": [384, 384],
        "error": ["NotFoundError", 404, True],
    }


async def test_the_vercel_ai_sdk(platform: Any) -> None:
    """Tools that the SDK runs work in unary and streamed answers. An answer with a schema works."""
    platform.model.script(CALLS, SIX, STREAMED_CALLS, STREAMED_SIX, PARSED)
    assert await platform.outcome(NODE, HERE / "node" / "client.mjs", "aiSdk") == {
        "tool": [CALL],
        "after_tool": "At six.",
        "streamed_tool": [CALL],
        "after_streamed_tool": "At six.",
        "parsed": TIDE,
    }


@pytest.mark.parametrize(
    "program",
    [
        pytest.param((PYTHON, HERE / "python" / "langchain_client.py"), id="python"),
        pytest.param((NODE, HERE / "node" / "client.mjs", "langchain"), id="javascript"),
    ],
)
async def test_langchain(platform: Any, program: tuple[Any, ...]) -> None:
    """Tools and structured answers work."""
    platform.model.script(CALLS, PARSED)
    assert await platform.outcome(*program) == {"tool": [CALL], "parsed": TIDE}


async def test_langchains_agents(platform: Any) -> None:
    """LangChain's MCP client finds the tools, and each of them works."""
    found = await platform.outcome(PYTHON, HERE / "python" / "langchain_mcp.py")
    file = SOURCE.partition("#")[0]
    assert (found["tools"], found["indexes"]) == (TOOLS, ["handbook"])
    assert file in found["found"]
    assert found["read"] == [found["found"][0], 100]
    assert ANSWER in found["answer"]
    assert f"/content/{file}?index=handbook#page=4" in found["answer"]


async def test_openais_agents(platform: Any) -> None:
    """The model calls the platform's search tool, and the agent receives the passages."""
    platform.model.script(SEARCHES, completion("In 2027."))
    found = await platform.outcome(PYTHON, HERE / "python" / "openai_agents_mcp.py")
    assert (found["tools"], found["outputs"], found["end"]) == (TOOLS, 1, "In 2027.")
    assert ANSWER in found["said"]
