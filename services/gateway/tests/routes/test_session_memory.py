"""Sessions: the client sends only the newest message and the name of its session."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway.domain import Action, Delta, Detector, Detectors, Start
from gateway.domain.memory import is_name
from gateway.frontends.profiles_file import FrontendsFile
from gateway.identity.caller import Caller
from gateway.main import build_app
from gateway.settings import Settings
from servicekit.errors import Unavailable
from servicekit.principal import Principal

FILE = """
frontends:
  - {name: off, mount: off, memory: "off"}
  - {name: kept, mount: kept, memory: session, blocked_message: Ask us.}
  - {name: other, mount: other, memory: session}
"""
PATH = "/2024-05-29/chat"


class NamesAsTokens:
    """A `Tokens` that accepts each token as the name of a user."""

    def cached(self, token: str) -> Caller | None:
        return Caller(Principal("local", user=token, roles=("ask",)))


@pytest.fixture
def settings() -> Settings:
    return Settings(default_index="", auth="oidc", oidc_issuer="https://id.example.com", oidc_audience=["causeway"])


@pytest.fixture
async def client(fakes: Any, settings: Settings, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    (tmp_path / "frontends.yaml").write_text(FILE)
    fakes.frontends = FrontendsFile(tmp_path / "frontends.yaml")
    fakes.tokens = NamesAsTokens()
    transport = httpx.ASGITransport(build_app(settings, fakes.services()))
    headers = {"authorization": "Bearer ann"}
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers) as client:
        yield client


async def ask(client: httpx.AsyncClient, text: str, state: Any = None, path: str = PATH, **more: Any) -> Any:
    """Ask a question. Return the session state of the answer."""
    name = "sessionState" if PATH in path else "session_state"
    body = {"messages": [{"role": "user", "content": text}], name: state} | more
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return json.loads(response.text.splitlines()[0])[name]


def last_messages(fakes: Any) -> list[tuple[str, str]]:
    """Return the messages of the model's last prompt, without the default system message."""
    return [(message.role, message.text) for message in fakes.generator.prompts[-1].messages[1:]]


@pytest.mark.parametrize("stream", ["", "/stream"])
async def test_the_model_receives_the_earlier_turns(client: httpx.AsyncClient, fakes: Any, stream: str) -> None:
    """The model receives the earlier turns of the session, and each turn once."""
    state = await ask(client, "One?", path=PATH + stream)
    assert is_name(state)
    assert await ask(client, "Two?", state, PATH + stream) == state
    assert last_messages(fakes) == [("user", "One?"), ("assistant", "At nine."), ("user", "Two?")]
    await ask(client, "Three?", state, PATH + stream)
    assert [text for _, text in last_messages(fakes)] == ["One?", "At nine.", "Two?", "At nine.", "Three?"]


async def test_a_whole_conversation_replaces_the_stored_one(client: httpx.AsyncClient, fakes: Any) -> None:
    """A request that contains a message of the assistant replaces the stored conversation."""
    state = await ask(client, "One?")
    whole = [("user", "A?"), ("assistant", "B."), ("user", "C?")]
    await ask(client, "", state, messages=[{"role": role, "content": text} for role, text in whole])
    assert last_messages(fakes) == whole
    await ask(client, "D?", state)
    assert last_messages(fakes) == [*whole, ("assistant", "At nine."), ("user", "D?")]


async def test_the_requests_system_message_comes_first(client: httpx.AsyncClient, fakes: Any) -> None:
    """The system message of the request is the first message and is not stored."""
    system = {"role": "system", "content": "Be kind."}
    state: Any = None
    for text in ("One?", "Two?"):
        state = await ask(client, "", state, messages=[system, {"role": "user", "content": text}])
    assert [text for _, text in last_messages(fakes)] == ["Be kind.", "One?", "At nine.", "Two?"]


async def test_unknown_session_names_are_returned_unchanged(client: httpx.AsyncClient, fakes: Any) -> None:
    """A session state that the server has not issued is returned unchanged, and nothing is stored under it."""
    states: list[Any] = ["my session", "f" * 32, {"id": 1}, 7, [], ""]
    for state in states:
        for _ in range(2):
            assert await ask(client, "One?", state) == state
            assert last_messages(fakes) == [("user", "One?")]
    assert fakes.memory.sessions == {}


