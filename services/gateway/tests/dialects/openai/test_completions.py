"""The gateway sends the prompt of a text completion as one user message of a chat completion."""

import json
from typing import Any

import httpx
import pytest
from gateway.domain import Action, Completion, Detector, Detectors

PATH = "/v1/completions"
QUESTION = "When does the ferry leave?"


async def ask(client: httpx.AsyncClient, **body: Any) -> Any:
    response = await client.post(PATH, json={"model": "fake", "prompt": QUESTION} | body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_an_answer_in_one_piece(client: httpx.AsyncClient, fakes: Any) -> None:
    """A choice has a text, and the model gets the request's other members."""
    body = await ask(client, temperature=0.5, user="ann", logprobs=None, echo=False, best_of=1)
    assert (body["object"], body["model"]) == ("text_completion", "fake")
    assert body["choices"] == [{"index": 0, "text": "At nine.", "logprobs": None, "finish_reason": "stop"}]
    assert body["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    assert "source_nodes" not in body
    [prompt] = fakes.generator.prompts
    assert [(message.role, message.text) for message in prompt.messages] == [("user", QUESTION)]
    assert (prompt.passthrough_json, prompt.plain) == (b"", False)
    assert json.loads(prompt.parameters_json) == {"temperature": 0.5, "user": "ann"}


async def test_an_invalid_answer_in_one_piece_is_a_failure_of_the_model_server(
    client: httpx.AsyncClient, fakes: Any
) -> None:
    """A choice or a message that is not an object causes a 503."""
    for choices in ([1], "x", [{"message": "x"}]):
        fakes.generator.script = [[Completion(json.dumps({"choices": choices}).encode())]]
        assert (await client.post(PATH, json={"model": "fake", "prompt": QUESTION})).status_code == 503


@pytest.mark.parametrize("index", [{}, {"index": None}])
async def test_a_choice_without_an_index_has_its_position(
    client: httpx.AsyncClient, fakes: Any, index: dict[str, Any]
) -> None:
    """If the model server sends no index, the index of a choice is its position."""
    choice = index | {"message": {"role": "assistant", "content": "At nine."}, "finish_reason": "stop"}
    fakes.generator.script = [[Completion(json.dumps({"choices": [choice, choice]}).encode())]]
    assert [choice["index"] for choice in (await ask(client))["choices"]] == [0, 1]


async def test_an_answer_in_one_piece_instead_of_a_stream(client: httpx.AsyncClient, fakes: Any) -> None:
    """The answer of a model server that does not stream becomes one chunk of a text completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "At nine."}, "finish_reason": "stop"}
    fakes.generator.script = [[Completion(json.dumps({"object": "chat.completion", "choices": [choice]}).encode())]]
    answer = await client.post(PATH, json={"model": "fake", "prompt": QUESTION, "stream": True})
    chunk = json.loads(answer.text.split("\n\n")[0].removeprefix("data: "))
    assert chunk["object"] == "text_completion"
    assert chunk["choices"] == [{"index": 0, "text": "At nine.", "logprobs": None, "finish_reason": "stop"}]


async def test_a_streamed_answer(client: httpx.AsyncClient) -> None:
    """The chunks are text completions. Usage and the end marker are as in a chat."""
    body = {"prompt": QUESTION, "stream": True, "stream_options": {"include_usage": True}, "index_name": "docs"}
    *events, done, rest = (await client.post(PATH, json=body)).text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [choice["text"] for choice in choices] == ["At ", "nine", ".", ""]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]
    assert chunks[0]["source_nodes"][0]["sourcefile"] == "guide-1.pdf"
    assert chunks[-1]["usage"]["completion_tokens"] == 3


async def test_the_retriever_searches_for_the_prompt(client: httpx.AsyncClient, fakes: Any) -> None:
    """The retriever searches for the prompt. Without a similar passage, the model answers without sources.

    An unknown index causes a 404.
    """
    assert (await ask(client, index_name="docs"))["source_nodes"]
    assert fakes.retriever.queries == [QUESTION]
    assert "The ferry leaves at nine." in fakes.generator.prompts[0].messages[0].text
    far = await ask(client, index_name="docs", retrieval={"similarity_threshold": 1})
    assert (far["choices"][0]["text"], far["source_nodes"]) == ("At nine.", [])
    missing = await client.post(PATH, json={"prompt": QUESTION, "index_name": "nowhere"})
    assert (missing.status_code, missing.json()["detail"]) == (404, "No such index: 'nowhere' exists.")


async def test_detectors_judge_prompt_and_answer(client: httpx.AsyncClient, fakes: Any) -> None:
    """The detectors judge the prompt and the answer."""
    fakes.policy = Detectors(input=(Detector("words", Action.BLOCK),), output=(Detector("words", Action.REDACT),))
    assert (await client.post(PATH, json={"prompt": "my secret?"})).status_code == 400
    assert fakes.generator.prompts == []
    fakes.generator.scripts.append(fakes.generator.words("The ", "secret", " is out."))
    assert "secret" not in (await ask(client))["choices"][0]["text"]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [([QUESTION], QUESTION), ([4599, 1587, 279], "When does the"), ([[4599, 1587, 279]], "When does the")],
)
async def test_a_prompt_is_a_list_of_texts_or_token_ids(
    client: httpx.AsyncClient, fakes: Any, prompt: Any, text: str
) -> None:
    """The model gets the text of a list of one text, of a list of token ids, and of a list of one such list."""
    await ask(client, prompt=prompt)
    assert fakes.generator.prompts[0].messages[0].text == text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": " "}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [[1], [2]]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "best_of": 2}, "best_of"),
        ({"prompt": "a", "logprobs": 5}, "logprobs"),
        ({"prompt": "a", "tools": [{}]}, "tools"),
        ({"prompt": "a", "stream": "yes"}, "stream"),
    ],
)
async def test_invalid_requests_are_refused(
    client: httpx.AsyncClient, fakes: Any, body: dict[str, Any], field: str
) -> None:
    """The error names the field of each invalid or unsupported member, and the model is not called."""
    response = await client.post(PATH, json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == field
    assert fakes.generator.prompts == []
