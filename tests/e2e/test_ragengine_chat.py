"""Chat completions with an index: what OpenAI's client receives, and what a model server that records its requests
receives.
"""

import functools
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

PATH = "/v1/chat/completions"
INDEX = "ferries"
WINDOW = 8192
MODELS = ("gpt-4", "fault-429", *(f"model-{number}" for number in range(64)))
QUESTION = "How many passengers may MV Petrel carry?"
SOURCE = "about-skerry-line.md"
FILES = (SOURCE, "fares-and-tickets.md", "pets-bikes-and-luggage.md", "leave-and-absence.md", "rosters-and-rest.md")
CORPUS = Path(__file__).resolve().parents[2] / "examples" / "corpus"
USER = {"role": "user", "content": QUESTION}
OPENAI_MEMBERS = {
    "temperature": 0.0,
    "top_p": 0.25,
    "stop": ["\n", "END"],
    "seed": 42,
    "response_format": {"type": "json_object"},
    "presence_penalty": -0.5,
    "frequency_penalty": 1.5,
    "user": "ann",
    "logprobs": True,
    "top_logprobs": 3,
    "n": 2,
    "metadata": None,
    "vendor": {"x": [1.5, None]},
}


@dataclass
class RecordedStack:
    """A stack whose model server records its requests."""

    http: httpx.Client
    openai: OpenAI
    model: httpx.Client
    logs: Path

    def ask(self, *messages: dict[str, Any], **members: Any) -> dict[str, Any]:
        """Send a request with an index, and return the answer."""
        request = {"model": "gpt-4", "index_name": INDEX, "messages": list(messages), **members}
        answer: dict[str, Any] = self.http.post(PATH, json=request).raise_for_status().json()
        return answer

    def model_requests(self) -> list[dict[str, Any]]:
        """Return the requests that the model server received, oldest first."""
        return [json.loads(each["body"]) for each in self.model.get("/requests").json()]

    def last_model_request(self) -> dict[str, Any]:
        """Return the latest request that the model server received."""
        return self.model_requests()[-1]


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    """Start a model server that answers with four words."""
    command = [sys.executable, "-m", "causeway_testing.model_server", "--tokens", "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture(scope="module")
def recorded(
    model_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    start_stack: Callable[..., AbstractContextManager[str]],
) -> Iterator[RecordedStack]:
    data = tmp_path_factory.mktemp("recorded")
    environment = {
        "CAUSEWAY_OPENAI_BASE_URL": model_url,
        "CAUSEWAY_OPENAI_MODELS": ",".join(MODELS),
        "CAUSEWAY_OPENAI_CONTEXT_WINDOW": str(WINDOW),
        "CAUSEWAY_MODEL": "gpt-4",
        "CAUSEWAY_LOG_FORMAT": "json",
        "CAUSEWAY_LOG_LEVEL": "debug",
    }
    with (
        start_stack(data, **environment) as url,
        httpx.Client(base_url=url, timeout=60) as http,
        OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client,
        httpx.Client(base_url=model_url.removesuffix("/v1")) as model,
    ):
        yield RecordedStack(http, client, model, data / "logs")


@pytest.fixture(scope="module", autouse=True)
def _fill_index(recorded: RecordedStack, wait_for: Callable[..., dict[str, Any]]) -> None:
    parts = [("file", (name, (CORPUS / name).read_bytes())) for name in FILES]
    jobs = recorded.http.post("/documents", data={"index": INDEX}, files=parts).raise_for_status().json()["jobs"]
    assert [wait_for(recorded.http, job["id"])["state"] for job in jobs] == ["succeeded"] * len(FILES)


# --- OpenAI's client ----------------------------------------------------------------------------------------------


def test_openais_client_with_an_index(recorded: RecordedStack) -> None:
    """The model receives the passages before the question. The client receives the model's answer and its usage."""
    answer = recorded.openai.chat.completions.create(
        model="gpt-4", messages=[{"role": "user", "content": QUESTION}], extra_body={"index_name": INDEX}
    )
    assert answer.choices[0].message.content == "word0 word1 word2 word3 "
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 4)
    assert answer.model_extra is not None
    nodes = answer.model_extra["source_nodes"]
    assert nodes[0]["sourcefile"] == SOURCE
    assert {"doc_id", "node_id", "text", "score", "dense_score", "source", "metadata"} <= nodes[0].keys()
    assert all(node["dense_score"] >= 0.3 for node in nodes)
    context, question = recorded.last_model_request()["messages"]
    assert question == USER
    assert context["role"] == "system"
    assert all(node["text"].strip() in context["content"] for node in nodes)


