"""A stack with a file of front ends: assistants and memory."""

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
ASKED = "When does the ferry leave?"
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


def test_an_unmodified_client_chooses_an_assistant(url: str) -> None:
    """A client finds an assistant among the models and gets answers from its index, also with tools of its own."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused")
    assert "harbour" in [model.id for model in client.models.list()]
    answer = client.chat.completions.create(
        model="harbour", messages=[{"role": "user", "content": ASKED}], tools=TOOLS
    )
    assert answer.model == "harbour"
    assert "nine" in (answer.choices[0].message.content or "")
    text = client.completions.create(model="harbour", prompt=ASKED)
    assert (text.object, text.model) == ("text_completion", "harbour")
    assert "nine" in text.choices[0].text


def test_a_front_end_with_an_index(url: str) -> None:
    """A front end's chats are answered from its index without a name in the request."""
    client = openai.OpenAI(base_url=f"{url}/kept/v1", api_key="unused")
    answer = client.chat.completions.create(
        model="extractive", messages=[{"role": "user", "content": ASKED}], stream=True
    )
    assert "nine" in "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)


def test_embeddings_of_token_ids(url: str) -> None:
    """Token ids have the vector of their text."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused")
    made = client.embeddings.create(model="", input=[[9906, 1917], [9906]])
    text = client.embeddings.create(model="", input="Hello world")
    assert made.data[0].embedding == pytest.approx(text.data[0].embedding, abs=1e-4)
    assert made.data[1].embedding != made.data[0].embedding


def test_memory_of_a_conversation(url: str) -> None:
    """A front end with memory keeps the conversation, until it is deleted."""

    def ask(text: str, state: str | None) -> tuple[str, list[str]]:
        body = {"messages": [{"role": "user", "content": text}], "sessionState": state}
        answer = httpx.post(f"{url}/kept/api/chat/", json=body, timeout=60).raise_for_status().json()
        prompts = [each for each in answer["context"]["thoughts"] if each["title"] == "Prompt"]
        return answer["sessionState"], prompts[0]["description"]

    state, _ = ask(ASKED, None)
    again, prompt = ask("And back?", state)
    assert again == state
    assert len(prompt) == 4
    assert ASKED in prompt[1]
    assert httpx.delete(f"{url}/kept/chat_history/sessions/{state}").status_code == 204
    assert len(ask("And back?", state)[1]) == 2
