"""Searches by the model: the function, the rounds, the items, the policies and the usage."""

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from causeway_testing import responses
from gateway.domain import Action, Batch, Delta, Detector, Detectors, Finish, Start, Usage
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.settings import Settings
from servicekit.errors import Unavailable

PATH = "/v1/responses"
SEARCH: dict[str, Any] = {"type": "file_search", "vector_store_ids": ["docs"]}
FIND = {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}}
ASKED: dict[str, Any] = {"input": "When does the ferry leave?", "tools": [SEARCH]}
ONE_PASSAGE = {"tools": [SEARCH | {"max_num_results": 1}]}
RAW = b'{"prompt_tokens":7,"completion_tokens":3,"completion_tokens_details":{"reasoning_tokens":2}}'


def calling(*arguments: str, name: str = "file_search", text: str = "") -> list[Batch]:
    """Return the events of a model that calls a function once for each argument, in two pieces."""
    script: list[Batch] = [[Start(b'{"model":"m"}'), *([Delta(0, text)] if text else [])]]
    for at, each in enumerate(arguments):
        head = {"index": at, "id": f"c{at}", "function": {"name": name, "arguments": each[:3]}}
        rest = {"index": at, "function": {"arguments": each[3:]}}
        script += [[Delta(0, "", json.dumps({"tool_calls": [piece]}).encode())] for piece in (head, rest)]
    return [*script, [Finish(0, "tool_calls"), Usage(7, 3, RAW)]]


def searching(*queries: str, text: str = "") -> list[Batch]:
    return calling(*(json.dumps({"query": query}) for query in queries), text=text)


def saying(text: str) -> list[Batch]:
    return [[Start(b'{"model":"m"}')], [Delta(0, text)], [Finish(0, "stop"), Usage(7, 3, RAW)]]


@pytest.fixture
def fakes(fakes: Any) -> Any:
    """Let the fake model call tools."""
    fakes.generator.calls_tools = True
    return fakes


def play(fakes: Any, *scripts: Sequence[Batch]) -> None:
    fakes.generator.scripts.extend(scripts)


async def whole(client: httpx.AsyncClient, path: str = PATH, **body: Any) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return responses.response(answer.json())


