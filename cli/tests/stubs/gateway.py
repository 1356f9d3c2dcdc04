"""A stub of the gateway: its public HTTP interface with scripted answers. It also runs as ``python -m gateway``.

A part of an upload's file name selects the result of its job: ``same``: unchanged; ``bad``: failed; ``refused``:
the gateway refuses the upload; ``stuck``: the job stays queued. If the name begins with ``scanned``, the job has
warnings.
"""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from servicekit.keys import document_id
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

TRACE = "0af7651916cd43dd8448eb211c80319c"
ANSWERS = {
    "What should the crew do when an electric car is burning on the car deck?": "safety-manual.pdf#page=3",
    "When will the pivot bearing be renewed?": "brannoch-bridge-maintenance-plan.pdf#page=4",
    "How many leave days may be carried over, and until when?": "leave-and-absence.md#page=1",
}
RUN = {
    "same": ["queued", "unchanged"],
    "bad": ["queued", "parsing", "failed"],
    "stuck": ["queued"],
    "": ["queued", "parsing", "indexing", "indexing", "succeeded"],
}
_WARNINGS = [
    {"reason": "UNREADABLE_DOCUMENT", "message": "The page has no text.", "page": 2, "part": None},
    {"reason": "UNSUPPORTED_MEDIA", "message": "A film.", "page": None, "part": "film.mp4"},
]


