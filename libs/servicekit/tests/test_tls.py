import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from causeway.generator.v1 import generator_pb2, generator_pb2_grpc
from causeway_testing.servers import measured
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc
from servicekit import rpc
from servicekit.channel import open_channel
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, PermissionDenied, Unavailable
from servicekit.server import GrpcServer
from servicekit.settings import ServiceSettings
from servicekit.tls import Certificates, export_expiry

GENERATOR = generator_pb2.DESCRIPTOR.services_by_name["GeneratorService"]


class Generator(generator_pb2_grpc.GeneratorServiceServicer):
    """Lists no models, and streams one message."""

    async def ListModels(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        return generator_pb2.ListModelsResponse()

    async def CountTokens(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        return generator_pb2.CountTokensResponse()

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # the contract's name
        yield generator_pb2.GenerateResponse()


class Files:
    """A directory with a process's certificate."""

    def __init__(self, directory: Path, authority: trustme.CA, *names: str) -> None:
        directory.mkdir(exist_ok=True)
        self.cert, self.key, self.ca = (directory / name for name in ("tls.crt", "tls.key", "ca.crt"))
        self.write(authority, *names)

    def write(self, authority: trustme.CA, *names: str) -> None:
        issued = authority.issue_cert(*names)
        issued.private_key_pem.write_to_path(self.key)
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        authority.cert_pem.write_to_path(self.ca)

    def open(self) -> Certificates:
        return Certificates(self.cert, self.key, self.ca, interval=0)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@contextlib.asynccontextmanager
async def served(files: Files, **options: Any) -> AsyncIterator[GrpcServer]:
    add = generator_pb2_grpc.add_GeneratorServiceServicer_to_server
    server = GrpcServer(
        "127.0.0.1:0",
        [(GENERATOR, lambda it: add(Generator(), it))],
        certificates=files.open(),
        callers=("gateway",),
        **options,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)


async def ask(channel: grpc.aio.Channel, seconds: float = 5) -> None:
    stub: Any = generator_pb2_grpc.GeneratorServiceStub(channel)
    await rpc.unary(stub.ListModels, generator_pb2.ListModelsRequest(), Deadline.after(seconds))


async def test_both_sides_present_their_certificates(authority: trustme.CA, tmp_path: Path) -> None:
    """A caller with a certificate of the authority gets answers, on unary calls and streams."""
    server_files = Files(tmp_path / "server", authority, "127.0.0.1", "generator")
    client_files = Files(tmp_path / "client", authority, "gateway.causeway.svc", "gateway")
    async with (
        served(server_files) as server,
        open_channel(f"127.0.0.1:{server.port}", [GENERATOR], client_files.open()) as channel,
    ):
        await ask(channel)
        stub: Any = generator_pb2_grpc.GeneratorServiceStub(channel)
        messages = rpc.server_stream(stub.Generate, generator_pb2.GenerateRequest(), Deadline.after(5))
        assert len([message async for message in messages]) == 1


async def test_callers_without_a_trusted_certificate_are_refused(authority: trustme.CA, tmp_path: Path) -> None:
    """A caller without a certificate, with another authority's, or of a service that is not listed, is refused."""
    files = Files(tmp_path / "server", authority, "127.0.0.1")
    stranger = Files(tmp_path / "stranger", trustme.CA(), "gateway")
    stranger.ca.write_bytes(files.ca.read_bytes())
    ingest = Files(tmp_path / "ingest", authority, "ingest")
    async with served(files) as server:
        target = f"127.0.0.1:{server.port}"
        for certificates in (None, stranger.open()):
            async with open_channel(target, [GENERATOR], certificates) as channel:
                with pytest.raises(Unavailable):
                    await ask(channel, 2)
        async with open_channel(target, [GENERATOR], ingest.open()) as channel:
            with pytest.raises(PermissionDenied, match="ingest"):
                await ask(channel)


async def test_a_server_with_another_name_is_refused(authority: trustme.CA, tmp_path: Path) -> None:
    """A server with the certificate of another service gets no call."""
    async with served(Files(tmp_path / "server", authority, "guardrails")) as server:
        certificates = Files(tmp_path / "client", authority, "gateway").open()
        async with open_channel(f"127.0.0.1:{server.port}", [GENERATOR], certificates) as channel:
            with pytest.raises(Unavailable):
                await ask(channel, 2)


async def test_probes_need_no_certificate(authority: trustme.CA, tmp_path: Path) -> None:
    """The second address serves health checks without TLS, and nothing else."""
    files = Files(tmp_path / "server", authority, "127.0.0.1")
    async with (
        served(files, health_address="127.0.0.1:0") as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.health_port}") as channel,
    ):
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=GENERATOR.full_name), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await generator_pb2_grpc.GeneratorServiceStub(channel).ListModels(
                generator_pb2.ListModelsRequest(), timeout=5
            )
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_renewed_files_are_used(tmp_path: Path) -> None:
    """Both sides change to a new authority without a restart, and the channel continues."""
    old, new = trustme.CA(), trustme.CA()
    server_files = Files(tmp_path / "server", old, "127.0.0.1")
    client_files = Files(tmp_path / "client", old, "gateway")
    async with (
        served(server_files) as server,
        open_channel(f"127.0.0.1:{server.port}", [GENERATOR], client_files.open()) as channel,
    ):
        await ask(channel)
        server_files.write(new, "127.0.0.1")
        client_files.write(new, "gateway")
        await ask(channel)
        late = Files(tmp_path / "late", old, "gateway")
        async with open_channel(f"127.0.0.1:{server.port}", [GENERATOR], late.open()) as refused:
            with pytest.raises(Unavailable):
                await ask(refused, 2)


