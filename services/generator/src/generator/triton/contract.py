"""What a model on Triton takes and gives: the inputs of the vLLM backend, or those of TensorRT-LLM's ensemble.

https://github.com/triton-inference-server/vllm_backend#sending-your-first-inference,
https://github.com/triton-inference-server/tensorrtllm_backend/blob/main/docs/model_config.md
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest, NotSupported

from generator.triton.errors import unreadable
from generator.triton.parameters import Sampling

_SAMPLING = "sampling_parameters"
_PROMPT = "text_input"
_ANSWER = "text_output"
_OUTPUT_TOKENS = "num_output_tokens"
_INPUT_TOKENS = "num_input_tokens"
_FINISH_REASON = "finish_reason"
# Switches of a model that has them: a stream, the answer alone, and what is to be counted for us.
_SWITCHES = (
    "stream",
    "exclude_input_in_output",
    "return_finish_reason",
    "return_num_input_tokens",
    "return_num_output_tokens",
)
# A parameter of the OpenAI API, and the tensors that it is called in versions of TensorRT-LLM's ensemble.
_TENSORS = {
    "max_tokens": ("max_tokens", "request_output_len"),
    "min_tokens": ("min_tokens", "min_length"),
    "temperature": ("temperature",),
    "top_p": ("top_p", "runtime_top_p"),
    "top_k": ("top_k", "runtime_top_k"),
    "min_p": ("min_p",),
    "seed": ("seed", "random_seed"),
    "presence_penalty": ("presence_penalty",),
    "frequency_penalty": ("frequency_penalty",),
    "repetition_penalty": ("repetition_penalty",),
}
_STOPS = ("stop_words",)
_BAD_WORDS = ("bad_words",)
_MOST_TOKENS = 1 << 31  # a number beyond is no count


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input: its name on the server and its elements.

    Attributes:
        datatype: As Triton calls it, ``BYTES``, ``FP32``, ….
        parameter: What a client calls it.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Sequence[Any]
    parameter: str


@dataclass(frozen=True, slots=True)
class _Input:
    datatype: str
    batched: bool
    optional: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """A response of the model.

    Attributes:
        text: The next piece of the answer.
        reason: Why the answer ends here, as the OpenAI API says it; empty where it goes on or nothing is said.
        asked: Tokens of the prompt; None where they are not counted.
        said: Tokens of this piece; None where they are not counted.
    """

    text: bytes
    reason: str
    asked: int | None
    said: int | None


@dataclass(frozen=True, slots=True)
class Described:
    """A model's contract.

    Attributes:
        window: Its context window in tokens, 0 where it does not say: the parameter ``context_window`` of its
            configuration.
    """

    inputs: Mapping[str, _Input]
    window: int

    def tensors(self, prompt: str, sampling: Sampling) -> list[Tensor]:
        """A request.

        Raises:
            InvalidRequest: A parameter would have to be dropped, and the answer would be another; it is named.
        """
        made = [self._tensor(_PROMPT, [prompt], "messages")]
        made += [self._tensor(name, [True], name) for name in _SWITCHES if name in self.inputs]
        if _SAMPLING in self.inputs:
            document = msgspec.json.encode(
                {**sampling.given, **({"stop": sampling.stops} if sampling.stops else {})}
            )
            return [*made, self._tensor(_SAMPLING, [document.decode()], _SAMPLING)]
        for parameter, value in sampling.given.items():
            name = self._first(_TENSORS[parameter])
            if name is not None:
                made.append(self._tensor(name, [value], parameter))
            elif not sampling.is_neutral(parameter):
                raise InvalidRequest(f"This model takes no '{parameter}'.", field=parameter)
        made += self._words(_STOPS, sampling.stops, "stop")
        return made + self._words(_BAD_WORDS, (), "bad_words")

    def _words(self, names: Sequence[str], words: Sequence[str], parameter: str) -> list[Tensor]:
        """Words to stop at. A model that takes none has its answer cut by us; older ensembles insist on a list."""
        name = self._first(names)
        if name is None or (not words and self.inputs[name].optional):
            return []
        return [self._tensor(name, list(words) or [""], parameter)]

    def _first(self, names: Sequence[str]) -> str | None:
        return next((name for name in names if name in self.inputs), None)

    def _tensor(self, name: str, values: Sequence[Any], parameter: str) -> Tensor:
        declared = self.inputs[name]
        shape = (1, len(values)) if declared.batched else (len(values),)
        return Tensor(name, declared.datatype, shape, values, parameter)


def described(config: Any) -> Described:
    """The contract of a model, from its configuration (``inference.ModelConfig``).

    Raises:
        NotSupported: It is no model that turns text into text.
    """
    batched = config.max_batch_size > 0
    inputs = {each.name: _Input(_datatype(each), batched, each.optional) for each in config.input}
    outputs = {each.name for each in config.output}
    prompt = inputs.get(_PROMPT)
    if prompt is None or prompt.datatype != "BYTES" or _ANSWER not in outputs:
        raise NotSupported(
            f"The model '{config.name}' does not turn {_PROMPT} into {_ANSWER}, as vLLM's and TensorRT-LLM's do.",
            resource=config.name,
        )
    window = config.parameters["context_window"].string_value if "context_window" in config.parameters else ""
    return Described(inputs, int(window) if window.isdecimal() else 0)


def piece(outputs: Mapping[str, list[Any]]) -> Piece:
    """What a response says.

    Raises:
        Unavailable: An output is of another type than its name promises.
    """
    try:
        reason = b"".join(outputs.get(_FINISH_REASON, [])).decode("utf-8", "replace")
        return Piece(
            b"".join(outputs.get(_ANSWER, [])),
            "" if reason in ("None", "none") else reason,
            _tokens(outputs.get(_INPUT_TOKENS, [])[:1]),
            _tokens(outputs.get(_OUTPUT_TOKENS, [])),
        )
    except TypeError as error:
        raise unreadable() from error


def _tokens(counts: Sequence[int]) -> int | None:
    total = sum(counts)
    return total if counts and 0 <= total <= _MOST_TOKENS else None


def _datatype(declared: Any) -> str:
    """``TYPE_STRING`` of a configuration is ``BYTES`` on the wire."""
    from tritonclient.grpc.model_config_pb2 import DataType

    name = str(DataType.Name(declared.data_type)).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name
