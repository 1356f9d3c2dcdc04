import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGenerator, FakeIngest
from causeway_testing.gateway.retrieval import FakeDocument
from gateway.domain import Detectors, Model
from gateway.domain.documents import Job, StoredDocument, Upload
from gateway.domain.ownership import OWNER
from gateway.frontends.assistants import Assistant, Audience
from gateway.frontends.profiles import Frontend
from gateway.frontends.snapshot import Frontends
from gateway.identity.caller import Caller, with_own_oids
from gateway.main import build_app
from gateway.routes import application
from gateway.routes.rest import rest
from gateway.routes.table import ROUTES
from gateway.routes.uploads import UploadSlots
from gateway.routing.table import RouteTable
from gateway.server.authentication import FixedCaller
from gateway.server.frontend_selection import ProfileLayer
from gateway.settings import Settings
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, Unavailable
from servicekit.principal import LOCAL, Principal
from starlette.types import ASGIApp, Scope

ANN = with_own_oids(Principal("local", "ann", oids=("ann-oid", "shared"), roles=("ask", "ingest")))
BOB = with_own_oids(Principal("local", "bob", oids=("bob", "shared"), roles=("ask", "ingest")))


class EndingIngest(FakeIngest):
    """An ingest whose jobs end after a number of look-ups."""

    def __init__(self, state: str = "succeeded", after: int = 1) -> None:
        super().__init__()
        self.state, self.remaining = state, after

    async def job(self, principal: Principal, job_id: str, deadline: Deadline) -> Job:
        job = await super().job(principal, job_id, deadline)
        self.remaining -= 1
        if self.remaining >= 0:
            return job
        message = "It is encrypted." if self.state == "failed" else ""
        return Job(
            **{
                **{name: getattr(job, name) for name in job.__slots__},
                "state": self.state,
                "error_message": message,
            }
        )


def error_body(scope: Scope, error: CausewayError) -> bytes:
    return error.message.encode()


def app(
    fakes: Any,
    ingest: FakeIngest,
    principal: Principal,
    frontend: Frontend,
    timeout: float = 5,
    draining: asyncio.Event | None = None,
    login: application.Login | None = None,
) -> ASGIApp:
    router = application.router(
        ingest,
        fakes.retriever,
        fakes.pictures,
        fakes.originals,
        fakes.generator,
        UploadSlots(1),
        draining or asyncio.Event(),
        timeout=timeout,
        login=login,
    )
    return ProfileLayer(
        FixedCaller(rest([router], error_body, (), RouteTable(ROUTES)), Caller(principal)),
        lambda: Frontends(frontend),
        RouteTable(ROUTES),
    )


