"""Access to documents, and to the data of users and tenants, on a stack with authentication."""

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import httpx2
import pytest
from causeway.cli import key_store
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from servicekit import api_keys
from servicekit.api_keys import ApiKey

INDEX = "harbour"
FILES: dict[str, tuple[str, dict[str, str]]] = {
    "public.md": ("# Gate\n\nThe gate of the harbour opens at six; its code is kept by the porter.\n", {}),
    "anns.md": ("# Gate\n\nThe code of the harbour gate is quokka-71.\n", {"oids": "ann"}),
    "staff.md": ("# Gate\n\nThe code of the gate for the harbour staff is numbat-82.\n", {"groups": "staff"}),
}
SECRETS = {"public.md": "the porter", "anns.md": "quokka-71", "staff.md": "numbat-82"}
QUESTION = "What is the code of the harbour gate?"
VISIBLE = {
    "ann": {"public.md", "anns.md"},
    "bob": {"public.md", "staff.md"},
    "carl": {"public.md"},
    "chief": {"public.md", "anns.md", "staff.md"},
}
KEYS: dict[str, dict[str, Any]] = {
    "ann": {"roles": ("ask", "ingest")},
    "bob": {"roles": ("ask",), "groups": ("staff",)},
    "carl": {"roles": ("ask", "ingest")},
    "chief": {"roles": ("admin",)},
    "loader": {"roles": ("ingest",)},
}
# The keys of another tenant, whose users have the same names and groups.
SOUTH: dict[str, dict[str, Any]] = {
    "ann": {"roles": ("admin",)},
    "bob": {"roles": ("ask", "ingest"), "groups": ("staff",)},
}


@dataclass
class Harbour:
    """The stack, and an HTTP client for each user of both tenants."""

    data: Path
    north: dict[str, httpx.Client]
    south: dict[str, httpx.Client]
    anonymous: httpx.Client
    keys: dict[str, str]
    jobs: list[str]

    def store(self, work: Callable[[key_store.KeyStore], Any]) -> Any:
        """Call a function with the store of API keys, and return its result."""

        async def run() -> Any:
            url = json.loads((self.data / "stack.json").read_text())["nats_url"]
            async with key_store.opened(url, 1) as store:
                return await work(store)

        return asyncio.run(run())


async def _add(store: key_store.KeyStore, records: list[ApiKey]) -> None:
    for record in records:
        await store.add(record)


