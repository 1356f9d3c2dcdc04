"""The effects of profiles on requests, with the whole application."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway.dialects.registry import registrations
from gateway.domain import Model, Passage
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.routes.table import route_table
from gateway.routing.route import IndexReach
from gateway.settings import Settings
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from servicekit import api_keys
from servicekit.errors import InvalidRequest
from structlog.testing import capture_logs

CHATS = [chat for dialect in registrations() for chat in dialect.chats]
FILE = """
frontends:
  - name: closed
    mount: closed
    hosts: [closed.example.com]
    origins: [https://closed.example.com]
    model: small
    system_prompt: Say little.
    overrides: {top: 1}
    detectors: {output: [{id: words, action: redact}]}
    allow: {indexes: [empty], models: [large]}
  - name: open
    mount: open
    index: empty
    allow: {indexes: any, models: any, prompt_template: true}
  - name: plain
    mount: plain
    index: empty
"""


def question(**overrides: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "When?"}], "context": {"overrides": overrides}}


@pytest.fixture
def client(fakes: Any, settings: Settings, tmp_path: Path) -> httpx.AsyncClient:
    path = tmp_path / "frontends.yaml"
    path.write_text(FILE)
    fakes.frontends = FrontendsFile(path)
    transport = httpx.ASGITransport(build_app(settings, fakes.services()), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/closed/chat", {}),
        ("/closed/2024-04/chat", {}),
        ("/chat", {"host": "closed.example.com"}),
        ("/chat", {"host": "CLOSED.example.com:8080"}),
        ("/2024-04/chat", {"host": "closed.example.com"}),
        ("/chat", {"origin": "https://closed.example.com"}),
    ],
)
async def test_a_profile_is_selected_by_mount_host_or_origin(
    client: httpx.AsyncClient, fakes: Any, path: str, headers: dict[str, str]
) -> None:
    """A profile is selected by mount, host or origin, and sets the index, model, prompt and detectors."""
    response = await client.post(path, json=question(), headers=headers)
    assert response.status_code == 200, response.text
    [prompt] = fakes.generator.prompts
    assert prompt.model == "small"
    assert prompt.messages[0].text == "Say little."
    assert len(prompt.sources) == 1  # the profile sets `top` to 1
    assert fakes.guardrails.judged_texts


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"index": "secret"}, "context.overrides.index"),
        ({"model": "other"}, "context.overrides.model"),
        ({"prompt_template": "Obey."}, "context.overrides.prompt_template"),
        ({"prompt_template": ">>> Obey."}, "context.overrides.prompt_template"),
    ],
)
@pytest.mark.parametrize("path", ["/closed/chat", "/closed/chat/stream", "/closed/2024-04/chat"])
async def test_values_outside_the_lists_are_refused(
    client: httpx.AsyncClient, fakes: Any, path: str, overrides: dict[str, str], field: str
) -> None:
    """A value outside the profile's lists is refused with 403 and the field, and no service is called."""
    response = await client.post(path, json=question(**overrides))
    assert response.status_code == 403
    assert field in response.json()["error"]
    assert fakes.generator.prompts == []
    assert fakes.retriever.queries == []


async def test_values_of_the_lists_are_accepted(client: httpx.AsyncClient, fakes: Any) -> None:
    """A request may choose from the profile's lists. A profile without lists allows every index and model."""
    assert (await client.post("/closed/chat", json=question(index="empty", model="large"))).status_code == 200
    assert (await client.post("/open/chat", json=question(index="docs", model="x"))).status_code == 200
    assert [prompt.model for prompt in fakes.generator.prompts] == ["large", "x"]


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"model": "other"}, "model"),
        ({"model": "other", "tools": [{"type": "function"}]}, "model"),
        ({"index_name": "secret"}, "index_name"),
        ({"index_name": "secret", "model": "small"}, "index_name"),
        ({"index_name": "secret", "tools": [{"type": "function"}]}, "index_name"),
    ],
)
async def test_the_lists_apply_to_openais_clients(
    client: httpx.AsyncClient, fakes: Any, members: dict[str, Any], field: str
) -> None:
    """The profile's lists apply to requests of OpenAI's clients, even if the gateway passes them to the model."""
    body = {"messages": [{"role": "user", "content": "When?"}], **members}
    response = await client.post("/closed/v1/chat/completions", json=body)
    assert response.status_code == 403
    assert response.json()["error"]["param"] == field
    assert fakes.generator.prompts == []


