"""The Responses API over the pipeline, with fakes."""

import json
from collections import Counter
from typing import Any

import httpx
import pytest
from causeway_testing import responses
from gateway.domain import Action, Completion, Delta, Detector, Detectors, Finish, Start, Usage
from gateway.frontends.profiles import BLOCKED_MESSAGE
from servicekit.errors import RateLimited, Unavailable

PATH = "/v1/responses"
FIND = {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}}
RUN = {"type": "custom", "name": "run"}
SEARCH = {"type": "file_search", "vector_store_ids": ["docs"]}


def beside(members: dict[str, Any]) -> Delta:
    return Delta(0, "", json.dumps(members).encode())


def call(arguments: str, index: int = 0, **more: Any) -> Delta:
    function = {"arguments": arguments, **({"name": more["name"]} if "name" in more else {})}
    head = {"id": more["id"], "type": "function"} if "id" in more else {}
    return beside({"tool_calls": [{"index": index, **head, "function": function}]})


async def whole(client: httpx.AsyncClient, **body: Any) -> Any:
    answer = await client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    return responses.response(answer.json())


async def streamed(client: httpx.AsyncClient, **body: Any) -> list[Any]:
    answer = await client.post(PATH, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    return responses.events(answer.text)


def final(events: list[Any]) -> Any:
    return events[-1].response


async def test_an_answer_in_one_piece(client: httpx.AsyncClient, fakes: Any) -> None:
    """The response repeats the request's members, and has the text and the usage.

    The model gets the instructions, the input, and the parameters under their names in a chat.
    """
    answer = await whole(
        client,
        model="m",
        input="When?",
        instructions="Be brief.",
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=20,
        metadata={"a": "b"},
        user="ann",
        service_tier="auto",
        client_metadata={"x": "y"},
    )
    assert answer.output_text == "At nine."
    assert (answer.status, answer.metadata, answer.instructions) == ("completed", {"a": "b"}, "Be brief.")
    assert (answer.temperature, answer.top_p, answer.max_output_tokens, answer.user) == (0.5, 0.9, 20, "ann")
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (7, 3, 10)
    [prompt] = fakes.generator.prompts
    assert [(message.role, message.text) for message in prompt.messages] == [
        ("system", "Be brief."),
        ("user", "When?"),
    ]
    parameters = json.loads(prompt.parameters_json)
    assert parameters == {"temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 20, "user": "ann"}


async def test_the_events_of_a_text(client: httpx.AsyncClient) -> None:
    """The events have the reference's order, and the pieces are the text of the final response."""
    events = await streamed(client, input="When?")
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 3,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    pieces = "".join(event.delta for event in events if event.type.endswith("delta"))
    assert pieces == final(events).output_text == "At nine."


async def test_pieces_in_one_batch(client: httpx.AsyncClient, fakes: Any) -> None:
    """Each piece of a batch has its event. Empty pieces and other choices have none."""
    pieces = [Delta(0, ""), Delta(0, "At "), Delta(1, "No."), Delta(0, "nine"), Delta(0, "."), Finish(0, "stop")]
    fakes.generator.script = [[Start(b"{}"), *pieces]]
    events = await streamed(client, input="When?")
    assert [event.delta for event in events if event.type.endswith("delta")] == ["At ", "nine", "."]
    assert final(events).output_text == "At nine."


async def test_function_calls(client: httpx.AsyncClient, fakes: Any) -> None:
    """Two parallel calls are two items, each with arguments that arrive in pieces."""
    fakes.generator.script = [
        [Start(b'{"model":"m"}'), Delta(0, "I look.")],
        [call('{"a"', name="find", id="c1"), call("{}", 1, name="find", id="c2")],
        [call(":1}")],
        [Finish(0, "tool_calls"), Usage(1, 2)],
    ]
    events = await streamed(client, input="Find.", tools=[FIND], parallel_tool_calls=True)
    assert [item.type for item in final(events).output] == ["message", "function_call", "function_call"]
    first, second = final(events).output[1:]
    assert (first.call_id, first.arguments, first.status) == ("c1", '{"a":1}', "completed")
    assert (second.call_id, second.arguments) == ("c2", "{}")
    kinds = Counter(event.type for event in events)
    assert kinds["response.function_call_arguments.delta"] == 3
    assert kinds["response.function_call_arguments.done"] == 2
    assert (await whole(client, input="Find.", tools=[FIND])).output[1].arguments == '{"a":1}'


async def test_a_custom_tool(client: httpx.AsyncClient, fakes: Any) -> None:
    """The input of a custom tool is the model's argument `input`, or the raw text if it is not JSON."""
    for arguments, text in (('{"input":"ls -l"}', "ls -l"), ("ls", "ls")):
        fakes.generator.script = [[Start(b"{}"), call(arguments, name="run", id="c")], [Finish(0, "tool_calls")]]
        events = await streamed(client, input="Run.", tools=[RUN])
        [item] = final(events).output
        assert (item.type, item.name, item.input) == ("custom_tool_call", "run", text)
        assert "response.custom_tool_call_input.done" in [event.type for event in events]


async def test_tools_of_a_namespace(client: httpx.AsyncClient, fakes: Any) -> None:
    """A call has the names of the tool and of its namespace.

    In the next request, the model gets the joined name.
    """
    tools = [{"type": "namespace", "name": "crm", "description": "Customers.", "tools": [FIND, RUN]}]
    calls = [call("{}", name="crm__find", id="c1"), call('{"input":"x"}', 1, name="crm__run", id="c2")]
    fakes.generator.script = [[Start(b"{}"), *calls], [Finish(0, "tool_calls")]]
    answer = await whole(client, input="Find.", tools=tools)
    assert [(item.type, item.namespace, item.name) for item in answer.output] == [
        ("function_call", "crm", "find"),
        ("custom_tool_call", "crm", "run"),
    ]
    assert answer.tools[0].tools[0].name == "find"
    results = [{"type": "function_call_output", "call_id": "c1", "output": "Ann"}]
    results.append({"type": "custom_tool_call_output", "call_id": "c2", "output": "x"})
    await whole(client, input=results, previous_response_id=answer.id, tools=tools)
    called = json.loads(fakes.generator.prompts[1].messages[1].extra_json)["tool_calls"]
    assert [tool["function"]["name"] for tool in called] == ["crm__find", "crm__run"]


@pytest.mark.parametrize("summary", [None, "auto"])
async def test_reasoning(client: httpx.AsyncClient, fakes: Any, summary: str | None) -> None:
    """Reasoning is a summary if the request selects one, and plain content otherwise. It ends before the text.

    The model gets the effort.
    """
    fakes.generator.script = [
        [Start(b"{}"), beside({"reasoning_content": "Hm, "})],
        [beside({"reasoning_content": "nine."})],
        [Delta(0, "At nine."), Finish(0, "stop")],
    ]
    events = await streamed(client, input="When?", reasoning={"effort": "low", "summary": summary})
    thought, message = final(events).output
    assert (thought.type, message.type) == ("reasoning", "message")
    assert [part.text for part in (thought.summary if summary else thought.content)] == ["Hm, nine."]
    kinds = [event.type for event in events]
    kind = "reasoning_summary_text" if summary else "reasoning_text"
    assert kinds.index(f"response.{kind}.done") < kinds.index("response.output_text.delta")
    [prompt] = fakes.generator.prompts
    assert json.loads(prompt.parameters_json)["reasoning_effort"] == "low"


async def test_a_refusal(client: httpx.AsyncClient, fakes: Any) -> None:
    """A refusal is a part of its own."""
    fakes.generator.script = [[Start(b"{}"), beside({"refusal": "I "}), beside({"refusal": "can't."})]]
    fakes.generator.script.append([Finish(0, "stop")])
    events = await streamed(client, input="Go.")
    [item] = final(events).output
    assert [(part.type, part.refusal) for part in item.content] == [("refusal", "I can't.")]
    assert [event.type for event in events].count("response.refusal.delta") == 2


async def test_log_probabilities(client: httpx.AsyncClient, fakes: Any) -> None:
    """Each delta event and the final response have the requested log probabilities."""
    token = {"token": "Yes", "bytes": [89], "logprob": -0.5, "top_logprobs": [{"token": "No", "logprob": -1}]}
    logprobs = json.dumps({"logprobs": {"content": [token]}}).encode()
    fakes.generator.script = [[Start(b"{}"), Delta(0, "Yes", b"", logprobs)], [Finish(0, "stop")]]
    body = {"input": "Is it?", "include": ["message.output_text.logprobs"], "top_logprobs": 1}
    events = await streamed(client, **body)
    [delta] = [event for event in events if event.type == "response.output_text.delta"]
    assert delta.logprobs[0].top_logprobs[0].token == "No"
    assert final(events).output[0].content[0].logprobs[0].bytes == [89]
    assert json.loads(fakes.generator.prompts[0].parameters_json)["logprobs"] is True


async def test_structured_output(client: httpx.AsyncClient, fakes: Any) -> None:
    """The model gets the schema in a chat's form, and the verbosity. The response repeats the schema."""
    form = {"type": "json_schema", "name": "time", "schema": {"type": "object"}, "strict": True}
    answer = await whole(client, input="When?", text={"format": form, "verbosity": "low"})
    assert answer.text.format.model_dump(by_alias=True, exclude_none=True) == form
    parameters = json.loads(fakes.generator.prompts[0].parameters_json)
    assert parameters["response_format"]["json_schema"] == {
        "name": "time",
        "schema": {"type": "object"},
        "strict": True,
    }
    assert parameters["verbosity"] == "low"


async def test_file_search(client: httpx.AsyncClient, fakes: Any) -> None:
    """The search is an item before the answer. Citation marks become annotations, even if they are split.

    The item has the results only if the request includes them. The model gets the passages.
    """
    fakes.generator.script = [
        [Start(b"{}"), Delta(0, "At nine [guide-1.p")],
        [Delta(0, "df#page=1]."), Finish(0, "stop"), Usage(1, 1)],
    ]
    body: dict[str, Any] = {"input": "When does the ferry leave?", "tools": [SEARCH, FIND]}
    events = await streamed(client, **body, include=["file_search_call.results"])
    search, message = final(events).output
    assert (search.type, search.queries) == ("file_search_call", ["When does the ferry leave?"])
    assert [result.filename for result in search.results] == ["guide-1.pdf", "guide-2.pdf"]
    [citation] = message.content[0].annotations
    assert (citation.file_id, citation.filename, citation.index) == (search.results[0].file_id, "guide-1.pdf", 8)
    assert "response.output_text.annotation.added" in [event.type for event in events]
    assert (await whole(client, **body)).output[0].results is None
    assert "The ferry leaves at nine." in fakes.generator.prompts[0].messages[0].text


async def test_an_index_by_its_name(client: httpx.AsyncClient) -> None:
    """With `index_name`, the response has the passages, as a chat completion has them.

    An unknown index causes a 404.
    """
    answer = (await client.post(PATH, json={"input": "When?", "index_name": "docs"})).json()
    assert [node["doc_id"] for node in answer["source_nodes"]] == ["d1", "d2"]
    responses.response(answer)
    assert (await client.post(PATH, json={"input": "When?", "index_name": "no"})).status_code == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_answers_in_one_piece(client: httpx.AsyncClient, fakes: Any, stream: bool) -> None:
    """The response has the text, the calls and the usage of a model that does not stream."""
    function = {"name": "find", "arguments": "{}"}
    message = {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "c", "function": function}]}
    usage = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    whole_answer = {"model": "m", "choices": [choice], "usage": usage}
    fakes.generator.script = [[Completion(json.dumps(whole_answer).encode())]]
    body = {"input": "Find.", "tools": [FIND]}
    answer = final(await streamed(client, **body)) if stream else await whole(client, **body)
    assert (answer.output_text, answer.model, answer.usage.total_tokens) == ("I look.", "m", 6)
    assert [item.type for item in answer.output] == ["message", "function_call"]
    assert answer.output[1].arguments == "{}"


