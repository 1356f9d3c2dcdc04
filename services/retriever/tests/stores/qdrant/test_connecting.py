"""Connecting to a Qdrant server: address, key, certificate, version, and failures."""

import asyncio
from pathlib import Path

import grpc
import pytest
import trustme
from causeway_testing.retriever.qdrant import serving
from causeway_testing.retriever.qdrant_stores import SPEC, opened
from causeway_testing.servers import free_ports
from pydantic import SecretStr
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.scope import EVERYTHING
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.kind import QDRANT, QdrantSettings
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore
from servicekit.errors import DeadlineExceeded, InvalidRequest, Unavailable


async def test_the_key_is_sent() -> None:
    """Every call carries the API key."""
    async with serving() as server:
        server.api_key = "sesame"  # the server refuses calls without it
        store = await QdrantStore.open(Connection.from_url(server.url, SecretStr("sesame"), 5.0), Layout())
        collection = await store.create(SPEC)
        await collection.publish()
        await collection.mark("d")
        assert await collection.marked() == ["d"]
        await store.aclose()


async def test_a_rotated_key_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The retriever reads a key file again when it changes. A wrong key is an error."""
    monkeypatch.setattr("servicekit.secret_file.CHECK_SECONDS", 0.0)
    (tmp_path / "key").write_text("sesame\n")
    async with serving() as server:
        server.api_key = "sesame"
        settings = QdrantSettings(qdrant_url=server.url, qdrant_api_key_file=tmp_path / "key")
        store = await QDRANT.open(settings, Scheduler())
        server.api_key = "barley"
        with pytest.raises(Unavailable, match="refuses"):
            await store.collections()
        (tmp_path / "key").write_text("barley\n")
        assert await store.collections() == []
        await store.aclose()


async def test_a_server_with_a_certificate(tmp_path: Path) -> None:
    """The retriever accepts a certificate only of the configured authority, and sends its key over TLS."""
    authority, another = trustme.CA(), trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    credentials = grpc.ssl_server_credentials(
        [(issued.private_key_pem.bytes(), b"".join(certificate.bytes() for certificate in issued.cert_chain_pems))]
    )
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    another.cert_pem.write_to_path(str(tmp_path / "another.crt"))
    async with serving(credentials=credentials) as server:
        for name in ("ca.crt", "another.crt"):
            settings = QdrantSettings(
                qdrant_url=server.url,
                qdrant_ca_file=tmp_path / name,
                qdrant_api_key=SecretStr("sesame"),
                qdrant_timeout=2,
            )
            if name == "ca.crt":
                store = await QDRANT.open(settings, Scheduler())
                assert server.metadata["api-key"] == "sesame"
                await store.aclose()
            else:
                with pytest.raises((Unavailable, DeadlineExceeded)):
                    await QDRANT.open(settings, Scheduler())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"qdrant_ca_file": "ca.crt"}, "CA_FILE needs a CAUSEWAY_QDRANT_URL that begins with https"),
        ({"qdrant_url": "https://127.0.0.1:1", "qdrant_ca_file": "missing.crt"}, "CA_FILE .* read: No such file"),
        ({"qdrant_url": "https://127.0.0.1:1", "qdrant_ca_file": "ca.crt"}, "CA_FILE .* no PEM certificate"),
        ({"qdrant_api_key_file": "missing"}, "API_KEY_FILE cannot be used: .*No such file"),
        ({"qdrant_api_key_file": "ca.crt"}, "API_KEY_FILE cannot be used: it is empty"),
        ({"qdrant_api_key_file": "ca.crt", "qdrant_api_key": "sesame"}, "API_KEY_FILE are both set: set only one"),
    ],
)
async def test_a_wrong_setting_is_reported(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    """The message names the variable and the error."""
    (tmp_path / "ca.crt").touch()
    files = {key: str(tmp_path / value) if key.endswith("_file") else value for key, value in settings.items()}
    wrong = QdrantSettings.model_validate({"qdrant_url": "http://127.0.0.1:1", **files})
    with pytest.raises(InvalidRequest, match=f"CAUSEWAY_QDRANT_{message}"):
        await QDRANT.open(wrong, Scheduler())


async def test_a_server_that_is_too_old_is_refused() -> None:
    """The retriever refuses a server before version 1.19, which would count words in hidden documents. It accepts
    later versions.
    """
    async with serving() as server:
        for version in ("1.18.4", "1.9.0-dev", "0.11"):
            server.version = version
            connection = Connection.from_url(server.url, None, 5.0)
            with pytest.raises(Unavailable, match=r"1\.19"):
                await QdrantStore.open(connection, Layout())
            await connection.aclose()
        server.version = "2.0.1-rc1"
        async with opened(server):
            pass


async def test_unavailable_servers_and_wrong_addresses() -> None:
    """A missing, failing or hanging server causes an error of `servicekit.errors`. So does a wrong address."""
    (port,) = free_ports(1)
    connection = Connection.from_url(f"http://127.0.0.1:{port}", None, 1.0)
    with pytest.raises(Unavailable, match="cannot be reached"):
        await QdrantStore.open(connection, Layout())
    await connection.aclose()
    with pytest.raises(InvalidRequest, match="CAUSEWAY_QDRANT_URL"):
        Connection.from_url("qdrant:6334", None, 1.0)
    async with serving() as server:
        store = await QdrantStore.open(Connection.from_url(server.url, None, 1.0), Layout())
        collection = await store.create(SPEC)

        async def broken(_: str) -> None:
            raise ConnectionError

        async def hanging(_: str) -> None:
            await asyncio.sleep(2)

        server.before = broken
        with pytest.raises(Unavailable):
            await collection.count_chunks(EVERYTHING)
        server.before = hanging
        with pytest.raises((DeadlineExceeded, Unavailable)):
            await collection.count_documents(EVERYTHING)
        server.before = None
        assert await collection.count_documents(EVERYTHING) == 0
        await store.aclose()
