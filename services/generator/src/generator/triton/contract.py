"""The inputs and outputs of a model on Triton: the vLLM backend, or an ensemble of TensorRT-LLM.

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
# Boolean inputs of some models. They request a stream, an answer without the prompt, the finish reason, and token
# counts.
_SWITCHES = (
    "stream",
    "exclude_input_in_output",
    "return_finish_reason",
    "return_num_input_tokens",
    "return_num_output_tokens",
)
# Parameters of a request, with the names of their tensors in different versions of TensorRT-LLM's ensemble.
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
_MAX_TOKENS = 1 << 31  # a larger number is not a valid token count


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input tensor of a model.

    Attributes:
        name: The name of the input on the server.
        datatype: The type in Triton's notation, for example ``BYTES`` or ``FP32``.
        shape: The dimensions.
        values: The elements.
        parameter: The name of the parameter in the client's request, for errors.
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
    """The content of one response of the model.

    Attributes:
        text: The next piece of the answer.
        reason: The finish reason, as the OpenAI API names it; empty if the response has no reason.
        prompt_tokens: The number of tokens of the prompt; None if unknown.
        answer_tokens: The number of tokens of this piece; None if unknown.
    """

    text: bytes
    reason: str
    prompt_tokens: int | None
    answer_tokens: int | None


@dataclass(frozen=True, slots=True)
class ModelContract:
    """The contract of a model: the inputs that it declares, and its context window.

    Attributes:
        inputs: The inputs by name.
        window: The context window in tokens, from the parameter ``context_window`` of the model; 0 if unset.
    """

    inputs: Mapping[str, _Input]
    window: int

    def tensors(self, prompt: str, sampling: Sampling) -> list[Tensor]:
        """Return the tensors of a request.

        Raises:
            InvalidRequest: The model does not support a parameter of the request; the error names the parameter.
        """
        tensors = [self._tensor(_PROMPT, [prompt], "messages")]
        tensors += [self._tensor(name, [True], name) for name in _SWITCHES if name in self.inputs]
        if _SAMPLING in self.inputs:
            document = msgspec.json.encode(
                {**sampling.given, **({"stop": sampling.stops} if sampling.stops else {})}
            )
            return [*tensors, self._tensor(_SAMPLING, [document.decode()], _SAMPLING)]
        for parameter, value in sampling.given.items():
            name = self._input_name(_TENSORS[parameter])
            if name is not None:
                tensors.append(self._tensor(name, [value], parameter))
            elif not sampling.is_neutral(parameter):
                raise InvalidRequest(f"This model does not accept '{parameter}'.", field=parameter)
        tensors += self._words(_STOPS, sampling.stops, "stop")
        return tensors + self._words(_BAD_WORDS, (), "bad_words")

    def _words(self, names: Sequence[str], words: Sequence[str], parameter: str) -> list[Tensor]:
        """Return the tensor of a list of words.

        Return no tensor if the model does not have this input, or if the list is empty and the input is optional.
        Older ensembles require the input even for an empty list. If a model does not have an input for stop words,
        the generator itself ends the answer at a stop sequence.
        """
        name = self._input_name(names)
        if name is None or (not words and self.inputs[name].optional):
            return []
        return [self._tensor(name, list(words) or [""], parameter)]

    def _input_name(self, names: Sequence[str]) -> str | None:
        """Return the first of these names that the model declares; None if it declares none of them."""
        return next((name for name in names if name in self.inputs), None)

    def _tensor(self, name: str, values: Sequence[Any], parameter: str) -> Tensor:
        declared = self.inputs[name]
        shape = (1, len(values)) if declared.batched else (len(values),)
        return Tensor(name, declared.datatype, shape, values, parameter)


def contract_of(config: Any) -> ModelContract:
    """Return the contract of a model from its configuration (``inference.ModelConfig``).

    Raises:
        NotSupported: The model has no text input or no text output.
    """
    batched = config.max_batch_size > 0
    inputs = {tensor.name: _Input(_datatype(tensor), batched, tensor.optional) for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    prompt = inputs.get(_PROMPT)
    if prompt is None or prompt.datatype != "BYTES" or _ANSWER not in outputs:
        raise NotSupported(
            f"The model '{config.name}' does not have the input {_PROMPT} and the output {_ANSWER}. "
            "Serve a model with the vLLM or the TensorRT-LLM backend.",
            resource=config.name,
        )
    window = config.parameters["context_window"].string_value if "context_window" in config.parameters else ""
    return ModelContract(inputs, int(window) if window.isdecimal() else 0)


def parse_piece(outputs: Mapping[str, list[Any]]) -> Piece:
    """Return the content of one response of the model.

    Raises:
        Unavailable: An output has an unexpected type.
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
    return total if counts and 0 <= total <= _MAX_TOKENS else None


def _datatype(declared: Any) -> str:
    """Return the type of an input in requests; the configuration's ``TYPE_STRING`` is ``BYTES`` there."""
    from tritonclient.grpc.model_config_pb2 import DataType

    name = str(DataType.Name(declared.data_type)).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name
