"""The connection to one Triton server: model descriptions, streams, failures."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import grpc
from servicekit.channel import WINDOW_OPTIONS
from servicekit.errors import CausewayError
from servicekit.triton import TritonAddress, code_of

from generator.triton.config import TritonConfig
from generator.triton.contract import Described, Tensor, described
from generator.triton.errors import failure, too_slow

_LOOK_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 5.0


class TritonServer:
    """One model of a server, through ``tritonclient.grpc.aio``; the first call connects.

    The first call also loads that package (15 MB, 0.2 s). The object belongs to the event loop of its first call.
    """

    def __init__(self, config: TritonConfig) -> None:
        self._config = config
        self._address = TritonAddress(config.address, config.tls, config.ca_file, config.api_key)
        self._made: Any = None
        self._described: Described | None = None
        self._looking = asyncio.Lock()
        self._looked_at = -math.inf
        self._ready = False

    async def describe(self) -> Described:
        """Return the model's contract, from the server's first answer.

        Raises:
            Unavailable: The server cannot be reached, or has not loaded the model.
            NotSupported: The model is of another kind.
            DeadlineExceeded: It does not answer.
        """
        if self._described is None:
            config, patience = self._config, self._config.connect
            try:
                answer = await self._client.get_model_config(
                    config.model, config.version, headers=self._address.headers(), client_timeout=patience
                )
            except Exception as error:
                raise self._failure(error, begun=False) from error
            self._described = described(answer.config)
        return self._described

    async def stream(self, inputs: Sequence[Tensor]) -> AsyncGenerator[dict[str, list[Any]], None]:
        """Yield the responses for these inputs: the elements of each output.

        The stream is read only as far as the caller takes responses. Closing the generator cancels the request.

        Raises:
            InvalidRequest: The model refused the inputs.
            UpstreamRejected: It failed before its first response.
            Unavailable: It failed later, or cannot be reached.
            DeadlineExceeded: The server did not answer in time.
        """
        from generator.triton.wire import elements, request_of

        begun = False
        patience, what = self._config.first_byte, "did not begin to answer"
        responses = self._client.stream_infer(
            request_of(self._config.model, self._config.version, inputs),
            # The header requests failures as gRPC statuses. Responses that are not sent yet are then lost.
            headers={**self._address.headers(), "triton_grpc_error": "true"},
        )
        try:
            while True:
                try:
                    async with asyncio.timeout(patience):
                        result, error = await anext(responses)
                except StopAsyncIteration:
                    return
                except TimeoutError as late:
                    raise too_slow(patience, what) from late
                if error is not None:
                    raise error
                begun, patience, what = True, self._config.idle, "sent nothing further"
                yield elements(result.get_response())
        except Exception as error:
            # In the meantime, another model may have got the same name.
            self._described = None
            raise self._failure(error, begun=begun) from error
        finally:
            responses.cancel()

    async def ready(self) -> bool:
        """Return whether it was ready at the last check, at most a few seconds ago."""
        async with self._looking:
            if time.monotonic() - self._looked_at >= _LOOK_AGAIN_SECONDS:
                self._ready = await self._look()
                self._looked_at = time.monotonic()
        return self._ready

    async def window(self) -> int:
        """Return the context window of the model's configuration; 0 if it has none, or cannot be reached."""
        if self._described is None and not await self.ready():
            return 0
        with contextlib.suppress(CausewayError):
            return (await self.describe()).window
        return 0

    async def aclose(self) -> None:
        """Close the connection; repeated calls do nothing."""
        if self._made is not None:
            await self._made.close()

    async def _look(self) -> bool:
        from tritonclient.utils import InferenceServerException

        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                answer = await self._client.is_model_ready(
                    self._config.model, self._config.version, headers=self._address.headers()
                )
        except (InferenceServerException, TimeoutError):
            return False
        return bool(answer)

    @property
    def _client(self) -> Any:
        if self._made is None:
            self._made = self._address.connect(
                *WINDOW_OPTIONS,
                ("grpc.max_receive_message_length", self._config.most_bytes),
                # These pings detect a vanished host. Triton disconnects clients that ping more often than every
                # five minutes.
                ("grpc.keepalive_time_ms", 310_000),
            )
        return self._made

    def _failure(self, error: Exception, *, begun: bool) -> Exception:
        """Return the client's exception as our error."""
        from tritonclient.utils import InferenceServerException

        if isinstance(error, grpc.aio.AioRpcError):
            return failure(error.code(), error.details() or "", self._config.model, begun=begun)
        if isinstance(error, InferenceServerException):
            return failure(code_of(error), error.message() or "", self._config.model, begun=begun)
        return error
