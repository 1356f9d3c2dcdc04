"""The metric of the expiry of Qdrant's certificates, which the retriever reads from the TLS handshake."""

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from causeway_testing.servers import free_ports, measured
from retriever.stores.qdrant.server_certificate import ServerCertificates
from servicekit.errors import InvalidRequest

NAME = "causeway_qdrant_certificate_not_after_seconds"
SOON = datetime.datetime(2040, 1, 2, tzinfo=datetime.UTC)
LATER = datetime.datetime(2041, 1, 2, tzinfo=datetime.UTC)


@contextlib.asynccontextmanager
async def serving(authority: trustme.CA, port: int, expires: datetime.datetime) -> AsyncIterator[None]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", not_after=expires).configure_cert(context)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port, ssl=context)
    async with server:
        yield


def expiry() -> float:
    """Return the value that a scrape reads."""
    return measured(NAME)[-1][1]


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    created = trustme.CA()
    created.cert_pem.write_to_path(tmp_path / "ca.crt")
    return created


async def test_the_metric_has_the_earliest_expiry(authority: trustme.CA, tmp_path: Path) -> None:
    """The metric has the earliest expiry of all nodes. An unavailable node keeps its last value, and a restarted
    one gets its new value.
    """
    first, second = free_ports(2)
    certificates = ServerCertificates([("localhost", first), ("localhost", second)], tmp_path / "ca.crt")
    async with serving(authority, second, LATER):
        async with serving(authority, first, SOON):
            await certificates.read()
            assert expiry() == SOON.timestamp()
        await certificates.read()
        assert expiry() == SOON.timestamp()
        async with serving(authority, first, LATER):
            await certificates.read()
            assert expiry() == LATER.timestamp()


async def test_a_certificate_of_another_authority_is_ignored(authority: trustme.CA, tmp_path: Path) -> None:
    """The metric ignores a certificate of another authority."""
    (port,) = free_ports(1)
    certificates = ServerCertificates([("localhost", port)], tmp_path / "ca.crt")
    async with serving(authority, port, SOON):
        await certificates.read()
    async with serving(trustme.CA(), port, LATER):
        await certificates.read()
    assert expiry() == SOON.timestamp()


def test_a_file_without_a_certificate_is_refused(tmp_path: Path) -> None:
    """A file without a certificate is refused with the name of the variable."""
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\n")
    with pytest.raises(InvalidRequest, match="CAUSEWAY_QDRANT_CA_FILE"):
        ServerCertificates([], tmp_path / "ca.crt")