async def test_invalid_log_probabilities_are_ignored(client: httpx.AsyncClient, fakes: Any) -> None:
    """The gateway ignores a token that is not an object, and alternatives that are not a list of objects."""
    tokens = [1, {"token": "Yes", "logprob": -0.5, "top_logprobs": [1]}, {"token": "!", "top_logprobs": "x"}]
    logprobs = json.dumps({"logprobs": {"content": tokens}}).encode()
    fakes.generator.script = [[Start(b"{}"), Delta(0, "Yes!", b"", logprobs)], [Finish(0, "stop")]]
    answer = await whole(client, input="Is it?", top_logprobs=1)
    shown = answer.output[0].content[0].logprobs
    assert [(token.token, token.top_logprobs) for token in shown] == [("Yes", []), ("!", [])]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choices", [[1], "x", [{"message": "x"}]])
async def test_an_invalid_answer_in_one_piece_is_a_failure_of_the_model_server(
    client: httpx.AsyncClient, fakes: Any, stream: bool, choices: Any
) -> None:
    """The client gets the error of an unavailable model server."""
    fakes.generator.script = [[Completion(json.dumps({"choices": choices}).encode())]]
    answer = await client.post(PATH, json={"input": "When?", "stream": stream})
    if stream:
        *_, error, _failed = responses.events(answer.text)
        assert "Check the model server." in error.message
    else:
        assert answer.status_code == 503


