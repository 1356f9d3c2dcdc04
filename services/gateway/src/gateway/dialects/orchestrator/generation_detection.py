"""Text generation with detections: a prompt that the model continues, and the findings in the generated text.

Source: the guardrails orchestrator's API, ``/api/v2/text/generation-detection``. This module renames the
parameters of the orchestrator's text generation servers to the parameters of an OpenAI-compatible server.
"""

from dataclasses import replace
from typing import Any

import msgspec
from servicekit.errors import CausewayError, Unavailable

from gateway.dialects import json_fields
from gateway.dialects.answer import Answer
from gateway.dialects.exchange import ChatRequest, Exchange
from gateway.dialects.orchestrator import errors, fields
from gateway.dialects.orchestrator.chat import media
from gateway.dialects.orchestrator.completions import text_turn
from gateway.dialects.orchestrator.detections import results_by_item
from gateway.domain import Batch, Chunking, DetectionOptions, Detections, DetectorKind, Detectors, Turn
from gateway.frontends.profiles import GuardrailsWire

_KINDS = frozenset((DetectorKind.GENERATION,))
# The parameters of OpenAI's API, with vLLM's extensions, by the orchestrator's names.
_PARAMETER_NAMES = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "stop_sequences": "stop",
    "truncate_input_tokens": "truncate_prompt_tokens",
    "preserve_input_text": "echo",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repetition_penalty",
    "seed": "seed",
}
_REQUEST_NAME = "generate"


class OrchestratorGeneration:
    """`Dialect` of ``POST /api/v2/text/generation-detection``. The gateway sends the answer in one piece.

    Args:
        wire: The wire format of the API.
    """

    name = "orchestrator-generation"

    def __init__(self, wire: GuardrailsWire) -> None:
        self.media = media(wire)
        self._wire = wire

    def parse(self, request: ChatRequest) -> Exchange:
        """See `Dialect`."""
        raw = fields.members(request.body)
        fields.check_members(raw, ("model_id", "prompt", "detectors"), ("text_gen_parameters",))
        requested = fields.detectors(raw)
        turn = text_turn(
            request,
            fields.text(raw, "model_id"),
            fields.text(raw, "prompt"),
            _parameters(raw),
            in_one_piece=True,
        )
        turn = replace(
            turn,
            detectors=request.frontend.detectors_for(Detectors(output=requested)),
            detection=DetectionOptions(
                kinds=fields.kinds(_KINDS, requested), chunking=Chunking.DETECTORS, blocked_is_empty=True
            ),
        )
        return _Generation(turn)

    def error(self, error: CausewayError) -> bytes:
        """See `Dialect`."""
        return errors.body(error, self._wire, request_name=_REQUEST_NAME)


class _Generation:
    """`Exchange` of one generated text."""

    streaming = False

    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self._answer = Answer()

    def render(self, batch: Batch) -> bytes:
        """Fail: this dialect does not stream."""
        raise NotImplementedError

    def render_failure(self, error: CausewayError) -> bytes:
        """Fail: this dialect does not stream."""
        raise NotImplementedError

    def add_events(self, batch: Batch) -> None:
        """See `Exchange`.

        Raises:
            DetectorFailed: The answer must not continue without a detector that failed.
        """
        for event in batch:
            if isinstance(event, Detections):
                errors.check_failures(event.failures, event.direction, self.turn.detectors)
        self._answer.add_events(batch)

    def complete(self) -> bytes:
        """See `Exchange`."""
        answer = self._answer
        text = answer.choices[0].text if 0 in answer.choices else ""
        tokens = answer.usage.prompt_tokens if answer.usage is not None else 0
        if answer.completion:
            text, tokens = _parse_completion(answer.completion)
        results = results_by_item(answer.detections)
        return msgspec.json.encode(
            {
                "generated_text": text,
                "detections": [result for item_results in results.values() for result in item_results],
                "input_token_count": tokens,
            }
        )


class _Choice(msgspec.Struct):
    text: str = ""


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


def _parse_completion(completion: bytes) -> tuple[str, int]:
    """Return the text of a model server's answer and the number of tokens of the prompt.

    Raises:
        Unavailable: The answer is not a text completion.
    """
    try:
        body = msgspec.json.decode(completion, type=_Completion)
    except msgspec.DecodeError as error:
        raise Unavailable("The model server's answer is not a text completion.") from error
    return "".join(choice.text for choice in body.choices[:1]), body.usage.prompt_tokens if body.usage else 0


def _parameters(raw: fields.Raw) -> bytes:
    """Return the parameters for the model server as JSON, renamed as in `_PARAMETER_NAMES`.

    The decoding method ``GREEDY`` becomes temperature 0. The gateway ignores other decoding methods.

    Raises:
        InvalidRequest: ``text_gen_parameters`` is not an object.
        Unprocessable: A parameter is unknown.
    """
    options = json_fields.pick(raw, ("text_gen_parameters",)).object("text_gen_parameters")
    parameters: dict[str, Any] = {}
    for name, value in options.members():
        if name == "decoding_method":
            parameters |= {"temperature": 0} if str(value).upper() == "GREEDY" else {}
        elif name in _PARAMETER_NAMES:
            parameters.setdefault(_PARAMETER_NAMES[name], value)
        else:
            raise fields.unknown(name, ("decoding_method", *_PARAMETER_NAMES), f"text_gen_parameters.{name}")
    return msgspec.json.encode(parameters)
