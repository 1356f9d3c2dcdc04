"""Embeddings of a model on a Triton Inference Server: one input of strings, one output of FP32 vectors."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import structlog
from servicekit import telemetry
from servicekit.errors import CausewayError, DeadlineExceeded, InvalidRequest, RateLimited

from embedding.choice import EmbeddingConfig
from embedding.errors import Unreachable, WrongVectors

_log = structlog.get_logger(__name__)
_MOST_BYTES = 64 * 1024 * 1024
_STRINGS, _FLOATS = "BYTES", "FP32"


class TritonSource:
    """Asks over gRPC; connected by the first request."""

    def __init__(self, config: EmbeddingConfig) -> None:
        self._config = config
        self._who = f"The embedding server of '{config.public_name}'"
        self._made: Any = None
        self._looking = asyncio.Lock()
        self._names: tuple[str, str, bool] | None = None

    async def vectors(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """One request; see `embedding.remote.Source.vectors`."""
        from tritonclient.grpc import InferInput
        from tritonclient.utils import InferenceServerException

        try:
            source, target, column = await self._described()
            given = InferInput(source, [len(texts), 1] if column else [len(texts)], _STRINGS)
            array = np.array([text.encode() for text in texts], np.object_)
            given.set_data_from_numpy(array.reshape(given.shape()))
            answer = await self._client.infer(self._config.model, [given], headers=self._headers())
        except InferenceServerException as error:
            self._names = None  # the model may be another by now
            raise self._failure(error) from error
        vectors = answer.as_numpy(target)
        if vectors is None:
            raise WrongVectors(f"{self._who} sent no '{target}'.")
        read: npt.NDArray[np.float32] = np.asarray(vectors, np.float32).reshape(len(vectors), -1)
        return read

    async def aclose(self) -> None:
        """Closes the connection."""
        if self._made is not None:
            await self._made.close()

    async def _described(self) -> tuple[str, str, bool]:
        """Names of input and output, and whether each text is a row of its own (a model that Triton batches)."""
        async with self._looking:
            if self._names is None:
                model = await self._client.get_model_metadata(self._config.model, headers=self._headers())
                inputs = [each for each in model.inputs if each.datatype == _STRINGS]
                outputs = [each.name for each in model.outputs if each.datatype == _FLOATS]
                if len(inputs) != 1 or not outputs:
                    raise WrongVectors(
                        f"The model '{self._config.model}' does not turn one input of strings into FP32 vectors."
                    )
                self._names = inputs[0].name, outputs[0], len(inputs[0].shape) > 1
            return self._names

    @property
    def _client(self) -> Any:
        if self._made is None:
            # Imported here: it costs 15 MB, which only who has such a model shall pay.
            from tritonclient.grpc.aio import InferenceServerClient

            self._made = InferenceServerClient(
                self._config.address,
                ssl=self._config.tls,
                root_certificates=None if self._config.ca_file is None else str(self._config.ca_file),
                channel_args=[
                    ("grpc.max_receive_message_length", _MOST_BYTES),
                    ("grpc.initial_reconnect_backoff_ms", 100),
                    ("grpc.max_reconnect_backoff_ms", 2000),
                    ("grpc.enable_http_proxy", 0),
                ],
            )
        return self._made

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        telemetry.inject(headers)
        if self._config.api_key is not None:
            headers["authorization"] = f"Bearer {self._config.api_key.get_secret_value()}"
        return headers

    def _failure(self, error: Any) -> CausewayError:
        code = str(error.status()).partition(".")[2]
        _log.warning("the embedding server refused", code=code, said=error.message())
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED.name:
            return RateLimited(f"{self._who} takes no more at present.")
        if code in (grpc.StatusCode.UNAVAILABLE.name, grpc.StatusCode.CANCELLED.name):
            return Unreachable(f"{self._who} cannot be reached, or the model is not ready.")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED.name:
            return DeadlineExceeded(f"{self._who} did not answer in time.")
        if code == grpc.StatusCode.INVALID_ARGUMENT.name:
            return InvalidRequest(f"{self._who} refused the texts.")
        return WrongVectors(f"{self._who} failed.")