async def test_openais_clients_get_the_profiles_model(client: httpx.AsyncClient, fakes: Any) -> None:
    """OpenAI's clients get the profile's model, or the model of its list that they name."""
    body = {"messages": [{"role": "user", "content": "When?"}]}
    await client.post("/closed/v1/chat/completions", json=body)
    await client.post("/closed/v1/chat/completions", json={**body, "model": "large"})
    assert [prompt.model for prompt in fakes.generator.prompts] == ["small", "large"]


@pytest.mark.parametrize("slash", ["", "/"])
async def test_the_model_in_the_path_precedes_the_body(client: httpx.AsyncClient, fakes: Any, slash: str) -> None:
    """The model in the path precedes the model in the body, and must be in the profile's list."""
    body = {"messages": [{"role": "user", "content": "When?"}], "model": "other"}
    for model, status in (("large", 200), ("other", 403)):
        path = f"/closed/openai/deployments/{model}/chat/completions{slash}?api-version=2024-10-21"
        assert (await client.post(path, json=body)).status_code == status
    body["model"] = "large"
    path = f"/open/openai/deployments/org/model/chat/completions{slash}?api-version=x"
    assert (await client.post(path, json=body)).status_code == 200
    assert [prompt.model for prompt in fakes.generator.prompts] == ["large", "org/model"]


async def test_a_profile_without_models_offers_the_default_one(client: httpx.AsyncClient, fakes: Any) -> None:
    """A profile without a list of models offers only its own model."""
    fakes.generator.offered = (Model("small", 8, "tests", 0, ready=True), Model("large", 8, "tests", 0, ready=True))
    listed = (await client.get("/plain/v1/models")).json()["data"]
    assert [model["id"] for model in listed] == ["small"]
    body = {"messages": [{"role": "user", "content": "When?"}]}
    for path, request in (("/v1/chat/completions", body), ("/chat", question())):
        named = request | {"model": "small"} if request is body else question(model="small")
        other = request | {"model": "large"} if request is body else question(model="large")
        assert (await client.post(f"/plain{path}", json=request)).status_code == 200
        assert (await client.post(f"/plain{path}", json=named)).status_code == 200
        refused = await client.post(f"/plain{path}", json=other)
        assert refused.status_code == 403
        assert "large" in refused.text
    assert [prompt.model for prompt in fakes.generator.prompts] == ["", "small"] * 2


def filled(path: str) -> str:
    """Return the path with a value for each parameter; `closed` may not use the index `docs`."""
    return re.sub(r"\{[^}]*\}", "docs", path)


async def test_a_limited_front_end_hides_routes_of_all_indexes(client: httpx.AsyncClient) -> None:
    """A limited front end hides each route that reaches all indexes of the tenant, for every method."""
    for route in route_table(registrations()):
        path = filled(route.path)
        for limited in (f"/closed{path}", f"http://closed.example.com{path}"):
            for method in {route.method, "GET", "DELETE"}:
                response = await client.request(method, limited)
                hidden = response.status_code == 404 and "limits its indexes" in response.text
                assert hidden == (route.reach is IndexReach.TENANT), (method, limited, response.text)
        assert "limits its indexes" not in (await client.request(route.method, f"/open{path}")).text


async def test_chats_of_a_limited_front_end_use_only_its_indexes(client: httpx.AsyncClient, fakes: Any) -> None:
    """The chat routes of a limited front end use only its indexes."""
    hidden = Passage("s", "secret", "s", "s.md", "s.md", "When the harbour closes for good.", 1.0, dense_score=0.9)
    fakes.retriever.indexes["secret"] = [hidden]
    body: dict[str, Any] = question(index="secret") | {"index_name": "secret", "model": "small", "prompt": "When?"}
    for chat in CHATS:
        response = await client.post(f"/closed{chat.path}", json=body)
        assert hidden.text not in response.text, chat.path
        assert hidden.text not in str(fakes.generator.prompts), chat.path


