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
    made = InferInput(tensor.name, list(tensor.shape), tensor.datatype)
    made.set_data_from_numpy(array)
    return made


def elements(response: Any) -> dict[str, list[Any]]:
    """Return the elements of each output of a response: strings as bytes, and integers.

    Ignore the shapes, and outputs of other types.

    Raises:
        Unavailable: The bytes are invalid.
    """
    raw = response.raw_output_contents
    read: dict[str, list[Any]] = {}
    try:
        for at, output in enumerate(response.outputs):
            kind = output.datatype
            if kind == "BYTES":
                read[output.name] = _strings(raw[at])
            elif kind in _NUMBERS:  # numpy would take five times as long for one element
                read[output.name] = memoryview(raw[at]).cast(_NUMBERS[kind]).tolist()
    except (struct.error, ValueError, TypeError, IndexError) as error:
        raise unreadable() from error
    return read


def _strings(raw: bytes) -> list[bytes]:
    """Decode strings; each one follows its length, which has four bytes in little-endian order."""
    strings, at = [], 0
    while at < len(raw):
        (length,) = _LENGTH.unpack_from(raw, at)
        at += _LENGTH.size
        strings.append(raw[at : at + length])
        at += length
    if at > len(raw):
        raise ValueError("a string is longer than the data")
    return strings
