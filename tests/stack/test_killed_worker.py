"""A worker is killed at every stage of a job. Another worker completes the job, and each document exists once."""

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from servicekit import keys

pytestmark = pytest.mark.timeout(900)

DYING_WORKER = """
import importlib, os, signal, sys
from ingest.__main__ import main

module, _, path = os.environ["DIES_AFTER"].partition(":")
kind, _, name = path.partition(".")
owner = getattr(importlib.import_module(module), kind)
original, left = getattr(owner, name), int(os.environ["DIES_AT_CALL"])

async def dying(*args, **kwargs):
    global left
    result = await original(*args, **kwargs)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(owner, name, dying)
sys.exit(main())
"""
STAGES = {
    "received": ("ingest.documents.report:Report._reread", 1),
    "fetched": ("ingest.adapters.stores:StoredOriginals.fetch", 1),
    "reading": ("ingest.documents.report:Report.record_progress", 1),
    "read": ("ingest.documents.file_reading:FileReader.read", 1),
    "embedded": ("embedding.minilm:MiniLmEmbedder.embed", 1),
    "half stored": ("ingest.documents.report:Report.record_progress", 4),
    "committed": ("ingest.documents.report:Report.commit", 1),
    "stored": ("ingest.adapters.retriever:RetrieverIndex.store", 1),
    "recorded": ("ingest.documents.report:Report.record_end", 1),
}
"""For each stage: the method, and the number of the call after which the worker dies."""
PARTS = 40
"""The number of passages, which is more than one batch."""
QUAY = "The quay beside them is of granite, and its edge is yellow over the whole length."
AT_ONCE = 3
PULL_SECONDS = 3.0
"""A frozen worker's last request for jobs ends within this time."""


def pier(number: int, version: int) -> tuple[str, tuple[str, bytes]]:
    # The file has more than 4 KiB. The message of a job contains a shorter file, so that no worker would fetch it.
    parts = [f"## Part {part}\n\nPart {part} has {version} bollards. {QUAY}" for part in range(PARTS)]
    return ("file", (f"pier{number}.md", f"# Pier {number}\n\n{chr(10).join(parts)}\n".encode()))


async def versions(stack: Any) -> dict[str, set[int]]:
    """Return the versions of the passages of each document, and check that each passage exists once."""
    page = await stack.http.get("/indexes/piers/documents", params={"limit": 50, "max_text_length": 20_000})
    found: dict[str, set[int]] = {}
    for document in page.raise_for_status().json()["documents"]:
        counts = {version: document["text"].count(f" has {version} bollards.") for version in (1, 2)}
        found[document["doc_id"]] = {version for version, count in counts.items() if count}
        assert set(counts.values()) == {0, PARTS}, (document["doc_id"], counts)
    return found


async def test_a_worker_killed_at_every_stage(stack: Any, record_property: Callable[[str, object], None]) -> None:
    """After each kill, a document has all passages of its old or of its new version. At the end, every document has
    its new version.
    """

    async def upload(version: int) -> list[str]:
        files = [pier(number, version) for number in range(len(STAGES))]
        response = await stack.http.post("/documents", data={"index": "piers"}, files=files)
        return [job["id"] for job in response.raise_for_status().json()["jobs"]]

    for job in await upload(1):
        assert (await stack.wait_for_job(job))["state"] == "succeeded"
    stack.kill("ingest", signal.SIGSTOP)
    try:
        await asyncio.sleep(PULL_SECONDS)
        jobs = await upload(2)
        limit = asyncio.Semaphore(AT_ONCE)

        async def run_and_kill(method: str, call: int) -> int | None:
            settings = {"DIES_AFTER": method, "DIES_AT_CALL": str(call), "CAUSEWAY_INGEST_JOBS": "1"}
            async with (
                limit,
                stack.second_process("ingest", DYING_WORKER, CAUSEWAY_INGEST_PORT="0", **settings) as worker,
            ):
                await asyncio.wait_for(worker.wait(), 200)
                code: int | None = worker.returncode
                return code

        codes = await asyncio.gather(*(run_and_kill(*stage) for stage in STAGES.values()))
        assert dict(zip(STAGES, codes, strict=True)) == dict.fromkeys(STAGES, -signal.SIGKILL)
        found = await versions(stack)
        assert len(found) == len(STAGES)
        assert all(len(passages) == 1 for passages in found.values()), found
    finally:
        stack.kill("ingest", signal.SIGCONT)
    begin = time.monotonic()
    for job in jobs:
        assert (await stack.wait_for_job(job))["state"] in ("succeeded", "unchanged")
    record_property("seconds until all jobs have ended", round(time.monotonic() - begin, 1))
    assert await versions(stack) == {keys.document_id(f"pier{number}.md"): {2} for number in range(len(STAGES))}
    assert (await stack.http.get("/jobs/dead")).json()["jobs"] == []
    content = await stack.http.get("/content/pier0.md", params={"index": "piers"})
    assert b" has 2 bollards" in content.content
