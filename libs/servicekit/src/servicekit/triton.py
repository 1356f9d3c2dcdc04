"""Models on a Triton Inference Server: connections, headers, statuses, and models with one response per request.

A package that uses this module needs the extra ``triton``. Triton's client needs 15 MB of memory, so it is imported
at the first connection.

https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_grpc.md
"""

import asyncio
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc
import numpy as np
import numpy.typing as npt
from pydantic import SecretStr

from servicekit import telemetry

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class TritonAddress:
    """The address of a server, and its credentials.

    Attributes:
        target: ``host:port`` of its gRPC port.
        tls: Whether the connection is encrypted.
        ca_file: PEM file with the CA certificates that verify the server's certificate; None: those that gRPC
            contains.
        api_key: Sent as ``authorization: Bearer …``, for a proxy in front of the server.
    """

    target: str
    tls: bool = False
    ca_file: Path | None = None
    api_key: SecretStr | None = None

    def connect(self, *options: tuple[str, Any]) -> Any:
        """Return Triton's own client (``tritonclient.grpc.aio``), which connects on first use.

        Args:
            options: Further options of the gRPC channel.
        """
        from tritonclient.grpc.aio import InferenceServerClient

        return InferenceServerClient(
            self.target,
            ssl=self.tls,
            root_certificates=None if self.ca_file is None else str(self.ca_file),
            channel_args=[
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 2000),
                ("grpc.enable_http_proxy", 0),
                *options,
            ],
        )

    def headers(self) -> dict[str, str]:
        """Return the headers of a request: the trace context and the key."""
        headers: dict[str, str] = {}
        telemetry.inject(headers)
        if self.api_key is not None:
            headers["authorization"] = f"Bearer {self.api_key.get_secret_value()}"
        return headers


def code_of(error: Any) -> grpc.StatusCode | None:
    """Return the status of an error of Triton's client; None if the error has no known status.

    The client has the status only as a text such as ``StatusCode.NOT_FOUND``.
    """
    return grpc.StatusCode.__members__.get(str(error.status()).partition(".")[2])


class TritonFailed(Exception):
    """A server refused a request, or could not be reached.

    Attributes:
        code: The status; None if the client has only a message.
        message: The message, for the log.
    """

    def __init__(self, code: grpc.StatusCode | None, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class TensorModel(Generic[C]):
    """A model with one numeric response per request. The first request opens the connection.

    The contract of a model is what the caller needs to know about its inputs and outputs, for example their names.

    Args:
        address: The address of the server.
        name: The name of the model in the server's repository.
        read: Returns the contract for the model's metadata (``inputs`` and ``outputs``, each with ``name``,
            ``datatype``, ``shape``). It raises an error for an unsuitable model; `contract` raises this error.
        max_response_bytes: Size limit of a response.
    """

    def __init__(
        self,
        address: TritonAddress,
        name: str,
        read: Callable[[Any], C],
        *,
        max_response_bytes: int = 4 * 1024 * 1024,
    ) -> None:
        self._address = address
        self._name = name
        self._read = read
        self._max_response_bytes = max_response_bytes
        self._connection: Any = None
        self._contract_lock = asyncio.Lock()
        self._contract: C | None = None

    async def contract(self) -> C:
        """Return the contract. The metadata is requested once, and again after a failed request.

        Raises:
            TritonFailed: The server refused the request, or is unavailable.
        """
        async with self._contract_lock:
            if self._contract is None:
                with self._translated_errors():
                    metadata = await self._client.get_model_metadata(self._name, headers=self._address.headers())
                self._contract = self._read(metadata)
            return self._contract

    async def infer(
        self, inputs: Sequence[tuple[str, str, npt.NDArray[Any]]], output: str
    ) -> npt.NDArray[np.float32] | None:
        """Send one request and return an output.

        Args:
            inputs: Name, Triton type and elements of each input.
            output: The name of the requested output, of type FP32.

        Returns:
            The elements in their shape; None if the response does not contain the output, or if the output is
            invalid.

        Raises:
            TritonFailed: The server refused the request, or is unavailable.
        """
        from tritonclient.grpc import InferInput

        tensors = []
        for name, datatype, elements in inputs:
            tensors.append(InferInput(name, list(elements.shape), datatype))
            tensors[-1].set_data_from_numpy(elements)
        with self._translated_errors():
            response = await self._client.infer(self._name, tensors, headers=self._address.headers())
        try:
            found = response.as_numpy(output)
            return None if found is None else np.asarray(found, np.float32)
        except (ValueError, TypeError, struct.error):
            return None

    async def aclose(self) -> None:
        """Close the connection; may be called again."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    @property
    def _client(self) -> Any:
        if self._connection is None:
            self._connection = self._address.connect(("grpc.max_receive_message_length", self._max_response_bytes))
        return self._connection

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        from tritonclient.utils import InferenceServerException

        try:
            yield
        except InferenceServerException as error:
            self._contract = None  # the server may have replaced the model
            raise TritonFailed(code_of(error), error.message() or "") from error