@pytest.fixture(scope="module")
def harbour(
    start_stack: Callable[..., AbstractContextManager[str]],
    wait_for: Callable[[httpx.Client, str], dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Harbour]:
    """Start a stack with three documents of a tenant: one for all users, one for a user, and one for a group."""
    data = tmp_path_factory.mktemp("guarded")
    with start_stack(data, CAUSEWAY_AUTH="keys", CAUSEWAY_DEFAULT_INDEX=INDEX) as url:
        records, keys, callers = [], {}, {}
        for tenant, names in (("north", KEYS), ("south", SOUTH)):
            for name, access in names.items():
                key, record = api_keys.create(name, tenant, **access)
                records.append(record)
                keys[f"{tenant}-{name}"] = key
                callers[tenant, name] = httpx.Client(base_url=url, timeout=30, headers={"api-key": key})
        north = {name: callers["north", name] for name in KEYS}
        south = {name: callers["south", name] for name in SOUTH}
        stack = Harbour(data, north, south, httpx.Client(base_url=url), keys, [])
        stack.store(lambda store: _add(store, records))
        loader = north["loader"]
        _wait_until(5, lambda: loader.get("/jobs/none").status_code == 404)
        for name, (text, access) in FILES.items():
            form = {"index": INDEX, **access}
            response = loader.post("/documents", data=form, files={"file": (name, text.encode())})
            stack.jobs.append(response.raise_for_status().json()["jobs"][0]["id"])
        assert {wait_for(loader, job)["state"] for job in stack.jobs} == {"succeeded"}
        yield stack
        for client in (*callers.values(), stack.anonymous):
            client.close()


def _wait_until(seconds: float, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def _paths(harbour: Harbour) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = harbour.anonymous.get("/openapi.json").json()["paths"]
    return found


def _chats(harbour: Harbour) -> list[str]:
    """Return the chat paths of all dialects."""
    ends = ("/chat", "/chat/stream", "/ask", "/v1/chat/completions")
    return [path for path in _paths(harbour) if path.endswith(ends) and "detection" not in path]


def _question(path: str, **members: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": QUESTION}]
    if path.startswith("/v1/"):
        return {"messages": messages, "index_name": INDEX, "retrieval": {"similarity_threshold": -1}, **members}
    return {"messages": messages, "context": {"overrides": {"index": INDEX, "top": 10}}, **members}


def _documents_in(text: str) -> set[str]:
    """Return the documents whose name or content is in a text."""
    return {name for name, secret in SECRETS.items() if name in text or secret in text}


def test_the_requests_of_the_page(harbour: Harbour) -> None:
    """The requests of docs/security.md get the statuses that the page shows, without a key and with a key."""
    page = Path(__file__).resolve().parents[2] / "docs" / "security.md"
    shown = re.findall(r"^curl -i http://127.0.0.1:8080(/\S+)( -H \S.*)? +# (\d+)$", page.read_text(), re.MULTILINE)
    assert len(shown) == 2
    for path, header, status in shown:
        client = harbour.north["ann"] if header else harbour.anonymous
        assert client.get(path).status_code == int(status)


@pytest.mark.parametrize("caller", VISIBLE)
def test_answers_use_only_visible_documents(harbour: Harbour, caller: str) -> None:
    """In every dialect, an answer shows exactly the documents that the caller may see."""
    chats = _chats(harbour)
    assert len(chats) > 10
    for path in chats:
        response = harbour.north[caller].post(path, json=_question(path))
        assert response.status_code == 200, response.text
        assert _documents_in(response.text) == VISIBLE[caller], path


@pytest.mark.parametrize("caller", VISIBLE)
def test_searches_and_lists_have_only_visible_documents(harbour: Harbour, caller: str) -> None:
    """Searches, lists, passages and originals show exactly the documents that the caller may see."""
    http = harbour.north[caller]
    found = http.post("/retrieve", json={"index_name": INDEX, "query": QUESTION, "max_node_count": 50})
    assert _documents_in(found.raise_for_status().text) == VISIBLE[caller]
    listed = http.get(f"/indexes/{INDEX}/documents").raise_for_status()
    assert _documents_in(listed.text) == VISIBLE[caller]
    assert listed.json()["total_items"] == len(VISIBLE[caller])
    for each in harbour.north["chief"].get("/documents", params={"index": INDEX}).json()["documents"]:
        passages = http.get(f"/indexes/{INDEX}/documents/{each['document_id']}/passages")
        assert passages.status_code == (200 if each["sourcefile"] in VISIBLE[caller] else 404)
    for name, (text, _) in FILES.items():
        status = 200 if name in VISIBLE[caller] else 404
        response = http.get(f"/content/{name}")
        assert response.status_code == status
        assert (response.text == text) == (status == 200)
        assert http.head(f"/content/{name}").status_code == status


@pytest.mark.parametrize("caller", VISIBLE)
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_agents_see_only_their_users_documents(
    harbour: Harbour, mode: Literal["legacy", "auto"], caller: str
) -> None:
    """With both versions of MCP, an agent gets exactly the documents that its user may see."""
    url = str(harbour.north[caller].base_url).rstrip("/") + "/mcp"
    key = {"authorization": f"Bearer {harbour.keys[f'north-{caller}']}"}
    listed = harbour.north["chief"].get(f"/indexes/{INDEX}/documents").json()["documents"]
    ids = {f"{INDEX}/{each['doc_id']}" for each in listed}
    assert len(ids) == len(FILES)
    async with (
        httpx2.AsyncClient(headers=key, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as agent,
    ):
        found = await agent.call_tool("search", {"query": QUESTION, "top": 50})
        assert _documents_in(found.model_dump_json()) == VISIBLE[caller]
        answer = await agent.call_tool("ask", {"question": QUESTION})
        assert not answer.is_error
        assert _documents_in(answer.model_dump_json()) <= VISIBLE[caller]
        [index] = (await agent.call_tool("list_indexes", {})).structured_content["indexes"]
        assert (index["name"], index["documents"]) == (INDEX, len(VISIBLE[caller]))
        read = {each: await agent.call_tool("fetch", {"id": each}) for each in ids}
        seen = {each for each in ids if not read[each].is_error}
        assert seen == {each["id"] for each in found.structured_content["results"]}
        assert _documents_in(str([read[each] for each in seen])) == VISIBLE[caller]
        assert not _documents_in(str([read[each] for each in ids - seen]))
        resources = (await agent.list_resources()).resources
        assert {each.name for each in resources} == seen
        texts = [(await agent.read_resource(each.uri)).model_dump_json() for each in resources]
        assert _documents_in(str(texts)) | _documents_in(str(resources)) == VISIBLE[caller]


async def test_an_agent_over_standard_input(harbour: Harbour) -> None:
    """With both versions of MCP, `causeway mcp` returns only the documents that its API key may see."""
    url = str(harbour.north["bob"].base_url)
    program = StdioServerParameters(
        command=str(Path(sys.executable).with_name("causeway")),
        args=["mcp", "--url", url],
        env={"CAUSEWAY_API_KEY": harbour.keys["north-bob"]},
    )
    modes: tuple[Literal["legacy", "auto"], ...] = ("legacy", "auto")
    for mode in modes:
        async with Client(stdio_client(program), mode=mode) as agent:
            assert agent.protocol_version == {"legacy": "2025-11-25", "auto": "2026-07-28"}[mode]
            found = await agent.call_tool("search", {"query": QUESTION, "top": 50})
            assert _documents_in(found.model_dump_json()) == VISIBLE["bob"]
            messages: list[str | None] = []

            async def record(progress: float, total: float | None, message: str | None) -> None:
                messages.append(message)  # noqa: B023  # only called within the same iteration

            answer = await agent.call_tool("ask", {"question": QUESTION}, progress_callback=record)
            assert not answer.is_error
            assert messages[0] == f"{len(found.structured_content['results'])} passages found"
            with pytest.raises(MCPError):
                await agent.read_resource(f"causeway://{INDEX}/none")


def test_a_hidden_document_cannot_be_deleted(harbour: Harbour) -> None:
    """A request to delete a hidden document reports an unknown id, and the document stays."""
    listed = harbour.north["chief"].get(f"/indexes/{INDEX}/documents").json()["documents"]
    ids = [each["doc_id"] for each in listed]
    hidden = [each["doc_id"] for each in listed if SECRETS["anns.md"] in each["text"]]
    assert len(ids) == len(FILES)
    assert len(hidden) == 1
    response = harbour.north["carl"].post(f"/indexes/{INDEX}/documents/delete", json={"doc_ids": hidden})
    assert response.json() == {"deleted_doc_ids": [], "not_found_doc_ids": hidden}
    assert harbour.north["ann"].get("/content/anns.md").status_code == 200
    assert harbour.north["carl"].delete(f"/indexes/{INDEX}").status_code == 403


def test_access_lists_can_be_changed(
    harbour: Harbour, wait_for: Callable[[httpx.Client, str], dict[str, Any]]
) -> None:
    """Callers who can see a document and have the role can change its access list. The change applies after its
    job.
    """
    listed = harbour.north["chief"].get("/documents", params={"index": INDEX}).json()["documents"]
    [anns] = [each for each in listed if each["sourcefile"] == "anns.md"]
    assert (anns["oids"], anns["groups"]) == (["ann"], [])
    path = f"/indexes/{INDEX}/documents/{anns['document_id']}/access"
    for stranger, status in (("carl", 404), ("bob", 403)):
        assert harbour.north[stranger].put(path, json={"oids": [], "groups": []}).status_code == status

    def change(caller: str, oids: list[str]) -> None:
        response = harbour.north[caller].put(path, json={"oids": oids, "groups": []})
        assert response.status_code == 202, response.text
        assert wait_for(harbour.north["loader"], response.json()["id"])["state"] == "succeeded"

    change("ann", ["ann", "carl"])
    found = harbour.north["carl"].post("/retrieve", json={"index_name": INDEX, "query": QUESTION})
    assert _documents_in(found.text) == {"public.md", "anns.md"}
    assert harbour.north["carl"].get("/content/anns.md").status_code == 200
    change("carl", ["ann"])
    found = harbour.north["carl"].post("/retrieve", json={"index_name": INDEX, "query": QUESTION})
    assert _documents_in(found.text) == {"public.md"}
    assert harbour.north["carl"].get("/content/anns.md").status_code == 404
    assert harbour.north["ann"].get("/content/anns.md").text == FILES["anns.md"][0]


def test_users_do_not_see_each_others_data(harbour: Harbour) -> None:
    """Other users can neither read, list, find nor delete a user's conversations and uploads."""
    ann, carl = harbour.north["ann"], harbour.north["carl"]
    assert ann.post("/chat_history", json={"id": "talk", "answers": [["wombat?", {}]]}).status_code == 201
    assert ann.post("/upload", files={"file": ("mine.md", b"# Mine\n\nA bilby at the gate.\n")}).status_code == 200
    for other in (carl, harbour.north["bob"], *harbour.south.values()):
        assert other.get("/chat_history/sessions/talk").status_code == 404
        assert other.delete("/chat_history/sessions/talk").status_code in (403, 404)
        assert "wombat" not in other.get("/chat_history/sessions").text
    assert carl.get("/list_uploaded").json() == []
    assert carl.post("/delete_uploaded", json={"filename": "mine.md"}).status_code == 404
    assert carl.get("/content/mine.md").status_code == 404
    assert "bilby" not in carl.post("/retrieve", json={"index_name": INDEX, "query": "marsupial"}).text
    assert ann.get("/chat_history/sessions/talk").status_code == 200
    assert ann.get("/list_uploaded").json() == ["mine.md"]
    assert "bilby" in ann.post("/retrieve", json={"index_name": INDEX, "query": "marsupial"}).text
    assert ann.post("/delete_uploaded", json={"filename": "mine.md"}).status_code == 200


@pytest.mark.parametrize("caller", SOUTH)
def test_another_tenants_names_do_not_exist(harbour: Harbour, caller: str) -> None:
    """An administrator of another tenant gets a 404 from every route with a name of this tenant, and a caller
    without the role gets a 403. Lists are empty, and the data of this tenant does not change.
    """
    http = harbour.south[caller]
    names = {
        "index": INDEX,
        "document_id": "x",
        "job_id": harbour.jobs[0],
        "path": "public.md",
        "response_id": f"resp_{0:032}",
        "conversation_id": f"conv_{0:032}",
        "item_id": f"msg_{0:032}_0",
        "session": "talk",
    }
    bodies = {
        f"/indexes/{INDEX}/documents": {"documents": [{"doc_id": "x", "text": "y", "metadata": {}}]},
        f"/indexes/{INDEX}/documents/delete": {"doc_ids": ["x"]},
        f"/indexes/{INDEX}": {"chunk_tokens": 128},
        f"/indexes/{INDEX}/rebuild": {"chunk_tokens": 128},
        f"/indexes/{INDEX}/documents/x/access": {"oids": [], "groups": []},
    }
    requests = 0
    for template, operations in _paths(harbour).items():
        if "{" not in template or "{model}" in template or "{user}" in template or "static" in template:
            continue
        path = template.format(**names)
        for method in operations:
            response = http.request(method, path, json=bodies.get(path))
            assert response.status_code == 404 or (caller == "bob" and response.status_code == 403), (method, path)
            requests += 1
    assert requests >= 10
    # Both tenants have a user ann. A request to delete the data of one of them keeps the data of the other.
    assert harbour.north["ann"].post("/chat_history", json={"id": "own", "answers": [["q", {}]]}).status_code == 201
    deleted = http.delete("/users/ann")
    assert deleted.status_code == 403 if caller == "bob" else not any(deleted.json()["deleted"].values())
    assert harbour.north["ann"].get("/chat_history/sessions/own").status_code == 200
    for path in _chats(harbour):
        assert http.post(path, json=_question(path)).status_code == 404, path
    assert http.post("/retrieve", json={"index_name": INDEX, "query": QUESTION}).status_code == 404
    for path in ("/indexes", "/list_uploaded", "/chat_history/sessions", "/jobs"):
        response = http.get(path)
        assert response.status_code == 200
        assert not _documents_in(response.text)
        assert INDEX not in response.text
    assert harbour.north["chief"].get(f"/indexes/{INDEX}/documents").json()["total_items"] == len(FILES)


def test_a_caller_without_a_key_gets_nothing(harbour: Harbour) -> None:
    """Without a key, every operation that requires authentication returns a 401 with a WWW-Authenticate header."""
    refused = 0
    for template, operations in _paths(harbour).items():
        for method, operation in operations.items():
            path = template.replace("{", "").replace("}", "")
            response = harbour.anonymous.request(method, path)
            assert (response.status_code == 401) == bool(operation["security"]), (method, path)
            refused += response.status_code == 401
            if response.status_code == 401:
                assert response.headers["www-authenticate"].startswith("Bearer")
    assert refused > 30


def test_keys_are_added_and_revoked_at_run_time(harbour: Harbour) -> None:
    """New and revoked keys take effect within seconds. No log contains a key or its digest."""
    key, record = api_keys.create("guest", "north", roles=("ask",))
    headers = {"authorization": f"Bearer {key}"}
    assert harbour.anonymous.get("/indexes", headers=headers).status_code == 401
    harbour.store(lambda store: store.add(record))
    _wait_until(5, lambda: harbour.anonymous.get("/indexes", headers=headers).status_code == 200)
    harbour.store(lambda store: store.revoke([record.id]))
    _wait_until(5, lambda: harbour.anonymous.get("/indexes", headers=headers).status_code == 401)
    harbour.anonymous.get("/indexes", headers={"api-key": "a-password-of-mine"})
    logs = b"".join(path.read_bytes() for path in (harbour.data / "logs").iterdir())
    assert record.id.encode() in logs
    assert record.digest.encode() not in logs
    assert b"a-password-of-mine" not in logs
    for each in (key, *harbour.keys.values()):
        assert each.split("_", 2)[2].encode() not in logs
