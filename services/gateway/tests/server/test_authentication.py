"""Authentication and authorisation of the whole application, with fake services."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from gateway.dialects.registry import registrations
from gateway.frontends.profiles_file import FrontendsFile
from gateway.identity import oidc
from gateway.identity.caller import ANONYMOUS, LOOPBACK, Caller
from gateway.main import build_app
from gateway.routes.table import route_table
from gateway.routing.route import Role
from gateway.server.authentication import FixedCaller
from gateway.server.request_state import state_of
from gateway.settings import Settings
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from servicekit import api_keys

QUESTION = {"messages": [{"role": "user", "content": "When does the ferry leave?"}]}
FRONTENDS = """
frontends:
  - {name: help, mount: help, index: docs, keys: [page, both]}
  - {name: staff, mount: staff, hosts: [staff.example.com], index: docs, keys: [both]}
"""
ROUTES = [(route.path, route.method, route.role) for route in route_table(registrations())]
ERRORS_AS_TEXT = [
    *(("POST", path) for path in ("/chat", "/2024-04/chat/stream", "/2026-04-10/chat", "/ask", "/upload")),
    *(("GET", path) for path in ("/content/a", "/list_uploaded", "/chat_history/sessions")),
]


class Keys:
    """Creates and revokes API keys."""

    def __init__(self, fakes: Any) -> None:
        self._fakes = fakes
        fakes.keys.replace([])

    def make(self, name: str = "ann", *roles: str, **more: Any) -> dict[str, str]:
        """Create a key. Return the headers with it."""
        key, record = api_keys.create(name, "north", roles=roles, **more)
        self._fakes.keys.put(record)
        return {"authorization": f"Bearer {key}"}

    def revoke(self, headers: dict[str, str]) -> None:
        """Revoke a key."""
        self._fakes.keys.remove(api_keys.id_of(headers["authorization"].split()[1]) or "")


@pytest.fixture
def keys(fakes: Any) -> Keys:
    return Keys(fakes)


@asynccontextmanager
async def gateway(fakes: Any, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of a gateway that requires keys."""
    app = build_app(Settings(default_index="docs", **{"auth": "keys", **settings}), fakes.services())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        yield http


@pytest.fixture
async def http(fakes: Any, keys: Keys) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway(fakes) as client:
        yield client


def url_of(path: str) -> str:
    """Return the path with values for its parameters."""
    return "/".join("x" if part.startswith("{") else part for part in path.replace(":path}", "}").split("/"))


async def test_every_route_needs_its_role(http: httpx.AsyncClient, keys: Keys) -> None:
    """Every route except open routes needs a credential (else 401) and its role or the role `admin` (else 403)."""
    callers = {role: keys.make(role, role) for role in ("ask", "ingest", "admin")} | {"none": keys.make("none")}
    for path, method, needed in ROUTES:
        url = url_of(path)
        assert ((await http.request(method, url)).status_code == 401) == (needed is not Role.OPEN), path
        for role, headers in callers.items():
            status = (await http.request(method, url, headers=headers)).status_code
            refused = needed is not Role.OPEN and role not in (needed, "admin")
            assert (status == 403) == refused, (path, method, role, status)
            assert status != 401, (path, method, role)


async def test_unknown_paths_need_a_credential(http: httpx.AsyncClient, keys: Keys) -> None:
    """Without a credential, an unknown path gets 401. With one, it gets 404, and a wrong method 405."""
    headers = keys.make("ann", "ask")
    for path in ("/nowhere", "/chat/x", "/indexes/x/y"):
        assert (await http.get(path)).status_code == 401
        assert (await http.get(path, headers=headers)).status_code == 404
    assert (await http.put("/retrieve")).status_code == 401
    wrong = await http.put("/retrieve", headers=headers)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert (await http.get("/chat", headers=headers)).headers["allow"] == "POST"


async def test_a_slash_in_a_name_needs_a_credential(http: httpx.AsyncClient, keys: Keys) -> None:
    """Without a credential, a name with a slash gets 401. With one, it gets 400 and the field."""
    headers = keys.make("ann", "ask")
    for path in ("/indexes/a%2Fb/documents", "/indexes/a%2Fb", "/indexes/a/b/documents", "/persist/a%2Fb"):
        assert (await http.get(path)).status_code == 401
        answer = await http.get(path, headers=headers)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "index")
    assert (await http.get("/other/a%2Fb", headers=headers)).status_code == 404


