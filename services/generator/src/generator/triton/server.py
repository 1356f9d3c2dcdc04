"""The connection of one deployment to its Triton server: the model's contract, streams, readiness and failures."""

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

from generator.ports import too_slow
from generator.triton.config import TritonConfig
from generator.triton.contract import ModelContract, Tensor, contract_of
from generator.triton.errors import failure

_CHECK_SECONDS = 2.0
_CHECK_INTERVAL_SECONDS = 5.0


class TritonServer:
    """The connection to a Triton server for one model, through ``tritonclient.grpc.aio``.

    The first call connects. It imports that package (15 MB, 0.2 s) unless `load_adapters` of the configuration has
    imported it. Later calls must run in the event loop of the first call.
    """

    def __init__(self, config: TritonConfig) -> None:
        self._config = config
        self._address = TritonAddress(config.address, config.tls, config.ca_file, config.api_key)
        self._connection: Any = None
        self._contract: ModelContract | None = None
        self._check_lock = asyncio.Lock()
        self._checked_at = -math.inf
        self._ready = False

    async def describe(self) -> ModelContract:
        """Return the model's contract; the first call requests it from the server.

        Raises:
            Unavailable: The server cannot be reached, or has not loaded the model.
            NotSupported: The model has no text input or no text output.
            UpstreamRejected: The server failed in another way, for example because it does not accept the key.
            DeadlineExceeded: The server did not answer in time.
        """
        if self._contract is None:
            config, timeout = self._config, self._config.connect
            try:
                answer = await self._client.get_model_config(
                    config.model, config.version, headers=self._address.headers(), client_timeout=timeout
                )
            except Exception as error:
                raise self._failure(error, begun=False) from error
            self._contract = contract_of(answer.config)
        return self._contract

    async def stream(self, inputs: Sequence[Tensor]) -> AsyncGenerator[dict[str, list[Any]], None]:
        """Yield the model's responses to these inputs; each response maps an output's name to its elements.

        The client reads the stream only as fast as the caller requests responses. Closing the generator cancels the
        request.

        Raises:
            InvalidRequest: The model refused the inputs, or a value does not fit its tensor.
            RateLimited: The server is too busy to accept the request.
            UpstreamRejected: The model failed before its first response.
            Unavailable: The model failed later, or the server cannot be reached.
            DeadlineExceeded: The server did not answer in time.
        """
        from generator.triton.wire import elements, request_of

        begun = False
        timeout, what = self._config.first_byte, "did not begin to answer"
        responses = self._client.stream_infer(
            request_of(self._config.model, self._config.version, inputs),
            # This header makes the server report a failure as a gRPC status. The server then discards responses
            # that it has not sent yet.
            headers={**self._address.headers(), "triton_grpc_error": "true"},
        )
        try:
            while True:
                try:
                    async with asyncio.timeout(timeout):
                        result, error = await anext(responses)
                except StopAsyncIteration:
                    return
                except TimeoutError as late:
                    raise too_slow(timeout, what) from late
                if error is not None:
                    raise error
                begun, timeout, what = True, self._config.idle, "sent nothing further"
                yield elements(result.get_response())
        # After a failure, request the contract again: the server may have loaded another model under the same name.
        except CausewayError:
            self._contract = None
            raise
        except Exception as error:
            self._contract = None
            raise self._failure(error, begun=begun) from error
        finally:
            responses.cancel()

    async def ready(self) -> bool:
        """Return whether the model was ready at the last check, which is at most five seconds old."""
        async with self._check_lock:
            if time.monotonic() - self._checked_at >= _CHECK_INTERVAL_SECONDS:
                self._ready = await self._check()
                self._checked_at = time.monotonic()
        return self._ready

    async def window(self) -> int:
        """Return the context window in the model's configuration; 0 if unknown or if the server is unavailable."""
        if self._contract is None and not await self.ready():
            return 0
        with contextlib.suppress(CausewayError):
            return (await self.describe()).window
        return 0

    async def aclose(self) -> None:
        """Close the connection; repeated calls do nothing."""
        if self._connection is not None:
            await self._connection.close()

    async def _check(self) -> bool:
        from tritonclient.utils import InferenceServerException

        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                answer = await self._client.is_model_ready(
                    self._config.model, self._config.version, headers=self._address.headers()
                )
        except (InferenceServerException, TimeoutError):
            return False
        return bool(answer)

    @property
    def _client(self) -> Any:
        if self._connection is None:
            self._connection = self._address.connect(
                *WINDOW_OPTIONS,
                ("grpc.max_receive_message_length", self._config.max_bytes),
                # Pings detect a lost host. Triton disconnects a client that sends a ping more often than every five
                # minutes.
                ("grpc.keepalive_time_ms", 310_000),
            )
        return self._connection

    def _failure(self, error: Exception, *, begun: bool) -> Exception:
        """Return Causeway's error for an exception of the Triton client."""
        from tritonclient.utils import InferenceServerException

        if isinstance(error, grpc.aio.AioRpcError):
            return failure(error.code(), error.details() or "", self._config.model, begun=begun)
        if isinstance(error, InferenceServerException):
            return failure(code_of(error), error.message() or "", self._config.model, begun=begun)
        return error
