"""Stands in for the gateway: its public HTTP interface, with scripted answers. Also runs as ``python -m gateway``.

What becomes of an upload depends on its file name: ``same`` in it is found to be there already, ``bad`` fails,
``refused`` is not accepted, ``stuck`` never moves.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
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


class Gateway:
    """An ASGI application and what tests script and look at.

    Attributes:
        services: What ``/readyz`` says of each; all ``ok`` makes it ready.
        refusals: Status and headers of the next answers to ``/documents`` and ``/jobs``.
        uploads: Index, file name and content of what was uploaded.
        asked: Bodies of the questions.
        lines: Of the next streamed answer, instead of the usual ones.
        source: What answers cite, instead of what they should.
    """

    def __init__(self) -> None:
        self.services = dict.fromkeys(("retriever", "generator", "guardrails", "nats"), "ok")
        self.refusals: list[tuple[int, dict[str, str]]] = []
        self.uploads: list[tuple[str, str, bytes]] = []
        self.asked: list[dict[str, Any]] = []
        self.lines: list[bytes] | None = None
        self.source = ""
        self.in_flight: set[str] = set()
        self.most_in_flight = 0
        self._jobs: dict[str, tuple[str, list[str]]] = {}
        self.app = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/documents", self._documents, methods=["POST"]),
                Route("/jobs/{job_id}", self._job),
                Route("/2024-04/chat", self._chat, methods=["POST"]),
                Route("/2024-04/chat/stream", self._stream, methods=["POST"]),
                Route("/v1/chat/completions", self._openai, methods=["POST"]),
            ]
        )

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
        if refusal := self._refusal():
            return refusal
        if "refused" in name:
            return JSONResponse({"detail": f"{name}: files of this type are not read here"}, status_code=415)
        self.uploads.append(upload)
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
        if len(states) > 1:
            states.pop(0)
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
            "progress": {
                "pages_done": 2,
                "pages_total": 2,
                "chunks_done": {3: 0, 2: 3}.get(len(states), 5),
                "chunks_total": 5,
            },
            "error": {"reason": "UNREADABLE_DOCUMENT", "message": f"{name} is encrypted"} if failed else None,
        }

    async def _question(self, request: Request) -> tuple[str, str]:
        body = await request.json()
        self.asked.append(body)
        source = self.source or ANSWERS.get(body["messages"][-1]["content"], "handbook.pdf#page=2")
        return f"It is so [{source}].", source

    async def _chat(self, request: Request) -> Response:
        text, source = await self._question(request)
        context = {"data_points": {"text": [], "citations": [source, "other.md#page=1"]}, "thoughts": _thoughts()}
        body = {"message": {"role": "assistant", "content": text}, "context": context}
        return JSONResponse(body, headers={"x-trace-id": TRACE})

    async def _stream(self, request: Request) -> Response:
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
