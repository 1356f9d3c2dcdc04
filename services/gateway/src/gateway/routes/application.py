"""Routes that front ends need in addition to the chat routes: configuration, sign-in, the user's own documents.

Source: the React front end of the Azure RAG demo. It calls these routes, and shows the member ``error`` of errors.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import structlog
from fastapi import APIRouter, Body, Depends, File, Request, Response, UploadFile
from servicekit import keys
from servicekit.characters import has_surrogates
from servicekit.deadline import Deadline
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    NotSupported,
    UnreadableDocument,
)
from servicekit.principal import Principal

from gateway.domain.documents import ENDED, Job, Upload
from gateway.domain.ownership import own_metadata, owned_by
from gateway.frontends.profiles import Frontend
from gateway.ports.answering import Generator, Pictures
from gateway.ports.documents import Catalogue, Ingest, Originals
from gateway.routes.body import json_response
from gateway.routes.draining import unless_draining
from gateway.routes.uploads import UploadSlots, file_names, require_form
from gateway.server.openapi import FRONT_ENDS
from gateway.server.request_state import state_of

_log = structlog.get_logger(__name__)

_FIRST_POLL_SECONDS = 0.1
_MAX_POLL_SECONDS = 1.0
_JOB_TIMEOUT_SECONDS = 10.0
_MODELS_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Login:
    """The OpenID Connect client with which a page signs its users in.

    Attributes:
        client_id: The client id of the page at the provider.
        authority: The provider's address in the format of the front end's login library.
        scopes: The scopes of the token.
    """

    client_id: str
    authority: str
    scopes: Sequence[str]

    @classmethod
    def of(cls, issuer: str, client_id: str, scopes: Sequence[str]) -> Self | None:
        """Return the client for the sign-in at a provider, or None if ``client_id`` is empty."""
        # Entra ID's issuers end with a version that the login library appends itself.
        return cls(client_id, issuer.removesuffix("/v2.0"), scopes) if client_id else None


def router(
    ingest: Ingest,
    catalogue: Catalogue,
    pictures: Pictures,
    originals: Originals,
    generator: Generator,
    slots: UploadSlots,
    draining: asyncio.Event,
    *,
    timeout: float,
    fetches_urls: bool = False,
    login: Login | None = None,
) -> APIRouter:
    """Return the routes that front ends call in addition to the chat routes.

    Args:
        ingest: Adds documents.
        catalogue: Lists and deletes documents.
        pictures: Deletes the pictures of deleted documents.
        originals: Deletes the originals of deleted documents.
        generator: Lists the models.
        slots: Limits concurrent uploads.
        draining: Set when the gateway begins to stop. A waiting upload then returns its job.
        timeout: The maximum number of seconds that an upload waits until its document is indexed, and the time
            limit of the routes that list or delete documents.
        fetches_urls: Whether the platform fetches documents from URLs.
        login: The OpenID Connect client of pages; None: pages have no sign-in.
    """
    routes = APIRouter(tags=[FRONT_ENDS])

    @routes.get("/config", summary="The features that a front end offers")
    async def config(request: Request) -> Response:
        """Return the flags that the Azure RAG demo's front end reads at its start."""
        frontend = state_of(request.scope).frontend
        accepts_pictures = await _accepts_pictures(generator, frontend, _reader(request))
        return json_response(_config(frontend, pictures=accepts_pictures, signs_in=login is not None))

    @routes.get("/auth_setup", summary="The sign-in of a front end's users")
    async def auth_setup(request: Request) -> Response:
        """Return the OpenID Connect client. Without it, pages have no sign-in, and a proxy sends an API key."""
        return json_response(_auth_setup(state_of(request.scope).frontend, login))

    @routes.get("/me", summary="The caller, with its index and assistants")
    async def me(request: Request) -> Response:
        """Return the caller's tenant, user, roles, default index and assistants."""
        state = state_of(request.scope)
        principal, frontend = state.principal, state.frontend
        return json_response(
            {
                "tenant": principal.tenant,
                "user": principal.user,
                "roles": list(principal.roles),
                "default_index": frontend.default_index,
                "ingest_urls": fetches_urls,
                "assistants": [assistant.name for assistant in frontend.assistants_for(principal)],
            }
        )

    @routes.post("/speech", summary="Speech", responses={501: {"description": "Speech is not supported"}})
    async def speech() -> Response:
        """Refuse speech, because front ends use the browser's speech output."""
        raise NotSupported("Speech is not supported.")

    @routes.post(
        "/upload",
        summary="Upload a private document of the user",
        dependencies=[Depends(require_form)],
        responses={
            202: {"description": "The document is stored, and is still being indexed"},
            400: {"description": "The file is missing or empty, or its name is invalid"},
            413: {"description": "The upload is too large"},
            422: {"description": "The document cannot be read"},
            503: {"description": "The queue is unavailable; see Retry-After"},
        },
    )
    async def upload(request: Request, file: Annotated[UploadFile, File(description="The document")]) -> Response:
        """Add a document to the front end's index, and wait until it is indexed.

        Only the user and administrators can see the document.
        """
        principal = state_of(request.scope).principal
        index = _index(request)
        [name] = file_names([file])
        deadline = Deadline.after(timeout)
        async with slots.slot(deadline):
            document_id = await _document_id(catalogue, principal, index, name, deadline)
            upload = _private_upload(principal, index, name, document_id, await file.read())
            job = await ingest.submit(principal, upload, deadline)
        job = await unless_draining(draining, _wait_for_end(ingest, principal, job, deadline), job)
        if job.state in ("failed", "cancelled"):
            raise UnreadableDocument(job.error_message or "The document could not be read.", resource=name)
        if job.state not in ENDED:
            return json_response({"message": f"{name} is stored, and is still being indexed.", "job": job.id}, 202)
        return json_response({"message": f"{name} was uploaded."})

    @routes.get("/list_uploaded", summary="Names of the user's private documents")
    async def list_uploaded(request: Request) -> Response:
        """Return the sorted names of the documents that the user uploaded with ``/upload``."""
        principal = _reader(request)
        try:
            found = await catalogue.find(principal, _index(request), owned_by(principal), Deadline.after(timeout))
        except NotFound:
            return json_response([])  # the first upload creates the index
        return json_response(sorted(document.sourcefile for document in found))

    @routes.post(
        "/delete_uploaded",
        summary="Delete a private document of the user",
        responses={
            400: {"description": "The name is not valid text"},
            404: {"description": "The user has no such document"},
        },
    )
    async def delete_uploaded(
        request: Request, filename: Annotated[str, Body(embed=True, description="The name of the document")]
    ) -> Response:
        """Delete a document that the user uploaded with ``/upload``."""
        if has_surrogates(filename):
            raise InvalidRequest("filename must be valid Unicode, without lone surrogates.", field="filename")
        principal, index, deadline = _reader(request), _index(request), Deadline.after(timeout)
        # Earlier versions did not normalize the names of uploads.
        names = list(dict.fromkeys((filename, keys.file_name(filename))))
        values = {**owned_by(principal), "sourcefile": names}
        found = await catalogue.find(principal, index, values, deadline)
        if not found:
            raise NotFound(f"You have no document {filename[:200]!r}.", resource=filename)
        removal = await catalogue.remove(principal, index, [document.document_id for document in found], deadline)
        await pictures.forget(principal, index, removal.pictured)
        await originals.forget(principal, index, removal.originals)
        return json_response({"message": f"{filename} was deleted."})

    return routes