def test_a_certificate_without_its_key_is_not_used(authority: trustme.CA, tmp_path: Path) -> None:
    """If key and certificate do not match, the old pair stays in use until the other file is also renewed."""
    files = Files(tmp_path, authority, "gateway")
    certificates = files.open()
    before = certificates.current()
    assert certificates.current() is before
    issued = authority.issue_cert("gateway")
    issued.private_key_pem.write_to_path(files.key)
    assert certificates.current() is before
    files.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    assert certificates.current().key == files.key.read_bytes()
    os.remove(files.key)
    assert certificates.current().certificate == files.cert.read_bytes()


def test_wrong_files_at_the_start_are_refused(authority: trustme.CA, tmp_path: Path) -> None:
    """Missing files, a wrong pair, and an incomplete set are errors that name the problem."""
    files = Files(tmp_path / "a", authority, "gateway")
    other = Files(tmp_path / "b", authority, "gateway")
    with pytest.raises(InvalidRequest, match="do not match"):
        Certificates(files.cert, other.key, files.ca)
    with pytest.raises(InvalidRequest, match=r"TLS: .*/nothing: No such file"):
        Certificates(files.cert, tmp_path / "nothing", files.ca)
    with pytest.raises(InvalidRequest, match="Also set CAUSEWAY_TLS_KEY_FILE and CAUSEWAY_TLS_CA_FILE"):
        Certificates.of(ServiceSettings(tls_cert_file=files.cert))
    assert Certificates.of(ServiceSettings()) is None
    named = ServiceSettings(tls_cert_file=files.cert, tls_key_file=files.key, tls_ca_file=files.ca)
    assert Certificates.of(named) is not None


def test_a_context_trusts_only_the_authority(authority: trustme.CA, tmp_path: Path) -> None:
    """The context trusts no authority of the system and, after a change, no earlier one. An incomplete change has
    no effect.
    """
    files = Files(tmp_path, authority, "gateway")
    certificates = files.open()
    before = certificates.client_context()
    assert before.cert_store_stats()["x509"] == 1
    assert before.check_hostname
    assert before.verify_mode is ssl.CERT_REQUIRED
    assert certificates.client_context() is before
    trustme.CA().issue_cert("gateway").private_key_pem.write_to_path(files.key)
    assert certificates.client_context() is before
    other = trustme.CA()
    files.write(other, "gateway")
    [trusted] = certificates.client_context().get_ca_certs(binary_form=True)
    assert trusted == ssl.PEM_cert_to_DER_cert(other.cert_pem.bytes().decode())


def test_scrapes_see_when_the_certificate_expires(authority: trustme.CA, tmp_path: Path) -> None:
    """The gauge follows the file, and has no value for a file that is not a certificate."""
    files = Files(tmp_path, authority, "gateway")
    measured("")
    export_expiry(ServiceSettings(tls_cert_file=files.cert))
    name = "causeway_tls_certificate_not_after_seconds"
    expires = x509.load_pem_x509_certificate(files.cert.read_bytes()).not_valid_after_utc.timestamp()
    assert measured(name) == [({}, expires)]
    sooner = datetime.now(UTC).replace(microsecond=0) + timedelta(days=7)
    files.cert.write_bytes(authority.issue_cert("gateway", not_after=sooner).cert_chain_pems[0].bytes())
    assert measured(name) == [({}, sooner.timestamp())]
    files.cert.write_text("no certificate")
    assert measured(name) == []
