"""Adapters from the configuration, as the model server sees their requests."""

import asyncio
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.generator import FakeTokenCounter
from causeway_testing.model_answers import FAULTS, Answer, refusal
from causeway_testing.model_server import ModelServer as Stub
from generator.configuration.adapters import (
    Defaults,
    first_token_timeout,
    load_adapters,
    open_model,
    open_server,
    triton_config,
)
from generator.configuration.schema import (
    DeploymentEntry,
    ModelEntry,
    ModelsFile,
    OpenAIEntry,
    Timeouts,
    TritonEntry,
)
from generator.domain import ChatMessage, Conversation
from generator.extractive.model import ExtractiveModel
from generator.ports import Model
from generator.triton.config import TritonConfig
from pydantic import SecretStr
from servicekit.errors import DeadlineExceeded, Unavailable
from servicekit.yaml_file import Document
from structlog.testing import capture_logs

PROMPT = Conversation((ChatMessage("user", "Hi"),))
ENVIRON = {"KEY": "s3cret-key", "HEADER": "s3cret-header", "QUERY": "s3cret-query"}


def opened(text: str, folder: Path = Path()) -> Model:
    """Open the first deployment of the first model."""
    file = Document(text.encode(), "models.yaml").validated(ModelsFile, {"environ": ENVIRON, "folder": folder})
    load_adapters(file.servers.values())
    model = file.models[0]
    server = file.servers[model.deployments[0].server]
    connections = open_server(server, Defaults(whole=0.3))
    return open_model(model, model.deployments[0], server, connections, FakeTokenCounter(), Defaults())


def on(stub: Stub, server: str, deployment: str = "", model: str = "") -> str:
    return (
        f"servers: {{s: {{url: '{stub.url}', {server}}}}}\n"
        f"models: [{{name: public, {model} deployments: [{{server: s, {deployment}}}]}}]"
    )


async def ask(model: Model) -> None:
    try:
        async for _ in model.generate(PROMPT):
            pass
    finally:
        await model.aclose()


async def test_an_openai_server_gets_key_headers_and_query(stub: Stub) -> None:
    """A request has the key, the headers and the query of the server. A deployment's headers replace the server's,
    and the body has the server's name of the model.
    """
    server = "kind: openai, api_key: {env: KEY}, headers: {X-A: a, X-B: {env: HEADER}}, query: {q: {env: QUERY}}"
    await ask(opened(on(stub, server, "model: org/llm, headers: {X-A: other}")))
    (request,) = stub.requests
    assert request.path == "/v1/chat/completions?q=s3cret-query"
    assert request.headers["authorization"] == "Bearer s3cret-key"
    assert (request.headers["x-a"], request.headers["x-b"]) == ("other", "s3cret-header")
    assert request.json()["model"] == "org/llm"


async def test_changed_secret_files_take_effect(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key, the headers and the query from files have the current content of the files in each request."""
    monkeypatch.setattr("servicekit.secret_file.CHECK_SECONDS", 0.0)
    names = ("key", "header", "query", "own")

    def write(value: str) -> None:
        for name in names:
            (tmp_path / name).write_text(f"{name}-{value}")

    write("old")
    text = on(
        stub,
        "kind: openai, api_key: {file: key}, headers: {X-A: {file: header}}, query: {q: {file: query}}",
        "headers: {X-B: {file: own}}",
    )
    model = opened(text, tmp_path)
    async for _ in model.generate(PROMPT):
        pass
    write("renewed")
    await ask(model)
    sent = [
        (each.headers["authorization"], each.headers["x-a"], each.path.partition("?")[2], each.headers["x-b"])
        for each in stub.requests
    ]
    assert sent == [
        (f"Bearer key-{value}", f"header-{value}", f"q=query-{value}", f"own-{value}")
        for value in ("old", "renewed")
    ]


async def test_azure_gets_its_own_path_version_and_key_header(stub: Stub) -> None:
    """Azure gets the deployment in the path, the API version, and the key in its own header.
    https://learn.microsoft.com/azure/ai-foundry/openai/reference
    """
    text = on(stub, "kind: azure, api_version: 2024-10-21, api_key: {env: KEY}", "model: gpt 4/o")
    await ask(opened(text.replace(stub.url, stub.url.removesuffix("/v1"))))
    (request,) = stub.requests
    assert request.path == "/openai/deployments/gpt%204%2Fo/chat/completions?api-version=2024-10-21"
    assert request.headers["api-key"] == "s3cret-key"
    assert "authorization" not in request.headers


async def test_a_configured_authorization_header_replaces_the_key(stub: Stub) -> None:
    """A configured Authorization header, in any case, replaces the key. A configured User-Agent is sent."""
    await ask(opened(on(stub, "kind: openai, api_key: {env: KEY}, headers: {AUTHORIZATION: mine, User-Agent: me}")))
    (request,) = stub.requests
    assert (request.headers["authorization"], request.headers["user-agent"]) == ("mine", "me")


async def test_no_secret_is_shown(stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    """No log line, error or representation contains a secret, at any level, after successes and failures."""
    caplog.set_level(logging.DEBUG)
    secret = "kind: openai, api_key: {env: KEY}, headers: {X-B: {env: HEADER}}, query: {q: {env: QUERY}}"
    messages: list[Any] = []
    failures = 0
    with capture_logs() as log:
        for answer in (None, refusal(401, "wrong"), FAULTS["fault-close-before"](), FAULTS["fault-broken-json"]()):
            if answer is not None:
                stub.script(answer)
            model = opened(on(stub, secret))
            messages += [repr(model), repr(vars(model))]
            try:
                await ask(model)
            except Exception as error:  # any error with all its causes
                failures += 1
                cause: BaseException | None = error
                while cause is not None:
                    messages += [str(cause), repr(cause)]
                    cause = cause.__cause__
    assert failures == 3
    assert "s3cret" not in caplog.text + repr(log) + "".join(messages)


async def test_no_secret_is_shown_for_a_server_without_http() -> None:
    """The error about a server that does not speak HTTP contains no secret. The client library's error would."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 smtp.example.com ESMTP\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        text = (
            f"servers: {{s: {{kind: openai, url: '{url}', api_key: {{env: KEY}}, query: {{q: {{env: QUERY}}}}}}}}"
        )
        with pytest.raises(Unavailable) as caught:
            await ask(opened(f"{text}\nmodels: [{{name: a, deployments: [{{server: s}}]}}]"))
    messages = "".join(traceback.format_exception(caught.value))
    error: BaseException | None = caught.value
    while error is not None:
        messages += repr(error)
        error = error.__cause__ or error.__context__
    assert "s3cret" not in messages


