"""The store of originals behind TLS: which certificates the platform trusts."""

import asyncio
import contextlib
import io
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trustme
from servicekit.errors import Unavailable
from servicekit.original_settings import OriginalSettings
from servicekit.s3_originals import S3OriginalStore

LARGE = bytes(range(251)) * 40_000
"""Two parts."""
HOST = "127.0.0.1"


@contextlib.asynccontextmanager
async def behind_tls(settings: OriginalSettings, certificate: trustme.LeafCert) -> AsyncIterator[OriginalSettings]:
    """Serve the store over TLS, and yield the settings with the new endpoint."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    port = int(settings.s3_endpoint.rpartition(":")[2])

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_read, to_write = await asyncio.open_connection(HOST, port)
        await asyncio.gather(copy(reader, to_write), copy(to_read, writer))

    server = await asyncio.start_server(connected, HOST, 0, ssl=context)
    try:
        address = server.sockets[0].getsockname()
        yield settings.model_copy(update={"s3_endpoint": f"https://{HOST}:{address[1]}"})
    finally:
        server.close()


@pytest.fixture
def trusting(tmp_path: Path) -> Callable[[OriginalSettings, trustme.CA], S3OriginalStore]:
    """Return a function that creates a store that trusts the given authority."""

    def create(settings: OriginalSettings, authority: trustme.CA) -> S3OriginalStore:
        path = tmp_path / "ca.crt"
        authority.cert_pem.write_to_path(path)
        return S3OriginalStore(settings.model_copy(update={"s3_ca_file": path}))

    return create


async def test_a_private_authority_is_trusted(
    s3_settings: OriginalSettings, trusting: Callable[[OriginalSettings, trustme.CA], S3OriginalStore]
) -> None:
    """With the authority in CAUSEWAY_S3_CA_FILE, all operations work over TLS, for small and large originals."""
    authority = trustme.CA()
    async with behind_tls(s3_settings, authority.issue_cert(HOST)) as settings:
        store = trusting(settings, authority)
        for name, content in (("small", b"An original."), ("large", LARGE)):
            await store.put(name, io.BytesIO(content), {"suffix": ".pdf"})
            target = io.BytesIO()
            await store.read(name, target)
            assert target.getvalue() == content
        assert await store.facts("large") == {"suffix": ".pdf"}
        await store.remove("small")
        assert await store.facts("small") is None
        assert await store.problem() is None


@pytest.mark.parametrize("wrong", ["no authority", "another authority", "another name"])
async def test_a_certificate_that_is_not_trusted_is_refused(
    s3_settings: OriginalSettings, trusting: Callable[[OriginalSettings, trustme.CA], S3OriginalStore], wrong: str
) -> None:
    """The platform sends no original to a server whose certificate it cannot verify. The error and the reported
    problem name the setting.
    """
    authority = trustme.CA()
    certificate = authority.issue_cert("store.example.org" if wrong == "another name" else HOST)
    async with behind_tls(s3_settings, certificate) as settings:
        if wrong == "no authority":
            store = S3OriginalStore(settings)
        else:
            store = trusting(settings, trustme.CA() if wrong == "another authority" else authority)
        with pytest.raises(Unavailable, match="CAUSEWAY_S3_CA_FILE"):
            await store.put("original", io.BytesIO(b"An original."))
        assert "CAUSEWAY_S3_CA_FILE" in (await store.problem() or "")
    assert await S3OriginalStore(s3_settings).facts("original") is None
