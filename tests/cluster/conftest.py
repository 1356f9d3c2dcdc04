"""The pods of a running platform: containers of this machine's engine, or pods of a cluster.

CAUSEWAY_E2E_URL and CAUSEWAY_E2E_KEY have the same meaning as for tests/e2e. CAUSEWAY_E2E_PODS is
``docker:RUN:DIRECTORY`` (set by tools/containers.py) or ``kubernetes:CONTEXT/NAMESPACE`` (set by tools/kind.py).
The tests fail if it is not set.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

READY_SECONDS = 120.0
# The time in which clients notice that a container has left or returned.
_NOTICE_SECONDS = 3.0
# Services that have several pods in every overlay.
REPLICATED = ("gateway", "generator", "guardrails", "ingest")


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _variable(name: str, *command: str) -> str:
    """Return a variable from the output of `env`, or an empty text."""
    variables = dict(line.partition("=")[::2] for line in _run(*command, "env").splitlines())
    return variables.get(name, "")


@pytest.fixture(scope="session")
def running() -> None:
    """Require a platform to test."""
    if "CAUSEWAY_E2E_PODS" not in os.environ:
        pytest.fail("CAUSEWAY_E2E_PODS is not set: run these tests with `make e2e-containers` or `make e2e-kind`")


class Pods(Protocol):
    """The operations of the tests on pods."""

    def of(self, service: str) -> list[str]:
        """Return the names of a service's running pods."""
        ...

    def log(self, pod: str) -> str:
        """Return the complete log of a pod."""
        ...

    def variable(self, pod: str, name: str) -> str:
        """Return an environment variable of a pod; an empty string if it is not set."""
        ...

    def kill(self, pod: str) -> None:
        """Kill a pod immediately. A new pod replaces it."""
        ...

    def stop(self, pod: str) -> None:
        """Stop a pod gracefully, as an update does, and wait for its end. A new pod replaces it."""
        ...

    def replace(self, service: str) -> None:
        """Replace every pod of a service, as an update does, and wait until the new pods run."""
        ...

    def kill_node(self) -> None:
        """Kill all pods on the machine of the first gateway, except the pods of stores."""
        ...


class Containers:
    """Containers of an engine.

    Args:
        run: The value of the containers' label `causeway.run`.
        draining: A directory. While it has a file with a container's name, the container gets no new connections.
            This replaces the preStop hook of a pod.
    """

    def __init__(self, run: str, draining: Path) -> None:
        self._draining = draining
        self._docker = os.environ.get("DOCKER", "docker")
        self._labels = ("--filter", f"label=causeway.run={run}")

    def of(self, service: str) -> list[str]:
        filters = ("--filter", f"label=causeway.workload={service}", "--filter", "status=running")
        return _run(self._docker, "ps", "--format", "{{.Names}}", *self._labels, *filters).split()

    def log(self, pod: str) -> str:
        completed = subprocess.run(
            [self._docker, "logs", pod], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
        )
        return completed.stdout.decode()

    def variable(self, pod: str, name: str) -> str:
        return _variable(name, self._docker, "exec", pod)

    def kill(self, pod: str) -> None:
        _run(self._docker, "kill", pod)
        _run(self._docker, "start", pod)

    def stop(self, pod: str) -> None:
        mark = self._draining / pod
        mark.touch()
        time.sleep(_NOTICE_SECONDS)
        _run(self._docker, "stop", pod)
        _run(self._docker, "start", pod)
        mark.unlink()

    def replace(self, service: str) -> None:
        for pod in self.of(service):
            self.stop(pod)
            time.sleep(_NOTICE_SECONDS)

    def kill_node(self) -> None:
        """Kill the first container of each service. With a container engine, there is only one machine."""
        for pod in [self.of(service)[0] for service in REPLICATED]:
            self.kill(pod)


