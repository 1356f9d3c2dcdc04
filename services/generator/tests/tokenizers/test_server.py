"""Token counters that call the model server."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from generator.configuration.models_file import Reader
from generator.domain import ChatMessage
from generator.tokenizers.estimate import EstimatedTokens
from generator.tokenizers.server import ServerKind, ServerTokens
from pydantic import SecretStr


class Tokenizing(ThreadingHTTPServer):
    """A server that counts words as tokens. A template adds five.

    Attributes:
        answers: The next bodies to return instead. None is a failure.
        max_concurrent: The largest number of concurrent requests.
        requests: The path, headers and body of each request.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[bytes | None] = []
        self.now = self.max_concurrent = 0
        self.lock = threading.Lock()
        self.requests: list[tuple[str, dict[str, str], Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Tokenizing
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, dict(self.headers), body))
        with self.server.lock:
            self.server.now += 1
            self.server.max_concurrent = max(self.server.max_concurrent, self.server.now)
        answer = self.server.answers.pop(0) if self.server.answers else _counted(body)
        time.sleep(0.005)  # the time of a real count
        with self.server.lock:
            self.server.now -= 1
        self.send_response(500 if answer is None else 200)
        self.send_header("content-length", str(len(answer or b"")))
        self.end_headers()
        self.wfile.write(answer or b"")

    def log_message(self, *args: Any) -> None:
        pass


def _counted(body: dict[str, Any]) -> bytes:
    if "content" in body:
        return json.dumps({"tokens": list(range(len(body["content"].split())))}).encode()
    texts = [body["prompt"]] if "prompt" in body else [message["content"] for message in body["messages"]]
    count = sum(len(text.split()) for text in texts) + (5 if "messages" in body else 0)
    return json.dumps({"count": count, "tokens": [0] * count, "max_model_len": 100}).encode()


@pytest.fixture
def server() -> Iterator[Tokenizing]:
    with Tokenizing() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def counting(server: Tokenizing, dialect: ServerKind, **members: Any) -> Iterator[ServerTokens]:
    counter = ServerTokens(server.url, dialect, "llm", **members)
    yield counter
    counter.close()


@pytest.mark.parametrize("dialect", ["vllm", "llamacpp"])
def test_the_server_counts(server: Tokenizing, dialect: ServerKind) -> None:
    """The server counts a text without special tokens. It counts an equal text only once."""
    with counting(server, dialect, api_key=SecretStr("k")) as counter:
        assert counter.count("one two three") == counter.count("one two three") == 3
        assert counter.count("") == 0
        assert counter.exact
    ((path, headers, body),) = server.requests
    assert path == "/tokenize"
    assert headers["authorization"] == "Bearer k"
    assert body in (
        {"model": "llm", "prompt": "one two three", "add_special_tokens": False},
        {"content": "one two three", "add_special": False, "parse_special": False},
    )


def test_the_next_request_has_the_renewed_key(
    server: Tokenizing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer of a models file reads the key's file again after a change."""
    monkeypatch.setattr("servicekit.secret_file.CHECK_SECONDS", 0.0)
    key = tmp_path / "key"
    key.write_text("old")
    text = (
        f"servers: {{s: {{kind: openai, url: '{server.url}', api_key: {{file: key}}}}}}\n"
        f"models: [{{name: llm, tokenizer: 'vllm+{server.url}', deployments: [{{server: s}}]}}]"
    )
    counter = Reader(tmp_path / "models.yaml", {})(text.encode()).counters["llm"]
    assert isinstance(counter, ServerTokens)
    with contextlib.closing(counter):
        assert counter.count("one two") == 2
        key.write_text("renewed")
        assert counter.count("one two three") == 3
    assert [headers["authorization"] for _, headers, _ in server.requests] == ["Bearer old", "Bearer renewed"]


def test_many_texts_are_counted_concurrently(server: Tokenizing) -> None:
    """Each text gets its own count, with at most eight concurrent requests."""
    texts = ["word " * number for number in range(1, 40)]
    with counting(server, "vllm") as counter:
        assert counter.count_all(texts) == list(range(1, 40))
        assert counter.count_all([]) == []
    assert 1 < server.max_concurrent <= 8


def test_vllm_counts_conversations_with_their_template(server: Tokenizing) -> None:
    """A vLLM server counts a conversation in one request with its unchanged messages."""
    with counting(server, "vllm") as counter:
        messages = [ChatMessage("user", "one two", extra_json=b'{"name":"Ann"}')]
        assert counter.count_messages(messages) == 7
    assert server.requests[0][2]["messages"] == [{"name": "Ann", "role": "user", "content": "one two"}]


def test_llama_cpp_counts_the_texts_of_conversations(server: Tokenizing) -> None:
    """llama.cpp counts only the texts of a conversation, and OpenAI's numbers for messages are added."""
    with counting(server, "llamacpp") as counter:
        assert counter.count_messages([ChatMessage("user", "one two")]) == 3 + 4 + 2


@pytest.mark.parametrize("answer", [None, b"not json", b"{}", b'{"count":"x"}', b'{"count":"\xff"}', b"[" * 50_000])
def test_a_server_that_does_not_count_is_not_called_for_a_while(server: Tokenizing, answer: bytes | None) -> None:
    """After an invalid answer, counts are marked as estimates, and the server is not called for a while."""
    now = [100.0]
    server.answers = [answer]
    with counting(server, "vllm", clock=lambda: now[0]) as counter:
        text = "one two three"
        assert (counter.exact, counter.counting) == (True, f"vllm+{server.url}#llm")
        assert counter.count(text) == counter.count(text) == EstimatedTokens().count(text)
        assert (counter.exact, counter.counting) == (False, "")
        assert len(server.requests) == 1
        now[0] += 11
        assert counter.count(text) == 3
        assert [counter.exact] == [True]


def test_a_text_with_a_lone_surrogate_is_estimated(server: Tokenizing) -> None:
    """A text with a lone surrogate is estimated, because JSON cannot encode it."""
    with counting(server, "vllm") as counter:
        assert counter.count("one \ud800") > 0
    assert server.requests == []