async def streamed(client: httpx.AsyncClient, **body: Any) -> list[Any]:
    answer = await client.post(PATH, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    return responses.events(answer.text)


def offered(fakes: Any) -> list[list[str]]:
    """Return the names of the tools that each prompt offers."""
    parameters = [json.loads(prompt.parameters_json) for prompt in fakes.generator.prompts]
    return [[tool["function"]["name"] for tool in members.get("tools", ())] for members in parameters]


async def test_the_model_searches_twice(client: httpx.AsyncClient, fakes: Any) -> None:
    """Each search is an item at its position, with its own passages.

    The answer cites the passages of both searches, and the usage is the sum.
    """
    answer = "At nine [guide-1.pdf#page=1], at noon [guide-2.pdf#page=2]."
    play(fakes, searching("ferry", text="I look. "), searching("bridge"), saying(answer))
    events = await streamed(client, **ASKED | ONE_PASSAGE, include=["file_search_call.results"])
    last = events[-1].response
    assert [item.type for item in last.output] == ["message", "file_search_call", "file_search_call", "message"]
    _, first, second, message = last.output
    assert (first.queries, second.queries) == (["ferry"], ["bridge"])
    assert (first.status, second.status) == ("completed", "completed")
    assert [result.filename for result in first.results] == ["guide-1.pdf"]
    assert [result.filename for result in second.results] == ["guide-2.pdf"]
    cited = [(citation.filename, citation.index) for citation in message.content[0].annotations]
    assert cited == [("guide-1.pdf", answer.index("[")), ("guide-2.pdf", answer.rindex("["))]
    assert (last.usage.input_tokens, last.usage.output_tokens) == (21, 9)
    assert last.usage.output_tokens_details.reasoning_tokens == 6
    assert fakes.retriever.queries == ["ferry", "bridge"]


async def test_the_events_of_a_search(client: httpx.AsyncClient, fakes: Any) -> None:
    """The events have the reference's order and precede those of the answer. The function call has no event."""
    play(fakes, searching("ferry"), saying("At nine."))
    kinds = [event.type for event in await streamed(client, **ASKED)]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.file_search_call.in_progress",
        "response.file_search_call.searching",
        "response.file_search_call.completed",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


async def test_the_prompts_of_a_search(client: httpx.AsyncClient, fakes: Any) -> None:
    """The first prompt offers the function and has no passage. The second one has the call and the passages."""
    play(fakes, searching("ferry"), saying("At nine."))
    await whole(client, **{**ASKED, "tools": [SEARCH, FIND]}, instructions="Be brief.")
    first, second = fakes.generator.prompts
    assert offered(fakes) == [["find", "file_search"]] * 2
    assert [message.role for message in first.messages] == ["system", "user"]
    assert [message.role for message in second.messages] == ["system", "user", "assistant", "tool"]
    assert "The ferry leaves at nine." in second.messages[-1].text
    assert [[passage.id for passage in prompt.sources] for prompt in (first, second)] == [[], ["p1", "p2"]]
    called = json.loads(second.messages[-2].extra_json)["tool_calls"]
    assert [call["function"] for call in called] == [{"name": "file_search", "arguments": '{"query": "ferry"}'}]
    assert json.loads(second.messages[-1].extra_json) == {"tool_call_id": "c0"}


async def test_a_model_that_does_not_search(client: httpx.AsyncClient, fakes: Any) -> None:
    """The model answers without a search. An unknown index still causes a 404."""
    play(fakes, saying("Hello."))
    answer = await whole(client, **ASKED)
    assert ([item.type for item in answer.output], fakes.retriever.queries) == (["message"], [])
    missing = await client.post(PATH, json={**ASKED, "tools": [SEARCH | {"vector_store_ids": ["no"]}]})
    assert missing.status_code == 404


@pytest.mark.parametrize("most", [1, 3])
async def test_searches_are_bounded(client: httpx.AsyncClient, fakes: Any, most: int) -> None:
    """`max_tool_calls` limits the searches. The last round does not offer the function."""
    play(fakes, searching("a", "b"), *([searching("c", "d")] if most == 3 else []), saying("At nine."))
    answer = await whole(client, **ASKED, max_tool_calls=most)
    assert answer.max_tool_calls == most
    assert fakes.retriever.queries == ["a", "b", "c"][:most]
    assert [item.type for item in answer.output] == ["file_search_call"] * most + ["message"]
    assert offered(fakes)[-1] == []
    results = [message.text for message in fakes.generator.prompts[-1].messages if message.role == "tool"]
    assert results[-1].startswith("There are no more searches")
    assert len(results) == most + 1


async def test_a_model_that_never_answers(client: httpx.AsyncClient, fakes: Any) -> None:
    """The rounds end if the model still calls a tool that is no longer offered."""
    fakes.generator.script = searching("a")
    answer = await whole(client, **ASKED)
    assert [item.type for item in answer.output] == ["file_search_call"] * 5
    assert len(fakes.generator.prompts) == 6


async def test_a_search_beside_a_function(client: httpx.AsyncClient, fakes: Any) -> None:
    """The function is called and the search is dropped. The model can search again with the function's output."""
    both = [*searching("ferry")[:-1], *calling("{}", name="find")[1:]]
    both[1:3] = [[_numbered(event, 1) for event in batch] for batch in both[1:3]]
    play(fakes, both)
    tools = [SEARCH, FIND]
    answer = await whole(client, input="When does the ferry leave?", tools=tools)
    [function_call] = answer.output
    assert function_call.type == "function_call"
    assert fakes.retriever.queries == []
    play(fakes, searching("ferry"), saying("At nine."))
    output = {"type": "function_call_output", "call_id": function_call.call_id, "output": "x"}
    again = await whole(client, input=[output], previous_response_id=answer.id, tools=tools)
    assert [item.type for item in again.output] == ["file_search_call", "message"]
    assert fakes.retriever.queries == ["ferry"]


def _numbered(event: Any, index: int) -> Any:
    return Delta(0, "", event.delta_json.replace(b'"index": 0', b'"index": %d' % index))


@pytest.mark.parametrize(
    "arguments", ["", "{}", '{"query": 3}', '{"query": " "}', "[", '{"query": "%s"}' % ("x" * 2001)]
)
async def test_a_search_without_a_query(client: httpx.AsyncClient, fakes: Any, arguments: str) -> None:
    """The search has the status `failed`. The model gets the reason, and its answer follows."""
    play(fakes, calling(arguments), saying("At nine."))
    answer = await whole(client, **ASKED)
    assert [(item.type, item.status) for item in answer.output] == [
        ("file_search_call", "failed"),
        ("message", "completed"),
    ]
    assert fakes.retriever.queries == []
    assert "has no valid query" in fakes.generator.prompts[-1].messages[-1].text


@pytest.mark.parametrize(
    ("choice", "first"),
    [
        ("auto", None),
        ("required", "required"),
        ({"type": "file_search"}, {"type": "function", "function": {"name": "file_search"}}),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "file_search"}]}, "required"),
    ],
)
async def test_the_choice_applies_to_the_first_round(
    client: httpx.AsyncClient, fakes: Any, choice: Any, first: Any
) -> None:
    """`tool_choice` applies only to the first round. A model that must search can then answer."""
    play(fakes, searching("ferry"), saying("At nine."))
    answer = await whole(client, **ASKED, tool_choice=choice)
    assert [item.type for item in answer.output] == ["file_search_call", "message"]
    choices = [json.loads(prompt.parameters_json).get("tool_choice") for prompt in fakes.generator.prompts]
    assert choices == [first, None]


async def test_tool_choice_none(client: httpx.AsyncClient, fakes: Any) -> None:
    """With `tool_choice: none`, nothing is searched."""
    play(fakes, saying("Hello."))
    await whole(client, **ASKED, tool_choice="none")
    assert (offered(fakes), fakes.retriever.queries) == ([[]], [])


