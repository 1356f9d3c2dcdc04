"""Valid and invalid requests, generated from the OpenAPI document, to every route (`make fuzz`).

Clients rely on the document. Responses must therefore have statuses, content types and bodies that the document
describes. The services behind the gateway are fakes.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
from causeway_testing.gateway.answering import FakeGenerator, FakeGuardrails, FakeIngest, FakeProbe
from causeway_testing.gateway.application import FakeHistory, FakeMemory, FakeOriginals, FakePictures, FakeResponses
from causeway_testing.gateway.indexes import FakeEmbedder, FakeIndexes, FakeTexts
from causeway_testing.gateway.jobs import FakeJobs
from causeway_testing.gateway.records import FakeRecords
from causeway_testing.gateway.response_log import FakeResponseJobs, FakeResponseLog
from causeway_testing.gateway.retrieval import FakeRetriever
from gateway.adapters import Services
from gateway.domain import Passage
from gateway.main import build_app
from gateway.server.http_server import HttpServer, listen
from gateway.settings import Settings

# Schemathesis has its own environment; see requirements/fuzz.in.
SCHEMATHESIS = Path(sys.prefix) / "fuzz" / "bin" / "schemathesis"
EXAMPLES = int(os.environ.get("CAUSEWAY_FUZZ_EXAMPLES", "200"))
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
# The first path always responds with 501, which the tool reports as a server error. The second path reads JSON
# lines, which the tool cannot generate. The tests of the gateway send such lines.
EXCLUDED_PATHS = ("/speech", "/api/v2/text/detection/stream-content")


def services() -> Services:
    """Return fake services, with an index that has one document."""
    passage = Passage("p1", "docs", "d1", "guide.pdf", "guide.pdf#page=1", "The ferry leaves at nine.", 0.5)
    retriever, indexes = FakeRetriever({"docs": [passage]}), FakeIndexes({"docs": {}})
    ingest = FakeIngest()
    return Services(
        retriever,
        FakeGenerator.saying("At ", "nine."),
        FakeGuardrails(),
        ingest,
        retriever,
        FakeOriginals(),
        FakePictures(),
        FakeHistory(),
        FakeMemory(),
        FakeResponses(),
        FakeResponseLog(),
        FakeResponseJobs(),
        FakeTexts(indexes),
        indexes,
        FakeEmbedder(),
        FakeJobs(ingest),
        FakeRecords(),
        [FakeProbe("retriever")],
    )


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """Start the gateway, and yield its URL. It writes no log, because the log lines would take most of the time."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        settings = Settings(default_index="docs", max_body_bytes=100_000, upload_timeout=1, index_timeout=1)
        server = HttpServer(build_app(settings, services()), grace=1)
        serving = asyncio.create_task(server.serve([listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = server.force_exit = True
        await serving
    structlog.reset_defaults()


@pytest.mark.timeout(0)  # the duration depends on the number of examples
async def test_responses_conform_to_the_document(url: str, tmp_path: Path) -> None:
    """No response has a status of 500 or higher, and every response conforms to the document."""
    process = await asyncio.create_subprocess_exec(
        *(SCHEMATHESIS, "run", f"{url}/openapi.json", "--checks", CHECKS, "--max-examples", str(EXAMPLES)),
        *("--phases", "examples,coverage,fuzzing"),
        *(word for path in EXCLUDED_PATHS for word in ("--exclude-path", path)),
        *("--continue-on-failure", "--warnings", "off", "--no-color"),
        cwd=tmp_path,  # the tool writes files into its working directory
    )
    assert await process.wait() == 0
