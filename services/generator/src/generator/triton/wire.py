"""Tensors in Triton's wire format. Importing this module loads Triton's client.

https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_grpc.md
"""

import struct
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import numpy as np
from servicekit.errors import InvalidRequest
from tritonclient.grpc import InferInput
from tritonclient.utils import triton_to_np_dtype

from generator.triton.contract import Tensor
from generator.triton.errors import unreadable

_LENGTH = struct.Struct("<I")
_NUMBERS: dict[str, Literal["i", "I", "q", "Q"]] = {"INT32": "i", "UINT32": "I", "INT64": "q", "UINT64": "Q"}


def request_of(model: str, version: str, inputs: Sequence[Tensor]) -> AsyncIterator[dict[str, Any]]:
    """Return a stream of one request for Triton's client.

    Raises:
        InvalidRequest: A value does not fit its tensor.
    """
    return _once({"model_name": model, "model_version": version, "inputs": [_input(tensor) for tensor in inputs]})


async def _once(request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield request


def _input(tensor: Tensor) -> InferInput:
    values = [value.encode() if isinstance(value, str) else value for value in tensor.values]
    try:
        array = np.array(values, triton_to_np_dtype(tensor.datatype)).reshape(tensor.shape)
    except (OverflowError, ValueError, TypeError) as error:
        raise InvalidRequest(f"'{tensor.parameter}' is out of range.", field=tensor.parameter) from error
    infer_input = InferInput(tensor.name, list(tensor.shape), tensor.datatype)
    infer_input.set_data_from_numpy(array)
    return infer_input


def elements(response: Any) -> dict[str, list[Any]]:
    """Return the elements of each output of a response, by the name of the output: bytes or integers.

    The result has no shapes, and no outputs of other types.

    Raises:
        Unavailable: The bytes are invalid.
    """
    raw = response.raw_output_contents
    by_name: dict[str, list[Any]] = {}
    try:
        for index, output in enumerate(response.outputs):
            datatype = output.datatype
            if datatype == "BYTES":
                by_name[output.name] = _strings(raw[index])
            elif datatype in _NUMBERS:  # numpy would take five times as long for one element
                by_name[output.name] = memoryview(raw[index]).cast(_NUMBERS[datatype]).tolist()
    except (struct.error, ValueError, TypeError, IndexError) as error:
        raise unreadable() from error
    return by_name


def _strings(raw: bytes) -> list[bytes]:
    """Return the decoded strings. The length of each string precedes it, as four little-endian bytes."""
    strings, offset = [], 0
    while offset < len(raw):
        (length,) = _LENGTH.unpack_from(raw, offset)
        offset += _LENGTH.size
        strings.append(raw[offset : offset + length])
        offset += length
    if offset > len(raw):
        raise ValueError("a string is longer than the data")
    return strings