class Gateway:
    """An ASGI application whose responses a test sets and whose requests it inspects.

    Attributes:
        services: The states of the services in ``/readyz``, which is ready if all are ``ok``.
        refusals: The status and headers of the next error responses of ``/documents`` and ``/jobs``.
        uploads: The index, file name and content of each upload.
        requests: The bodies of the questions and rebuilds, and the users whose data was deleted.
        lines: The lines of streamed answers; None: the default lines.
        indexes: The names of the indexes; the gateway refuses questions to other indexes. None: every index exists.
        settings: The settings of the indexes by name, in the format of the routes.
        rebuilding: The next states of rebuilds, one for each request.
        source: The source that answers cite; empty: the correct source.
        stored: Documents by index and name, with their files, or None for a text.
        access: Access lists of documents, by name.
        passages: The passages of each document.
        removed: The names of removed documents.
        dead: The ids of dead letters.
        failing: The ids of jobs whose cancellation fails with 500.
        holds_jobs: Whether jobs stop before their last state.
        in_flight: The ids of the jobs that have not reached their last state.
        most_in_flight: The largest number of jobs in flight at one time.
        pictures: The names of the uploads that request pictures of their pages.
        responses: The responses by id, the newest first.
        credentials: The set of received ``Authorization`` headers.
    """

    def __init__(self) -> None:
        self.services = dict.fromkeys(("retriever", "generator", "guardrails", "nats"), "ok")
        self.refusals: list[tuple[int, dict[str, str]]] = []
        self.uploads: list[tuple[str, str, bytes]] = []
        self.requests: list[dict[str, Any]] = []
        self.lines: list[bytes] | None = None
        self.indexes: list[str] | None = None
        self.settings: dict[str, dict[str, Any]] = {}
        self.rebuilding: list[dict[str, Any] | None] = []
        self.source = ""
        self.credentials: set[str] = set()
        self.stored: dict[str, dict[str, bytes | None]] = {}
        self.access: dict[str, dict[str, list[str]]] = {}
        self.passages: list[str] = []
        self.removed: list[str] = []
        self.dead: list[str] = []
        self.failing: set[str] = set()
        self.responses: dict[str, dict[str, Any]] = {}
        self.holds_jobs = False
        self.pictures: list[str] = []
        self.in_flight: set[str] = set()
        self.most_in_flight = 0
        self._jobs: dict[str, tuple[str, list[str]]] = {}
        self.app = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/documents", self._documents, methods=["POST"]),
                Route("/documents", self._list_documents),
                Route("/indexes", self._indexes),
                Route("/indexes", self._create_index, methods=["POST"]),
                Route("/indexes/{index}", self._index, methods=["GET", "PATCH", "DELETE"]),
                Route("/indexes/{index}/rebuild", self._rebuild, methods=["GET", "POST"]),
                Route("/indexes/{index}/documents/delete", self._delete, methods=["POST"]),
                Route("/indexes/{index}/documents/{document:path}/passages", self._passages),
                Route("/indexes/{index}/documents/{document:path}/access", self._access, methods=["PUT"]),
                Route("/users/{user:path}", self._delete_user, methods=["DELETE"]),
                Route("/responses", self._list_responses),
                Route("/responses/{response_id}", self._response, methods=["GET", "DELETE"]),
                Route("/responses/{response_id}/cancel", self._cancel_response, methods=["POST"]),
                Route("/jobs", self._list_jobs),
                Route("/jobs/lanes", self._lanes),
                Route("/jobs/dead", self._list_dead),
                Route("/jobs/dead/replay", self._replay, methods=["POST"]),
                Route("/jobs/{job_id}", self._job),
                Route("/jobs/{job_id}/cancel", self._cancel, methods=["POST"]),
                Route("/2024-04/chat", self._chat, methods=["POST"]),
                Route("/2024-04/chat/stream", self._stream, methods=["POST"]),
                Route("/v1/chat/completions", self._openai, methods=["POST"]),
            ]
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.credentials.add(Request(scope).headers.get("authorization", ""))
        await self.app(scope, receive, send)

    async def _healthz(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _readyz(self, request: Request) -> Response:
        ready = all(state == "ok" for state in self.services.values())
        return JSONResponse(
            {
                "status": "ready" if ready else "not ready",
                "services": {
                    name: {"status": state, "detail": "" if state == "ok" else "connection refused"}
                    for name, state in self.services.items()
                },
            },
            status_code=200 if ready else 503,
        )

    def _refusal(self) -> Response | None:
        if not self.refusals:
            return None
        status, headers = self.refusals.pop(0)
        return JSONResponse({"error": {"message": "come back later"}}, status_code=status, headers=headers)

    async def _documents(self, request: Request) -> Response:
        async with request.form() as form:
            file = form["file"]
            assert not isinstance(file, str)
            name = file.filename or ""
            upload = (str(form["index"]), name, await file.read())
            wants_pictures = form.get("pictures") == "true"
        if refusal := self._refusal():
            return refusal
        if not upload[2]:
            return JSONResponse({"detail": f"The file {name!r} is empty."}, status_code=400)
        if "refused" in name:
            return JSONResponse({"detail": f"{name}: files of this type are not read here"}, status_code=415)
        self.uploads.append(upload)
        if wants_pictures:
            self.pictures.append(name)
        if "bad" not in name and "stuck" not in name:
            self.stored.setdefault(upload[0], {})[name] = upload[2]
        job_id = f"job-{len(self.uploads)}"
        run = next(run for key, run in RUN.items() if key in name)
        self._jobs[job_id] = (name, list(run))
        self.in_flight.add(job_id)
        self.most_in_flight = max(self.most_in_flight, len(self.in_flight))
        return JSONResponse({"jobs": [self._resource(job_id)]}, status_code=202)

    async def _job(self, request: Request) -> Response:
        if refusal := self._refusal():
            return refusal
        job_id = request.path_params["job_id"]
        _, states = self._jobs[job_id]
        if len(states) > (2 if self.holds_jobs else 1):
            states.pop(0)
        return JSONResponse(self._resource(job_id))

    async def _list_documents(self, request: Request) -> Response:
        """Return at most two documents per page."""
        if refusal := self._refusal():
            return refusal
        found = sorted(self.stored.get(request.query_params["index"], {}).items())
        if not found:
            return JSONResponse({"detail": "no such index"}, status_code=404)
        start = int(request.query_params.get("page_token", 0))
        documents = [
            {
                "document_id": hashlib.sha256(name.encode()).hexdigest() if content is None else document_id(name),
                "sourcefile": name,
                "sha256": hashlib.sha256(content or b"").hexdigest(),
                "has_original": content is not None,
                "content_type": "text/markdown",
                "size_bytes": 1234,
                **self.access.get(name, {"oids": [], "groups": []}),
            }
            for name, content in found[start : start + 2]
        ]
        following = str(start + 2) if start + 2 < len(found) else None
        return JSONResponse({"documents": documents, "next_page_token": following})

    async def _passages(self, request: Request) -> Response:
        """Return at most two passages per page."""
        start = int(request.query_params["offset"])
        assert int(request.query_params["limit"]) <= 100
        found = [
            {"id": str(number), "headings": ["Top", "Below"] * (number == 0), "text": text, "sourcepage": "a.md"}
            for number, text in enumerate(self.passages)
        ]
        return JSONResponse({"passages": found[start : start + 2], "total": len(found)})

    async def _access(self, request: Request) -> Response:
        requested = request.path_params["document"]
        name = next(name for docs in self.stored.values() for name in docs if document_id(name) == requested)
        self.access[name] = await request.json()
        job_id = f"access-{len(self._jobs)}"
        self._jobs[job_id] = (name, ["queued", "failed" if "bad" in name else "succeeded"])
        return JSONResponse(self._resource(job_id), status_code=202)

    async def _delete(self, request: Request) -> Response:
        stored = self.stored.get(request.path_params["index"], {})
        requested = (await request.json())["doc_ids"]
        deleted = [name for name in stored if document_id(name) in requested]
        for name in deleted:
            del stored[name]
        self.removed += deleted
        return JSONResponse({"deleted_doc_ids": requested, "not_found_doc_ids": []})

    async def _list_jobs(self, request: Request) -> Response:
        state = request.query_params.get("state")
        listed = [self._resource(job_id) for job_id in reversed(self._jobs)]
        found = [job for job in listed if state in (None, job["state"])][: int(request.query_params["limit"])]
        return JSONResponse({"jobs": found, "next_page_token": None})

    async def _lanes(self, request: Request) -> Response:
        lanes = [{"lane": 1, "jobs": 8, "places": 8}, {"lane": 2, "jobs": 3, "places": None}]
        return JSONResponse({"lanes": lanes})

    async def _list_dead(self, request: Request) -> Response:
        error = {"reason": "INTERNAL", "message": "It ended every worker."}
        listed = [
            {"id": job_id, "index": "x", "sourcefile": f"{job_id}.md", "error": error} for job_id in self.dead
        ]
        return JSONResponse({"jobs": listed, "next_page_token": None})

    async def _replay(self, request: Request) -> Response:
        requested = (await request.json()).get("job_ids")
        sent = [job_id for job_id in self.dead if requested is None or job_id in requested]
        self.dead = [job_id for job_id in self.dead if job_id not in sent]
        missing = [job_id for job_id in requested or () if job_id not in sent]
        return JSONResponse({"replayed": sent, "not_found": missing})

    async def _cancel(self, request: Request) -> Response:
        job_id = request.path_params["job_id"]
        if job_id in self.failing:
            return JSONResponse({"detail": "An internal error."}, status_code=500)
        if job_id not in self._jobs:
            return JSONResponse({"detail": f"No such job: '{job_id}'."}, status_code=404)
        name, states = self._jobs[job_id]
        if len(states) == 1 and states != ["queued"]:
            return JSONResponse({"detail": "The job is over."}, status_code=409)
        self._jobs[job_id] = (name, ["cancelled"])
        return JSONResponse(self._resource(job_id))

    def _resource(self, job_id: str) -> dict[str, Any]:
        name, states = self._jobs[job_id]
        failed = states[0] == "failed"
        if len(states) == 1:
            self.in_flight.discard(job_id)
        return {
            "id": job_id,
            "state": states[0],
            "document_id": f"id of {name}",
            "sourcefile": name,
            "percent": 100 if len(states) == 1 and states != ["queued"] else 40,
            "progress": {
                "pages_done": 2,
                "pages_total": 2,
                "chunks_done": {3: 0, 2: 3}.get(len(states), 5),
                "chunks_total": 5,
            },
            "error": {"reason": "UNREADABLE_DOCUMENT", "message": f"{name} is encrypted"} if failed else None,
            "warnings": _WARNINGS if name.startswith("scanned") else [],
            "warning_count": 3 if name.startswith("scanned") else 0,
        }

    async def _question(self, request: Request) -> tuple[str, str]:
        body = await request.json()
        self.requests.append(body)
        source = self.source or ANSWERS.get(body["messages"][-1]["content"], "handbook.pdf#page=2")
        return f"It is so [{source}].", source

    async def _chat(self, request: Request) -> Response:
        text, source = await self._question(request)
        context = {"data_points": {"text": [], "citations": [source, "other.md#page=1"]}, "thoughts": _thoughts()}
        body = {"message": {"role": "assistant", "content": text}, "context": context}
        return JSONResponse(body, headers={"x-trace-id": TRACE})

    async def _create_index(self, request: Request) -> Response:
        created = await request.json()
        self.settings[created["index_name"]] = {"documents": 0, "chunks": 0, "embedding": "minilm", **created}
        return JSONResponse(created, status_code=201)

    async def _index(self, request: Request) -> Response:
        name = request.path_params["index"]
        if name not in self.settings:
            return JSONResponse({"detail": f"No such index: '{name}' exists."}, status_code=404)
        if request.method == "DELETE":
            del self.settings[name]
            return JSONResponse({"message": "Successfully deleted."})
        if request.method == "PATCH":
            self.settings[name].update(await request.json())
        return JSONResponse(self.settings[name])

    async def _delete_user(self, request: Request) -> Response:
        self.requests.append(
            {"user": request.path_params["user"], "issuer": request.query_params.get("issuer", "")}
        )
        return JSONResponse({"deleted": {"responses": 2, "chats": 1, "sessions": 0}})

    async def _list_responses(self, request: Request) -> Response:
        """Return at most two responses per page."""
        found = list(self.responses.values())
        start = int(request.query_params.get("page_token", 0))
        following = str(start + 2) if start + 2 < len(found) else None
        return JSONResponse({"responses": found[start : start + 2], "next_page_token": following})

    async def _response(self, request: Request) -> Response:
        name = request.path_params["response_id"]
        if name not in self.responses:
            return JSONResponse({"detail": f"No such response: '{name}'."}, status_code=404)
        if request.method == "DELETE":
            del self.responses[name]
            return JSONResponse({"id": name, "deleted": True})
        return JSONResponse(self.responses[name])

    async def _cancel_response(self, request: Request) -> Response:
        name = request.path_params["response_id"]
        if self.responses[name]["status"] != "queued":
            return JSONResponse({"detail": "The response is over."}, status_code=409)
        self.responses[name]["status"] = "cancelled"
        return JSONResponse(self.responses[name])

    async def _rebuild(self, request: Request) -> Response:
        if request.method == "POST":
            self.requests.append(await request.json())
        elif not any(self.rebuilding):
            return JSONResponse({"detail": "It has not been rebuilt."}, status_code=404)
        step = self.rebuilding.pop(0) if len(self.rebuilding) > 1 else self.rebuilding[0]
        return JSONResponse(step, status_code=202 if request.method == "POST" else 200)

    async def _indexes(self, request: Request) -> Response:
        if "details" in request.query_params:
            return JSONResponse(list(self.settings.values()))
        return JSONResponse(self.indexes)

    async def _stream(self, request: Request) -> Response:
        index = (await request.json())["context"]["overrides"].get("index")
        if self.indexes is not None and index not in self.indexes:
            return JSONResponse({"error": f"No such index: '{index}' exists."}, status_code=404)
        text, source = await self._question(request)
        context = {
            "data_points": {"text": [], "citations": [source, "other.md#page=1"]},
            "thoughts": _thoughts()[:1],
        }
        lines = self.lines or [
            _line({"delta": {"role": "assistant"}, "context": context}),
            *(_line({"delta": {"content": piece}}) for piece in text.partition(" is ")),
            b"\n",
            _line({"delta": {}, "context": {"thoughts": _thoughts()}}),
        ]

        async def send() -> AsyncIterator[bytes]:
            for line in lines:
                yield line
                await asyncio.sleep(0)

        return StreamingResponse(send(), media_type="application/json-lines", headers={"x-trace-id": TRACE})

    async def _openai(self, request: Request) -> Response:
        text, _ = await self._question(request)
        return JSONResponse(
            {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}], "source_nodes": []},
            headers={"x-trace-id": TRACE, "server-timing": "retrieve;dur=4.5, generate;dur=9"},
        )


def _thoughts() -> list[dict[str, Any]]:
    return [
        {"title": "Results", "description": [], "props": {"duration_ms": 4.5}},
        {"title": "Prompt", "description": [], "props": {}},
        {"title": "Answer", "description": "", "props": {"duration_ms": 9, "token_usage": {}}},
    ]


def _line(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode() + b"\n"


if __name__ == "__main__":
    if code := os.environ.get("STUB_EXIT_GATEWAY"):
        print("gateway: CAUSEWAY_SOMETHING: Field required", file=sys.stderr)  # noqa: T201  # its log
        sys.exit(int(code))
    gateway = Gateway()
    gateway.source = os.environ.get("STUB_SOURCE", "")
    port = int(os.environ["CAUSEWAY_GATEWAY_PORT"])
    uvicorn.run(gateway.app, host="127.0.0.1", port=port, ws="none", log_level="warning")
