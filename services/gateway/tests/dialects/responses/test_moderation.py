"""A detector of the platform moderates a response."""

from typing import Any

import httpx
from causeway_testing import responses
from gateway.domain import Delta, Finish, Start

PATH = "/v1/responses"


def moderation_by(**policy: str) -> dict[str, Any]:
    modes = {direction: {"mode": mode} for direction, mode in policy.items()}
    return {"model": "words", "policy": modes} if modes else {"model": "words"}


async def ask(client: httpx.AsyncClient, **body: Any) -> Any:
    answer = await client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    return responses.response(answer.json())


async def test_moderation(client: httpx.AsyncClient, fakes: Any) -> None:
    """The response has the result for each direction. The gateway does not store the result."""
    fakes.generator.script = [[Start(b"{}"), Delta(0, "It is secret.")], [Finish(0, "stop")]]
    answer = await ask(client, input="When?", moderation=moderation_by())
    assert answer.output_text == "It is secret."
    assert (answer.moderation.input.flagged, answer.moderation.output.flagged) == (False, True)
    assert (answer.moderation.input.model, answer.moderation.input.categories) == ("words", {})
    result = answer.moderation.output
    assert set(result.categories.values()) == {True}
    assert result.categories.keys() == result.category_scores.keys() == result.category_applied_input_types.keys()
    stored = responses.response((await client.get(f"{PATH}/{answer.id}")).json())
    assert stored.moderation is None


async def test_a_question_is_scored(client: httpx.AsyncClient) -> None:
    """If the policy only scores a flagged question, the gateway answers it, even with other detectors."""
    answer = await ask(
        client, input="Is it secret?", moderation=moderation_by(input="score"), detectors={"output": {}}
    )
    assert (answer.status, answer.moderation.input.flagged) == ("completed", True)


async def test_blocked_questions_and_answers(client: httpx.AsyncClient, fakes: Any) -> None:
    """A blocked question is refused, and a blocked answer is incomplete."""
    refused = await client.post(PATH, json={"input": "Is it secret?", "moderation": moderation_by(input="block")})
    assert refused.status_code == 400
    fakes.generator.script = [[Start(b"{}"), Delta(0, "It is secret.")], [Finish(0, "stop")]]
    answer = await ask(client, input="When?", moderation=moderation_by(output="block"))
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "content_filter")
    assert answer.moderation.output.flagged


async def test_invalid_moderation_is_refused(client: httpx.AsyncClient) -> None:
    """The error names the position in the request."""
    for moderation, field in (
        ({}, "moderation.model"),
        ({"model": "words", "policy": {"input": {"mode": "guess"}}}, "moderation.policy.input.mode"),
    ):
        refused = await client.post(PATH, json={"input": "When?", "moderation": moderation})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