async def test_a_function_of_the_same_name(client: httpx.AsyncClient, fakes: Any) -> None:
    """The name of a function of the request does not change, and the search has another name."""
    play(fakes, calling('{"query":"x"}'))
    answer = await whole(client, **{**ASKED, "tools": [SEARCH, FIND | {"name": "file_search"}]})
    assert [item.type for item in answer.output] == ["function_call"]
    assert offered(fakes) == [["file_search", "file_search_"]]


async def test_detectors_judge_each_search(client: httpx.AsyncClient, fakes: Any) -> None:
    """Detectors judge the passages before the model gets them, and the query before the search."""
    fakes.retriever.indexes["docs"][1] = fakes.retriever.indexes["docs"][1].__class__(
        "p9", "docs", "d9", "s.pdf", "s.pdf", "The secret ferry.", 0.1
    )
    fakes.policy = Detectors(context=(Detector("words", Action.BLOCK),))
    play(fakes, searching("ferry"), saying("At nine."))
    answer = await whole(client, **ASKED, include=["file_search_call.results"])
    assert [result.filename for result in answer.output[0].results] == ["guide-1.pdf"]
    assert "secret" not in fakes.generator.prompts[-1].messages[-1].text
    fakes.policy = Detectors(output=(Detector("words", Action.BLOCK),))
    fakes.retriever.queries.clear()
    play(fakes, searching("the secret"))
    stopped = await whole(client, **ASKED)
    assert stopped.incomplete_details.reason == "content_filter"
    assert fakes.retriever.queries == []


async def test_the_limit_of_the_answer_is_for_all_rounds(client: httpx.AsyncClient, fakes: Any) -> None:
    """Each round may use the tokens that the earlier rounds left. Without tokens left, the answer ends."""
    play(fakes, searching("a"), searching("b"))
    answer = await whole(client, **ASKED, max_output_tokens=5)
    limits = [json.loads(prompt.parameters_json)["max_completion_tokens"] for prompt in fakes.generator.prompts]
    assert limits == [5, 2]
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert fakes.retriever.queries == ["a"]


async def test_a_search_that_fails(client: httpx.AsyncClient, fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A streamed response fails, and its item is incomplete. Without streaming, the failure is a status."""

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("The retriever cannot be reached.")

    monkeypatch.setattr(type(fakes.retriever), "retrieve", away)
    play(fakes, searching("ferry", text="I look."))
    events = await streamed(client, **ASKED)
    assert events[-1].type == "response.failed"
    assert [(item.type, item.status) for item in events[-1].response.output] == [
        ("message", "completed"),
        ("file_search_call", "incomplete"),
    ]
    assert [event.type for event in events[-3:-1]] == ["response.output_item.done", "error"]
    play(fakes, searching("ferry"))
    assert (await client.post(PATH, json=ASKED)).status_code == 503


async def test_stored_searches(client: httpx.AsyncClient, fakes: Any) -> None:
    """A stored search has its own passages, even if the request did not include them."""
    play(fakes, searching("ferry"), searching("bridge"), saying("At nine."))
    answer = await whole(client, **ASKED | ONE_PASSAGE)
    assert answer.output[0].results is None
    read = (await client.get(f"{PATH}/{answer.id}", params={"include": "file_search_call.results"})).json()
    searches = responses.response(read).output[:2]
    assert [[result.filename for result in search.results] for search in searches] == [
        ["guide-1.pdf"],
        ["guide-2.pdf"],
    ]


async def test_the_sources_of_all_searches(client: httpx.AsyncClient, fakes: Any) -> None:
    """With `index_name`, the response has the passages of all searches."""
    play(fakes, searching("ferry"), searching("bridge"), saying("At nine."))
    answer = (await client.post(PATH, json=ASKED | ONE_PASSAGE | {"index_name": "docs"})).json()
    assert [node["doc_id"] for node in answer["source_nodes"]] == ["d1", "d2"]


async def test_profiles(fakes: Any, settings: Settings, tmp_path: Any) -> None:
    """A profile limits the searches of the model.

    If the limit is 0, or if the profile has an index, the platform searches before the model answers.
    """
    profiles = """
frontends:
  - {name: once, mount: once, searches: 1, allow: {indexes: any}}
  - {name: first, mount: first, searches: 0, allow: {indexes: any}}
  - {name: always, mount: always, index: docs}
"""
    path = tmp_path / "profiles.yaml"
    path.write_text(profiles)
    fakes.frontends = FrontendsFile(path)
    transport = httpx.ASGITransport(build_app(settings, fakes.services()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        play(fakes, searching("a", "b"), saying("At nine."))
        assert len((await whole(client, f"/once{PATH}", **ASKED)).output) == 2
        for mount in ("first", "always"):
            fakes.retriever.queries.clear()
            play(fakes, saying("At nine."))
            await whole(client, f"/{mount}{PATH}", **ASKED)
            assert fakes.retriever.queries == ["When does the ferry leave?"]
