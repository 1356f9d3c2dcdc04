"""The conformance suite of the Model Context Protocol, for its version 2025-11-25.

The general scenarios run against the gateway's `/mcp`. The other scenarios need the suite's own tools and
resources, and run against a server that offers them over the gateway's transport. `NOT_APPLICABLE` has the reason
for each scenario that does not run.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import mcp_types as types
import pytest
import pytest_asyncio
from causeway_testing.gateway.answering import FakeGenerator, FakeGuardrails
from causeway_testing.gateway.indexes import FakeIndexes
from causeway_testing.gateway.records import FakeRecords
from causeway_testing.gateway.retrieval import FakeRetriever
from causeway_testing.recipes import NODE
from gateway.adapters import Services
from gateway.domain import Passage
from gateway.main import build_app
from gateway.routes.mcp_transport import McpTransport
from gateway.server.http_server import HttpServer, listen
from gateway.settings import Settings
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

SUITE = (
    Path(__file__).parent / "node" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
)
GENERAL = (
    *("server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "resources-list", "prompts-list"),
    "dns-rebinding-protection",
)
WITH_FIXTURES = (
    *("server-initialize", "ping", "tools-list", "logging-set-level", "completion-complete", "json-schema-2020-12"),
    *("tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource"),
    *("tools-call-mixed-content", "tools-call-with-logging", "tools-call-error", "tools-call-with-progress"),
    *("resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read"),
    *("resources-subscribe", "resources-unsubscribe", "prompts-list", "prompts-get-simple"),
    *("prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image"),
)
_NO_SERVER_REQUESTS = "The server sends requests to its client, which needs a session in one process."
NOT_APPLICABLE = {
    "tools-call-sampling": _NO_SERVER_REQUESTS,
    "tools-call-elicitation": _NO_SERVER_REQUESTS,
    "elicitation-sep1034-defaults": _NO_SERVER_REQUESTS,
    "elicitation-sep1330-enums": _NO_SERVER_REQUESTS,
    "server-sse-polling": "A client cannot resume a broken stream, because the route stores no events.",
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = base64.b64encode(b"RIFF$\0\0\0WAVEfmt ").decode()
_Context = ServerRequestContext[Any, Any]

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
NAMES = (
    *("test_simple_text", "test_image_content", "test_audio_content", "test_embedded_resource"),
    *("test_multiple_content_types", "test_tool_with_logging", "test_error_handling", "test_tool_with_progress"),
)


def _text(words: str) -> types.TextContent:
    return types.TextContent(text=words)


def _image() -> types.ImageContent:
    return types.ImageContent(data=PIXEL, mime_type="image/png")


def _embedded(uri: str, words: str, media: str = "text/plain") -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=media, text=words))


async def _list_tools(_: _Context, __: Any) -> types.ListToolsResult:
    plain = {"type": "object", "properties": {}}
    listed = [types.Tool(name=name, description=name, input_schema=plain) for name in NAMES]
    listed.append(types.Tool(name="json_schema_2020_12_tool", description="A schema", input_schema=SCHEMA))
    return types.ListToolsResult(tools=listed)


async def _call_tool(ctx: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    match params.name:
        case "test_image_content":
            return types.CallToolResult(content=[_image()])
        case "test_audio_content":
            return types.CallToolResult(content=[types.AudioContent(data=SOUND, mime_type="audio/wav")])
        case "test_embedded_resource":
            return types.CallToolResult(content=[_embedded("test://embedded-resource", "An embedded resource.")])
        case "test_multiple_content_types":
            mixed = _embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
            return types.CallToolResult(content=[_text("Multiple content types test:"), _image(), mixed])
        case "test_tool_with_logging":
            for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
                entry = types.LoggingMessageNotificationParams(level="info", data=words)
                logged = types.LoggingMessageNotification(params=entry)
                await ctx.session.send_notification(logged, related_request_id=ctx.request_id)
            return types.CallToolResult(content=[_text("Logged.")])
        case "test_error_handling":
            failed = "This tool intentionally returns an error for testing"
            return types.CallToolResult(content=[_text(failed)], is_error=True)
        case "test_tool_with_progress":
            for done in (0, 50, 100):
                await ctx.session.report_progress(done, 100, f"{done} of 100")
            return types.CallToolResult(content=[_text("Done.")])
    return types.CallToolResult(content=[_text("This is a simple text response for testing.")])


async def _list_resources(_: _Context, __: Any) -> types.ListResourcesResult:
    names = ("static-text", "static-binary", "watched-resource")
    return types.ListResourcesResult(
        resources=[types.Resource(name=name, uri=f"test://{name}", description=name) for name in names]
    )


async def _list_templates(_: _Context, __: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(name="template", uri_template="test://template/{id}/data")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def _read_resource(_: _Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    if uri == "test://static-binary":
        blob = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PIXEL)
        return types.ReadResourceResult(contents=[blob])
    words = "This is the content of the static text resource."
    if uri.startswith("test://template/"):
        number = uri.split("/")[3]
        words = f'{{"id":"{number}","templateTest":true,"data":"Data for ID: {number}"}}'
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=uri, mime_type="text/plain", text=words)]
    )


async def _empty(_: _Context, __: Any) -> types.EmptyResult:
    return types.EmptyResult()


_PROMPTS: dict[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
}


async def _list_prompts(_: _Context, __: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=name,
                description=name,
                arguments=[types.PromptArgument(name=each, required=True) for each in arguments],
            )
            for name, arguments in _PROMPTS.items()
        ]
    )


async def _get_prompt(_: _Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    values = params.arguments or {}
    blocks: list[types.ContentBlock] = [_text("This is a simple prompt for testing.")]
    match params.name:
        case "test_prompt_with_arguments":
            blocks = [_text(f"Prompt with arguments: arg1='{values.get('arg1')}', arg2='{values.get('arg2')}'")]
        case "test_prompt_with_embedded_resource":
            blocks = [
                _embedded(values.get("resourceUri", ""), "Embedded resource content."),
                _text("Please process it."),
            ]
        case "test_prompt_with_image":
            blocks = [_image(), _text("Please analyze the image above.")]
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=each) for each in blocks])


async def _complete(_: _Context, __: Any) -> types.CompleteResult:
    return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))


def _fixtures() -> Server[Any]:
    """Return a server with the tools, resources and prompts that the suite requires."""
    server: Server[Any] = Server(
        "fixtures",
        version="1",
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read_resource,
        on_subscribe_resource=_empty,
        on_unsubscribe_resource=_empty,
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
        on_completion=_complete,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _empty)
    return server


def _fixtures_app() -> ASGIApp:
    transport = McpTransport(_fixtures())

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await send({"type": "http.response.start", "status": 405, "headers": [(b"allow", b"POST")]})
            await send({"type": "http.response.body", "body": b""})
            return
        body = await Request(scope, receive).body()
        streaming = b"progressToken" in body or b"_with_" in body
        await transport.answer(scope, body, asyncio.Event(), send, streaming=streaming)

    return serve


def _gateway_app() -> ASGIApp:
    passage = Passage("p1", "docs", "d1", "guide.pdf", "guide.pdf#page=1", "The ferry leaves at nine.", 0.5)
    retriever = FakeRetriever({"docs": [passage]})
    # Agents use only these services.
    others = {each.name: object() for each in fields(Services) if each.default is each.default_factory}
    known = {
        "retriever": retriever,
        "catalogue": retriever,
        "generator": FakeGenerator.saying("At nine."),
        "guardrails": FakeGuardrails(),
        "indexes": FakeIndexes({"docs": {}}),
        "records": FakeRecords(),
        "probes": [],
    }
    return build_app(Settings(default_index="docs"), Services(**cast("Any", others | known)))


@contextlib.asynccontextmanager
async def _serve(app: ASGIApp) -> AsyncIterator[str]:
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        server = HttpServer(app, grace=1)
        serving = asyncio.create_task(server.serve([listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        server.should_exit = server.force_exit = True
        await serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncIterator[str]:
    """Serve the gateway, and return the URL of its route for agents."""
    async with _serve(_gateway_app()) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fixtures() -> AsyncIterator[str]:
    """Serve the suite's fixtures, and return their URL."""
    async with _serve(_fixtures_app()) as url:
        yield url


