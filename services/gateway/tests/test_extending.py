"""The example dialect of docs/extending.md works as the page says."""

import importlib.util
import inspect
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from gateway.dialects import registry
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.settings import Settings

_DOCS = Path(__file__).resolve().parents[3] / "docs"
PATH = "/ollama/api/chat"
PROFILES = """
frontends:
  - {name: local, mount: local, index: docs, model: m, allow: {models: any}}
"""


def _blocks(language: str) -> list[str]:
    """Return the fenced blocks of the section on dialects."""
    section = (_DOCS / "extending.md").read_text().partition("\n## A dialect\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def _load(name: str, source: str, folder: Path) -> ModuleType:
    """Import a module from source. The caller removes it again."""
    path = folder / f"{name.rpartition('.')[2]}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fakes: Any, settings: Settings) -> httpx.AsyncClient:
    """Return a client of the gateway with the page's package and its lines in the registry."""
    chat, registration, lines, _ = _blocks("python")
    package = "gateway.dialects.ollama"
    for name in (package, f"{package}.chat", f"{package}.registration", "registry_with_the_example"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))  # pytest removes it after the test
    _load(f"{package}.chat", chat, tmp_path)
    module = _load(f"{package}.registration", registration, tmp_path)
    monkeypatch.setattr(sys.modules[package], "registration", module, raising=False)
    importing, entry = lines.split("\n\n")
    source = inspect.getsource(registry)
    source = source.replace("\n\n\ndef registrations", f"\n{importing}\n\n\ndef registrations", 1)
    source = source.replace("    return (\n", f"    return (\n{entry}", 1)
    extended = _load("registry_with_the_example", source, tmp_path)
    monkeypatch.setattr("gateway.main.registrations", extended.registrations)
    profiles = tmp_path / "frontends.yaml"
    profiles.write_text(PROFILES)
    fakes.frontends = FrontendsFile(profiles)
    app = build_app(settings, fakes.services())
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://gateway"
    )


def question(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "When does it open?"}]} | more


async def test_the_example_answers_line_by_line(client: httpx.AsyncClient, fakes: Any) -> None:
    """Each piece of text is a line, the last line ends the answer, and the profile's index is searched."""
    response = await client.post(f"/local{PATH}", json=question())
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/x-ndjson"
    *pieces, last = [json.loads(line) for line in response.text.splitlines()]
    assert [line["message"]["content"] for line in pieces] == ["At ", "nine", "."]
    assert (last["done"], last["done_reason"], last["eval_count"]) == (True, "stop", 3)
    assert fakes.retriever.queries == ["When does it open?"]


async def test_the_example_answers_in_one_piece(client: httpx.AsyncClient) -> None:
    """A request with `stream: false` gets one object."""
    answer = (await client.post(PATH, json=question(stream=False))).json()
    assert (answer["message"]["content"], answer["done"]) == ("At nine.", True)


@pytest.mark.parametrize(
    ("body", "named"), [({"messages": []}, "messages"), ({"messages": [{"role": "user", "content": 1}]}, "content")]
)
async def test_the_example_refuses_in_its_own_format(
    client: httpx.AsyncClient, body: dict[str, Any], named: str
) -> None:
    """The message names the field, and a wrong method has the same format."""
    for refused in (await client.post(PATH, json=body), await client.get(PATH)):
        assert refused.status_code in (400, 405)
        assert set(refused.json()) == {"error"}
    assert named in (await client.post(PATH, json=body)).json()["error"]


async def test_the_openapi_document_describes_the_example(client: httpx.AsyncClient) -> None:
    """The OpenAPI document has the route with its role and its tag."""
    document = (await client.get("/openapi.json")).json()
    assert "Role: `ask`." in document["paths"][PATH]["post"]["description"]
    assert "ollama" in [tag["name"] for tag in document["tags"]]


def test_the_row_of_the_example_has_the_columns_of_the_table() -> None:
    """The page's row has the columns of the table of paths."""
    [row] = _blocks("markdown")
    header = next(line for line in (_DOCS / "protocols.md").read_text().splitlines() if line.startswith("| path |"))
    assert row.strip().count("|") == header.count("|")
