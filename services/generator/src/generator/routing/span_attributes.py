"""Span attributes of requests and answers under OpenTelemetry's names. They contain no prompt and no answer.

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-spans.md
"""

from collections.abc import Iterable

import msgspec
from opentelemetry.util.types import AttributeValue
from servicekit.errors import InvalidRequest

from generator.domain import Conversation, Event, EventKind, Prompt

_KINDS_WITH_ID = (EventKind.START, EventKind.CHUNK, EventKind.COMPLETION)


class RequestParameters(msgspec.Struct):
    """The parameters of a chat or text completion request that routing and spans need."""

    stream: object = None
    temperature: object = None
    top_p: object = None
    max_tokens: object = None
    max_completion_tokens: object = None
    seed: object = None
    n: object = None
    frequency_penalty: object = None
    presence_penalty: object = None


class _Choice(msgspec.Struct):
    finish_reason: object = None


class _ChunkFields(msgspec.Struct):
    id: object = None
    model: object = None
    choices: list[_Choice] = []


_parameters_decoder = msgspec.json.Decoder(RequestParameters)
_chunk_decoder = msgspec.json.Decoder(_ChunkFields)


def parameters_of(prompt: Prompt) -> RequestParameters:
    """Return the parameters of a prompt; ``stream`` of a `Conversation` comes from its flags.

    Raises:
        InvalidRequest: A number is out of range.
    """
    try:
        if not isinstance(prompt, Conversation):
            return _parameters_decoder.decode(prompt.body)
        parameters = _parameters_decoder.decode(prompt.parameters_json or b"{}")
    except ValueError as error:
        raise InvalidRequest(f"The request's parameters cannot be read: {error}.") from error
    parameters.stream = not (prompt.in_one_piece or prompt.unary)
    return parameters


def request_attributes(parameters: RequestParameters) -> dict[str, AttributeValue]:
    """Return the attributes of a request."""
    attributes: dict[str, object] = {
        "gen_ai.request.temperature": parameters.temperature,
        "gen_ai.request.top_p": parameters.top_p,
        "gen_ai.request.max_tokens": parameters.max_completion_tokens or parameters.max_tokens,
        "gen_ai.request.seed": parameters.seed,
        "gen_ai.request.choice.count": None if parameters.n == 1 else parameters.n,
        "gen_ai.request.frequency_penalty": parameters.frequency_penalty,
        "gen_ai.request.presence_penalty": parameters.presence_penalty,
        "gen_ai.request.stream": parameters.stream is True or None,
    }
    return {name: value for name, value in attributes.items() if isinstance(value, bool | int | float)}


def response_attributes(first_events: Iterable[Event]) -> dict[str, AttributeValue]:
    """Return the attributes of an answer from its first events: id, model, and finish reasons if known."""
    attributes: dict[str, AttributeValue] = {}
    for event in first_events:
        if event.kind not in _KINDS_WITH_ID or not event.raw_json:
            continue
        try:
            chunk = _chunk_decoder.decode(event.raw_json)
        except (ValueError, RecursionError):
            continue  # the client gets the event unchanged
        for name, value in (("gen_ai.response.id", chunk.id), ("gen_ai.response.model", chunk.model)):
            if isinstance(value, str) and value:
                attributes.setdefault(name, value)
        reasons = [choice.finish_reason for choice in chunk.choices if isinstance(choice.finish_reason, str)]
        if reasons:
            attributes["gen_ai.response.finish_reasons"] = [str(reason) for reason in reasons]
    return attributes
