"""Embeddings of a model on a Triton Inference Server: one input of strings, one output of FP32 vectors."""

from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import structlog
from servicekit.errors import CausewayError, DeadlineExceeded, InvalidRequest, RateLimited
from servicekit.triton import TensorModel, TritonAddress, TritonFailed

from embedding.config import EmbeddingConfig
from embedding.errors import Unreachable, WrongVectors

_log = structlog.get_logger(__name__)
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_STRINGS, _FLOATS = "BYTES", "FP32"


class TritonSource:
    """Calls a Triton server over gRPC; the first request connects."""

    def __init__(self, config: EmbeddingConfig) -> None:
        self._who = f"The embedding server of '{config.public_name}'"
        self._name = config.model
        address = TritonAddress(config.address, config.tls, config.ca_file, config.api_key)
        self._model = TensorModel(address, config.model, self._tensors, max_response_bytes=_MAX_RESPONSE_BYTES)

    async def vectors(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Send one request; see `embedding.remote.Source.vectors`."""
        array = np.array([text.encode() for text in texts], np.object_)
        try:
            source, target, column = await self._model.contract()
            elements = array.reshape(-1, 1) if column else array
            vectors = await self._model.infer([(source, _STRINGS, elements)], target)
        except TritonFailed as error:
            raise self._failure(error) from error
        if vectors is None or not vectors.ndim or not vectors.size:
            raise WrongVectors(f"{self._who} sent no valid '{target}'.")
        return vectors.reshape(len(vectors), -1)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._model.aclose()

    def _tensors(self, metadata: Any) -> tuple[str, str, bool]:
        """Return the names of input and output, and whether each text is a row, as Triton's batching requires.

        If the model has several FP32 outputs, return the first one.
        """
        inputs = [tensor for tensor in metadata.inputs if tensor.datatype == _STRINGS]
        outputs = [tensor.name for tensor in metadata.outputs if tensor.datatype == _FLOATS]
        if len(inputs) != 1 or not outputs:
            raise WrongVectors(
                f"The model '{self._name}' does not map one input of strings to FP32 vectors; "
                "configure another model."
            )
        return inputs[0].name, outputs[0], len(inputs[0].shape) > 1

    def _failure(self, error: TritonFailed) -> CausewayError:
        code = error.code.name if error.code else ""
        _log.warning("a request to the embedding server failed", who=self._who, code=code, reason=error.message)
        match error.code:
            case grpc.StatusCode.RESOURCE_EXHAUSTED:
                return RateLimited(f"{self._who} is busy; try again later.")
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
                return Unreachable(f"{self._who} cannot be reached, or the model is not ready.")
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return DeadlineExceeded(f"{self._who} did not answer in time.")
            case grpc.StatusCode.INVALID_ARGUMENT:
                return InvalidRequest(f"{self._who} refused the texts.")
        return WrongVectors(f"{self._who} failed.")
