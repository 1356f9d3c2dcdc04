"""A stack with a file of front end profiles: assistants, an index, and memory of conversations."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import openai
import pytest

FILE = """
assistants:
  - {name: harbour, indexes: [notes], overrides: {top: 1}}
frontends:
  - {name: kept, mount: kept, index: notes, memory: session}
"""
NOTES = [{"text": "The ferry to Brannoch leaves at nine."}, {"text": "The museum closes on Mondays."}]
QUESTION = "When does the ferry leave?"
TOOLS: list[Any] = [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def url(
    tmp_path_factory: pytest.TempPathFactory, start_stack: Callable[..., AbstractContextManager[str]]
) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("front-ends")
    (directory / "frontends.yaml").write_text(FILE)
    with start_stack(directory / "data", CAUSEWAY_FRONTENDS_FILE=str(directory / "frontends.yaml")) as url:
        body = {"index_name": "notes", "documents": NOTES}
        httpx.post(f"{url}/index", json=body, timeout=60).raise_for_status()
        yield url


def test_an_unmodified_client_selects_an_assistant(url: str) -> None:
    """The list of models contains an assistant. Its answers come from its index, even if the client sends tools."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused")
    assert "harbour" in [model.id for model in client.models.list()]
    answer = client.chat.completions.create(
        model="harbour", messages=[{"role": "user", "content": QUESTION}], tools=TOOLS
    )
    assert answer.model == "harbour"
    assert "nine" in (answer.choices[0].message.content or "")
    text = client.completions.create(model="harbour", prompt=QUESTION)
    assert (text.object, text.model) == ("text_completion", "harbour")
    assert "nine" in text.choices[0].text


def test_a_front_end_with_an_index(url: str) -> None:
    """Chats of a front end are answered from the index of its profile, without an index in the request."""
    client = openai.OpenAI(base_url=f"{url}/kept/v1", api_key="unused")
    answer = client.chat.completions.create(
        model="extractive", messages=[{"role": "user", "content": QUESTION}], stream=True
    )
    assert "nine" in "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)


def test_embeddings_of_token_ids(url: str) -> None:
    """The vector of token ids equals the vector of their text."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused")
    embedded = client.embeddings.create(model="", input=[[9906, 1917], [9906]])
    text = client.embeddings.create(model="", input="Hello world")
    assert embedded.data[0].embedding == pytest.approx(text.data[0].embedding, abs=1e-4)
    assert embedded.data[1].embedding != embedded.data[0].embedding


def test_memory_of_a_conversation(url: str) -> None:
    """The gateway keeps the conversation of a front end with memory until a request deletes it."""

    def ask(text: str, state: str | None) -> tuple[str, list[str]]:
        body = {"messages": [{"role": "user", "content": text}], "sessionState": state}
        answer = httpx.post(f"{url}/kept/api/chat/", json=body, timeout=60).raise_for_status().json()
        prompts = [each for each in answer["context"]["thoughts"] if each["title"] == "Prompt"]
        return answer["sessionState"], prompts[0]["description"]

    state, _ = ask(QUESTION, None)
    again, prompt = ask("And back?", state)
    assert again == state
    assert len(prompt) == 4
    assert QUESTION in prompt[1]
    assert httpx.delete(f"{url}/kept/chat_history/sessions/{state}").status_code == 204
    assert len(ask("And back?", state)[1]) == 2