def client_for(*args: Any, **more: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app(*args, **more), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


def stored(name: str, owner: str, document_id: str = "") -> FakeDocument:
    record = StoredDocument(document_id or keys.document_id(name, owner), name, "text/plain", "0" * 64, 1, 0.0)
    return FakeDocument(record, (keys.own_oid(owner),), {OWNER: owner})


DOCS = Frontend(default_index="docs")


async def test_config_has_every_option(client: httpx.AsyncClient) -> None:
    """Each option that the front end reads is present, and is a boolean or a string."""
    config = (await client.get("/config")).json()
    assert config["streamingEnabled"] is config["showVectorOption"] is True
    assert config["showQueryRewritingOption"] is config["showChatHistoryBrowser"] is True
    for name in ("showGPT4VOptions", "showMultimodalOptions", "showSpeechInput", "showAgenticRetrievalOption"):
        assert config[name] is False
    assert {type(value) for value in config.values()} == {bool, str}


LOGIN = application.Login("page", "https://login.example", ("openid",))


@pytest.mark.parametrize("login", [None, LOGIN])
@pytest.mark.parametrize("frontend", [DOCS, Frontend()])
async def test_config_offers_uploads_and_history_to_signed_in_users(
    fakes: Any, login: application.Login | None, frontend: Frontend
) -> None:
    """The front end offers uploads only with a login and an index, and the server's history only with a login."""
    async with client_for(fakes, FakeIngest(), LOCAL, frontend, login=login) as http:
        config, setup = [(await http.get(path)).json() for path in ("/config", "/auth_setup")]
    assert setup["useLogin"] is (login is not None)
    assert config["showChatHistoryCosmos"] is setup["useLogin"]
    assert config["showUserUpload"] is (setup["useLogin"] and bool(frontend.default_index))


class UnavailableGenerator(FakeGenerator):
    """A generator that cannot be reached."""

    async def models(self, principal: Principal, deadline: Deadline) -> tuple[Model, ...]:
        raise Unavailable("The generator cannot be reached.")


async def test_config_does_not_wait_for_the_generator(fakes: Any) -> None:
    """The configuration is returned even if the generator cannot be reached."""
    fakes.generator = UnavailableGenerator()
    async with client_for(fakes, fakes.ingest, LOCAL, DOCS) as client:
        response = await client.get("/config")
    assert response.status_code == 200
    assert response.json()["showMultimodalOptions"] is False


async def test_config_follows_the_profile(fakes: Any) -> None:
    """The configuration offers the options of the profile. It offers no upload without an index."""
    overrides = {"semantic_ranker": True, "reasoning_effort": "low"}
    async with client_for(fakes, FakeIngest(), LOCAL, Frontend(overrides=overrides)) as http:
        config = (await http.get("/config")).json()
    assert config["showSemanticRankerOption"] is config["showReasoningEffortOption"] is True
    assert config["defaultReasoningEffort"] == "low"
    assert config["showUserUpload"] is False


async def test_me_describes_the_caller(fakes: Any) -> None:
    """The response has the caller's tenant, user and roles, and only the assistants that the caller may use."""
    assistants = {
        "harbour": Assistant("harbour", ("docs",)),
        "crew": Assistant("crew", audience=Audience(users=frozenset({"bob"}))),
    }
    frontend = Frontend(default_index="docs", assistants=assistants)
    async with client_for(fakes, FakeIngest(), ANN, frontend) as http:
        caller = (await http.get("/me")).json()
    assert caller == {
        "tenant": "local",
        "user": "ann",
        "roles": ["ask", "ingest"],
        "default_index": "docs",
        "ingest_urls": False,
        "assistants": ["harbour"],
    }


async def test_me_offers_uploads_from_urls(fakes: Any, settings: Settings) -> None:
    """`ingest_urls` is true if the operator allows hosts from which documents may be fetched."""
    app = build_app(settings.model_copy(update={"ingest_urls": ["docs.example.org"]}), fakes.services())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as http:
        assert (await http.get("/me")).json()["ingest_urls"] is True


async def test_auth_setup_without_a_login(fakes: Any) -> None:
    """The response has the fields that the front end's login library needs, and no login."""
    async with client_for(fakes, FakeIngest(), LOCAL, Frontend(enforce_access=True)) as http:
        setup = (await http.get("/auth_setup")).json()
    assert (setup["useLogin"], setup["requireAccessControl"], setup["enableUnauthenticatedAccess"]) == (
        False,
        True,
        True,
    )
    assert setup["msalConfig"]["auth"]["clientId"] == ""
    assert setup["loginRequest"]["scopes"] == setup["tokenRequest"]["scopes"] == []


async def test_speech_is_not_supported(client: httpx.AsyncClient) -> None:
    """A request for speech gets the status 501 and an error text."""
    response = await client.post("/speech", json={"text": "Hello"})
    assert response.status_code == 501
    assert response.json() == {"error": "Speech is not supported."}


async def test_a_name_with_a_lone_surrogate_is_refused(fakes: Any) -> None:
    """A file name with a lone surrogate is refused with 400, because UTF-8 cannot encode it."""
    async with client_for(fakes, EndingIngest(), ANN, DOCS) as http:
        headers = {"content-type": "application/json"}
        response = await http.post("/delete_uploaded", content=b'{"filename":"a\\ud800"}', headers=headers)
    assert (response.status_code, response.text) == (
        400,
        "filename must be valid Unicode, without lone surrogates.",
    )


async def test_an_upload_is_visible_only_to_its_user(fakes: Any) -> None:
    """An upload goes to the front end's index, and only its user may see it."""
    ingest = EndingIngest()
    async with client_for(fakes, ingest, ANN, DOCS) as http:
        response = await http.post("/upload", files={"file": ("a b.md", b"# A")})
    assert response.status_code == 200, response.text
    assert response.json() == {"message": "a b.md was uploaded."}
    [upload] = ingest.uploads
    assert upload == Upload(
        "docs",
        "a b.md",
        b"# A",
        metadata_json=b'{"uploaded_by":"ann"}',
        oids=("own:ann",),
        document_id=keys.document_id("a b.md", "ann"),
    )


async def test_an_upload_replaces_the_one_under_the_former_name(fakes: Any) -> None:
    """An upload replaces the document that the user stored under a former name, and gets the user's current name.

    A user without that former name gets another document id.
    """
    fakes.retriever.documents["docs"] = [stored("a.md", "ann")]
    plain = replace(ANN, oids=(), issuer="https://a.example")
    ids = []
    for principal in (with_own_oids(replace(plain, has_former_name=True)), with_own_oids(plain)):
        ingest = EndingIngest()
        async with client_for(fakes, ingest, principal, DOCS) as http:
            listed = (await http.get("/list_uploaded")).json()
            assert (await http.post("/upload", files={"file": ("a.md", b"# A")})).status_code == 200
        assert listed == (["a.md"] if principal.has_former_name else [])
        [upload] = ingest.uploads
        assert upload.oids == ("own:oidc:https://a.example ann",)
        assert json.loads(upload.metadata_json) == {OWNER: "oidc:https://a.example ann"}
        ids.append(upload.document_id)
    assert ids == [keys.document_id("a.md", "ann"), keys.document_id("a.md", plain.owner)]


async def test_files_of_several_users_with_one_name_are_separate(fakes: Any) -> None:
    """Files of the same name from several users are different documents."""
    ingest = EndingIngest()
    for principal in (ANN, BOB, LOCAL):
        async with client_for(fakes, ingest, principal, DOCS) as http:
            await http.post("/upload", files={"file": ("a.md", b"# A")})
    assert len({upload.document_id for upload in ingest.uploads}) == 3
    assert ingest.uploads[2].oids == ()  # without a signed-in user


async def test_an_unreadable_upload_gets_422(fakes: Any) -> None:
    """An unreadable upload gets the status 422 and the reason."""
    async with client_for(fakes, EndingIngest("failed"), ANN, DOCS) as http:
        response = await http.post("/upload", files={"file": ("a.pdf", b"%PDF")})
    assert (response.status_code, response.text) == (422, "It is encrypted.")


async def test_a_server_that_stops_does_not_wait_for_an_upload(fakes: Any) -> None:
    """A gateway that stops responds to a waiting upload with 202 and the job."""
    ingest, draining = EndingIngest(after=1_000_000), asyncio.Event()
    draining.set()
    async with client_for(fakes, ingest, ANN, DOCS, timeout=600, draining=draining) as client:
        response = await client.post("/upload", files={"file": ("a.md", b"# A")})
    assert response.status_code == 202
    assert response.json()["job"]


async def test_an_upload_that_takes_long_gets_202(fakes: Any) -> None:
    """An upload that takes longer than the time-out gets the status 202 and the job."""
    async with client_for(fakes, EndingIngest(after=1000), ANN, DOCS, timeout=0.3) as http:
        response = await http.post("/upload", files={"file": ("a.pdf", b"%PDF")})
    assert response.status_code == 202
    assert response.json()["job"]


@pytest.mark.parametrize(
    ("files", "status"),
    [({"file": ("a.md", b"")}, 400), ({"file": (" ", b"x")}, 400), ({"other": ("a.md", b"x")}, 400), (None, 415)],
)
async def test_an_invalid_upload_is_refused(fakes: Any, files: Any, status: int) -> None:
    """An upload without content, name, file or form is refused, and nothing is submitted."""
    ingest = EndingIngest()
    async with client_for(fakes, ingest, ANN, DOCS) as http:
        assert (await http.post("/upload", files=files)).status_code == status
    assert ingest.uploads == []


async def test_uploads_need_an_index(fakes: Any) -> None:
    """The upload routes of a front end without an index return 501."""
    async with client_for(fakes, EndingIngest(), ANN, Frontend()) as http:
        assert (await http.post("/upload", files={"file": ("a.md", b"x")})).status_code == 501
        assert (await http.get("/list_uploaded")).status_code == 501
        assert (await http.post("/delete_uploaded", json={"filename": "a.md"})).status_code == 501


async def test_an_unreachable_queue_gets_503(fakes: Any) -> None:
    """An upload gets the status 503 and Retry-After while the queue cannot be reached."""
    ingest = EndingIngest()
    ingest.failure = Unavailable("The queue cannot be reached.", retry_after=2)
    async with client_for(fakes, ingest, ANN, DOCS) as http:
        response = await http.post("/upload", files={"file": ("a.md", b"x")})
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")


async def test_users_see_and_remove_only_their_own_uploads(fakes: Any) -> None:
    """A user lists and removes only the user's own uploads. Other documents of the same name stay."""
    public = FakeDocument(StoredDocument("p", "a.md", "text/plain", "0" * 64, 1, 0.0))
    kept, deleted, other = stored("b.md", "ann-oid"), stored("a.md", "ann-oid"), stored("a.md", "bob")
    owned = [FakeDocument(document.stored, (keys.own_oid("ann"),), {OWNER: "ann"}) for document in (kept, deleted)]
    fakes.retriever.documents = {"docs": [public, *owned, other]}
    async with client_for(fakes, FakeIngest(), ANN, DOCS) as http:
        assert (await http.get("/list_uploaded")).json() == ["a.md", "b.md"]
        response = await http.post("/delete_uploaded", json={"filename": "a.md"})
        assert response.status_code == 200, response.text
        assert (await http.get("/list_uploaded")).json() == ["b.md"]
        assert (await http.post("/delete_uploaded", json={"filename": "a.md"})).status_code == 404
    remaining = {document.stored.document_id for document in fakes.retriever.documents["docs"]}
    assert remaining == {"p", kept.stored.document_id, other.stored.document_id}


@pytest.mark.parametrize("kept", ["U\u0308.md", "\u00dc.md"])
async def test_a_removal_accepts_both_forms_of_a_name(fakes: Any, kept: str) -> None:
    """A decomposed name removes the document of this name, which an earlier version may have kept decomposed."""
    fakes.retriever.documents = {"docs": [stored(kept, "ann")]}
    async with client_for(fakes, FakeIngest(), ANN, DOCS) as http:
        assert (await http.post("/delete_uploaded", json={"filename": "U\u0308.md"})).status_code == 200
    assert fakes.retriever.documents["docs"] == []


async def test_an_index_that_does_not_exist_has_no_uploads(fakes: Any) -> None:
    """The list of uploads is empty while the index does not exist."""
    async with client_for(fakes, FakeIngest(), ANN, Frontend(default_index="new", detectors=Detectors())) as http:
        assert (await http.get("/list_uploaded")).json() == []
        assert (await http.post("/delete_uploaded", json={"filename": "a.md"})).status_code == 404


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"filename":1}', b"{}"])
async def test_a_removal_without_a_file_name_is_refused(fakes: Any, body: bytes) -> None:
    """A removal without a valid file name is refused with 400."""
    async with client_for(fakes, FakeIngest(), ANN, DOCS) as http:
        assert (await http.post("/delete_uploaded", content=body)).status_code == 400