async def test_timeouts_of_the_file_take_precedence(stub: Stub) -> None:
    """A time-out in the file takes precedence over the setting."""
    for timeouts, message in (("", "within 0.3 s"), ("timeouts: {whole: 0.1}", "within 0.1 s")):
        stub.script(FAULTS["fault-hang-before"]())
        with pytest.raises(DeadlineExceeded, match=message):
            await ask(opened(on(stub, f"kind: openai, {timeouts}")))
    patient, given = (
        OpenAIEntry(url="http://a", timeouts=Timeouts(first_token=seconds)) for seconds in (None, 7.0)
    )
    assert [first_token_timeout(server, Defaults()) for server in (patient, given)] == [60.0, 7.0]


async def test_a_redirection_is_not_followed(stub: Stub) -> None:
    """A redirect is an error, because the key is for one address only."""
    stub.script(Answer((b"",), status=307, headers={"location": f"{stub.url}/elsewhere"}))
    with pytest.raises(Unavailable, match="redirects"):
        await ask(opened(on(stub, "kind: openai, api_key: {env: KEY}")))
    assert len(stub.requests) == 1


async def test_the_window_of_the_file_takes_precedence(stub: Stub) -> None:
    """The window of the file takes precedence over the server's. An extractive model has its own window."""
    stub.models = {"public": {"max_model_len": 4096}}
    openai, reported = (opened(on(stub, "kind: openai", model=model)) for model in ("context_window: 7,", ""))
    assert (await openai.context_window(), await reported.context_window()) == (7, 4096)
    await openai.aclose()
    await reported.aclose()
    here = opened("servers: {s: {kind: extractive}}\nmodels: [{name: a, deployments: [{server: s}]}]")
    assert isinstance(here, ExtractiveModel)
    assert (here.name, await here.context_window()) == ("a", 32_768)


def test_a_triton_deployment_has_the_values_of_the_file(tmp_path: Path) -> None:
    """A Triton deployment gets the address, names and limits of the file. It uses the chat template beside the
    tokenizer unless the file names another one. Its representation does not contain the key.
    """
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    server = TritonEntry(url="host:8001", api_key=SecretStr("s3cret-key"), timeouts=Timeouts(idle=3))
    place = DeploymentEntry(server="s", model="llm", version="2", answer_tokens=5)
    tokenizer = str(tmp_path / "tokenizer.json")
    model = ModelEntry(name="a", context_window=9, tokenizer=tokenizer, deployments=(place,))
    config = triton_config(model, place, server, Defaults())
    assert config == TritonConfig(
        address="host:8001",
        model="llm",
        version="2",
        api_key=SecretStr("s3cret-key"),
        chat_template=str(tmp_path),
        window=9,
        answer_tokens=5,
        first_byte=100.0,
        idle=3.0,
    )
    assert "s3cret" not in repr(config)
    named = model.model_copy(update={"chat_template": "{{ messages }}"})
    assert triton_config(named, place, server, Defaults()).chat_template == "{{ messages }}"


async def test_a_triton_deployment_is_created_without_a_connection() -> None:
    """A Triton deployment is created without a connection."""
    model = opened(
        "servers: {s: {kind: triton, url: 'host:8001'}}\nmodels: [{name: a, deployments: [{server: s}]}]"
    )
    assert (model.name, model.owned_by) == ("a", "triton")
    await model.aclose()