class Kubernetes:
    """Pods of a namespace.

    Args:
        context: The context in kubectl's configuration.
        namespace: The namespace.
    """

    def __init__(self, context: str, namespace: str) -> None:
        kubectl = str(Path(sys.executable).with_name("kubectl"))
        self._kubectl = (kubectl, "--context", context, "--namespace", namespace)

    def of(self, service: str) -> list[str]:
        return [f"pod/{each['metadata']['name']}" for each in active_pods(self._pods(service))]

    def _pods(self, service: str) -> list[dict[str, Any]]:
        options = ("--selector", f"app.kubernetes.io/name={service}", "--output", "json")
        found: list[dict[str, Any]] = json.loads(_run(*self._kubectl, "get", "pods", *options))["items"]
        return found

    def log(self, pod: str) -> str:
        return _run(*self._kubectl, "logs", pod)

    def variable(self, pod: str, name: str) -> str:
        return _variable(name, *self._kubectl, "exec", pod, "--")

    def kill(self, pod: str) -> None:
        _run(*self._kubectl, "delete", pod, "--force", "--grace-period=0")

    def stop(self, pod: str) -> None:
        _run(*self._kubectl, "delete", pod, "--timeout=300s")

    def replace(self, service: str) -> None:
        (owner,) = _run(
            *self._kubectl,
            "get",
            "deployments,statefulsets",
            "--output",
            "name",
            "--selector",
            f"app.kubernetes.io/name={service}",
        ).split()
        _run(*self._kubectl, "rollout", "restart", owner)
        _run(*self._kubectl, "rollout", "status", owner, "--timeout=600s")

    def kill_node(self) -> None:
        node = active_pods(self._pods("gateway"))[0]["spec"]["nodeName"]
        for service in REPLICATED:
            for pod in active_pods(self._pods(service)):
                if pod["spec"]["nodeName"] == node:
                    self.kill(f"pod/{pod['metadata']['name']}")

    def connects(self, service: str, host: str, port: int) -> bool:
        """Return whether a pod of a service can connect to a host. A refused connection times out, because network
        policies drop the packets.
        """
        call = f"import socket; socket.create_connection(({host!r}, {port}), 5)"
        command = [*self._kubectl, "exec", self.of(service)[0], "--", "python3", "-c", call]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def active_pods(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pods that are running and not terminating."""
    running = [each for each in pods if each["status"]["phase"] == "Running"]
    return [each for each in running if "deletionTimestamp" not in each["metadata"]]


@pytest.fixture(scope="session")
def pods(running: None) -> Pods:
    """Return the pods that CAUSEWAY_E2E_PODS describes."""
    kind, location, *rest = os.environ["CAUSEWAY_E2E_PODS"].split(":")
    return Containers(location, Path(*rest)) if kind == "docker" else Kubernetes(*location.split("/"))


class Asker:
    """A client that opens a new connection for each request, so that its requests reach every replica.

    Attributes:
        url: The URL of the gateway.
        headers: The headers with the credential.
    """

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.headers = {"Authorization": f"Bearer {key}"}

    def client(self) -> httpx.AsyncClient:
        """Return an HTTP client that has no connections yet."""
        return httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=60)

    async def wait_until_ready(self) -> None:
        """Wait until a gateway reaches every service."""
        for _ in range(int(READY_SECONDS * 5)):
            try:
                async with self.client() as client:
                    if (await client.get("/readyz?verbose")).status_code == httpx.codes.OK:
                        return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.2)
        raise TimeoutError(f"the gateway did not reach every service within {READY_SECONDS:.0f} s")

    async def upload(self, index: str, name: str, content: str) -> str:
        """Upload a document, and return the id of its job."""
        async with self.client() as client:
            files = {"file": (name, content.encode())}
            answer = await client.post("/documents", data={"index": index}, files=files)
            assert answer.status_code == httpx.codes.ACCEPTED, answer.text
            return str(answer.json()["jobs"][0]["id"])

    async def wait_for_end(self, job: str) -> str:
        """Wait until a job has ended, and return its state."""
        for _ in range(int(READY_SECONDS * 5)):
            try:
                async with self.client() as client:
                    state = (await client.get(f"/jobs/{job}")).raise_for_status().json()["state"]
            except httpx.HTTPError:
                state = ""
            if state in ("succeeded", "unchanged", "failed", "cancelled"):
                return str(state)
            await asyncio.sleep(0.2)
        raise TimeoutError(f"job {job} did not end within {READY_SECONDS:.0f} s")


@pytest.fixture
async def asker(running: None) -> AsyncIterator[Asker]:
    """Return a client of the running platform. Wait before and after each test until the platform is ready."""
    asker = Asker(os.environ["CAUSEWAY_E2E_URL"], os.environ["CAUSEWAY_E2E_KEY"])
    await asker.wait_until_ready()
    yield asker
    await asker.wait_until_ready()
