"""A node of a Qdrant cluster: its client, and whether the node has failed recently."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from urllib.parse import urlsplit

import structlog
from grpc import StatusCode
from grpc.aio import AioRpcError
from pydantic import SecretStr
from qdrant_client import AsyncQdrantClient
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.context_headers import headers
from servicekit.errors import DeadlineExceeded, InvalidRequest, Unavailable
from servicekit.tasks import cancel_and_wait

from retriever.stores.qdrant.call_span import call_span
from retriever.stores.qdrant.failures import Missing, Transient, translated

_log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Method = Callable[Concatenate[AsyncQdrantClient, P], Awaitable[T]]

_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_PROBE_SECONDS = 0.5
"""Seconds between two probes of an avoided node, and time-out of a probe."""
_CATCH_UP_SECONDS = 10.0
"""Seconds after the first response of a node during which it may still have old collections and aliases."""
_WARNING_INTERVAL_SECONDS = 10.0
"""Minimum seconds between two warnings about a node."""


class Read(Protocol):
    """Calls a read method of the client."""

    async def __call__(self, method: Method[..., T], *args: Any, **options: Any) -> T:
        """Return the result of the method; see `Connection.read`."""
        ...


class ReasonToAvoid(Protocol):
    """Returns why a node that responds must not be used yet."""

    async def __call__(self, *, is_new: bool) -> str | None:
        """See `Comparison.reason_to_avoid`."""
        ...


class Node:
    """A node and its state.

    Args:
        client: The client, not yet connected. `aclose` closes it.
        server: The node's address for spans.
        api_key: The current key is sent with each call. None: the server requires no key.

    Attributes:
        reason_to_avoid: Returns why the node must not be used yet. Called before the node is used again.
    """

    def __init__(
        self,
        client: AsyncQdrantClient,
        server: Mapping[str, str | int] | None = None,
        api_key: SecretStr | None = None,
    ) -> None:
        self._client = client
        self._server = server or {}
        self._api_key = api_key
        self.reason_to_avoid: ReasonToAvoid | None = None
        self._probing: asyncio.Task[None] | None = None
        self._silent_until = 0.0

    @classmethod
    def from_url(cls, url: str, api_key: SecretStr | None, seconds: float, authority: Path | None = None) -> "Node":
        """Return the node at a URL.

        Args:
            url: ``http://host:6334``, or ``https`` for an encrypted connection; the port is the gRPC port.
            api_key: The API key, or None if the server requires none.
            seconds: Maximum time of a call.
            authority: PEM file with the CA certificates that verify the server's certificate; None: the CA
                certificates that gRPC contains, not those of the system.

        Raises:
            InvalidRequest: The URL is malformed, or the file cannot be used.
        """
        host, port, encrypted = address_of(url)
        options: dict[str, Any] = {
            "grpc.max_receive_message_length": _MAX_MESSAGE_BYTES,
            "grpc.max_send_message_length": _MAX_MESSAGE_BYTES,
            # These detect a hanging node during a call. Both time-outs are needed: see `servicekit.channel`.
            "grpc.keepalive_time_ms": 5_000,
            "grpc.keepalive_timeout_ms": 2_000,
            "grpc.http2.ping_timeout_ms": 2_000,
            # Otherwise the reconnect after an outage takes as long as the outage, up to two minutes.
            "grpc.initial_reconnect_backoff_ms": 200,
            "grpc.min_reconnect_backoff_ms": 200,
            "grpc.max_reconnect_backoff_ms": 1_000,
        }
        if authority is not None:
            options["root_certificates"] = _certificates(authority, encrypted=encrypted)
        client = AsyncQdrantClient(
            host=host,
            grpc_port=port,
            prefer_grpc=True,
            https=encrypted,
            timeout=max(1, math.ceil(seconds)),
            check_compatibility=False,  # this check uses the REST port; `Connection.check` uses gRPC
            grpc_options=options,
        )
        return cls(client, {"server.address": host, "server.port": port}, api_key)

    @property
    def is_avoided(self) -> bool:
        """Whether the node has failed and has not recovered."""
        return self._probing is not None

    async def call(self, seconds: float, method: Method[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Return the result of a method of the client.

        Raises:
            Missing: The collection does not exist.
            Transient: The node is down or does not respond in time, or its cluster fails at the moment.
            Unavailable: The node refuses the call.
        """
        collection = args[0] if args and isinstance(args[0], str) else None
        try:
            with call_span(method.__name__, collection, self._server):
                async with asyncio.timeout(seconds):
                    result = await self._with_api_key(method, *args, **options)
        except AioRpcError as error:
            raise self._translated(error) from error
        except TimeoutError:
            self.avoid("no answer in time")
            raise Transient(DeadlineExceeded("The Qdrant server did not answer in time.")) from None
        except QdrantException as error:
            raise Unavailable("The Qdrant server is busy.") from error
        except AttributeError as error:
            # The truncated response of a dying node is empty, and the client reads a field of it.
            if "'NoneType'" not in str(error):
                raise
            self.avoid("an incomplete answer")
            raise Transient(Unavailable("The Qdrant server sent an incomplete response.", retry_after=1)) from None
        except ValueError as error:  # the client's local mode
            if "not found" in str(error):
                raise Missing from error
            if "already exists" in str(error):
                raise Unavailable("The Qdrant collection exists already.") from error
            raise
        return result

    async def call_while_up(
        self, seconds: float, max_seconds: float, method: Method[P, T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Return the result of `call`. Stop early if the node does not respond to version requests either.

        Args:
            seconds: Seconds between requests for the node's version during the call.
            max_seconds: Maximum time of the call.
            method: The method.
            args: Its arguments.
            options: Its options.

        Raises:
            Missing, Transient, Unavailable: See `call`.
        """
        task = asyncio.ensure_future(self.call(max_seconds, method, *args, **options))
        try:
            while not (await asyncio.wait({task}, timeout=seconds))[0]:
                if not await self._responds(2 * _PROBE_SECONDS) and not task.done():
                    self.avoid("no answer in time")
                    raise Transient(DeadlineExceeded("The Qdrant server did not answer in time."))
            return await task
        finally:
            await cancel_and_wait(task)

    def avoid(self, why: str) -> None:
        """Avoid the node, so that calls do not wait for it. Use it again when `reason_to_avoid` returns None."""
        if self._probing is None:
            is_logged = self._warn("a Qdrant node is avoided", why)
            self._probing = asyncio.create_task(self._probe(why, is_logged=is_logged))

    async def aclose(self) -> None:
        """Close the connection."""
        if self._probing is not None:
            await cancel_and_wait(self._probing)
        await self._client.close()

    async def _probe(self, why: str, *, is_logged: bool) -> None:
        responds_since = math.inf
        while True:
            await asyncio.sleep(_PROBE_SECONDS)
            if not await self._responds(_PROBE_SECONDS):
                responds_since = math.inf
                continue
            responds_since = min(responds_since, time.monotonic())
            # A node that has just started may have old collections and aliases.
            is_new = time.monotonic() < responds_since + _CATCH_UP_SECONDS
            reason = None if self.reason_to_avoid is None else await self.reason_to_avoid(is_new=is_new)
            if reason is None:
                break
            if not is_new and reason != why and self._warn("a Qdrant node answers, but is avoided", reason):
                why, is_logged = reason, True
        self._probing = None
        if is_logged:
            _log.info("a Qdrant node is used again", **self._server)

    async def _responds(self, seconds: float) -> bool:
        # A truncated response raises AttributeError.
        with contextlib.suppress(AioRpcError, QdrantException, TimeoutError, AttributeError):
            async with asyncio.timeout(seconds):
                await self._with_api_key(AsyncQdrantClient.info)
            return True
        return False

    async def _with_api_key(self, method: Method[P, T], *args: P.args, **options: P.kwargs) -> T:
        # The client's argument `api_key` would keep the first key after a rotation.
        if self._api_key is None:
            return await method(self._client, *args, **options)
        with headers({"api-key": self._api_key.get_secret_value()}):
            return await method(self._client, *args, **options)

    def _translated(self, error: AioRpcError) -> Exception:
        failure, why = translated(error), f"{error.code().name}: {error.details() or ''}"
        if isinstance(failure, Transient):
            # A busy node responds to other calls.
            if failure.is_response or error.code() is StatusCode.RESOURCE_EXHAUSTED:
                self._warn("a Qdrant node fails at the moment", why)
            else:
                self.avoid(why)
        return failure

    def _warn(self, event: str, why: str) -> bool:
        """Log one warning for many calls that fail at once. Return whether it is logged."""
        now = time.monotonic()
        if now < self._silent_until:
            return False
        self._silent_until = now + _WARNING_INTERVAL_SECONDS
        _log.warning(event, why=why, **self._server)
        return True


def address_of(url: str) -> tuple[str, int, bool]:
    """Return host, port and whether the connection is encrypted.

    Raises:
        InvalidRequest: The URL is malformed.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or 6334
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not port:
        raise InvalidRequest(f"CAUSEWAY_QDRANT_URL must be an address like http://host:6334: {url!r}.")
    return parts.hostname, port, parts.scheme == "https"


def _certificates(path: Path, *, encrypted: bool) -> bytes:
    if not encrypted:
        raise InvalidRequest("CAUSEWAY_QDRANT_CA_FILE needs a CAUSEWAY_QDRANT_URL that begins with https://.")
    try:
        found = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"CAUSEWAY_QDRANT_CA_FILE {path} cannot be read: {error.strerror}.") from error
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise InvalidRequest(f"CAUSEWAY_QDRANT_CA_FILE {path} contains no PEM certificate.")
    return found
