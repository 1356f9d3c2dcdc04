"""Calls of a Qdrant server, and what goes wrong with them as errors of the one tree."""

import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import structlog
from grpc import StatusCode
from grpc.aio import AioRpcError
from pydantic import SecretStr
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.context_headers import headers
from servicekit.errors import CausewayError, DeadlineExceeded, InvalidRequest, Unavailable

from retriever.stores.qdrant.call_span import call_span

_log = structlog.get_logger(__name__)

T = TypeVar("T")

OLDEST_SERVER = (1, 19)
"""From here on the server counts words in what the asker may see; older ones count them in all documents, also in
those that are hidden from the asker."""
_SIZE = 64 * 1024 * 1024
_BUSY = (StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED, StatusCode.CANCELLED, StatusCode.ABORTED)


class Missing(Exception):
    """There is no such collection."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How collections are made on the server.

    Attributes:
        prefix: Begins the names of all; two installations may share a server under different ones.
        shards: Of each collection; 0: as many as the server wants.
        replicas: Copies of each shard.
        write_consistency: Copies that must have taken a write before it is answered.
        quantization: ``none``, ``scalar`` (a byte a number) or ``binary`` (a bit a number) vectors in memory.
        on_disk: Whether the full vectors stay on the disk.
    """

    prefix: str = "causeway"
    shards: int = 0
    replicas: int = 1
    write_consistency: int = 1
    quantization: str = "none"
    on_disk: bool = False

    def dense(self, dimension: int) -> models.VectorParams:
        """Parameters of the vectors."""
        quantization: models.QuantizationConfig | None = None
        if self.quantization == "scalar":
            quantization = models.ScalarQuantization(
                scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
            )
        elif self.quantization == "binary":
            quantization = models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))
        return models.VectorParams(
            size=dimension,
            distance=models.Distance.COSINE,
            on_disk=self.on_disk,
            quantization_config=quantization,
        )

    @property
    def search(self) -> models.SearchParams | None:
        """How to search: what was quantized is compared once more by the full vectors."""
        if self.quantization == "none":
            return None
        return models.SearchParams(quantization=models.QuantizationSearchParams(rescore=True, oversampling=2.0))

    @property
    def reading(self) -> models.ReadConsistencyType | None:
        """From how many copies that is read which decides; None: from any."""
        return models.ReadConsistencyType.MAJORITY if self.replicas > 1 else None


class Connection:
    """A client of a server.

    Args:
        client: Not yet connected; closed by `aclose`.
        seconds: Longest time of a call.
        server: Its address, as spans tell it.
        api_key: Sent with each call, as it is then; None where the server wants none.
    """

    def __init__(
        self,
        client: AsyncQdrantClient,
        seconds: float,
        server: Mapping[str, str | int] | None = None,
        api_key: SecretStr | None = None,
    ) -> None:
        self.client = client
        self._api_key = api_key
        self._server = server or {}
        self.seconds = max(1, math.ceil(seconds))

    @classmethod
    def to(cls, url: str, api_key: SecretStr | None, seconds: float, authority: Path | None = None) -> "Connection":
        """A connection over gRPC.

        Args:
            url: ``http://host:6334``, or ``https`` for an encrypted one; the port is gRPC's.
            api_key: None where the server wants none.
            seconds: Longest time of a call.
            authority: PEM file: who vouches for the server's certificate; None: those that the system trusts.

        Raises:
            InvalidRequest: The URL is none, or the file cannot be used.
        """
        address, encrypted = _address(url)
        options: dict[str, Any] = {
            "grpc.max_receive_message_length": _SIZE,
            "grpc.max_send_message_length": _SIZE,
        }
        if authority is not None:
            options["root_certificates"] = _certificates(authority, encrypted=encrypted)
        client = AsyncQdrantClient(
            host=address[0],
            grpc_port=address[1],
            prefer_grpc=True,
            https=encrypted,
            timeout=max(1, math.ceil(seconds)),
            check_compatibility=False,  # it asks the REST port; `check` asks ours
            grpc_options=options,
        )
        return cls(client, seconds, {"server.address": address[0], "server.port": address[1]}, api_key)

    async def check(self) -> None:
        """Asks for the server's version.

        Raises:
            Unavailable: It does not answer, or is too old.
        """
        told = (await self.call(self.client.info)).version
        numbers = [int(part) for part in told.split("-")[0].split(".")[:2] if part.isdecimal()]
        if len(numbers) == 2 and tuple(numbers) < OLDEST_SERVER:
            oldest = ".".join(map(str, OLDEST_SERVER))
            raise Unavailable(f"The Qdrant server has version {told}, {oldest} or newer is needed.")

    async def call(self, method: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """What a method of the client returns.

        Raises:
            Missing: There is no such collection.
            DeadlineExceeded: It took too long.
            Unavailable: The server cannot be reached, or does not do it.
        """
        collection = args[0] if args and isinstance(args[0], str) else None
        try:
            with call_span(method.__name__, collection, self._server), self._identified():
                return await method(*args, **options)
        except AioRpcError as error:
            raise _told(error.code(), error) from error
        except QdrantException as error:
            raise Unavailable("The Qdrant server is busy.") from error
        except ValueError as error:  # the client's local mode
            if "not found" in str(error):
                raise Missing from error
            if "already exists" in str(error):
                raise Unavailable("It is there already.") from error
            raise

    async def aclose(self) -> None:
        """Closes the connection."""
        await self.client.close()

    def _identified(self) -> contextlib.AbstractContextManager[None]:
        # Not the client's own argument: a key that is rotated would be sent as it was at the start.
        if self._api_key is None:
            return contextlib.nullcontext()
        return headers({"api-key": self._api_key.get_secret_value()})


def _told(code: StatusCode, error: AioRpcError) -> Exception:
    if code is StatusCode.NOT_FOUND:
        return Missing()
    if code is StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded("The Qdrant server did not answer in time.")
    failure: CausewayError = Unavailable("The Qdrant server cannot be reached.")
    if code not in _BUSY:
        _log.error("the qdrant server refuses a call", code=code.name, details=error.details())
        failure = Unavailable("The Qdrant server refuses what was asked of it.", retry_after=30)
    return failure


def _address(url: str) -> tuple[tuple[str, int], bool]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"CAUSEWAY_QDRANT_URL is no address like http://host:6334: {url!r}.")
    return (parts.hostname, parts.port or 6334), parts.scheme == "https"


def _certificates(path: Path, *, encrypted: bool) -> bytes:
    if not encrypted:
        raise InvalidRequest("CAUSEWAY_QDRANT_CA_FILE needs a CAUSEWAY_QDRANT_URL that begins with https://.")
    try:
        found = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"CAUSEWAY_QDRANT_CA_FILE {path} cannot be read: {error.strerror}.") from error
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise InvalidRequest(f"CAUSEWAY_QDRANT_CA_FILE {path} holds no certificate in PEM.")
    return found
