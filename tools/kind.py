"""Run the platform in a kind cluster on this machine (deploy/k8s/overlays/kind), and run the end-to-end tests.

Usage: python tools/kind.py up | load | deploy | test | down | all

`all` runs all steps in this order. If a step fails, `all` saves the cluster's logs in build/kind. It always removes
the cluster. If a cluster with the same name exists, `up` and `all` refuse to start and do not change the cluster.
All steps except `test` need `kind` and a container engine with the images of `make images`. The variables KIND and
DOCKER replace the commands `kind` and `docker`. `make setup` installs kubectl.

`test` works with any cluster that kubectl reaches:

    python tools/kind.py test --context CONTEXT --namespace causeway --url https://causeway.example.com

`test` uses the admin's API key in CAUSEWAY_E2E_KEY. Without this variable it creates a key in NATS. The variable is
required if NATS requires certificates.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import manifests

CLUSTER = "causeway"
CONTEXT = f"kind-{CLUSTER}"
URL = "http://127.0.0.1:30080"
NATS_PORT = 34222
KIND = os.environ.get("KIND", "kind")
DOCKER = os.environ.get("DOCKER", "docker")
LOGS = manifests.ROOT / "build" / "kind"
BIN = Path(sys.executable).parent
_MISSING = 69  # EX_UNAVAILABLE of sysexits.h
_EXISTS = 73  # EX_CANTCREAT


@dataclass(frozen=True, slots=True)
class Target:
    """The platform that is deployed and tested.

    Attributes:
        context: Name of a context in kubectl's configuration.
        namespace: Namespace of the platform.
        url: URL of the gateways.
    """

    context: str
    namespace: str
    url: str

    @property
    def kubectl(self) -> list[str]:
        """The start of each kubectl command for this target."""
        return [str(BIN / "kubectl"), "--context", self.context, "--namespace", self.namespace]


def check() -> None:
    """Check that kind and a container engine are installed.

    Raises:
        SystemExit: A program is missing; stderr names it.
    """
    missing = [command for command in (KIND, DOCKER) if shutil.which(command) is None]
    if missing:
        print(f"missing: {', '.join(missing)} (docs/deploy.md)", file=sys.stderr)
        sys.exit(_MISSING)
    if subprocess.run([DOCKER, "info"], capture_output=True, check=False).returncode:
        print(f"missing: a container engine that `{DOCKER} info` finds (docs/deploy.md)", file=sys.stderr)
        sys.exit(_MISSING)


def run(*command: str | Path) -> None:
    """Run a command; raise `subprocess.CalledProcessError` if it fails."""
    subprocess.run([str(part) for part in command], check=True)


def up(_: Target) -> None:
    """Create the cluster.

    Raises:
        SystemExit: A cluster with this name exists.
    """
    names = subprocess.run([KIND, "get", "clusters"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    if CLUSTER in names:
        print(f"The cluster `{CLUSTER}` already exists. Remove it with: make kind-down", file=sys.stderr)
        sys.exit(_EXISTS)
    run(KIND, "create", "cluster", "--config", manifests.K8S / "kind" / "cluster.yaml", "--wait", "180s")


def load(_: Target) -> None:
    """Load our images onto the cluster's nodes; the nodes pull all other images."""
    containers = manifests.build("kind").containers
    images = sorted({each["image"] for each in containers if each["image"].startswith("causeway/")})
    run(KIND, "load", "docker-image", "--name", CLUSTER, *images)


def deploy(target: Target) -> None:
    """Apply the overlay and wait until all workloads are ready."""
    run(*target.kubectl, "apply", "--kustomize", manifests.K8S / "overlays" / "kind")
    for workload in manifests.build("kind").workloads.values():
        name = f"{workload['kind'].lower()}/{workload['metadata']['name']}"
        try:
            run(*target.kubectl, "rollout", "status", name, "--timeout", "300s")
        except subprocess.CalledProcessError:
            subprocess.run([*target.kubectl, "get", "pods,events"], check=False)
            raise


def test(target: Target) -> None:
    """Run the end-to-end tests and the tests that kill pods."""
    key = os.environ.get("CAUSEWAY_E2E_KEY") or _admin_key(target)
    environment = {
        "CAUSEWAY_E2E_URL": target.url,
        "CAUSEWAY_E2E_KEY": key,
        "CAUSEWAY_API_KEY": key,
        "CAUSEWAY_E2E_PODS": f"kubernetes:{target.context}/{target.namespace}",
    }
    print(httpx.get(f"{target.url}/readyz?verbose", timeout=10).text)
    pytest = [str(BIN / "pytest"), "tests/e2e", "tests/cluster"]
    subprocess.run(pytest, env=os.environ | environment, check=True)


def _admin_key(target: Target) -> str:
    with _forwarded(target, "service/nats", NATS_PORT, 4222):
        command = [str(BIN / "causeway"), "keys", "create", "--name", "e2e", "--roles", "admin"]
        command += ["--nats-url", f"nats://127.0.0.1:{NATS_PORT}"]
        created = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return created.stdout.strip()


@contextlib.contextmanager
def _forwarded(target: Target, name: str, local_port: int, port: int) -> Iterator[None]:
    command = [*target.kubectl, "port-forward", name, f"{local_port}:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # kubectl writes a line when it listens
        yield
    finally:
        process.terminate()
        process.wait()


def down(_: Target) -> None:
    """Remove the cluster."""
    run(KIND, "delete", "cluster", "--name", CLUSTER)


def everything(target: Target) -> None:
    """Run all steps and remove the cluster; if a step fails, save the cluster's logs in build/kind.

    Raises:
        SystemExit: A cluster with this name exists, and is unchanged.
    """
    _timed(up, target)  # if this fails, kind removes the unfinished cluster itself
    try:
        for step in (load, deploy, test):
            _timed(step, target)
    except subprocess.CalledProcessError:
        subprocess.run([KIND, "export", "logs", "--name", CLUSTER, str(LOGS)], check=False)
        raise
    finally:
        down(target)


def _timed(step: Callable[[Target], None], target: Target) -> None:
    begin = time.monotonic()
    step(target)
    print(f"==> {step.__name__}: {time.monotonic() - begin:.0f} s", flush=True)


STEPS: dict[str, Callable[[Target], None]] = {
    "up": up,
    "load": load,
    "deploy": deploy,
    "test": test,
    "down": down,
    "all": everything,
}


def main() -> int:
    """Run the command line; return 0, or the exit code of the command that failed.

    Raises:
        SystemExit: 69: a tool is missing. 73: the cluster already exists.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--context", default=CONTEXT, help="context of kubectl (default: %(default)s)")
    parser.add_argument("--namespace", default="causeway", help="namespace of the platform (default: %(default)s)")
    parser.add_argument("--url", default=URL, help="URL of the gateways (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.step != "test":
        check()
    try:
        STEPS[arguments.step](Target(arguments.context, arguments.namespace, arguments.url))
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
