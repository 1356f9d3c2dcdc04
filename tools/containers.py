"""Run an overlay of deploy/k8s as containers on this machine, and run a command against them.

Usage: python tools/containers.py OVERLAY [--set NAME=VALUE]… -- COMMAND…

Each container follows the pod's specification: image, arguments, variables, user, read-only root, dropped
capabilities, limits, volumes, replicas. The network is private. Its name server resolves each service to the
addresses of all replicas. The program ignores probes, preStop hooks, network policies and rolling updates, because
a container engine does not support them.

The command gets the variables CAUSEWAY_E2E_URL, CAUSEWAY_E2E_KEY and CAUSEWAY_API_KEY (both contain an admin's API
key), and CAUSEWAY_E2E_PODS (for tests/cluster). The program needs Linux, because it connects to the containers'
addresses. The variable DOCKER replaces the command `docker`.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import manifests
from grpc_health.v1 import health_pb2, health_pb2_grpc
from load_balancer import load_balancer
from manifests import Manifests

READY_SECONDS = 180.0
REPLICAS = 2  # of a workload that an autoscaler scales
_PROBE_SECONDS = 1.0  # Kubernetes' default time-out of a readiness probe
_STOP_ORDER = ("gateway", "ingest", "generator", "guardrails", "retriever", "nats", "qdrant")
DOCKER = os.environ.get("DOCKER", "docker")


def docker(*arguments: str | Path, check: bool = True) -> str:
    """Run the engine's client and return its output.

    Raises:
        SystemExit: The client fails; stderr has the reason.
    """
    result = subprocess.run([DOCKER, *arguments], capture_output=True, text=True, check=False)
    if check and result.returncode:
        sys.exit(f"{DOCKER} {arguments[0]}: {result.stderr.strip()}")
    return result.stdout.strip()


@dataclass(frozen=True, slots=True)
class Run:
    """The containers of an overlay.

    Attributes:
        name: Name of the network, and the prefix of all other names.
        cluster: The objects of the overlay.
        extra_variables: Variables for our services, in addition to the overlay's variables.
        scratch: Directory for the files of config maps.
    """

    name: str
    cluster: Manifests
    extra_variables: dict[str, str]
    scratch: Path

    def start(self) -> None:
        """Start all pods."""
        self.draining.mkdir()
        docker("network", "create", "--internal", self.name)
        for workload, spec in self.cluster.workloads.items():
            for number in range(spec["spec"].get("replicas", REPLICAS)):
                self._start_pod(workload, f"{workload}-{number}")

    def _start_pod(self, workload: str, pod: str) -> None:
        spec = self.cluster.pods[workload]
        container = spec["containers"][0]
        user = f"{spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}"
        arguments = ["--detach", "--name", f"{self.name}-{pod}", "--hostname", pod, "--user", user]
        arguments += ["--label", f"causeway.run={self.name}", "--label", f"causeway.workload={workload}"]
        arguments += ["--network", self.name, *self._aliases(workload, pod)]
        arguments += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        # The kubelet also restarts containers. A service may exit if it cannot reach another service at its start.
        arguments += ["--restart", "unless-stopped", "--stop-timeout", str(spec["terminationGracePeriodSeconds"])]
        limits = container["resources"]["limits"]
        arguments += ["--memory", str(manifests.size(limits["memory"]))]
        arguments += ["--cpus", f"{manifests.cpu_cores(limits['cpu']):g}"]
        for name, value in self._environment(container, pod).items():
            arguments += ["--env", f"{name}={value}"]
        for mount in container["volumeMounts"]:
            arguments += self._volume(workload, pod, user, mount)
        command = [*container.get("command", []), *container.get("args", [])]
        if "command" in container:
            arguments += ["--entrypoint", command.pop(0)]
        docker("run", *arguments, container["image"], *command)

    def _environment(self, container: dict[str, Any], pod: str) -> dict[str, str]:
        found = self.cluster.environment(container)
        found |= {each["name"]: pod for each in container.get("env", []) if "valueFrom" in each}
        return found | self.extra_variables if container["image"].startswith("causeway/") else found

    def _aliases(self, workload: str, pod: str) -> Iterator[str]:
        for service in self.cluster.services_of(workload):
            name = service["metadata"]["name"]
            yield from ("--network-alias", name, "--network-alias", f"{pod}.{name}")

    def _volume(self, workload: str, pod: str, user: str, mount: dict[str, Any]) -> list[str]:
        volumes = {each["name"]: each for each in self.cluster.pods[workload].get("volumes", [])}
        volume = volumes.get(mount["name"])
        path = mount["mountPath"]
        if volume is None:  # a volume claim of the stateful set
            return ["--volume", f"{self._claim(pod, user)}:{path}"]
        if "emptyDir" in volume:
            return ["--tmpfs", f"{path}:size={manifests.size(volume['emptyDir']['sizeLimit'])},mode=1777"]
        if "configMap" in volume:
            return ["--volume", f"{self._files(volume['configMap']['name'])}:{path}:ro"]
        sys.exit(f"{workload}: volumes of the kind {(volume.keys() - {'name'}).pop()} are not supported here")

    def _claim(self, pod: str, user: str) -> str:
        name = f"{self.name}-{pod}"
        docker("volume", "create", "--label", f"causeway.run={self.name}", name)
        # The kubelet changes the owner of a volume to the pod's group. An engine does not, so a container does it.
        image = self.cluster.pods["gateway"]["containers"][0]["image"]
        chown = f"import os; os.chown('/volume', *map(int, '{user}'.split(':')))"
        docker(
            *("run", "--rm", "--user", "0", "--network", "none", "--volume", f"{name}:/volume"),
            *("--entrypoint", "python3", image, "-c", chown),
        )
        return name

    def _files(self, name: str) -> Path:
        directory = self.scratch / name
        directory.mkdir(exist_ok=True)
        for file, text in self.cluster.config(name).items():
            (directory / file).write_text(text)
        return directory

    def addresses(self, workload: str) -> list[str]:
        """Return the addresses of the running pods of a workload."""
        return list(self._addresses_by_pod(workload).values())

    def _addresses_by_pod(self, workload: str) -> dict[str, str]:
        """Return the addresses of the running pods of a workload, by pod name."""
        workload_filter = ("--filter", f"label=causeway.workload={workload}")
        names = docker("ps", "--format", "{{.Names}}", *self._run_filter(), *workload_filter).split()
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return dict(zip(names, docker("inspect", "--format", form, *names).split(), strict=True)) if names else {}

    def ready_gateways(self) -> dict[str, str]:
        """Return the addresses of the ready gateways, by pod name."""
        named = self._addresses_by_pod("gateway")
        # In parallel, so that a gateway that has ended does not delay the requests to the others.
        with ThreadPoolExecutor(max(1, len(named))) as threads:
            states = threads.map(lambda address: _is_ok(f"http://{address}:8080/readyz"), named.values())
            return {name: address for (name, address), ready in zip(named.items(), states, strict=True) if ready}

    def is_draining(self, name: str) -> bool:
        """Return whether a pod will stop soon."""
        return (self.draining / name).exists()

    @property
    def draining(self) -> Path:
        """The directory with a file for each container that gets no new connections; it replaces preStop hooks."""
        return self.scratch / "draining"

    def _run_filter(self) -> tuple[str, str]:
        return "--filter", f"label=causeway.run={self.name}"

    def wait(self) -> None:
        """Wait until every pod is ready; a gateway is ready after it has reached all services.

        Raises:
            SystemExit: The pods were not ready in time; stderr has the last lines of each container.
        """
        end = time.monotonic() + READY_SECONDS
        while not all(self._is_ready(workload) for workload in self.cluster.workloads):
            if time.monotonic() > end:
                self.print_logs()
                sys.exit(f"the containers were not ready within {READY_SECONDS:.0f} s")
            time.sleep(0.2)

    def _is_ready(self, workload: str) -> bool:
        ports = {
            each["name"]: each["containerPort"] for each in self.cluster.pods[workload]["containers"][0]["ports"]
        }
        addresses = self.addresses(workload)
        if len(addresses) < self.cluster.workloads[workload]["spec"].get("replicas", REPLICAS):
            return False
        if workload == "gateway":
            return all(_is_ok(f"http://{each}:{ports['http']}/readyz?verbose") for each in addresses)
        return "health" not in ports or all(_is_serving(f"{each}:{ports['health']}") for each in addresses)

    def print_logs(self) -> None:
        """Write the last lines of each container to stderr."""
        for name in docker("ps", "--all", "--format", "{{.Names}}", *self._run_filter()).split():
            logs = subprocess.run(
                [DOCKER, "logs", "--tail", "20", name], capture_output=True, text=True, check=False
            )
            print(f"--- {name}\n{logs.stdout}{logs.stderr}", file=sys.stderr)

    def stop(self) -> list[str]:
        """Stop all containers, each service before the services that it calls; return the failed containers."""
        for workload in sorted(self.cluster.workloads, key=_STOP_ORDER.index):
            workload_filter = ("--filter", f"label=causeway.workload={workload}")
            if ids := docker("ps", "--quiet", *self._run_filter(), *workload_filter).split():
                docker("stop", *ids)
        form = "{{.Names}} {{.Status}}"
        ended = docker("ps", "--all", "--format", form, *self._run_filter()).splitlines()
        return [each for each in ended if not re.search(r" Exited \(0\)| Created", each)]

    def remove(self) -> None:
        """Remove all containers, volumes and networks of `start`, even if `start` failed."""
        ids = docker("ps", "--all", "--quiet", *self._run_filter(), check=False).split()
        docker("rm", "--force", "--volumes", *ids, check=False)
        volumes = docker("volume", "ls", "--quiet", *self._run_filter(), check=False).split()
        docker("volume", "rm", *volumes, check=False)
        docker("network", "rm", self.name, check=False)


def _is_ok(url: str) -> bool:
    try:
        return httpx.get(url, timeout=_PROBE_SECONDS).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _is_serving(target: str) -> bool:
    with grpc.insecure_channel(target) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            response = stub.Check(health_pb2.HealthCheckRequest(), timeout=2)
        except grpc.RpcError:
            return False
        return bool(response.status == health_pb2.HealthCheckResponse.SERVING)


def admin_key(run: Run) -> str:
    """Create an admin's API key and return it."""
    (address,) = run.addresses("nats")[:1]
    servers = str(run.cluster.workloads["nats"]["spec"]["replicas"])
    causeway = str(Path(sys.executable).with_name("causeway"))
    command = [causeway, "keys", "create", "--name", "e2e", "--roles", "admin"]
    command += ["--nats-url", f"nats://{address}:4222", "--replicas", servers]
    created = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return created.stdout.strip()


