"""Tokens of a provider at /mcp: their audience, and the metadata for a client without a token."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway.frontends.profiles_file import FrontendsFile
from gateway.identity.provider_keys import ProviderKeys
from gateway.identity.tokens import Claims, Tokens
from gateway.main import build_app
from gateway.settings import Settings
from servicekit import api_keys

URL = "https://rag.example.org"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
PROFILES = "frontends: [{name: help, mount: help, index: docs}]"


def settings(issuer: Any, **more: Any) -> Settings:
    return Settings(
        auth="keys,oidc",
        oidc_issuer=issuer.url,
        oidc_audience=["causeway"],
        oidc_default_roles=["ask"],
        oidc_scopes=["rag.read"],
        **more,
    )


def client_of(fakes: Any, configured: Settings) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(build_app(configured, fakes.services()), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


@pytest.fixture
async def client(fakes: Any, issuer: Any, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of a gateway that accepts keys and tokens and knows its own public URL."""
    path = tmp_path / "frontends.yaml"
    path.write_text(PROFILES)
    fakes.frontends = FrontendsFile(path)
    keys = ProviderKeys(issuer.url, issuer.fetch, ["ES256"])
    fakes.tokens = Tokens(keys, issuer.url, ["causeway"], ["ES256"], Claims(default_roles=["ask"]), resources=URL)
    fakes.keys.replace([])
    async with client_of(fakes, settings(issuer, public_url=URL)) as http:
        yield http


async def ask(client: httpx.AsyncClient, token: str, path: str = "/mcp") -> httpx.Response:
    headers = {"accept": "application/json", "authorization": f"Bearer {token}"} if token else {}
    return await client.post(path, json=LIST, headers=headers)


@pytest.mark.parametrize("path", ["/mcp", "/help/mcp"])
async def test_a_refusal_names_the_metadata(client: httpx.AsyncClient, issuer: Any, path: str) -> None:
    """A 401 names the address of the metadata, and the metadata names the provider, without a credential."""
    refused = await ask(client, "", path)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == (
        f'Bearer realm="causeway", resource_metadata="{URL}{WELL_KNOWN}{path}"'
    )
    wrong = await ask(client, "x.y.z", path)
    assert 'error="invalid_token", resource_metadata=' in wrong.headers["www-authenticate"]
    for at in (WELL_KNOWN + path, path.removesuffix("/mcp") + WELL_KNOWN):
        document = (await client.get(at)).json()
        assert document["resource"] == URL + path
        assert document["authorization_servers"] == [issuer.url]
        assert document["scopes_supported"] == ["rag.read"]
    assert (await client.get(f"{WELL_KNOWN}/other/mcp")).status_code == 404


async def test_other_routes_name_no_metadata(client: httpx.AsyncClient) -> None:
    """A 401 of another route names no metadata."""
    refused = await client.post("/retrieve", json={})
    assert refused.headers["www-authenticate"] == 'Bearer realm="causeway"'


@pytest.mark.parametrize(
    ("audience", "good"),
    [
        ("causeway", {"/mcp", "/help/mcp", "/v1/models"}),
        (["causeway", f"{URL}/mcp"], {"/mcp", "/help/mcp", "/v1/models"}),
        (f"{URL}/mcp", {"/mcp"}),
        ([f"{URL}/help/mcp", "https://other.example.org"], {"/help/mcp"}),
        ([f"{URL}/mcp", f"{URL}/help/mcp"], {"/mcp", "/help/mcp"}),
        (f"{URL}/v1/models", set()),
        (f"{URL}.evil.example/mcp", set()),
        ("https://other.example.org/mcp", set()),
        ([], set()),
    ],
)
async def test_a_token_is_for_one_resource(
    client: httpx.AsyncClient, issuer: Any, audience: Any, good: set[str]
) -> None:
    """A token for an MCP address opens only that address. A token for the gateway opens all routes."""
    token = issuer.token(aud=audience)
    for path in ("/mcp", "/help/mcp"):
        assert (await ask(client, token, path)).status_code == (200 if path in good else 401), path
    models = await client.get("/v1/models", headers={"authorization": f"Bearer {token}"})
    assert models.status_code == (200 if "/v1/models" in good else 401)


async def test_keys_work_without_a_provider(fakes: Any) -> None:
    """Keys work without a provider. Then a 401 names no metadata, and the metadata does not exist."""
    key, record = api_keys.create("ann", "local", roles=("ask",))
    fakes.keys.replace([record])
    async with client_of(fakes, Settings(auth="keys")) as client:
        assert (await ask(client, key)).status_code == 200
        assert (await ask(client, "")).headers["www-authenticate"] == 'Bearer realm="causeway"'
        assert (await client.get(f"{WELL_KNOWN}/mcp")).status_code == 404


async def test_a_key_without_the_role_is_refused(fakes: Any) -> None:
    """A key without the role is refused with 403 in the protocol's format."""
    key, record = api_keys.create("ann", "local", roles=("ingest",))
    fakes.keys.replace([record])
    async with client_of(fakes, Settings(auth="keys")) as client:
        refused = await ask(client, key)
        assert refused.status_code == 403
        assert "role 'ask'" in refused.json()["error"]["message"]
