"""A client of the public HTTP API for evaluations, and a stack for evaluations without a running platform."""

import asyncio
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
from causeway_testing.stack import run_stack
from eval_sets import EvaluationSet

MODES = ("text", "vectors", "hybrid")
_INGEST_SECONDS = 3600.0
_FINAL_STATES = ("succeeded", "unchanged", "failed", "cancelled")
_FILES_A_REQUEST = 20
_TEXTS_A_REQUEST = 500
_CITATION = re.compile(r"\[([^\[\]]+)\]")


@contextmanager
def own_stack(**environment: str) -> Iterator[str]:
    """Run a stack on free ports with an empty data directory, and yield its URL. Discard its output."""
    with (
        tempfile.TemporaryDirectory() as directory,
        run_stack(Path(directory), environment, quiet=True) as running,
    ):
        yield running["url"]


class Platform:
    """The client of a running platform. See `connected`."""

    def __init__(self, http: httpx.AsyncClient, index: str, *, rerank: bool) -> None:
        self._http = http
        self._index = index
        self._rerank = rerank

    async def create(self, embedding: str) -> None:
        """Create the index for an embedding model."""
        answer = await self._http.post("/indexes", json={"index_name": self._index, "embedding": embedding})
        answer.raise_for_status()

    async def ingest(self, evaluation_set: EvaluationSet) -> None:
        """Upload the documents, and wait until they are searchable.

        Raises:
            RuntimeError: A document fails.
            TimeoutError: A document is not searchable within an hour.
        """
        for start in range(0, len(evaluation_set.files), _FILES_A_REQUEST):
            parts = [
                ("file", (path.name, path.read_bytes()))
                for path in evaluation_set.files[start : start + _FILES_A_REQUEST]
            ]
            answer = await self._http.post("/documents", data={"index": self._index}, files=parts)
            for job in answer.raise_for_status().json()["jobs"]:
                await self._wait_for(job["id"])
        for start in range(0, len(evaluation_set.texts), _TEXTS_A_REQUEST):
            body = {"index_name": self._index, "documents": evaluation_set.texts[start : start + _TEXTS_A_REQUEST]}
            answer = await self._http.post("/index", json=body, timeout=_INGEST_SECONDS)
            accepted = answer.raise_for_status().json()
            if answer.status_code == 202:
                job = accepted.get("job")
                await self._wait_for(job["id"] if isinstance(job, dict) else accepted["id"])

    async def ranking(self, question: str, mode: str, count: int, *, pages: bool) -> list[str]:
        """Return the pages of the found passages, or the found documents without duplicates, the best first."""
        body = {
            "index_name": self._index,
            "query": question,
            "max_node_count": count,
            "retrieval_mode": mode,
            "semantic_ranker": self._rerank,
        }
        answer = await self._http.post("/retrieve", json=body)
        nodes = answer.raise_for_status().json()["results"]
        names = [node["sourcepage"] if pages else node["doc_id"] for node in nodes]
        # Each passage of a page has a rank, as in a prompt. A document has the rank of its best passage.
        return names if pages else list(dict.fromkeys(names))

    async def citations(self, question: str, mode: str, top: int) -> tuple[list[str], list[str]]:
        """Return the citations of an answer, and the sources of its prompt."""
        answer = await self._chat(question, mode, top)
        cited = _CITATION.findall(answer["message"]["content"])
        return list(dict.fromkeys(cited)), answer["context"]["data_points"]["citations"]

    async def answer(self, question: str, top: int) -> str:
        """Return the answer with a number of passages of a hybrid search."""
        text: str = (await self._chat(question, "hybrid", top))["message"]["content"]
        return text

    async def _chat(self, question: str, mode: str, top: int) -> dict[str, Any]:
        overrides = {"index": self._index, "top": top, "retrieval_mode": mode, "semantic_ranker": self._rerank}
        body = {"messages": [{"role": "user", "content": question}], "context": {"overrides": overrides}}
        answer: dict[str, Any] = (await self._http.post("/2024-04/chat", json=body)).raise_for_status().json()
        return answer

    async def _wait_for(self, job_id: str) -> None:
        end = time.monotonic() + _INGEST_SECONDS
        while time.monotonic() < end:
            job: dict[str, Any] = (await self._http.get(f"/jobs/{job_id}")).raise_for_status().json()
            if job["state"] in _FINAL_STATES:
                if job["state"] not in ("succeeded", "unchanged"):
                    raise RuntimeError(f"the job {job_id} ended as {job['state']}: {job}")
                return
            await asyncio.sleep(0.2)
        raise TimeoutError(f"the job {job_id} did not end within {_INGEST_SECONDS:g} s")


@asynccontextmanager
async def connected(url: str, index: str, *, rerank: bool = False) -> AsyncIterator[Platform]:
    """Connect to the platform at a URL."""
    headers = {"authorization": f"Bearer {key}"} if (key := os.environ.get("CAUSEWAY_API_KEY")) else {}
    async with httpx.AsyncClient(base_url=url, timeout=120, headers=headers) as http:
        yield Platform(http, index, rerank=rerank)