async def run_command(run: Run, command: list[str], environment: dict[str, str]) -> int:
    """Run a command with the gateways' URL in its environment and return its exit code."""
    async with load_balancer(run) as url:
        process = await asyncio.create_subprocess_exec(
            *command, env=os.environ | environment | {"CAUSEWAY_E2E_URL": url}
        )
        return await process.wait()


def main() -> int:
    """Run the command line; return the command's exit code, or 1 if a container failed when it stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overlay")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of our services"
    )
    parser.add_argument("command", nargs="+", help="the command, after --")
    arguments = parser.parse_args()
    docker("info")
    extra_variables = dict(pair.split("=", 1) for pair in arguments.set)
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)  # noqa: S103  # the containers' users read it
        run = Run(f"causeway-{os.getpid()}", manifests.build(arguments.overlay), extra_variables, Path(scratch))
        try:
            begin = time.monotonic()
            run.start()
            run.wait()
            print(
                f"==> {len(run.cluster.workloads)} workloads ready after {time.monotonic() - begin:.1f} s",
                flush=True,
            )
            key = admin_key(run)
            environment = {
                "CAUSEWAY_E2E_KEY": key,
                "CAUSEWAY_API_KEY": key,
                "CAUSEWAY_E2E_PODS": f"docker:{run.name}:{run.draining}",
            }
            code = asyncio.run(run_command(run, arguments.command, environment))
            if failed := run.stop():
                run.print_logs()
                print("containers that failed when they stopped:", *failed, sep="\n  ", file=sys.stderr)
            return code or bool(failed)
        finally:
            run.remove()


if __name__ == "__main__":
    sys.exit(main())