async def _accepts_pictures(generator: Generator, frontend: Frontend, principal: Principal) -> bool:
    """Return whether the front end's model accepts pictures. The generator lists its default model first."""
    try:
        models = await generator.models(principal, Deadline.after(_MODELS_TIMEOUT_SECONDS))
    except CausewayError as error:
        # The page must start even without the list. If the model does not accept pictures, answers contain a note.
        _log.warning("the models cannot be listed", error=error.message)
        return False
    matching = [model for model in models if not frontend.model or model.name == frontend.model]
    return bool(matching) and matching[0].takes_pictures


def _config(frontend: Frontend, *, pictures: bool, signs_in: bool) -> dict[str, Any]:
    """Return the features of a front end.

    Args:
        frontend: The profile.
        pictures: Whether the model accepts pictures.
        signs_in: Whether the page signs its users in. Without sign-in, a page that offers uploads fails.
    """
    overrides = frontend.overrides
    effort = str(overrides.get("reasoning_effort") or "")
    return {
        # The former and the present name of the same flag.
        "showGPT4VOptions": pictures,
        "showMultimodalOptions": pictures,
        "showSemanticRankerOption": bool(overrides.get("semantic_ranker")),
        "showQueryRewritingOption": True,
        "showReasoningEffortOption": bool(effort),
        "defaultReasoningEffort": effort,
        "defaultRetrievalReasoningEffort": "",
        "streamingEnabled": True,
        "showVectorOption": True,
        "showUserUpload": signs_in and bool(frontend.default_index),
        "showLanguagePicker": False,
        "showSpeechInput": False,
        "showSpeechOutputBrowser": False,
        "showSpeechOutputAzure": False,
        # The history is in the browser, and for signed-in users also on the server.
        "showChatHistoryBrowser": True,
        "showChatHistoryCosmos": signs_in,
        "showAgenticRetrievalOption": False,
        "ragSearchTextEmbeddings": True,
        "ragSearchImageEmbeddings": False,
        "ragSendTextSources": overrides.get("send_text_sources", True) is not False,
        "ragSendImageSources": pictures and bool(overrides.get("send_image_sources", overrides.get("use_gpt4v"))),
        "webSourceEnabled": False,
        "sharepointSourceEnabled": False,
    }