def test_openais_client_streams_with_an_index(recorded: RecordedStack) -> None:
    """Only the first chunk has the sources, and the last chunk has the usage."""
    with recorded.openai.chat.completions.create(
        model="gpt-4",
        messages=[{"role": "user", "content": QUESTION}],
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"index_name": INDEX},
    ) as stream:
        chunks = list(stream)
    extras = [chunk.model_extra or {} for chunk in chunks]
    assert extras[0]["source_nodes"][0]["sourcefile"] == SOURCE
    assert not any("source_nodes" in extra for extra in extras[1:])
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == "word0 word1 word2 word3 "
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


# --- the model's request ------------------------------------------------------------------------------------------


def test_every_member_reaches_the_model(recorded: RecordedStack) -> None:
    """The model receives every member of a request except RAGEngine's own, with and without an index."""
    recorded.ask(USER, context_token_ratio=0.4, **OPENAI_MEMBERS)
    model_request = recorded.last_model_request()
    assert {name: model_request[name] for name in OPENAI_MEMBERS} == OPENAI_MEMBERS
    assert model_request.keys() == {"model", "messages", *OPENAI_MEMBERS}
    request = {"model": "gpt-4", "messages": [USER], **OPENAI_MEMBERS}
    assert "source_nodes" not in recorded.http.post(PATH, json=request).raise_for_status().json()
    assert recorded.last_model_request() == request


def test_64_concurrent_requests_do_not_mix(recorded: RecordedStack) -> None:
    """The model receives each of 64 concurrent requests with its own members. Half of the requests are streamed."""

    def request(number: int) -> dict[str, Any]:
        return {
            "model": f"model-{number}",
            "messages": [{"role": "user", "content": f"{QUESTION} I ask for the {number}th time."}],
            "temperature": number / 64,
            "stop": [f"stop-{number}"],
            "user": f"user-{number}",
            "max_tokens": 100 + number,
        }

    def send(number: int) -> str:
        ours = {"index_name": INDEX if number % 4 else "", "stream": bool(number % 2)}
        return recorded.http.post(PATH, json=request(number) | ours).raise_for_status().text

    before = len(recorded.model_requests())
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(send, range(64)))
    assert all("word3" in answer for answer in answers)
    assert all(("source_nodes" in answer) == bool(number % 4) for number, answer in enumerate(answers))
    requests = {each["model"]: each for each in recorded.model_requests()[before:]}
    assert len(requests) == len(recorded.model_requests()) - before == 64
    for number in range(64):
        expected, got = request(number), requests[f"model-{number}"]
        assert got["messages"][-1] == expected["messages"][0]
        assert len(got["messages"]) == (2 if number % 4 else 1)
        assert {name: got[name] for name in expected if name != "messages"} == {
            name: value for name, value in expected.items() if name != "messages"
        }


