"""guardrails.detector_api: the built-in detectors over HTTP, with the platform's client and with plain requests."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.guardrails.detectors import slow
from detection.detectors.patterns.matching import Limits
from detection.detectors.regex import regex
from detection.domain import DetectionContext, DetectorKind
from detection.moderation.catalogue import Catalogue
from detection.moderation.thread_pool import ThreadPool
from embedding.port import Embedder
from guardrails.detector_api import DetectorServer
from guardrails.detectors.file_type import file_type
from guardrails.detectors.groundedness.detector import groundedness
from guardrails.detectors.structure.process import CheckLimits, CheckProcesses
from guardrails.remote.config import RemoteConfig
from guardrails.remote.detector import RemoteFactory
from servicekit.errors import Unavailable
from yarl import URL

_DOC: dict[str, Any] = {"content": "A text of words.", "context_type": "docs", "context": []}


async def _open() -> Embedder:
    return HashingEmbedder()


@pytest.fixture
async def server() -> AsyncIterator[DetectorServer]:
    """Serve the built-in detectors."""
    workers = ThreadPool(1)
    processes = CheckProcesses(CheckLimits(seconds=20))
    served = DetectorServer(
        Catalogue([regex(Limits(detections=5)), file_type(processes), groundedness(_open, 5)]),
        workers,
        1000,
        0.1,
    )
    await served.start("127.0.0.1", 0)
    yield served
    await served.stop()
    await processes.aclose()
    workers.close()


async def _post(server: DetectorServer, path: str, body: Any, detector: str | None = "regex") -> tuple[int, Any]:
    headers = {} if detector is None else {"detector-id": detector}
    payload: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body}
    if isinstance(body, bytes):
        headers["content-type"] = "application/json"
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{server.port}{path}", headers=headers, **payload) as response,
    ):
        return response.status, await response.json()


async def test_each_content_has_its_detections(server: DetectorServer) -> None:
    """Each content has its own list of detections, with spans in code points."""
    body = {"contents": ["🔑 a@b.co", "none"], "detector_params": {"regex": ["email"]}}
    status, answer = await _post(server, "/api/v1/text/contents", body)
    found = {
        "start": 2,
        "end": 8,
        "text": "a@b.co",
        "detection_type": "pii",
        "detection": "email_address",
        "score": 1.0,
    }
    assert (status, answer) == (200, [[found], []])


async def test_the_platforms_client_reads_the_answers(server: DetectorServer) -> None:
    """The platform's client of remote detectors reads the answers, with evidence and metadata."""
    async with aiohttp.ClientSession() as session:
        url = URL(f"http://127.0.0.1:{server.port}")
        factory = RemoteFactory(RemoteConfig("file_type", DetectorKind.CONTENTS, url), session)
        ((found,),) = await slow(factory, file_type=["json"]).judge(["{"], DetectionContext())
        assert (found.name, found.start, found.end) == ("invalid_json", 0, 1)
        assert b"reason" in found.extra
        grounded = RemoteFactory(RemoteConfig("groundedness", DetectorKind.CONTEXT_DOC, url), session)
        ((ungrounded,),) = await slow(grounded).judge(
            ["Elephants eat grass daily."], DetectionContext(passages=("The pump.",))
        )
        assert ungrounded.name == "ungrounded"
        assert (await factory.health()).healthy


@pytest.mark.parametrize(
    ("path", "body", "detector", "status", "message"),
    [
        ("contents", {"contents": ["x"]}, None, 400, "detector-id"),
        ("contents", {"contents": ["x"]}, "unknown", 404, "detector `unknown` not found"),
        ("generation", {"prompt": "p", "generated_text": "g"}, "regex", 422, "not supported by this endpoint"),
        ("chat", {"messages": []}, "regex", 422, "not supported by this endpoint"),
        ("contents", {"contents": ["x"], "detector_params": {"regex": ["("]}}, "regex", 422, "params.regex[0]"),
        ("contents", {"contents": "x"}, "regex", 422, "contents"),
        ("contents", {"texts": []}, "regex", 422, "contents"),
        ("contents", b"{", "regex", 400, "JSON"),
        ("contents", b'{"contents":["\xff"]}', "regex", 400, "JSON"),
        ("contents", b'{"x":' + b"[" * 3_000, "regex", 400, "JSON"),
        ("contents", {"contents": ["x" * 1001], "detector_params": {"regex": ["email"]}}, "regex", 413, "1000"),
        ("contents", {"contents": ["x" * 20_000]}, "regex", 413, ""),
        ("contents", {"contents": ["x" * 9], "detector_params": {"regex": ["x"]}}, "regex", 500, "more than 5"),
        ("context/doc", _DOC | {"context_type": "x"}, "groundedness", 422, "context_type"),
        ("context/doc", _DOC, "groundedness", 422, "passages"),
    ],
)  # fmt: skip
async def test_an_error_has_a_status_and_the_body_of_the_api(
    server: DetectorServer, path: str, body: Any, detector: str | None, status: int, message: str
) -> None:
    """An error is a status and the API's body, which names the wrong part."""
    answered, error = await _post(server, f"/api/v1/text/{path}", body, detector)
    assert (answered, error["code"]) == (status, status)
    assert message in error["message"]


async def test_a_port_in_use_is_an_error(server: DetectorServer) -> None:
    """A port that another process uses is an error with a message."""
    workers = ThreadPool(1)
    other = DetectorServer(Catalogue([]), workers, 10, 0.1)
    with pytest.raises(Unavailable, match="Cannot listen"):
        await other.start("127.0.0.1", server.port)
    workers.close()