def _auth_setup(frontend: Frontend, login: Login | None) -> dict[str, Any]:
    return {
        "useLogin": login is not None,
        "requireAccessControl": frontend.enforce_access or login is not None,
        "enableUnauthenticatedAccess": login is None,
        "msalConfig": {
            "auth": {
                "clientId": login.client_id if login else "",
                "authority": login.authority if login else "",
                "redirectUri": "/redirect",
                "postLogoutRedirectUri": "/",
                "navigateToLoginRequestUrl": False,
            },
            "cache": {"cacheLocation": "localStorage", "storeAuthStateInCookie": False},
        },
        "loginRequest": {"scopes": list(login.scopes) if login else []},
        "tokenRequest": {"scopes": list(login.scopes) if login else []},
    }


def _index(request: Request) -> str:
    frontend = state_of(request.scope).frontend
    if not frontend.default_index:
        raise NotSupported(f"The front end '{frontend.name}' has no index for uploads. Set `index` in its profile.")
    return frontend.default_index


def _reader(request: Request) -> Principal:
    return state_of(request.scope).frontend.principal_for(state_of(request.scope).principal, filter_requested=False)


async def _document_id(
    catalogue: Catalogue, principal: Principal, index: str, name: str, deadline: Deadline
) -> str:
    """Return the id for the user's document. A document that an earlier version stored keeps its id.

    Earlier versions identified the owner without the issuer (`Principal.has_former_name`).
    """
    if principal.has_former_name:
        values = {**owned_by(principal), "sourcefile": [name]}
        with contextlib.suppress(NotFound):
            for document in await catalogue.find(principal, index, values, deadline):
                return document.document_id
    return keys.document_id(name, principal.owner)


def _private_upload(principal: Principal, index: str, name: str, document_id: str, content: bytes) -> Upload:
    """Return an upload that only the user and administrators can see, and that replaces only documents of the user.

    If the caller is not a user, because the gateway runs without authentication, all callers can see the document.
    """
    user = principal.owner
    return Upload(
        index=index,
        sourcefile=name,
        content=content,
        metadata_json=own_metadata(principal),
        oids=(keys.own_oid(user),) if user else (),
        document_id=document_id,
    )


async def _wait_for_end(ingest: Ingest, principal: Principal, job: Job, deadline: Deadline) -> Job:
    """Wait until the job has ended or the deadline passes. Return the job."""
    pause = _FIRST_POLL_SECONDS
    with contextlib.suppress(TimeoutError, DeadlineExceeded):
        async with asyncio.timeout(deadline.timeout()):
            while job.state not in ENDED:
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _MAX_POLL_SECONDS)
                job = await ingest.job(principal, job.id, Deadline.after(_JOB_TIMEOUT_SECONDS))
    return job
