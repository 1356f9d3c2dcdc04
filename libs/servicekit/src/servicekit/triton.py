"""Models on a Triton Inference Server: connections, headers, statuses, and models that answer in one piece.

A package that uses it asks for the extra ``triton``. Triton's client takes 15 MB, which only who has such a model
shall pay: it is imported with the first connection.

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
    """Where a server is, and what it is shown.

    Attributes:
        target: Of its gRPC port, ``host:port``.
        tls: The connection is encrypted.
        ca_file: Certificates, in PEM, that the server's is checked against; None for those that gRPC knows.
        api_key: Goes along as ``authorization: Bearer …``, for a proxy in front of the server.
    """

    target: str
    tls: bool = False
    ca_file: Path | None = None
    api_key: SecretStr | None = None

    def connect(self, *options: tuple[str, Any]) -> Any:
        """Triton's own client (``tritonclient.grpc.aio``); it connects when it is first used.

        Args:
            options: Further ones of the gRPC channel.
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
        """What goes along with a request: the trace, and the key."""
        headers: dict[str, str] = {}
        telemetry.inject(headers)
        if self.api_key is not None:
            headers["authorization"] = f"Bearer {self.api_key.get_secret_value()}"
        return headers


def code_of(error: Any) -> grpc.StatusCode | None:
    """The status that Triton's client keeps as text, ``StatusCode.NOT_FOUND``."""
    return grpc.StatusCode.__members__.get(str(error.status()).partition(".")[2])


class TritonFailed(Exception):
    """A server refused, or there was none.

    Attributes:
        code: Its status; None where it sent words only.
        said: Its words, for the log.
    """

    def __init__(self, code: grpc.StatusCode | None, said: str) -> None:
        super().__init__(said)
        self.code = code
        self.said = said


class TensorModel(Generic[C]):
    """A model that answers a request at once, with numbers; connected by the first request.

    Args:
        address: Of its server.
        name: Its own, in the server's repository.
        read: What is needed of its metadata (``inputs`` and ``outputs``, each with ``name``, ``datatype``,
            ``shape``); raises what the caller of `contract` gets where it is another kind of model.
        most_bytes: Largest answer that is taken.
    """

    def __init__(
        self, address: TritonAddress, name: str, read: Callable[[Any], C], *, most_bytes: int = 4 * 1024 * 1024
    ) -> None:
        self._address = address
        self._name = name
        self._read = read
        self._most_bytes = most_bytes
        self._made: Any = None
        self._looking = asyncio.Lock()
        self._contract: C | None = None

    async def contract(self) -> C:
        """What ``read`` made of the metadata; asked for once, and again after a failure.

        Raises:
            TritonFailed: The server does not say.
        """
        async with self._looking:
            if self._contract is None:
                with self._failing():
                    metadata = await self._client.get_model_metadata(self._name, headers=self._address.headers())
                self._contract = self._read(metadata)
            return self._contract

    async def infer(
        self, inputs: Sequence[tuple[str, str, npt.NDArray[Any]]], output: str
    ) -> npt.NDArray[np.float32] | None:
        """One request.

        Args:
            inputs: Name, Triton's type and elements of each.
            output: The one that is wanted, of FP32.

        Returns:
            Its elements, in its shape; None where the answer has no such output, or one that is none.

        Raises:
            TritonFailed: There is no answer.
        """
        from tritonclient.grpc import InferInput

        given = []
        for name, datatype, elements in inputs:
            given.append(InferInput(name, list(elements.shape), datatype))
            given[-1].set_data_from_numpy(elements)
        with self._failing():
            answer = await self._client.infer(self._name, given, headers=self._address.headers())
        try:
            found = answer.as_numpy(output)
            return None if found is None else np.asarray(found, np.float32)
        except (ValueError, TypeError, struct.error):
            return None

    async def aclose(self) -> None:
        """Closes the connection; once more does no harm."""
        if self._made is not None:
            await self._made.close()
            self._made = None

    @property
    def _client(self) -> Any:
        if self._made is None:
            self._made = self._address.connect(("grpc.max_receive_message_length", self._most_bytes))
        return self._made

    @contextmanager
    def _failing(self) -> Iterator[None]:
        from tritonclient.utils import InferenceServerException

        try:
            yield
        except InferenceServerException as error:
            self._contract = None  # the model may be another by now, under the same name
            raise TritonFailed(code_of(error), error.message() or "") from error