@pytest.mark.parametrize("mount", ["", "/closed", "/open"])
async def test_a_slash_at_the_end_changes_nothing(client: httpx.AsyncClient, mount: str) -> None:
    """A slash at the end of the path changes neither the profile nor its limits."""
    for chat in CHATS:
        for index in ("empty", "docs"):
            body: dict[str, Any] = question(index=index) | {
                "index_name": index,
                "model": "small",
                "prompt": "When?",
            }
            plain = await client.post(f"{mount}{chat.path}", json=body)
            slashed = await client.post(f"{mount}{chat.path}/", json=body)
            assert (plain.status_code, plain.headers["content-type"]) == (
                slashed.status_code,
                slashed.headers["content-type"],
            ), chat.path
            assert plain.status_code != 404, chat.path
        assert (await client.get(f"{mount}{chat.path}/")).status_code == 405


@pytest.mark.parametrize("path", ["/nowhere", "/", "/v1/nothing"])
async def test_unknown_paths_of_a_limited_front_end_are_not_found(client: httpx.AsyncClient, path: str) -> None:
    """An unknown path of a limited front end gets the status 404."""
    response = await client.get(f"/closed{path}")
    assert response.status_code == 404


async def test_a_limited_front_end_has_the_routes_of_front_ends(client: httpx.AsyncClient) -> None:
    """A limited front end serves the routes for front ends and the health routes."""
    for path in ("/config", "/auth_setup", "/list_uploaded", "/chat_history/sessions", "/healthz", "/readyz"):
        assert (await client.get(f"/closed{path}")).status_code == 200, path


async def test_logs_and_spans_name_the_front_end(client: httpx.AsyncClient, spans: InMemorySpanExporter) -> None:
    """Logs and spans name the front end, even of a refused request."""
    spans.clear()
    with capture_logs() as lines:
        await client.post("/closed/chat", json=question())
        await client.post("/closed/chat", content=b"{")
        await client.get("/config")
    names = [line["frontend"] for line in lines if line["event"] == "request"]
    assert names == ["closed", "closed", "default"]
    servers = [span for span in spans.get_finished_spans() if span.parent is None]
    assert [(span.attributes or {}).get("causeway.frontend") for span in servers] == ["closed", "closed", "default"]


async def test_a_hidden_route_needs_a_credential(fakes: Any, settings: Settings, tmp_path: Path) -> None:
    """Without a credential, a hidden route gets 401. With one, it gets 404 and the reason."""
    path = tmp_path / "frontends.yaml"
    path.write_text(FILE)
    fakes.frontends = FrontendsFile(path)
    key, record = api_keys.create("ann", "local", roles=("admin",))
    fakes.keys.replace([record])
    app = build_app(settings.model_copy(update={"auth": "keys"}), fakes.services())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        for where in ("/closed/indexes", "/closed/nowhere"):
            refused = await http.get(where)
            assert (refused.status_code, "limits" in refused.text) == (401, False)
        hidden = await http.get("/closed/indexes", headers={"api-key": key})
    assert (hidden.status_code, "limits its indexes" in hidden.text) == (404, True)


async def test_a_mount_cannot_hide_a_route(fakes: Any, settings: Settings, tmp_path: Path) -> None:
    """A mount with the first segment of one of the gateway's paths is refused at the start."""
    segments = [
        *("chat", "ask", "v1", "2024-01", "2024-01-28", "2024-04", "2024-05-29", "2026-04-10"),
        *(
            "config",
            "auth_setup",
            "me",
            "content",
            "upload",
            "list_uploaded",
            "delete_uploaded",
            "speech",
            "chat_history",
        ),
        *("indexes", "documents", "jobs", "healthz", "readyz", "docs", "openapi.json"),
    ]
    path = tmp_path / "frontends.yaml"
    for segment in segments:
        path.write_text(f'frontends: [{{name: a, mount: "{segment}"}}]')
        fakes.frontends = FrontendsFile(path)
        with pytest.raises(InvalidRequest, match=r"frontends\[0\]\.mount"):
            build_app(settings, fakes.services())


@pytest.mark.parametrize(
    ("mount", "listed"),
    [("closed/", {"small", "large"}), ("open/", {"small", "large", "other"})],
)
async def test_offered_models_are_listed(
    client: httpx.AsyncClient, fakes: Any, mount: str, listed: set[str]
) -> None:
    """The list has the models that the profile offers. Other models are unknown."""
    fakes.generator.offered = tuple(Model(name, 0, "tests", 0, ready=True) for name in ("small", "large", "other"))
    names = {model["id"] for model in (await client.get(f"/{mount}v1/models")).json()["data"]}
    assert names == listed
    for name in ("small", "large", "other"):
        status = (await client.get(f"/{mount}v1/models/{name}")).status_code
        assert status == (200 if name in listed else 404)
