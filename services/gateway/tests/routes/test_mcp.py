"""The Model Context Protocol over a real connection, with the official client in both protocol versions."""

import json
from dataclasses import replace
from typing import Any

import httpx
import mcp_types as types
import pytest
from causeway_testing.gateway.retrieval import FakeDocument
from gateway.domain.documents import StoredDocument
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.settings import Settings
from mcp import Client
from mcp.shared.exceptions import MCPError

VERSIONS = pytest.mark.parametrize("mode", ["legacy", "auto"])
HEADERS = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}


def structured(result: types.CallToolResult) -> Any:
    """Return the structured content of a result, which is also in its text."""
    assert not result.is_error, result.content
    [content] = result.content
    assert isinstance(content, types.TextContent)
    assert json.loads(content.text) == result.structured_content
    return result.structured_content


async def call(client: httpx.AsyncClient, name: str, path: str = "/mcp", **arguments: Any) -> Any:
    """Call a tool with an HTTP request instead of the client. Return the result."""
    response = await client.post(path, json=message("tools/call", name=name, arguments=arguments), headers=HEADERS)
    assert response.status_code == 200, response.text
    text = response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        [text] = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return json.loads(text)["result"]


def message(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@VERSIONS
async def test_one_path_serves_both_versions(port: int, mode: Any) -> None:
    """One path serves both versions, and the client negotiates the newest version that it supports.

    In both, the tools search, fetch and list_indexes return structured content, and an unknown tool is an error.
    """
    async with Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
        assert client.protocol_version == {"legacy": "2025-11-25", "auto": "2026-07-28"}[mode]
        assert client.server_info is not None
        assert client.server_info.name == "causeway"
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == ["search", "fetch", "ask", "list_indexes"]
        assert all(tool.output_schema for tool in listed)
        found = structured(await client.call_tool("search", {"query": "the bridge", "top": 1}))
        [result] = found["results"]
        assert (result["id"], result["title"], result["page"]) == ("docs/d2", "guide-2.pdf", 2)
        assert (result["text"], result["score"]) == ("The bridge opens at noon.", 1 / 3)
        assert result["url"] == f"http://127.0.0.1:{port}/content/guide-2.pdf?index=docs#page=2"
        read = structured(await client.call_tool("fetch", {"id": result["id"]}))
        assert (read["text"], read["next_offset"], read["index"]) == (result["text"], None, "docs")
        assert structured(await client.call_tool("list_indexes", {}))["indexes"] == [
            {"name": "docs", "documents": 0, "default": True},
            {"name": "empty", "documents": 0, "default": False},
        ]
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("remove", {})


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_the_path_accepts_only_posts(client: httpx.AsyncClient, path: str) -> None:
    """The path works with and without a slash at the end. Other methods and longer paths are refused."""
    response = await client.post(path, json=message("tools/list"), headers=HEADERS)
    assert (response.status_code, len(response.json()["result"]["tools"])) == (200, 4)
    for method in ("GET", "DELETE"):
        refused = await client.request(method, path)
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        assert refused.json()["error"]["message"] == f"/mcp does not accept {method}."
    assert (await client.post("/mcp/else", json={})).status_code == 404


async def test_documents_are_read_in_parts(client: httpx.AsyncClient) -> None:
    """A document is read in parts, and each part has the offset of the next one.

    From a page after the last one, the text is empty.
    """
    first = (await call(client, "fetch", id="docs/d1", length=9))["structuredContent"]
    assert (first["text"], first["next_offset"]) == ("The ferry", 9)
    rest = (await call(client, "fetch", id="docs/d1", offset=9))["structuredContent"]
    assert (rest["text"], rest["next_offset"]) == (" leaves at nine.", None)
    page = (await call(client, "fetch", id="docs/d1", first_page=2))["structuredContent"]
    assert (page["text"], page["pages"]) == ("", 1)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("search", {}, "query must be text that is not blank."),
        ("search", {"query": 7}, "query must be a string."),
        ("search", {"query": " "}, "query must be text that is not blank."),
        ("search", {"query": "x" * 10_001}, "query must have at most 10000 characters."),
        ("search", {"query": "x", "top": 51}, "top must be between 1 and 50."),
        (
            "search",
            {"query": "x", "index": "nowhere"},
            "No such index: 'nowhere' exists. list_indexes returns the names of the existing ones.",
        ),
        ("search", {"query": "x", "filters": {"a": []}}, "filters.a must be a string, a number or a boolean."),
        (
            "search",
            {"query": "x", "limit": 3},
            "search has no argument 'limit'; its arguments are query, index, top,",
        ),
        ("fetch", {"id": "d1"}, "id must be the id of a search result: an index, a slash and the id of a"),
        ("fetch", {"id": "docs/d9"}, "Index 'docs' has no document 'd9'."),
        ("fetch", {"id": "docs/d1", "first_page": 3, "last_page": 2}, "last_page must not be before first_page."),
        ("ask", {"question": ""}, "question must be text that is not blank."),
        (
            "ask",
            {"question": "x", "language": "7"},
            "language must be a language tag or name, like en, pt-BR or Deutsch.",
        ),
    ],
)
async def test_an_invalid_argument_is_reported_in_the_result(
    client: httpx.AsyncClient, name: str, arguments: dict[str, Any], expected: str
) -> None:
    """The result of the call reports an invalid argument, with its name."""
    body = json.dumps(message("tools/call", name=name, arguments=arguments))
    response = await client.post(
        "/mcp", content=body, headers={**HEADERS, "accept": "application/json", "content-type": "application/json"}
    )
    result = response.json()["result"]
    assert result["isError"]
    assert result["content"][0]["text"].startswith(expected)


MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def modern(client: httpx.AsyncClient, name: str, path: str = "/mcp", **arguments: Any) -> httpx.Response:
    """Call a tool in the later version with an HTTP request instead of the client. Return the response."""
    body = json.dumps(message("tools/call", name=name, arguments=arguments, _meta=MODERN))
    headers = HEADERS | {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": name,
        "content-type": "application/json",
    }
    return await client.post(path, content=body, headers=headers)


async def test_a_lone_surrogate_is_refused(client: httpx.AsyncClient) -> None:
    """The result of the call refuses an argument with a lone surrogate."""
    result = (await modern(client, "search", query="\ud800")).json()["result"]
    assert result["isError"]
    assert result["content"][0]["text"].startswith("The arguments contain text that is not valid Unicode")


@pytest.mark.parametrize("number", ["null", "1.5", "true", "[]", "{}"])
@pytest.mark.parametrize("params", ["{}", '{"_meta": 5}'])
async def test_an_invalid_id_is_refused(client: httpx.AsyncClient, number: str, params: str) -> None:
    """A request with an invalid id is refused. It is not a notification, which gets no answer."""
    body = f'{{"jsonrpc": "2.0", "id": {number}, "method": "tools/list", "params": {params}}}'
    response = await client.post("/mcp", content=body, headers={**HEADERS, "content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("id must be a string or an integer.")


@pytest.mark.parametrize("body", [[], [{"jsonrpc": "2.0", "id": 1, "method": "ping"}], None, "ping", 1])
async def test_a_body_that_is_not_an_object_is_refused(client: httpx.AsyncClient, body: Any) -> None:
    """A body that is not an object, such as a batch, is refused. The error says what the body must be."""
    response = await client.post(
        "/mcp", content=json.dumps(body), headers={**HEADERS, "content-type": "application/json"}
    )
    assert response.status_code == 400
    error = {"code": -32600, "message": "The body must be one JSON-RPC message, which is a JSON object."}
    assert response.json() == {"jsonrpc": "2.0", "id": None, "error": error}


PROFILES = """
frontends:
  - name: help
    mount: help
    index: docs
    blocked_message: Nothing to see here.
    detectors:
      input: [{id: words, action: block}]
      ACTION
    mcp:
      tools: [search, fetch, ask]
      prompts:
        - name: brief
          title: A brief
          description: What a subject is about
          arguments: [{name: subject}, {name: tone, required: false}]
          text: "Write a brief on {subject}. {tone}"
  - name: narrow
    mount: narrow
    allow: {indexes: any}
    mcp: {indexes: [empty]}
  - name: wide
    mount: wide
    allow: {indexes: any}
    mcp: {indexes: [empty, docs]}
"""


def client_with_profiles(fakes: Any, tmp_path: Any, settings: Settings, action: str = "") -> httpx.AsyncClient:
    """Return a client of the gateway with profiles."""
    path = tmp_path / "frontends.yaml"
    path.write_text(PROFILES.replace("ACTION", action))
    fakes.frontends = FrontendsFile(path)
    app = build_app(settings, fakes.services())
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://gateway"
    )


async def test_a_profile_limits_tools_and_indexes(fakes: Any, tmp_path: Any, settings: Settings) -> None:
    """A profile limits the tools and the indexes of its mount. All tools respect the limits."""
    client = client_with_profiles(fakes, tmp_path, settings)
    listed = await client.post("/help/mcp", json=message("tools/list"), headers=HEADERS)
    assert [tool["name"] for tool in listed.json()["result"]["tools"]] == ["search", "fetch", "ask"]
    refused = await client.post("/help/mcp", json=message("tools/call", name="list_indexes"), headers=HEADERS)
    assert "Unknown tool" in refused.json()["error"]["message"]
    found = (await call(client, "search", "/help/mcp", query="ferry"))["structuredContent"]["results"]
    assert found[0]["url"] == "http://gateway/help/content/guide-1.pdf?index=docs#page=1"
    for name, arguments in (("search", {"query": "x"}), ("ask", {"question": "x"})):
        result = await call(client, name, "/help/mcp", index="empty", **arguments)
        assert result["content"][0]["text"] == "index: this front end does not offer the index 'empty'."
    result = await call(client, "fetch", "/help/mcp", id="empty/d1")
    assert result["content"][0]["text"] == "id: this front end does not offer the index 'empty'."
    listed = await call(client, "list_indexes", "/narrow/mcp")
    assert [index["name"] for index in listed["structuredContent"]["indexes"]] == ["empty"]
    assert (await call(client, "search", "/narrow/mcp", query="x"))["structuredContent"] == {"results": []}
    assert (await call(client, "fetch", "/narrow/mcp", id="docs/d1"))["isError"]


async def test_a_call_without_an_index_searches_all_indexes_for_agents(
    fakes: Any, tmp_path: Any, settings: Settings
) -> None:
    """A call that names no index searches all indexes of the profile's ``mcp`` block."""
    client = client_with_profiles(fakes, tmp_path, settings)
    found = (await call(client, "search", "/wide/mcp", query="ferry"))["structuredContent"]["results"]
    assert {result["index"] for result in found} == {"docs"}
    listed = (await call(client, "list_indexes", "/wide/mcp"))["structuredContent"]["indexes"]
    assert {index["name"] for index in listed if index["default"]} == {"docs", "empty"}


async def test_a_profile_has_its_own_prompts(fakes: Any, tmp_path: Any, settings: Settings) -> None:
    """A profile lists its own prompts and fills in their arguments, once. Other profiles have no prompts.

    A missing argument and an unknown prompt are errors.
    """
    client = client_with_profiles(fakes, tmp_path, settings)

    async def request(path: str, method: str, **params: Any) -> Any:
        return (await client.post(path, json=message(method, **params), headers=HEADERS)).json()

    assert (await request("/mcp", "prompts/list"))["result"]["prompts"] == []
    [prompt] = (await request("/help/mcp", "prompts/list"))["result"]["prompts"]
    assert (prompt["name"], prompt["title"]) == ("brief", "A brief")
    arguments = [(argument["name"], argument["required"]) for argument in prompt["arguments"]]
    assert arguments == [("subject", True), ("tone", False)]
    made = await request("/help/mcp", "prompts/get", name="brief", arguments={"subject": "{tone}"})
    assert made["result"]["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "Write a brief on {tone}. "}}
    ]
    for params in ({"name": "brief"}, {"name": "other"}):
        assert (await request("/help/mcp", "prompts/get", **params))["error"]["code"] == types.INVALID_PARAMS


async def test_a_blocked_question_reaches_no_model(fakes: Any, tmp_path: Any, settings: Settings) -> None:
    """A blocked question reaches no model, and the result has only the profile's message."""
    client = client_with_profiles(fakes, tmp_path, settings)
    for name, argument in (("search", "query"), ("ask", "question")):
        result = await call(client, name, "/help/mcp", **{argument: "the secret ferry"})
        assert result["isError"]
        assert [content["text"] for content in result["content"]] == ["Nothing to see here."]
        assert "structuredContent" not in result
    assert fakes.generator.prompts == []


@pytest.mark.parametrize("side", ["context", "output"])
async def test_passages_are_redacted_or_blocked(fakes: Any, tmp_path: Any, settings: Settings, side: str) -> None:
    """Detectors redact or block passages and documents, even if a part begins within the redacted text."""
    fakes.guardrails.words = ("ferry",)
    client = client_with_profiles(fakes, tmp_path, settings, f"{side}: [{{id: words, action: redact}}]")
    [first, _] = (await call(client, "search", "/help/mcp", query="leaves at nine"))["structuredContent"]["results"]
    assert first["text"] == "The [REDACTED] leaves at nine."
    for offset, length, text in (
        (0, 100, "The [REDACTED] leaves at nine."),
        (6, 7, "[REDACTED] lea"),
        (0, 6, "The [REDACTED]"),
        (5, 2, "[REDACTED]"),
        (10, 6, "leaves"),
    ):
        read = await call(client, "fetch", "/help/mcp", id="docs/d1", offset=offset, length=length)
        assert read["structuredContent"]["text"] == text
    client = client_with_profiles(fakes, tmp_path, settings, f"{side}: [{{id: words, action: block}}]")
    found = (await call(client, "search", "/help/mcp", query="leaves at nine"))["structuredContent"]["results"]
    assert [result["id"] for result in found] == ["docs/d2"]
    read = await call(client, "fetch", "/help/mcp", id="docs/d1", offset=12)
    assert (read["isError"], read["content"][0]["text"]) == (True, "Nothing to see here.")


async def test_an_answer_lists_its_citations(client: httpx.AsyncClient, fakes: Any) -> None:
    """An answer lists each cited passage once, and no passage that does not exist."""
    fakes.generator.script = (
        type(fakes.generator)
        .saying("At nine [guide-1.pdf#page=1], ", "says [no.pdf] and [guide-1.pdf#page=1].")
        .script
    )
    result = await call(client, "ask", question="When does the ferry leave?")
    answer = result["structuredContent"]
    assert answer["answer"] == "At nine [guide-1.pdf#page=1], says [no.pdf] and [guide-1.pdf#page=1]."
    [citation] = answer["citations"]
    assert (citation["label"], citation["id"], citation["page"]) == ("guide-1.pdf#page=1", "docs/d1", 1)
    url = "http://gateway/content/guide-1.pdf?index=docs#page=1"
    assert [part["text"] for part in result["content"]] == [
        answer["answer"],
        f"Sources:\n[guide-1.pdf#page=1] {url}",
    ]


async def test_a_citation_names_every_document_of_this_name(client: httpx.AsyncClient, fakes: Any) -> None:
    """If two documents have the cited name, the answer lists the first passage of each document."""
    first, second = fakes.retriever.indexes["docs"]
    fakes.retriever.indexes["docs"] = [first, replace(second, sourcepage=first.sourcepage)]
    fakes.generator.script = type(fakes.generator).saying("At nine [guide-1.pdf#page=1].").script
    result = await call(client, "ask", question="When does the ferry leave?")
    cited = result["structuredContent"]["citations"]
    assert {(citation["label"], citation["id"]) for citation in cited} == {
        ("guide-1.pdf#page=1", "docs/d1"),
        ("guide-1.pdf#page=1", "docs/d2"),
    }


@VERSIONS
async def test_the_client_receives_the_progress_of_an_answer(port: int, mode: Any) -> None:
    """The client receives the number of passages, then each piece of the answer, in order."""
    received: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        received.append((progress, message))

    async with Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
        result = await client.call_tool("ask", {"question": "When?"}, progress_callback=on_progress)
    assert result.structured_content == {"answer": "At nine.", "citations": []}
    assert received == [(1, "2 passages found"), (2, "At "), (3, "nine"), (4, ".")]


@VERSIONS
async def test_documents_are_resources(port: int, fakes: Any, mode: Any) -> None:
    """Documents have a resource template, a list in pages and readable parts. An unknown document is an error.

    Its code is `INVALID_PARAMS` in the later version, which retired the earlier version's code -32002.
    """
    stored = [StoredDocument(f"d{at:03}", f"g {at}.md", "text/markdown", "", 1, 0.0) for at in range(150)]
    fakes.retriever.documents = {"docs": [FakeDocument(document) for document in stored]}
    async with Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
        [template] = (await client.list_resource_templates()).resource_templates
        assert template.uri_template.startswith("causeway://{index}/{document}")
        first = await client.list_resources()
        rest = await client.list_resources(cursor=first.next_cursor)
        names = [resource.name for resource in (*first.resources, *rest.resources)]
        assert names == [f"docs/d{at:03}" for at in range(150)]
        assert rest.next_cursor is None
        [part] = (await client.read_resource("causeway://docs/d1?offset=4&length=5")).contents
        assert isinstance(part, types.TextResourceContents)
        assert (part.text, part.meta and part.meta["causeway/next_offset"]) == ("ferry", 9)
        with pytest.raises(MCPError) as missing:
            await client.read_resource("causeway://docs/d9")
        assert missing.value.error.code == {"legacy": -32002, "auto": types.INVALID_PARAMS}[mode]
        for uri in ("causeway://docs/d1?page=1", "file:///etc/passwd"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        with pytest.raises(MCPError, match="cursor"):
            await client.list_resources(cursor="x")


async def test_an_unexpected_exception_is_reported_without_details(
    client: httpx.AsyncClient, fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected exception is reported to the agent without details."""

    async def broken(*_: Any) -> None:
        raise RuntimeError("/etc/passwd")

    monkeypatch.setattr(type(fakes.indexes), "summaries", broken)
    result = await call(client, "list_indexes")
    assert result["isError"]
    assert "unexpected error" in result["content"][0]["text"]
    assert "passwd" not in json.dumps(result)


async def test_leaving_during_the_message_is_no_error(app: Any) -> None:
    """A client that leaves during its message gets no response and causes no exception."""
    sent: list[Any] = []
    messages = iter([{"type": "http.request", "body": b'{"js', "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }
    await app(scope, receive, send)
    assert sent == []
