"""With mutual TLS, all services refuse callers without a certificate, and use renewed certificates without a
restart.
"""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import nats
import nats.errors
import pytest
import trustme
from causeway.retriever.v1 import retriever_pb2, retriever_pb2_grpc
from causeway_testing.servers import free_ports
from servicekit.broker import Broker
from servicekit.permissions import GATEWAY, INGEST, OPERATOR, authorization
from servicekit.principal import LOCAL

pytestmark = pytest.mark.timeout(300)

SERVICES = ("retriever", "generator", "guardrails", INGEST, GATEWAY)
READY_SECONDS = 120.0
RELOAD_SECONDS = 30.0
BIN = Path(sys.executable).parent


class Installation:
    """The processes of the platform, and a directory with their certificates.

    Attributes:
        ports: The port of each process.
        processes: The running processes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = trustme.CA()
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        names = ("nats", *SERVICES)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        for name in (*names, OPERATOR):
            self.issue(name)

    @property
    def nats_url(self) -> str:
        return f"nats://localhost:{self.ports['nats']}"

    def issue(self, name: str) -> None:
        """Create or replace the certificate of a process. Each file is replaced atomically."""
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        issued = self.authority.issue_cert(name, f"{name}.causeway.svc", "localhost", common_name=name)
        files = {
            "tls.key": issued.private_key_pem.bytes(),
            "tls.crt": b"".join(each.bytes() for each in issued.cert_chain_pems),
            "ca.crt": self.authority.cert_pem.bytes(),
        }
        for file, content in files.items():
            new = directory / f"{file}.new"
            new.write_bytes(content)
            new.replace(directory / file)

    def tls(self, name: str) -> dict[str, str]:
        """Return the TLS settings of a process with the certificate of this name."""
        directory = self.directory / name
        return {
            "CAUSEWAY_TLS_CERT_FILE": str(directory / "tls.crt"),
            "CAUSEWAY_TLS_KEY_FILE": str(directory / "tls.key"),
            "CAUSEWAY_TLS_CA_FILE": str(directory / "ca.crt"),
        }

    def environment(self, name: str) -> dict[str, str]:
        """Return the settings of a service."""
        return {
            **os.environ,
            **{f"CAUSEWAY_{each.upper()}_PORT": str(self.ports[each]) for each in SERVICES},
            **{f"CAUSEWAY_{each.upper()}_TARGET": f"localhost:{self.ports[each]}" for each in SERVICES[:-1]},
            **self.tls(name),
            "CAUSEWAY_HOST": "127.0.0.1",
            "CAUSEWAY_NATS_URL": self.nats_url,
            "CAUSEWAY_DATA_DIR": str(self.directory / "data"),
            "CAUSEWAY_AUTH": "keys",
            "GRPC_VERBOSITY": "ERROR",
        }

    def nats_command(self) -> list[str]:
        """Return the command of NATS. Its configuration is that of docs/security.md and of the component `tls`: the
        certificate of a client determines its user.
        """
        directory = self.directory / "nats"
        files = f'cert_file: "{directory}/tls.crt", key_file: "{directory}/tls.key", ca_file: "{directory}/ca.crt"'
        extra = f"tls {{ {files}, verify_and_map: true }}\n{authorization()}"
        return Broker(self.directory / "broker", self.ports["nats"], extra=extra).command()

    async def start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                *command, env=environment, stdout=log, stderr=log
            )

    async def stop(self) -> None:
        for name in (*reversed(SERVICES), "nats"):
            process = self.processes[name]
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 60)

    def context(self, name: str | None = None, authority: trustme.CA | None = None) -> ssl.SSLContext:
        """Return the TLS context of a client with the certificate of that name, with a certificate of another
        authority, or without a certificate.
        """
        context = ssl.create_default_context(cadata=self.authority.cert_pem.bytes().decode())
        if authority is not None:
            authority.issue_cert(name or "", "localhost").configure_cert(context)
        elif name is not None:
            context.load_cert_chain(self.directory / name / "tls.crt", self.directory / name / "tls.key")
        return context

    def channel(
        self, service: str, name: str | None = None, authority: trustme.CA | None = None
    ) -> grpc.aio.Channel:
        """Open a channel to a service with the certificate of that name."""
        pair: tuple[bytes | None, bytes | None] = (None, None)
        if authority is not None:
            issued = authority.issue_cert(name or "", "localhost")
            pair = issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()
        elif name is not None:
            directory = self.directory / name
            pair = (directory / "tls.key").read_bytes(), (directory / "tls.crt").read_bytes()
        credentials = grpc.ssl_channel_credentials(self.authority.cert_pem.bytes(), *pair)
        return grpc.aio.secure_channel(f"localhost:{self.ports[service]}", credentials)

    async def serial(self, service: str) -> str:
        """Return the serial number of the certificate that a service currently presents."""
        _, writer = await asyncio.open_connection("localhost", self.ports[service], ssl=self.context(GATEWAY))
        try:
            certificate: dict[str, Any] = writer.get_extra_info("peercert")
            return str(certificate["serialNumber"])
        finally:
            writer.transport.abort()


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    """Start NATS and the five services, each with its own certificate."""
    installation = Installation(tmp_path)
    try:
        await installation.start("nats", installation.nats_command(), dict(os.environ))
        for name in SERVICES:
            await installation.start(name, [sys.executable, "-P", "-m", name], installation.environment(name))
        yield installation
    finally:
        await installation.stop()
    assert {
        name: process.returncode for name, process in installation.processes.items() if name != "nats"
    } == dict.fromkeys(SERVICES, 0)


@pytest.fixture
async def http(installation: Installation) -> AsyncIterator[httpx.AsyncClient]:
    """Wait until all services are ready, and return a client of the gateway with an API key."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{installation.ports[GATEWAY]}", timeout=30) as http:
        for _ in attempts(READY_SECONDS, "the platform is not ready"):
            with contextlib.suppress(httpx.TransportError):
                if (await http.get("/readyz", params={"verbose": ""})).status_code == 200:
                    break
            await asyncio.sleep(0.1)
        process = await asyncio.create_subprocess_exec(
            *(
                BIN / "causeway",
                "keys",
                "create",
                "--name",
                "me",
                "--roles",
                "admin",
                "--nats-url",
                installation.nats_url,
            ),
            env={**os.environ, **installation.tls(OPERATOR)},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        http.headers["api-key"] = output.decode().strip()
        for _ in attempts(RELOAD_SECONDS, "the gateway does not accept the key"):
            if (await http.get("/indexes")).status_code == 200:
                break
            await asyncio.sleep(0.1)
        yield http


def attempts(seconds: float, message: str) -> Iterator[None]:
    """Yield until the caller leaves its loop.

    Raises:
        TimeoutError: The caller did not leave its loop in time.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
    raise TimeoutError(message)


async def check_ingest(http: httpx.AsyncClient, name: str) -> None:
    """Upload a document, and check that its job succeeds and is listed."""
    files = {"file": (name, b"# Tides\n\nHigh water at Kelsay is at six in the morning.\n")}
    response = await http.post("/documents", data={"index": "tides"}, files=files)
    [job] = response.raise_for_status().json()["jobs"]
    for _ in attempts(60, "the job has not ended"):
        job = (await http.get(f"/jobs/{job['id']}")).raise_for_status().json()
        if job["state"] not in ("queued", "parsing", "indexing"):
            break
        await asyncio.sleep(0.1)
    assert job["state"] == "succeeded", job
    assert job["id"] in {each["id"] for each in (await http.get("/jobs")).raise_for_status().json()["jobs"]}


async def check_answer(http: httpx.AsyncClient) -> None:
    """Ask a question, and check that the answer quotes the document."""
    body = {"messages": "When is high water at Kelsay?", "context": {"overrides": {"index": "tides"}}}
    assert "six in the morning" in (await http.post("/chat", json=body)).raise_for_status().text


async def refusal(
    installation: Installation, service: str, name: str | None, authority: trustme.CA | None = None
) -> grpc.StatusCode:
    """Return the status with which a service refuses a caller with this certificate."""
    async with installation.channel(service, name, authority) as channel:
        request = retriever_pb2.ListIndexesRequest(principal=LOCAL.to_proto())
        stub: Any = retriever_pb2_grpc.RetrieverServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ListIndexes(request, timeout=5)
    code: grpc.StatusCode = caught.value.code()
    return code


async def test_the_stack_with_mutual_tls(installation: Installation, http: httpx.AsyncClient) -> None:
    """Documents are ingested, and questions are answered. The services refuse a caller without a certificate, with
    a certificate of another authority, or with the certificate of a service that has no permission. They use
    renewed certificates without a restart.
    """
    await check_ingest(http, "tides.md")
    await check_answer(http)

    other_authority = trustme.CA()
    for service in SERVICES[:-1]:
        assert await refusal(installation, service, None) is grpc.StatusCode.UNAVAILABLE
        assert await refusal(installation, service, GATEWAY, other_authority) is grpc.StatusCode.UNAVAILABLE
    assert await refusal(installation, "retriever", "guardrails") is grpc.StatusCode.PERMISSION_DENIED
    for context in (
        installation.context(),
        installation.context(GATEWAY, other_authority),
        installation.context("guardrails"),
    ):
        with pytest.raises((OSError, nats.errors.Error)):
            await nats.connect(installation.nats_url, tls=context, allow_reconnect=False, connect_timeout=5)

    before = {service: await installation.serial(service) for service in SERVICES[:-1]}
    for name in (*SERVICES, OPERATOR):
        installation.issue(name)
    for _ in attempts(RELOAD_SECONDS, "services still present their old certificates"):
        current = {service: await installation.serial(service) for service in before}
        if not any(current[service] == before[service] for service in before):
            break
        await asyncio.sleep(0.2)
    await check_answer(http)
    await check_ingest(http, "more-tides.md")
    for name, process in installation.processes.items():
        assert process.returncode is None, name
    assert "certificates renewed" in (installation.directory / "gateway.log").read_text()


async def test_a_backup_over_mutual_tls(
    installation: Installation, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    """`causeway backup` needs the operator's certificate for NATS and the retriever."""
    await check_ingest(http, "tides.md")

    async def back_up(folder: str, **tls: str) -> tuple[int, str]:
        target = f"localhost:{installation.ports['retriever']}"
        command = ("backup", str(tmp_path / folder), "--nats-url", installation.nats_url, "--retriever", target)
        process = await asyncio.create_subprocess_exec(
            *(BIN / "causeway", *command),
            env={**os.environ, **tls},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 120)
        return process.returncode or 0, out.decode()

    code, out = await back_up("whole", **installation.tls(OPERATOR))
    assert code == 0, out
    contents = json.loads((tmp_path / "whole" / "backup.json").read_text())
    assert [(each["tenant"], each["name"]) for each in contents["indexes"]] == [("local", "tides")]
    messages = {each["name"]: each["messages"] for each in contents["streams"]}
    assert messages["OBJ_causeway-originals"] > 0
    assert messages["KV_causeway-api-keys"] == 1
    for name, tls in {
        "none": {},
        "guardrails": installation.tls("guardrails"),
        INGEST: installation.tls(INGEST),
    }.items():
        code, out = await back_up(name, **tls)
        assert code != 0, name
        assert "Traceback" not in out
        assert not (tmp_path / name / "backup.json").exists()
