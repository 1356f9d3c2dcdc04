"""The connection to one Triton server: models described, streams opened, failures told apart."""

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
    """One model of a server, through ``tritonclient.grpc.aio``; connected by the first call.

    That package is loaded (15 MB, 0.2 s) by the first call.
    It belongs to the event loop that it is first used in.
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
        """What the model takes and gives; asked once.

        Raises:
            Unavailable: The server cannot be reached, or has no such model loaded.
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
        """What the model gives for these inputs, response by response: the elements of each output.

        The stream is read no further than responses are taken. Closing the generator cancels the request.

        Raises:
            InvalidRequest: The model refused the inputs.
            UpstreamRejected: It failed before its first response.
            Unavailable: It failed later, or cannot be reached.
            DeadlineExceeded: Nothing came for too long.
        """
        from generator.triton.wire import elements, request_of

        begun = False
        patience, what = self._config.first_byte, "did not begin to answer"
        responses = self._client.stream_infer(
            request_of(self._config.model, self._config.version, inputs),
            # Failures come as gRPC's statuses, not as words alone; what the server had not sent by then is lost.
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
            # The model may be another by now, under the same name.
            self._described = None
            raise self._failure(error, begun=begun) from error
        finally:
            responses.cancel()

    async def ready(self) -> bool:
        """It said so when it was last asked, at most a few seconds ago."""
        async with self._looking:
            if time.monotonic() - self._looked_at >= _LOOK_AGAIN_SECONDS:
                self._ready = await self._look()
                self._looked_at = time.monotonic()
        return self._ready

    async def window(self) -> int:
        """The context window that the model's configuration names; 0 where it names none, or is out of reach."""
        if self._described is None and not await self.ready():
            return 0
        with contextlib.suppress(CausewayError):
            return (await self.describe()).window
        return 0

    async def aclose(self) -> None:
        """Closes the connection; once more does no harm."""
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
                # A host that vanished is noticed; Triton hangs up on who asks more often than every five minutes.
                ("grpc.keepalive_time_ms", 310_000),
            )
        return self._made

    def _failure(self, error: Exception, *, begun: bool) -> Exception:
        """What the client raised, as our error."""
        from tritonclient.utils import InferenceServerException

        if isinstance(error, grpc.aio.AioRpcError):
            return failure(error.code(), error.details() or "", self._config.model, begun=begun)
        if isinstance(error, InferenceServerException):
            return failure(code_of(error), error.message() or "", self._config.model, begun=begun)
        return error