@pytest.mark.parametrize(("method", "path"), ERRORS_AS_TEXT)
async def test_refusals_have_the_dialects_format(
    http: httpx.AsyncClient, keys: Keys, method: str, path: str
) -> None:
    """On routes of this dialect, the error is a text. The response has the challenge and the trace id."""
    anonymous = await http.request(method, path)
    assert (anonymous.status_code, anonymous.headers["www-authenticate"]) == (401, 'Bearer realm="causeway"')
    assert "Send a credential" in anonymous.json()["error"]
    assert anonymous.headers["x-trace-id"]
    forbidden = await http.request(method, path, headers=keys.make("none"))
    assert forbidden.status_code == 403
    assert "needs the role" in forbidden.json()["error"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/retrieve", "/documents", "/v1/embeddings"])
async def test_refusals_have_openais_format(http: httpx.AsyncClient, keys: Keys, path: str) -> None:
    """A refusal has the type and the code of OpenAI's errors."""
    anonymous = (await http.post(path)).json()
    assert (anonymous["error"]["type"], anonymous["error"]["code"]) == ("authentication_error", "unauthenticated")
    assert anonymous["detail"] == anonymous["error"]["message"]
    forbidden = (await http.post(path, headers=keys.make("none"))).json()
    assert (forbidden["error"]["type"], forbidden["error"]["code"]) == ("permission_error", "permission_denied")


async def test_each_header_is_accepted(http: httpx.AsyncClient, keys: Keys) -> None:
    """A key is accepted in ``Authorization``, ``api-key`` and ``x-api-key``. A wrong key gets `invalid_token`."""
    key = keys.make("ann", "ask")["authorization"].split()[1]
    for headers in ({"authorization": f"bearer {key}"}, {"api-key": key}, {"x-api-key": key}):
        assert (await http.post("/chat", json=QUESTION, headers=headers)).status_code == 200
    wrong = await http.post("/chat", json=QUESTION, headers={"api-key": key[:-1]})
    assert wrong.headers["www-authenticate"] == 'Bearer realm="causeway", error="invalid_token"'


async def test_open_routes_ignore_credentials(http: httpx.AsyncClient) -> None:
    """An open route serves a request with a wrong key."""
    for path in ("/healthz", "/config", "/auth_setup", "/docs", "/openapi.json"):
        assert (await http.get(path, headers={"api-key": "wrong"})).status_code == 200


async def test_metrics_may_be_open(fakes: Any, keys: Keys) -> None:
    """The metrics need no key if the setting opens them."""
    async with gateway(fakes, metrics_open=True) as http:
        assert (await http.get("/metrics")).status_code == 200


async def test_revoked_and_expired_keys_are_refused(http: httpx.AsyncClient, keys: Keys) -> None:
    """A revoked key and an expired key are refused with 401 at the next request."""
    headers = keys.make("ann", "ask")
    assert (await http.get("/indexes", headers=headers)).status_code == 200
    keys.revoke(headers)
    assert (await http.get("/indexes", headers=headers)).status_code == 401
    expired = await http.get("/indexes", headers=keys.make("ann", "ask", expires_at=time.time() - 1))
    assert (expired.status_code, expired.json()["detail"]) == (401, "The API key has expired.")


async def test_keys_that_are_not_loaded_yet_get_503(fakes: Any) -> None:
    """A request with a key gets 503 and Retry-After, not 401, until the keys are loaded."""
    async with gateway(fakes) as http:
        response = await http.get("/indexes", headers={"api-key": "cwk_x"})
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")


async def test_a_body_without_a_credential_is_not_read(http: httpx.AsyncClient, fakes: Any) -> None:
    """The body of a request without a credential is not read."""
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(1000):
            read += 1
            yield b" " * 1000

    assert (await http.post("/documents", content=body())).status_code == 401
    assert read == 0


async def test_keys_are_bound_to_front_ends(fakes: Any, keys: Keys, tmp_path: Path) -> None:
    """A key is valid for the front ends that list it or that its own list names, and without lists for all."""
    file = tmp_path / "frontends.yaml"
    file.write_text(FRONTENDS)
    fakes.frontends = FrontendsFile(file)
    allowed = {
        "page": {"/help"},
        "both": {"/help", "/staff"},
        "free": {"", "/help", "/staff"},
        "own": {"/staff"},
        "page-and-own": {"/help", "/staff"},
        "gone": set(),
    }
    headers_of = {name: keys.make(name, "ask") for name in ("page", "both", "free")}
    headers_of["own"] = keys.make("x", "ask", profiles=("staff",))
    headers_of["page-and-own"] = keys.make("page", "ask", profiles=("staff",))
    headers_of["gone"] = keys.make("x", "ask", profiles=("a profile that was removed",))
    async with gateway(fakes) as http:
        for name, mounts in allowed.items():
            for mount in ("", "/help", "/staff"):
                response = await http.post(f"{mount}/chat", json=QUESTION, headers=headers_of[name])
                assert (response.status_code == 200) == (mount in mounts), (name, mount)
                if mount not in mounts:
                    assert response.status_code == 403
                    assert "not valid for the front end" in response.json()["error"]
            by_host = headers_of[name] | {"host": "staff.example.com"}
            for path, mount in (("/chat", "/staff"), ("/v1/models", "/staff"), ("/help/v1/models", "/help")):
                method = "POST" if path == "/chat" else "GET"
                response = await http.request(method, path, json=QUESTION, headers=by_host)
                assert (response.status_code == 200) == (mount in mounts), (name, path)


async def test_the_routes_get_the_caller(http: httpx.AsyncClient, fakes: Any, keys: Keys) -> None:
    """A route receives the tenant and the user of the key, and does not show another user's history."""
    ann, bob = keys.make("ann", "ask"), keys.make("bob", "ask")
    saved = {"id": "c", "answers": [["q", {}]]}
    assert (await http.post("/chat_history", json=saved, headers=ann)).status_code == 201
    assert list(fakes.history.users) == [("north", "ann")]
    assert (await http.get("/chat_history/sessions/c", headers=ann)).status_code == 200
    assert (await http.get("/chat_history/sessions/c", headers=bob)).status_code == 404
    assert (await http.delete("/chat_history/sessions/c", headers=bob)).status_code == 404
    assert (await http.get("/chat_history/sessions", headers=bob)).json()["sessions"] == []


async def test_logs_have_only_the_id_of_the_key(
    http: httpx.AsyncClient, keys: Keys, spans: InMemorySpanExporter
) -> None:
    """Logs, traces and responses have the id of the key and no secret."""
    good, bad = keys.make("ann", "ask"), keys.make("bob", "ask")
    keys.revoke(bad)
    token = {"authorization": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.c2VjcmV0"}
    answers = []
    with structlog.testing.capture_logs() as logs:
        for headers in (good, bad, token, {"api-key": "my-password"}):
            paths = ("/chat", "/v1/chat/completions", "/nowhere")
            answers += [await http.post(path, json=QUESTION, headers=headers) for path in paths]
    key_id = api_keys.id_of(good["authorization"].split()[1])
    assert [entry.get("key") for entry in logs if entry["event"] == "request"][:3] == [key_id] * 3
    output = str(logs) + str([(a.text, a.headers) for a in answers])
    output += str([(span.name, span.attributes, span.events) for span in spans.get_finished_spans()])
    for headers in (good, bad, token):
        secret = headers["authorization"].split()[1]
        assert secret not in output
        assert secret.split("_", 2)[-1] not in output
    assert "my-password" not in output


async def test_a_preflight_request_needs_no_key(fakes: Any, keys: Keys, tmp_path: Path) -> None:
    """A preflight request needs no key, and a refused request gets CORS headers."""
    path = tmp_path / "frontends.yaml"
    path.write_text("frontends: [{name: default, origins: ['https://chat.example.com']}]")
    fakes.frontends = FrontendsFile(path)
    origin = {"origin": "https://chat.example.com"}
    async with gateway(fakes) as http:
        requested = {"access-control-request-method": "POST", "access-control-request-headers": "api-key"}
        preflight = await http.options("/chat", headers=origin | requested)
        assert preflight.status_code == 204
        for name in ("authorization", "api-key", "x-api-key"):
            assert name in preflight.headers["access-control-allow-headers"].split(", ")
        refused = await http.post("/chat", json=QUESTION, headers=origin)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://chat.example.com"


# --- tokens -------------------------------------------------------------------------------------------------------


def oidc_settings(issuer: Any, **more: Any) -> Settings:
    defaults = {"auth": "oidc", "oidc_issuer": issuer.url, "oidc_audience": ["causeway"], "default_index": "docs"}
    return Settings(**{**defaults, **more})


@asynccontextmanager
async def signed_in(fakes: Any, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of a gateway that accepts tokens."""
    async with oidc.tokens(settings) as fakes.tokens:
        transport = httpx.ASGITransport(build_app(settings, fakes.services()), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            yield http


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_a_token_gives_access_to_the_routes_of_its_roles(fakes: Any, issuer_at: Callable[[], Any]) -> None:
    """A valid token gives access to the routes of its roles. The keys of the provider are loaded once."""
    issuer = issuer_at()
    async with signed_in(fakes, oidc_settings(issuer)) as http:
        good = issuer.token(roles=["ask"])
        for _ in range(3):
            assert (await http.post("/chat", json=QUESTION, headers=bearer(good))).status_code == 200
        assert issuer.requested_paths == ["/.well-known/openid-configuration", "/keys"]
        assert (await http.post("/index", json={}, headers=bearer(good))).status_code == 403
        expired = await http.get("/indexes", headers=bearer(issuer.token(roles=["ask"], exp=int(time.time()) - 60)))
        assert (expired.status_code, expired.json()["detail"]) == (401, "The token has expired.")
        assert expired.headers["www-authenticate"].endswith('error="invalid_token"')
        assert (await http.get("/indexes", headers=bearer("cwk_x"))).status_code == 401
        assert (await http.get("/indexes")).status_code == 401
        issuer.status = 503
        assert (await http.get("/indexes", headers=bearer(issuer.token(roles=["ask"], jti="2")))).status_code == 200


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_tokens_get_503_without_the_providers_keys(
    fakes: Any, issuer_at: Callable[[], Any], status: int
) -> None:
    """A token gets the status 503 while the provider's keys cannot be loaded. Redirects are not followed."""
    issuer = issuer_at()
    issuer.status = status
    async with signed_in(fakes, oidc_settings(issuer)) as http:
        response = await http.get("/indexes", headers=bearer(issuer.token(roles=["ask"])))
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert issuer.requested_paths == ["/.well-known/openid-configuration"]


async def test_keys_and_tokens_are_accepted_side_by_side(
    fakes: Any, keys: Keys, issuer_at: Callable[[], Any]
) -> None:
    """Keys and tokens are accepted side by side. A token may be bound to a front end."""
    issuer = issuer_at()
    settings = oidc_settings(issuer, auth="keys,oidc", oidc_profiles_claim="pages")
    async with signed_in(fakes, settings) as http:
        assert (await http.get("/indexes", headers=keys.make("ann", "ask"))).status_code == 200
        assert (await http.get("/indexes", headers=bearer(issuer.token(roles=["ask"])))).status_code == 200
        bound = issuer.token(roles=["ask"], pages=["help"])
        assert (await http.get("/indexes", headers=bearer(bound))).status_code == 403
        assert (await http.get("/indexes", headers={"api-key": "cwk_x"})).status_code == 401


async def test_auth_setup_describes_the_login(fakes: Any, issuer_at: Callable[[], Any]) -> None:
    """The response has the fields for the login library if a client id is set, and no login otherwise."""
    issuer = issuer_at()
    scopes = ["api://causeway/access"]
    async with signed_in(fakes, oidc_settings(issuer, oidc_client_id="page", oidc_scopes=scopes)) as http:
        setup = (await http.get("/auth_setup")).json()
    assert (setup["useLogin"], setup["requireAccessControl"], setup["enableUnauthenticatedAccess"]) == (
        True,
        True,
        False,
    )
    assert setup["msalConfig"]["auth"]["clientId"] == "page"
    assert setup["msalConfig"]["auth"]["authority"] == issuer.url
    assert setup["loginRequest"] == setup["tokenRequest"] == {"scopes": scopes}
    async with signed_in(fakes, oidc_settings(issuer)) as http:
        assert (await http.get("/auth_setup")).json()["useLogin"] is False


# --- none ---------------------------------------------------------------------------------------------------------


async def test_without_authentication_credentials_are_ignored(fakes: Any) -> None:
    """A request with a malformed credential is served if authentication is off."""
    async with gateway(fakes, auth="none") as http:
        response = await http.post("/chat", json=QUESTION, headers={"authorization": "Basic nonsense"})
    assert response.status_code == 200


async def test_the_state_has_the_caller() -> None:
    """The state of a request has the caller and its principal. The default principal has no roles."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((state_of(scope).caller, state_of(scope).principal))

    scope: dict[str, Any] = {"type": "http", "headers": []}
    await FixedCaller(app)(scope, None, None)  # type: ignore[arg-type]  # nothing is received or sent
    assert seen == [(LOOPBACK, LOOPBACK.principal)]
    assert Caller(ANONYMOUS.principal).key_id == ""
    assert not any(ANONYMOUS.principal.has_role(role) for role in ("ask", "ingest", "admin"))
