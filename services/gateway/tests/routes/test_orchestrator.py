"""The routes of the guardrails orchestrator that run detectors without a model."""

from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGuardrails
from gateway.domain import DetectionContext, DetectorFailure, Direction, Verdict
from servicekit.deadline import Deadline
from servicekit.principal import Principal

CONTENT = "/api/v2/text/detection/content"


async def test_findings_in_a_text(client: httpx.AsyncClient) -> None:
    """A finding has its position, its text and its detector."""
    response = await client.post(CONTENT, json={"content": "a secret", "detectors": {"words": {}}})
    assert response.status_code == 200
    [found] = response.json()["detections"]
    assert (found["start"], found["end"], found["text"], found["detector_id"]) == (2, 8, "secret", "words")


@pytest.mark.parametrize(
    ("path", "body", "status", "details"),
    [
        ("content", {"content": "x", "detectors": {"unknown": {}}}, 404, "detector `unknown` not found"),
        ("content", {"content": "x", "detectors": {}}, 422, "`detectors` is required"),
        ("content", {"content": "", "detectors": {"words": {}}}, 422, "`content` must not be empty"),
        ("content", {"detectors": {"words": {}}}, 422, "missing field `content`"),
        (
            "chat",
            {"messages": [{"role": "user", "content": "x"}], "detectors": {"words": {}}},
            422,
            "detector `words` is not supported by this endpoint",
        ),
        (
            "chat",
            {"messages": [{"role": "user", "content": "x"}, {"role": "assistant"}], "detectors": {"words": {}}},
            422,
            "Message content cannot be empty",
        ),
        (
            "chat",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}], "detectors": {"words": {}}},
            422,
            "Only content of type text is allowed",
        ),
        (
            "context",
            {"content": "x", "context_type": "book", "context": ["y"], "detectors": {"words": {}}},
            422,
            "`context_type` must be one of `docs`, `url`",
        ),
        ("generated", {"generated_text": "x", "detectors": {"words": {}}}, 422, "missing field `prompt`"),
    ],
)
async def test_invalid_requests_are_refused(
    client: httpx.AsyncClient, path: str, body: Any, status: int, details: str
) -> None:
    """The body of an error has the status and the reason."""
    response = await client.post(f"/api/v2/text/detection/{path}", json=body)
    assert response.status_code == status
    assert response.json() == {"code": status, "details": details}


async def test_other_bodies_methods_and_paths_are_refused(client: httpx.AsyncClient) -> None:
    """Another media type, a body that is not JSON, another method and another path are refused."""
    json_type = {"content-type": "application/json"}
    for headers, content, status in (
        ({}, b"{}", 415),
        ({"content-type": "text/plain"}, b"{}", 415),
        (json_type, b"{", 400),
    ):
        response = await client.post(CONTENT, content=content, headers=headers)
        assert (response.status_code, response.json()["code"]) == (status, status)
    for response in (await client.get(CONTENT), await client.post("/api/v2/nothing")):
        assert response.json()["code"] == response.status_code


NOTHING = DetectionContext()


class Failing(FakeGuardrails):
    """Guardrails with a detector whose server is overloaded."""

    async def detect(
        self,
        principal: Principal,
        direction: Direction,
        detectors: Any,
        texts: Any,
        deadline: Deadline,
        context: DetectionContext = NOTHING,
        *,
        auxiliary: bool = False,
    ) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
        return (Verdict(None, (), ""),), (
            DetectorFailure("words", "detector request failed for `words`: busy", 429),
        )


@pytest.fixture
def failing(fakes: Any) -> None:
    fakes.guardrails = Failing()


@pytest.mark.usefixtures("failing")
async def test_a_detectors_failure_keeps_its_status(client: httpx.AsyncClient) -> None:
    """The failure of a detector causes an error with the status and the message of its server."""
    response = await client.post(CONTENT, json={"content": "x", "detectors": {"words": {}}})
    assert response.status_code == 429
    assert response.json() == {"code": 429, "details": "detector request failed for `words`: busy"}


async def test_the_detectors_are_listed(client: httpx.AsyncClient) -> None:
    """The detectors are listed with their kind and their parameters."""
    [listed] = (await client.get("/detectors")).json()["detectors"]
    assert (listed["id"], listed["kind"], listed["streaming"], listed["params"]) == (
        "words",
        "text_contents",
        True,
        {},
    )