BYPASSES: dict[str, dict[str, Any]] = {
    "1 no index": {"messages": [USER], "index_name": ""},
    "2 tools": {"messages": [USER], "tools": [{"type": "function", "function": {"name": "get_weather"}}]},
    "3 role": {"messages": [{"role": "function", "name": "f", "content": "75°F"}, USER]},
    "4 image": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
    "5 nothing found": {"messages": [{"role": "user", "content": "Who won the 1998 football world cup?"}]},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", BYPASSES)
def test_requests_without_retrieval(recorded: RecordedStack, name: str, stream: bool) -> None:
    """The gateway forwards a request without retrieval to the model, without RAGEngine's own members. The client
    gets the answer of the model server, with null sources.
    """
    request = {"model": "gpt-4", "stream": stream, "seed": 7, "vendor": {"x": 1.5}, **BYPASSES[name]}
    ours = {"index_name": INDEX, "context_token_ratio": 0.3} | BYPASSES[name]
    response = recorded.http.post(PATH, json=request | ours).raise_for_status()
    assert recorded.last_model_request() == {name: value for name, value in request.items() if name != "index_name"}
    direct_answer = recorded.model.post("/v1/chat/completions", json=request).text
    if name.startswith("1"):
        assert response.text.strip() == direct_answer.strip()
    else:
        assert response.text.count('"source_nodes":null') == 1
        assert response.text.replace(',"source_nodes":null', "").strip() == direct_answer.strip()


# --- tokens -------------------------------------------------------------------------------------------------------


@functools.cache
def encoding() -> Any:
    """Return the encoding of the model's tokenizer."""
    with warnings.catch_warnings():
        # The package uses a deprecated function of the standard library.
        warnings.simplefilter("ignore", DeprecationWarning)
        import bpe_openai  # type: ignore[import-untyped]  # shipped without types

        return bpe_openai.get_encoding("cl100k_base")


def tokens(messages: list[dict[str, Any]]) -> int:
    """Return the number of tokens as OpenAI counts them: 4 more for each message, and 3 more for the answer."""
    return 3 + sum(4 + len(encoding().encode_ordinary(message["content"])) for message in messages)


def padded(total: int) -> list[dict[str, Any]]:
    """Return a conversation that has this number of tokens and ends with the question."""
    system = {"role": "system", "content": "Be kind."}
    missing = total - tokens([system, USER])
    return [system | {"content": system["content"] + " word" * missing}, USER]


@pytest.mark.parametrize("members", [{}, {"max_tokens": 100}, {"max_tokens": 8000, "context_token_ratio": 0.8}])
def test_max_tokens_examples(recorded: RecordedStack, members: dict[str, Any]) -> None:
    """Prompt, context and answer fit the window without `max_tokens`, with a small value and with a large value."""
    conversation = padded(500)
    assert tokens(conversation) == 500
    answer = recorded.ask(*conversation, retrieval={"similarity_threshold": -1}, **members)
    assert answer["source_nodes"]
    model_request = recorded.last_model_request()
    length = tokens(model_request["messages"])
    assert 500 < length <= WINDOW
    if not members:
        assert "max_tokens" not in model_request
    elif members["max_tokens"] == 100:
        assert model_request["max_tokens"] == 100
    else:
        assert length > 500 + 3000
        assert model_request["max_tokens"] == WINDOW - length
        warning = "max_tokens (8000) is greater than available context after prompt consideration. Setting to 7692."
        assert warning in (recorded.logs / "gateway.log").read_text()


def test_token_budget_example(recorded: RecordedStack) -> None:
    """With a window of 8192 tokens, a conversation of 500, `max_tokens` of 1000 and a ratio of 0.6, the passages
    get 600 tokens.
    """
    plain = {"retrieval": {"similarity_threshold": -1}, "context_token_ratio": 0.6, "max_tokens": 1000}
    recorded.ask(*padded(500), **plain)
    model_request = recorded.last_model_request()
    context = tokens(model_request["messages"][:1])
    assert 400 < context <= 600 + 150
    assert model_request["max_tokens"] == 1000


def test_a_prompt_longer_than_the_window(recorded: RecordedStack) -> None:
    """A prompt that is longer than the window is refused. A prompt of exactly this length gets no sources."""
    answer = recorded.ask(*padded(WINDOW))
    assert answer["source_nodes"] is None
    request = {"model": "gpt-4", "index_name": INDEX, "messages": padded(WINDOW + 1)}
    response = recorded.http.post(PATH, json=request)
    assert response.status_code == 400
    assert response.json()["detail"] == "Prompt length exceeds context window."


def test_the_log_has_each_node(recorded: RecordedStack) -> None:
    """The log has a line for each node with the decision about it. The line of the request has the counts."""
    response = recorded.http.post(PATH, json={"model": "gpt-4", "index_name": INDEX, "messages": [USER]})
    trace = response.headers["x-trace-id"]
    lines: list[dict[str, Any]] = []
    end = time.monotonic() + 60
    # The line of the request is written after its answer.
    while not any(line["event"] == "request" for line in lines) and time.monotonic() < end:
        log = (recorded.logs / "gateway.log").read_text()
        lines = [
            json.loads(line) for line in log.splitlines(keepends=True) if trace in line and line.endswith("\n")
        ]
        time.sleep(0.05)
    fates = [line["fate"] for line in lines if line["event"] == "node"]
    [request] = [line for line in lines if line["event"] == "request"]
    assert request["nodes_kept"] == fates.count("kept") == len(response.json()["source_nodes"]) > 0
    assert request["nodes_under_threshold"] == fates.count("under threshold") > 0
    assert request["nodes_too_large"] == fates.count("too large")


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("index", [INDEX, ""])
def test_a_429_of_a_model_server_reaches_the_client(recorded: RecordedStack, index: str, stream: bool) -> None:
    """The client raises RateLimitError with the model server's message and Retry-After header."""
    with pytest.raises(openai.RateLimitError, match="Too many requests") as caught:
        recorded.openai.chat.completions.create(
            model="fault-429",
            messages=[{"role": "user", "content": QUESTION}],
            stream=stream,
            extra_body={"index_name": index},
        )
    assert caught.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    "wrong", [{"context_token_ratio": 0.1}, {"messages": []}, {"tools": [{"type": "function"}]}, {"stream": True}]
)
def test_an_unknown_index_is_reported_first(recorded: RecordedStack, wrong: dict[str, Any]) -> None:
    """An unknown index is reported before other errors of the request, in both forms of errors."""
    request = {"model": "gpt-4", "index_name": "nope", "messages": [USER]} | wrong
    before = len(recorded.model_requests())
    response = recorded.http.post(PATH, json=request)
    assert response.status_code == 404
    body = response.json()
    assert body["detail"] == body["error"]["message"] == "No such index: 'nope' exists."
    assert len(recorded.model_requests()) == before
