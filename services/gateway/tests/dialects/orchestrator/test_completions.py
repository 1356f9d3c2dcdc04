"""Text completions with detections, and generated texts."""

import json
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGenerator
from gateway.dialects.exchange import ChatRequest
from gateway.dialects.orchestrator.completions import OrchestratorCompletions
from gateway.dialects.orchestrator.generation_detection import OrchestratorGeneration
from gateway.domain import DetectorKind, OriginalRequest, PromptStyle, Turn
from gateway.frontends.profiles import Frontend, GuardrailsWire
from servicekit.errors import CausewayError
from servicekit.principal import LOCAL

PATH = "/api/v2/text/completions-detection"
WORDS: dict[str, Any] = {"output": {"words": {}}}


def parsed(body: dict[str, Any], dialect: Any = None) -> Turn:
    dialect = dialect or OrchestratorCompletions(GuardrailsWire.ADR)
    turn: Turn = dialect.parse(ChatRequest(json.dumps(body).encode(), LOCAL, Frontend())).turn
    return turn


def test_a_prompt_is_plain_text() -> None:
    """The model server gets the prompt as plain text. It gets only the members that the gateway does not use."""
    turn = parsed({"model": "m", "prompt": "Once", "echo": True, "stream": True, "detectors": WORDS})
    assert (turn.question, turn.style, turn.original) == ("Once", PromptStyle.PLAIN_TEXT, OriginalRequest())
    assert json.loads(turn.parameters_json) == {"echo": True}
    assert turn.detection.kinds == (("words", frozenset((DetectorKind.CONTENTS, DetectorKind.GENERATION))),)


@pytest.mark.parametrize(
    ("body", "details"),
    [
        ({"prompt": "x"}, "missing field `model`"),
        ({"model": "m"}, "missing field `prompt`"),
        ({"model": "m", "prompt": ["x"]}, "`prompt` must be a string"),
        ({"model": "m", "prompt": "x"}, "`detectors` is required"),
    ],
)
def test_invalid_requests_are_refused(body: dict[str, Any], details: str) -> None:
    """The error names the field."""
    with pytest.raises(CausewayError, match=details):
        parsed(body)


async def test_an_answer_in_one_piece(client: httpx.AsyncClient, fakes: Any) -> None:
    """A choice has a text, and the gateway requests a text completion from the model."""
    fakes.generator.script = FakeGenerator.words("upon a ", "secret.")
    body = (await client.post(PATH, json={"model": "fake", "prompt": "Once", "detectors": WORDS})).json()
    assert body["object"] == "text_completion"
    assert body["choices"] == [{"index": 0, "text": "upon a secret.", "finish_reason": "stop"}]
    assert body["detections"]["output"][0]["results"][0]["text"] == "secret"
    [prompt] = fakes.generator.prompts
    assert prompt.plain
    assert [(message.role, message.text) for message in prompt.messages] == [("user", "Once")]


def test_parameters_of_text_generation_are_translated() -> None:
    """The model server gets OpenAI's names of the parameters. An unknown parameter is refused."""
    dialect = OrchestratorGeneration(GuardrailsWire.ADR)
    parameters = {"max_new_tokens": 5, "stop_sequences": ["."], "decoding_method": "GREEDY", "top_p": 0.5}
    body = {"model_id": "m", "prompt": "Once", "detectors": {"fits": {}}}
    turn = parsed({**body, "text_gen_parameters": parameters}, dialect)
    assert json.loads(turn.parameters_json) == {"max_tokens": 5, "stop": ["."], "temperature": 0, "top_p": 0.5}
    assert turn.detection.kinds == (("fits", frozenset((DetectorKind.GENERATION,))),)
    with pytest.raises(CausewayError, match="unknown field `x`"):
        parsed({**body, "text_gen_parameters": {"x": 1}}, dialect)
    with pytest.raises(CausewayError, match="missing field `model_id`"):
        parsed({"prompt": "Once", "detectors": {"fits": {}}}, dialect)


async def test_a_generated_text_needs_a_generation_detector(client: httpx.AsyncClient) -> None:
    """The gateway refuses a detector that judges only contents, not generated texts."""
    body = {"model_id": "fake", "prompt": "Once", "detectors": {"words": {}}}
    response = await client.post("/api/v2/text/generation-detection", json=body)
    assert (response.status_code, response.json()["code"]) == (422, 422)
