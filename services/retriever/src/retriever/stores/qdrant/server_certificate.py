"""Monitors when the certificates of Qdrant nodes expire. A node uses a new certificate only after a restart."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import structlog
from servicekit import metrics
from servicekit.errors import InvalidRequest
from servicekit.tasks import cancel_and_wait

_log = structlog.get_logger(__name__)

_EVERY_SECONDS = 600.0
_HANDSHAKE_SECONDS = 10.0


class ServerCertificates:
    """Reads the certificates of nodes regularly, and exports the earliest expiry as a metric.

    If a node does not respond or its certificate has expired, the last known expiry is used.

    Args:
        addresses: Hosts and ports. A name may resolve to several nodes.
        authority: PEM file with the CA certificates that verify the nodes' certificates; None: those of the system.

    Raises:
        InvalidRequest: The file cannot be used.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], authority: Path | None) -> None:
        self._addresses = addresses
        try:
            self._context = ssl.create_default_context(cafile=authority)
        except ssl.SSLError as error:
            raise InvalidRequest(f"CAUSEWAY_QDRANT_CA_FILE {authority} contains no PEM certificate.") from error
        self._context.set_alpn_protocols(["h2"])
        self._expiries: dict[tuple[str, int], float] = {}
        self._task: asyncio.Task[None] | None = None
        metrics.observed(
            __name__,
            "causeway.qdrant.certificate.not_after",
            "s",
            "Earliest expiry of the certificates of Qdrant nodes, in seconds since 1970.",
            lambda: [(min(self._expiries.values()), {})] if self._expiries else [],
        )

    def start(self) -> None:
        """Start monitoring."""
        self._task = asyncio.create_task(self._watch())

    async def aclose(self) -> None:
        """Stop monitoring."""
        if self._task is not None:
            await cancel_and_wait(self._task)

    async def _watch(self) -> None:
        while True:
            try:
                await self.read()
            except Exception:  # a defect, which must not affect calls of the nodes
                _log.exception("the certificates of Qdrant nodes cannot be read")
            await asyncio.sleep(_EVERY_SECONDS)

    async def read(self) -> None:
        """Read the certificate of each node once. Remove nodes that do not exist any more."""
        seen: dict[tuple[str, int], float] = {}
        for host, port in self._addresses:
            for address in await _resolved(host, port):
                expiry = await self._expiry(host, address, port)
                if expiry is None:
                    expiry = self._expiries.get((address, port))
                if expiry is not None:
                    seen[address, port] = expiry
        self._expiries = seen or self._expiries

    async def _expiry(self, host: str, address: str, port: int) -> float | None:
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                _, writer = await asyncio.open_connection(address, port, ssl=self._context, server_hostname=host)
        except OSError as error:  # includes errors of ssl and time-outs
            _log.debug("the certificate of a Qdrant node cannot be read", address=address, error=str(error))
            return None
        try:
            ssl_object: Any = writer.get_extra_info("ssl_object")
            return float(ssl.cert_time_to_seconds(str(ssl_object.getpeercert()["notAfter"])))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _resolved(host: str, port: int) -> Iterable[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return sorted({str(address[0]) for *_, address in found})