async def test_an_answer_in_one_piece_with_invalid_counts(client: httpx.AsyncClient, fakes: Any) -> None:
    """The gateway ignores a usage, a token count and a finish reason of the wrong type."""
    choice = {"message": {"content": "At nine."}, "finish_reason": ["stop"]}
    for usage, counted in (("x", None), ({"prompt_tokens": "x", "completion_tokens": True}, (0, 0, 0))):
        fakes.generator.script = [[Completion(json.dumps({"choices": [choice], "usage": usage}).encode())]]
        answer = await whole(client, input="When?")
        assert (answer.status, answer.output_text) == ("completed", "At nine.")
        known = answer.usage and (
            answer.usage.input_tokens,
            answer.usage.output_tokens,
            answer.usage.total_tokens,
        )
        assert known == counted


async def test_a_boolean_is_not_a_token_count(client: httpx.AsyncClient, fakes: Any) -> None:
    """The gateway counts no tokens if the model server sends a boolean instead of a number."""
    usage = b'{"prompt_tokens_details":{"cached_tokens":true}}'
    fakes.generator.script = [[Start(b"{}"), Delta(0, "At nine.")], [Finish(0, "stop"), Usage(1, 2, usage)]]
    assert '"cached_tokens":0' in (await client.post(PATH, json={"input": "When?"})).text