async def _suite(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), str(SUITE), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed.decode()


async def test_every_scenario_runs_or_has_a_reason() -> None:
    """Every scenario of the suite runs, or has a reason in `NOT_APPLICABLE`."""
    _, printed = await _suite("list", "--server")
    begin = printed.partition("Server scenarios")[2].partition("Client scenarios")[0]
    listed = {line.split()[1] for line in begin.splitlines() if line.startswith("  - ")}
    assert listed == {*GENERAL, *WITH_FIXTURES, *NOT_APPLICABLE}


@pytest.mark.parametrize("scenario", GENERAL)
async def test_the_gateway(gateway: str, scenario: str) -> None:
    """The general scenarios pass with the gateway's own tools and documents."""
    code, printed = await _suite("server", "--url", gateway, "--scenario", scenario)
    assert (code, ", 0 failed, 0 warnings" in printed, "Passed: 0/0" in printed) == (0, True, False), printed


@pytest.mark.parametrize("scenario", WITH_FIXTURES)
async def test_the_transport(fixtures: str, scenario: str) -> None:
    """The other scenarios pass with the suite's fixtures behind the gateway's transport."""
    code, printed = await _suite("server", "--url", fixtures, "--scenario", scenario)
    assert (code, ", 0 failed, 0 warnings" in printed, "Passed: 0/0" in printed) == (0, True, False), printed
