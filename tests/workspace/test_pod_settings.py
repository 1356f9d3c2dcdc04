"""The settings of the pods of every overlay are valid and consistent."""

import asyncio
import contextlib
import functools
import importlib
import json
import os
import re
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import nats.errors
import pytest
import servicekit.buckets
import servicekit.nats
import trustme
from causeway_testing.servers import eventually, free_ports
from generator.configuration.models_file import Reader
from manifests import ROOT, Manifests, build, size
from nats.js.errors import APIError
from pydantic import BaseModel
from servicekit.record_streams import record_streams
from servicekit.settings import ServiceSettings
from servicekit.tls import Certificates

SERVICES = sorted(path.name for path in (ROOT / "services").iterdir())


def image_environment() -> dict[str, str]:
    return dict(re.findall(r"^\s+(?:ENV )?(CAUSEWAY_\w+)=(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))


def environment(cluster: Manifests, service: str) -> dict[str, str]:
    """Return the environment variables of a service's container: those of the image and those of the pod."""
    (container,) = cluster.pods[service]["containers"]
    return image_environment() | cluster.environment(container)


def settings_type(service: str) -> type[ServiceSettings]:
    found: type[ServiceSettings] = importlib.import_module(f"{service}.settings").Settings
    return found


@pytest.fixture
def settings(cluster: Manifests, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Return a function that returns the settings that a service reads in its pod."""

    def read(service: str) -> BaseModel:
        with monkeypatch.context() as patch:
            for name, value in environment(cluster, service).items():
                patch.setenv(name, value)
            return settings_type(service)()

    return read


@pytest.mark.parametrize("service", SERVICES)
def test_variables_are_settings(cluster: Manifests, service: str) -> None:
    """Each variable of a pod is a setting of its service. Each variable of the image is a setting of at least one
    service.
    """
    image = image_environment().keys()
    known = {each: {f"CAUSEWAY_{name.upper()}" for name in settings_type(each).model_fields} for each in SERVICES}
    assert image <= set().union(*known.values())
    assert environment(cluster, service).keys() - image <= known[service]


@pytest.mark.parametrize("service", SERVICES)
def test_settings_fit_the_pod(cluster: Manifests, settings: Callable[[str], Any], service: str) -> None:
    """The settings are valid, and no address is a loopback address. The ports are ports of the container, and the
    files are in mounted volumes.
    """
    read = settings(service)
    (container,) = cluster.pods[service]["containers"]
    assert not [name for name, value in read if "127.0.0.1" in str(value) or "localhost" in str(value)]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    if service == "gateway":
        assert ports["http"] == read.gateway_port
        assert read.auth != "none"
    else:
        assert ports["health"] == read.health_port
        assert ports.get("grpc", read.ingest_port if service == "ingest" else 0) == getattr(read, f"{service}_port")
    assert ports.get("metrics") == read.metrics_port
    mounts = [each["mountPath"] for each in container["volumeMounts"]]
    files = [str(value) for name, value in read if isinstance(value, Path) and name != "model_cache"]
    assert not [file for file in files if not any(file.startswith(mount) for mount in mounts)]


@pytest.mark.parametrize("service", SERVICES)
def test_logs_of_the_cluster_of_the_tests_show_every_call(service: str) -> None:
    """In the overlay `kind`, a replica logs each call that it answers. tests/cluster reads these logs."""
    assert environment(build("kind"), service)["CAUSEWAY_LOG_LEVEL"] == "DEBUG"


@pytest.mark.parametrize("service", SERVICES)
def test_pods_complete_their_answers(cluster: Manifests, settings: Callable[[str], Any], service: str) -> None:
    """The grace period of a pod is longer than the service needs to shut down. Services with streams wait at
    shutdown as long as an answer may take.
    """
    (container,) = cluster.pods[service]["containers"]
    pause = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    assert pause or service == "ingest", "without a pause, callers may still send requests to the terminating pod"
    grace = settings(service).shutdown_grace
    assert cluster.pods[service]["terminationGracePeriodSeconds"] > pause + grace
    if service in ("gateway", "generator", "guardrails"):
        assert grace >= settings("gateway").answer_timeout


def test_the_ingress_waits_as_long_as_an_answer_takes(cluster: Manifests, settings: Callable[[str], Any]) -> None:
    """An ingress waits longer than the gateway, permits the largest uploads, and does not buffer answers."""
    for ingress in cluster.of("Ingress"):
        annotations = {key.rpartition("/")[2]: value for key, value in ingress["metadata"]["annotations"].items()}
        read = settings("gateway")
        timeouts = (read.answer_timeout, read.index_timeout, read.body_pause)
        assert int(annotations["proxy-read-timeout"]) > max(timeouts)
        assert size(f"{annotations['proxy-body-size'].upper()}i") >= read.max_upload_bytes
        assert annotations["proxy-buffering"] == "off"


def test_the_models_file_is_valid(cluster: Manifests, tmp_path: Path) -> None:
    """The generator accepts the file of models in the overlay."""
    for each in cluster.of("ConfigMap"):
        if text := each.get("data", {}).get("models.yaml"):
            text = text.replace("/etc/causeway/secrets", str(tmp_path)).replace("/weights/model", "estimate")
            (tmp_path / "openai-api-key").write_text("sk-none")
            assert Reader(tmp_path / "models.yaml", {})(text.encode()).file.models


def test_nats_has_a_server_for_each_copy(cluster: Manifests, settings: Callable[[str], Any]) -> None:
    """NATS has as many servers as a stream has replicas, and all services use the same number."""
    servers = cluster.workloads["nats"]["spec"]["replicas"]
    assert settings("gateway").nats_replicas == settings("ingest").nats_replicas == servers


def test_nats_has_the_memory_that_was_measured(cluster: Manifests) -> None:
    """GOMEMLIMIT of NATS is at least the measured maximum, and at most three quarters of the memory limit."""
    (container,) = (each for each in cluster.pods["nats"]["containers"] if each["name"] == "nats")
    memory_target = size(cluster.environment(container)["GOMEMLIMIT"].removesuffix("B"))
    measured = max(
        int(each)
        for each in re.findall(
            r"^\| \d+ uploads of .* \| (\d+) MiB \|$", (ROOT / "docs" / "sizing.md").read_text(), re.MULTILINE
        )
    )
    assert measured * 1024**2 <= memory_target <= size(container["resources"]["limits"]["memory"]) * 3 // 4


def test_qdrant_has_a_node_for_each_copy(cluster: Manifests, settings: Callable[[str], Any]) -> None:
    """Qdrant has as many nodes as a collection has replicas."""
    if "qdrant" in cluster.workloads:
        assert settings("retriever").qdrant_replicas == cluster.workloads["qdrant"]["spec"]["replicas"]


def test_a_gateway_has_room_for_its_uploads(cluster: Manifests, settings: Callable[[str], Any]) -> None:
    """The temporary files of all uploads use at most three quarters of /tmp. Two of the largest uploads fit."""
    read = settings("gateway")
    (scratch,) = (
        each["emptyDir"]["sizeLimit"] for each in cluster.pods["gateway"]["volumes"] if each["name"] == "tmp"
    )
    assert 2 * read.max_upload_bytes <= read.max_spool_bytes <= size(scratch) * 3 // 4


def test_gateway_and_workers_have_the_same_limits(cluster: Manifests, settings: Callable[[str], Any]) -> None:
    """The gateway and the workers have the same limit of characters and the same setting for URLs."""
    for name in ("ingest_max_characters", "ingest_urls"):
        assert getattr(settings("gateway"), name) == getattr(settings("ingest"), name)


def test_a_worker_has_room_for_its_jobs(cluster: Manifests, settings: Callable[[str], Any]) -> None:
    """The memory and /tmp of a worker are large enough for the largest documents of all concurrent jobs."""
    read = settings("ingest")
    pod = cluster.pods["ingest"]
    (scratch,) = (volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if volume["name"] == "tmp")
    assert read.ingest_jobs * read.ingest_max_bytes < size(scratch)
    assert read.ingest_jobs * read.ingest_parse_memory < size(pod["containers"][0]["resources"]["limits"]["memory"])


def test_a_retriever_has_room_to_build_an_index(cluster: Manifests, settings: Callable[[str], Any]) -> None:
    """The process that compacts an index may use half of the container's memory."""
    limit = size(cluster.pods["retriever"]["containers"][0]["resources"]["limits"]["memory"])
    assert settings("retriever").retriever_build_memory_mb * 1024**2 == limit // 2


@contextlib.asynccontextmanager
async def nats_servers(files: dict[str, str], count: int, directory: Path) -> AsyncIterator[list[dict[str, Any]]]:
    """Start NATS servers with a configuration, in which only stores, ports and certificates differ. Yield their
    ports.
    """
    _certify(directory)
    routes = free_ports(count)
    homes = [directory / f"nats-{number}" for number in range(count)]
    async with contextlib.AsyncExitStack() as stack:
        for home, port in zip(homes, routes, strict=True):
            home.mkdir()
            for name, text in files.items():
                (home / name).write_text(_local(text, home, port, routes))
            process = await asyncio.create_subprocess_exec(
                Path(sys.executable).with_name("nats-server"),
                *("-c", home / "nats.conf", "-a", "127.0.0.1", "-p", "-1", "-m", "-1", "--ports_file_dir", home),
                env=os.environ | {"POD_NAME": home.name},
                stderr=asyncio.subprocess.DEVNULL,
            )
            stack.push_async_callback(process.wait)
            stack.callback(process.kill)
        for home in homes:  # the server writes the file when it accepts connections
            await eventually(functools.partial(_has_ports, home))
        yield [_ports(home) for home in homes]


def _has_ports(home: Path) -> bool:
    return any(each.stat().st_size for each in home.glob("*.ports"))


def _ports(home: Path) -> dict[str, list[str]]:
    (file,) = home.glob("*.ports")
    found: dict[str, list[str]] = json.loads(file.read_text())
    return found


def _certify(directory: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "gateway")
    authority.cert_pem.write_to_path(directory / "ca.crt")
    certificate.private_key_pem.write_to_path(directory / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(directory / "tls.crt")


async def test_nats_reloads_a_renewed_certificate(tmp_path: Path) -> None:
    """After the signal of the reloader, new connections get the new certificate, and existing connections stay
    open.
    """
    cluster = build("prod")
    files = _nats_files(cluster)
    server, _, reloader = cluster.pods["nats"]["containers"]
    assert 'pid_file: "/tmp/nats.pid"' in files["tls.conf"]
    assert reloader["args"][0] == "-pid=/tmp/nats.pid"
    watched = {each.partition("=")[2] for each in reloader["args"][1:]}
    assert watched == set(re.findall(r'_file: "(/etc/causeway/tls/.*)"', files["tls.conf"]))
    for container in (server, reloader):
        assert {"/tmp", "/etc/causeway/tls"} <= {each["mountPath"] for each in container["volumeMounts"]}
    assert cluster.pods["nats"]["shareProcessNamespace"] is True
    async with nats_servers(files | {"cluster.conf": ""}, 1, tmp_path) as [ports]:
        host, port = ports["nats"][0].removeprefix("tls://").removeprefix("nats://").split(":")
        old = Certificates(tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca.crt")
        client = await servicekit.nats.connect(ports["nats"][0], "gateway", certificates=old)
        before = _certificate(host, int(port))
        _certify(tmp_path)
        os.kill(int((tmp_path / "nats-0" / "nats.pid").read_text()), signal.SIGHUP)
        await eventually(lambda: _certificate(host, int(port)) != before, within=30)
        await client.flush()
        assert not client.is_reconnecting
        await client.close()


def _certificate(host: str, port: int) -> bytes:
    """Return the certificate of a NATS server. The server sends a line of plain text before the TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # With TLS 1.3, the server sends its certificate before it refuses a client without one.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with socket.create_connection((host, port), 5) as connection:
        connection.recv(65536)
        with context.wrap_socket(connection) as channel:
            certificate = channel.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def _nats_files(cluster: Manifests) -> dict[str, str]:
    """Return the configuration files of NATS in an overlay, by name."""
    (files,) = (each["data"] for each in cluster.of("ConfigMap") if "nats.conf" in each.get("data", {}))
    return dict(files)


def _local(text: str, home: Path, port: int, routes: Sequence[int]) -> str:
    text = text.replace("/tmp/nats.pid", str(home / "nats.pid"))
    text = text.replace("store_dir: /data", f'store_dir: "{home / "data"}"')
    text = text.replace("/etc/causeway/tls", str(home.parent)).replace("port: 6222", f'listen: "127.0.0.1:{port}"')
    return re.sub(r"nats://nats-(\d).nats:6222", lambda found: f"nats://127.0.0.1:{routes[int(found[1])]}", text)


@pytest.mark.parametrize(("cluster", "equal"), [("embedded", "kind"), ("prod", "prod-gpu")], indirect=["cluster"])
async def test_nats_runs_with_its_configuration(
    cluster: Manifests, equal: str, settings: Callable[[str], Any], tmp_path: Path
) -> None:
    """NATS servers accept the configuration, store the configured number of replicas, sync each write, and answer
    probes. The streams reserve less than half of the space, because originals of documents need the rest. Another
    overlay has the same configuration.
    """
    files = _nats_files(cluster)
    assert files == _nats_files(build(equal))
    container = cluster.pods["nats"]["containers"][0]
    servers = cluster.workloads["nats"]["spec"]["replicas"]
    (claim,) = cluster.workloads["nats"]["spec"]["volumeClaimTemplates"]
    stream_bytes = settings("gateway").nats_stream_bytes
    assert settings("ingest").nats_stream_bytes == stream_bytes
    async with nats_servers(files, servers, tmp_path) as ports:
        for each in ports:
            async with httpx.AsyncClient(base_url=each["monitoring"][0]) as client:
                for name in ("startupProbe", "readinessProbe", "livenessProbe"):
                    await _wait_for_success(client, container[name]["httpGet"]["path"])
        certificate_directory = tmp_path if cluster.of("Certificate") else None
        await _check_replicas(ports[0]["nats"][0], servers, stream_bytes, certificate_directory)
        async with httpx.AsyncClient(base_url=ports[-1]["monitoring"][0]) as client:
            state = (await client.get("/varz")).json()
    assert state["jetstream"]["config"]["sync_always"] is True
    max_storage = state["jetstream"]["config"]["max_storage"]
    assert max_storage < size(claim["spec"]["resources"]["requests"]["storage"])
    assert 5 * stream_bytes < state["jetstream"]["stats"]["reserved_storage"] < max_storage / 2
    lame_duck_seconds = int(re.findall(r"lame_duck_duration: (\d+)s", files["nats.conf"])[0])
    assert cluster.pods["nats"]["terminationGracePeriodSeconds"] > lame_duck_seconds


async def test_nats_is_not_killed_while_it_reads_its_store(tmp_path: Path) -> None:
    """The startup and liveness probes succeed while NATS needs a long time to recover its streams."""
    store = tmp_path / "store"
    blocked = store / "jetstream" / "$G" / "streams" / "LARGE" / "meta.inf"
    blocked.parent.mkdir(parents=True)
    os.mkfifo(blocked)  # the read of a pipe blocks, which simulates a large store
    container = build("embedded").pods["nats"]["containers"][0]
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("nats-server"),
        *("-js", "-sd", store, "-a", "127.0.0.1", "-p", "-1", "-m", str(port := free_ports(1)[0])),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:

        def status_of(probe: str) -> int:
            with contextlib.suppress(httpx.TransportError):
                path = container[probe]["httpGet"]["path"]
                return httpx.get(f"http://127.0.0.1:{port}{path}").status_code
            return 0

        await eventually(lambda: status_of("startupProbe") == 200)
        assert status_of("livenessProbe") == 200
        assert status_of("readinessProbe") != 200
    finally:
        process.kill()
        await process.wait()


async def _wait_for_success(client: httpx.AsyncClient, path: str) -> None:
    for _ in range(600):  # a NATS cluster must first elect its leader
        if (await client.get(path)).status_code == 200:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{path} does not become healthy")


async def _check_replicas(url: str, copies: int, stream_bytes: int, certificate_directory: Path | None) -> None:
    """Create all streams and buckets of gateway and ingest, and check the number of replicas."""
    certificates = certificate_directory and Certificates(
        certificate_directory / "tls.crt", certificate_directory / "tls.key", certificate_directory / "ca.crt"
    )
    client = await servicekit.nats.connect(url, "gateway", certificates=certificates or None, connect_timeout=60)
    try:
        for _ in range(600):  # the leader may not know all servers yet
            with contextlib.suppress(APIError, nats.errors.TimeoutError):
                limits: dict[str, Any] = {"replicas": copies, "stream_bytes": stream_bytes}
                transport = await servicekit.nats.ingest_transport(client, **limits)
                await servicekit.buckets.history_bucket(client, **limits)
                await record_streams(client, replicas=copies, usage_bytes=stream_bytes, audit_bytes=stream_bytes)
                await servicekit.buckets.api_keys_bucket(client, replicas=copies)
                state = await transport.jobs.status()
                assert state.stream_info.config.num_replicas == copies
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the streams were not created in time")
    finally:
        await client.close()