async def test_a_session_belongs_to_its_caller_and_front_end(client: httpx.AsyncClient, fakes: Any) -> None:
    """Another caller and another front end cannot use a session."""
    state = await ask(client, "One?", path=f"/kept{PATH}")
    client.headers["authorization"] = "Bearer bob"
    await ask(client, "Two?", state, f"/kept{PATH}")
    assert last_messages(fakes) == [("user", "Two?")]
    client.headers["authorization"] = "Bearer ann"
    await ask(client, "Three?", state, f"/other{PATH}")
    assert last_messages(fakes) == [("user", "Three?")]
    await ask(client, "Four?", state, f"/kept{PATH}")
    assert [text for _, text in last_messages(fakes)] == ["One?", "At nine.", "Four?"]


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (PATH, True),
        ("/2024-04/chat", False),
        (f"/off{PATH}", False),
        ("/kept/2024-04/chat", True),
        ("/kept/ask", False),
    ],
)
async def test_the_profile_decides_whether_sessions_are_stored(
    client: httpx.AsyncClient, fakes: Any, path: str, kept: bool
) -> None:
    """The profile decides whether sessions are stored, and without a setting the dialect. /ask has no sessions."""
    if path.endswith("/ask"):
        for _ in range(2):
            await client.post(path, json={"messages": "One?", "session_state": "f" * 32})
    else:
        await ask(client, "Two?", await ask(client, "One?", path=path), path)
    assert len(last_messages(fakes)) == (3 if kept else 1)
    assert bool(fakes.memory.sessions) is kept


class TestWithoutAuthentication:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(default_index="")

    @pytest.mark.parametrize(("path", "kept"), [(PATH, False), (f"/kept{PATH}", True)])
    async def test_sessions_without_authentication(
        self, client: httpx.AsyncClient, fakes: Any, path: str, kept: bool
    ) -> None:
        """Without authentication, a session is stored only if the profile enables it."""
        await ask(client, "Two?", await ask(client, "One?", path=path), path)
        assert len(last_messages(fakes)) == (3 if kept else 1)


async def test_an_incomplete_answer_is_not_stored(client: httpx.AsyncClient, fakes: Any) -> None:
    """An interrupted answer is not stored in the session."""
    state = await ask(client, "One?")
    fakes.generator.scripts.append([[Start(b"{}")], [Delta(0, "Half")], Unavailable("gone")])
    response = await client.post(
        f"{PATH}/stream", json={"messages": [{"role": "user", "content": "Two?"}], "sessionState": state}
    )
    assert "error" in json.loads(response.text.splitlines()[-1])
    await ask(client, "Three?", state)
    assert [text for _, text in last_messages(fakes)] == ["One?", "At nine.", "Three?"]


async def test_sessions_contain_no_blocked_or_redacted_text(client: httpx.AsyncClient, fakes: Any) -> None:
    """A blocked question is not stored. An answer is stored as the client received it."""
    fakes.policy = Detectors(input=(Detector("words", Action.BLOCK),), output=(Detector("words", Action.REDACT),))
    state = await ask(client, "One?", path=f"/kept{PATH}")
    await ask(client, "my secret?", state, f"/kept{PATH}")
    fakes.generator.scripts.append(fakes.generator.words("The ", "secret", " is out."))
    await ask(client, "Two?", state, f"/kept{PATH}")
    [kept] = fakes.memory.sessions.values()
    texts = [message.text for message in kept.messages]
    assert texts[:3] == ["One?", "At nine.", "Two?"]
    assert len(texts) == 4
    assert "secret" not in texts[3]


async def test_concurrent_turns_are_both_stored(client: httpx.AsyncClient, fakes: Any) -> None:
    """Two concurrent turns are both stored."""
    state = await ask(client, "One?")
    await asyncio.gather(ask(client, "Two?", state), ask(client, "Three?", state))
    [kept] = fakes.memory.sessions.values()
    assert sorted(message.text for message in kept.messages) == sorted(
        ["One?", "At nine.", "Two?", "At nine.", "Three?", "At nine."]
    )


async def test_only_the_owner_can_delete_a_session(client: httpx.AsyncClient, fakes: Any) -> None:
    """Only the owner of a session can delete it."""
    state = await ask(client, "One?")
    path = f"/chat_history/sessions/{state}"
    assert (await client.delete(path, headers={"authorization": "Bearer bob"})).status_code == 404
    assert (await client.delete(path)).status_code == 204
    assert fakes.memory.sessions == {}
    assert (await client.delete(path)).status_code == 404
    await ask(client, "Two?", state)
    assert last_messages(fakes) == [("user", "Two?")]


async def test_sessions_during_an_outage_of_the_memory(
    client: httpx.AsyncClient, fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the memory cannot be reached, a new session is answered, and a known session gets the status 503."""
    state = await ask(client, "One?")

    async def unavailable(*_: Any) -> None:
        raise Unavailable("The memory cannot be reached.", retry_after=2)

    for name in ("begin", "read", "replace"):
        monkeypatch.setattr(f"causeway_testing.gateway.application.FakeMemory.{name}", unavailable)
    assert is_name(await ask(client, "One?"))
    response = await client.post(PATH, json={"messages": "Two?", "sessionState": state})
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")
    assert len(fakes.generator.prompts) == 2
