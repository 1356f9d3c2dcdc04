"""The parameters of a chat completion request that a model with one text input supports.

An unsupported parameter that would change the answer causes an error that names the parameter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest

from generator.answer_limits import AnswerLimits
from generator.openai_emulation import invalid

# Parameters without an effect on the answer's text.
_HARMLESS = frozenset(
    (
        "messages", "model", "stream", "stream_options", "user", "metadata", "store", "service_tier",
        "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier",
        "parallel_tool_calls",
    )
)  # fmt: skip
# Other parameters, each with its values that do not change the answer.
_NO_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    # Parameters of text completions:
    "echo": (False,),
    "best_of": (1,),
    "suffix": ("",),
}
# Sampling parameters, each with its value that does not change the answer.
_NEUTRAL = {
    "min_tokens": 0,
    "top_p": 1,
    "top_k": 0,
    "min_p": 0,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "repetition_penalty": 1,
}


class _Parameters(AnswerLimits, kw_only=True):
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    n: int | None = None


_parameters = msgspec.json.Decoder(_Parameters)
_members = msgspec.json.Decoder(dict[str, Any])
_NOT_SAMPLING = ("max_completion_tokens", "stop", "n")


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameters of an answer.

    Attributes:
        given: The sampling parameters by name: the OpenAI API's name, or vLLM's name for a parameter that the
            OpenAI API does not have. ``max_tokens`` is always present.
        stops: Stop sequences; the answer ends before the first match.
    """

    given: Mapping[str, float]
    stops: Sequence[str]

    @property
    def max_tokens(self) -> int:
        """Return the maximum number of tokens of the answer."""
        return int(self.given["max_tokens"])

    def is_neutral(self, parameter: str) -> bool:
        """Return whether the parameter's value has no effect, so that a model without the parameter can answer."""
        return parameter in _NEUTRAL and self.given[parameter] == _NEUTRAL[parameter]


def parse_sampling(parameters_json: bytes, default_max_tokens: int) -> Sampling:
    """Parse the parameters of a request.

    Args:
        parameters_json: A JSON object.
        default_max_tokens: The default of ``max_tokens``.

    Raises:
        InvalidRequest: A parameter has the wrong type or is not supported, a token limit is less than 1, or a stop
            sequence is empty. The error names the parameter.
    """
    try:
        parsed = _parameters.decode(parameters_json)
        members = _members.decode(parameters_json)
    except (ValueError, RecursionError) as error:
        raise invalid(error) from error
    for name, value in members.items():
        is_supported = name in _Parameters.__struct_fields__ or name in _HARMLESS or value is None
        if not is_supported and value not in _NO_EFFECT.get(name, ()):
            raise InvalidRequest(f"This model does not accept '{name}'.", field=name)
    parsed.check()
    if parsed.n not in (None, 1):
        raise InvalidRequest("This model returns one choice; 'n' must be 1.", field="n")
    given = {
        name: value
        for name in _Parameters.__struct_fields__
        if name not in _NOT_SAMPLING and (value := getattr(parsed, name)) is not None
    }
    given["max_tokens"] = parsed.token_limit or default_max_tokens
    return Sampling(given, parsed.stops)