async def test_a_blocked_answer(client: httpx.AsyncClient, fakes: Any) -> None:
    """The response is incomplete because of the filter. The profile's message replaces the rest of the text."""
    fakes.policy = Detectors(output=(Detector("words", Action.BLOCK),))
    fakes.generator.script = fakes.generator.words("The ", "secret", " is out.")
    events = await streamed(client, input="Well?")
    assert events[-1].type == "response.incomplete"
    assert final(events).incomplete_details.reason == "content_filter"
    assert final(events).output_text == f"The {BLOCKED_MESSAGE}"
    answer = await whole(client, input="Well?")
    assert (answer.status, answer.output_text) == ("incomplete", f"The {BLOCKED_MESSAGE}")


async def test_an_answer_that_is_too_long(client: httpx.AsyncClient, fakes: Any) -> None:
    """The response and its item are incomplete because of the limit."""
    fakes.generator.script = [[Start(b"{}"), Delta(0, "At")], [Finish(0, "length")]]
    answer = await whole(client, input="When?", max_output_tokens=1)
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output[0].status == "incomplete"


async def test_a_stream_that_fails(client: httpx.AsyncClient, fakes: Any) -> None:
    """A failed stream ends with the error and the text so far. A failure before its first event is a status."""
    for error, code in ((Unavailable("Gone."), "server_error"), (RateLimited("Later."), "rate_limit_exceeded")):
        fakes.generator.script = [[Start(b"{}"), Delta(0, "At")], error]
        events = await streamed(client, input="When?")
        assert [event.type for event in events[-2:]] == ["error", "response.failed"]
        assert (events[-2].code, events[-2].message) == (code, final(events).error.message)
        assert (final(events).error.code, final(events).output_text) == (code, "At")
    fakes.generator.script = [Unavailable("Gone.")]
    assert (await client.post(PATH, json={"input": "When?", "stream": True})).status_code == 503


async def test_unsupported_tools_are_dropped(client: httpx.AsyncClient) -> None:
    """A header lists each type of dropped tools once. Without such tools, the header is absent."""
    body = {"input": "Hi.", "tools": [{"type": "web_search"}, {"type": "web_search"}, FIND], "stream": True}
    answer = await client.post(PATH, json=body)
    assert answer.headers["x-causeway-dropped-tools"] == "web_search"
    assert [tool.name for tool in final(responses.events(answer.text)).tools] == ["find"]
    assert "x-causeway-dropped-tools" not in (await client.post(PATH, json={"input": "Hi."})).headers


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": "x", "surprise": 1}, "surprise"),
        ({"input": "x", "background": True, "store": False}, "background"),
        ({"input": "x", "prompt": {"version": "1"}}, "prompt.id"),
        ({"input": "x", "temperature": 3}, "temperature"),
        ({"input": "x", "truncation": "some"}, "truncation"),
        ({"input": "x", "include": ["all"]}, "include"),
        ({"input": "x", "metadata": {"a": 1}}, "metadata"),
        ({"input": "x", "text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"input": "x", "reasoning": {"effort": "much"}}, "reasoning.effort"),
        ({"input": [{"role": "user", "content": []}]}, "input[0].content"),
        ({"input": [{"role": "assistant", "content": "x"}], "index_name": "docs"}, "input"),
    ],
)
async def test_refusals_name_the_member(client: httpx.AsyncClient, fakes: Any, body: Any, param: str) -> None:
    """The error names the member, and the model is not called."""
    refused = await client.post(PATH, json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.text
    assert fakes.generator.prompts == []


async def test_a_part_that_detectors_cannot_read(client: httpx.AsyncClient, fakes: Any) -> None:
    """The error names the item of the request."""
    fakes.policy = Detectors(input=(Detector("words", Action.BLOCK),))
    picture = {"type": "input_image", "image_url": "data:image/png;base64,x"}
    items = [{"role": "user", "content": "Hi."}, {"role": "user", "content": [picture]}]
    refused = await client.post(PATH, json={"input": items, "instructions": "Look."})
    assert refused.json()["error"]["param"] == "input[1].content"
