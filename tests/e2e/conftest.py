"""The stack that the tests use: the running one at CAUSEWAY_E2E_URL, or a new one on free ports of this machine.

If the stack requires authentication, CAUSEWAY_E2E_KEY is an API key with the role `admin`.

The tests use only the public HTTP API, so that the stack can run on any machine.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway_testing.stack import run_stack

CORPUS = Path(__file__).resolve().parents[2] / "examples" / "corpus"
INDEX = "e2e-corpus"
INGEST_SECONDS = 240.0

Ingest = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of the gateway."""
    url = os.environ.get("CAUSEWAY_E2E_URL")
    if url:
        yield url
        return
    with start_stack(tmp_path_factory.mktemp("stack")) as url:
        yield url


@pytest.fixture(name="start_stack", scope="session")
def start_stack_fixture() -> Callable[..., contextlib.AbstractContextManager[str]]:
    """Return a function that starts another stack on this machine, with a data directory and environment
    variables.
    """
    return start_stack


@contextlib.contextmanager
def start_stack(data: Path, **environment: str) -> Iterator[str]:
    """Run a stack for the block, and yield the URL of its gateway."""
    with run_stack(data, environment) as running:
        yield running["url"]


@pytest.fixture(scope="session")
def api_key() -> str:
    """Return the API key. A stack that the tests start does not require one."""
    return os.environ.get("CAUSEWAY_E2E_KEY", "unused")


@pytest.fixture(scope="session")
def http(base_url: str, api_key: str) -> Iterator[httpx.Client]:
    """Return an HTTP client for the gateway."""
    headers = {"Authorization": f"Bearer {api_key}"}
    with httpx.Client(base_url=base_url, headers=headers, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def ingest(http: httpx.Client) -> Ingest:
    """Return a function that uploads files, given as a mapping of names to contents, and returns their finished
    jobs.
    """

    def upload(index: str, files: dict[str, bytes], **form: str) -> list[dict[str, Any]]:
        parts = [("file", (name, content)) for name, content in files.items()]
        response = http.post("/documents", data={"index": index, **form}, files=parts)
        assert response.status_code == 202, response.text
        return [wait_for(http, job["id"]) for job in response.json()["jobs"]]

    return upload


@pytest.fixture(name="wait_for", scope="session")
def wait_for_fixture() -> Callable[[httpx.Client, str], dict[str, Any]]:
    """Return the function that waits for a job."""
    return wait_for


def wait_for(http: httpx.Client, job_id: str) -> dict[str, Any]:
    """Wait until a job has ended, and return it."""
    end = time.monotonic() + INGEST_SECONDS
    while time.monotonic() < end:
        job: dict[str, Any] = http.get(f"/jobs/{job_id}").raise_for_status().json()
        if job["state"] in ("succeeded", "unchanged", "failed", "cancelled"):
            return job
        time.sleep(0.1)
    raise TimeoutError(f"job {job_id} did not end within {INGEST_SECONDS} s")


@pytest.fixture(scope="session")
def corpus(ingest: Ingest) -> str:
    """Fill the index with the sample corpus, and return its name."""
    files = {path.name: path.read_bytes() for path in sorted(CORPUS.iterdir())}
    jobs = ingest(INDEX, files)
    assert {job["state"] for job in jobs} <= {"succeeded", "unchanged"}, jobs
    return INDEX


@pytest.fixture(scope="session")
def handbook(ingest: Ingest) -> None:
    """Fill the index `handbook`, which the documentation uses, with the sample corpus."""
    files = {path.name: path.read_bytes() for path in sorted(CORPUS.iterdir())}
    assert all(job["state"] in ("succeeded", "unchanged") for job in ingest("handbook", files))
