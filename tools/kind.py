"""The platform in a cluster of kind on this machine: deploy/k8s/overlays/kind, and the end-to-end tests against it.

Usage: python tools/kind.py up | load | deploy | test | down | all

`all` does one after the other and always ends with `down`; where one fails, the cluster's logs are in build/kind.
Needs `kind` and a container engine with the images of `make images`; kubectl is part of the environment. KIND and
DOCKER name other commands than `kind` and `docker`.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import manifests

CLUSTER = "causeway"
CONTEXT = f"kind-{CLUSTER}"
NAMESPACE = "causeway"
URL = "http://127.0.0.1:30080"
NATS_PORT = 34222
KIND = os.environ.get("KIND", "kind")
DOCKER = os.environ.get("DOCKER", "docker")
LOGS = manifests.ROOT / "build" / "kind"
BIN = Path(sys.executable).parent
KUBECTL = (str(BIN / "kubectl"), "--context", CONTEXT, "--namespace", NAMESPACE)
_MISSING = 69  # EX_UNAVAILABLE of sysexits.h


def check() -> None:
    """Says what is missing.

    Raises:
        SystemExit: Something is.
    """
    missing = [command for command in (KIND, DOCKER) if shutil.which(command) is None]
    if missing:
        print(f"missing: {', '.join(missing)} (docs/deploy.md)", file=sys.stderr)
        sys.exit(_MISSING)
    if subprocess.run([DOCKER, "info"], capture_output=True, check=False).returncode:
        print(f"missing: a container engine that `{DOCKER} info` finds (docs/deploy.md)", file=sys.stderr)
        sys.exit(_MISSING)


def run(*command: str | Path) -> None:
    """Runs a command that must succeed."""
    subprocess.run([str(part) for part in command], check=True)


def up() -> None:
    """Makes the cluster."""
    run(KIND, "create", "cluster", "--config", manifests.K8S / "kind" / "cluster.yaml", "--wait", "180s")


def load() -> None:
    """Puts our images on the cluster's nodes; the others are pulled."""
    containers = manifests.build("kind").containers
    images = sorted({each["image"] for each in containers if each["image"].startswith("causeway/")})
    run(KIND, "load", "docker-image", "--name", CLUSTER, *images)


def deploy() -> None:
    """Applies the overlay and waits until everything is ready."""
    run(*KUBECTL, "apply", "--kustomize", manifests.K8S / "overlays" / "kind")
    for workload in manifests.build("kind").workloads.values():
        name = f"{workload['kind'].lower()}/{workload['metadata']['name']}"
        try:
            run(*KUBECTL, "rollout", "status", name, "--timeout", "300s")
        except subprocess.CalledProcessError:
            subprocess.run([*KUBECTL, "get", "pods,events"], check=False)
            raise


def test() -> None:
    """Runs the end-to-end tests, unchanged, and those that kill pods."""
    key = _admin_key()
    environment = {
        "CAUSEWAY_E2E_URL": URL,
        "CAUSEWAY_E2E_KEY": key,
        "CAUSEWAY_API_KEY": key,
        "CAUSEWAY_E2E_PODS": f"kubernetes:{CONTEXT}/{NAMESPACE}",
    }
    print(httpx.get(f"{URL}/readyz?verbose", timeout=10).text)
    pytest = [str(BIN / "pytest"), "tests/e2e", "tests/cluster"]
    subprocess.run(pytest, env=os.environ | environment, check=True)


def _admin_key() -> str:
    with _forwarded("service/nats", NATS_PORT, 4222):
        command = [str(BIN / "causeway"), "keys", "create", "--name", "e2e", "--roles", "admin"]
        command += ["--nats-url", f"nats://127.0.0.1:{NATS_PORT}"]
        made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return made.stdout.strip()


@contextlib.contextmanager
def _forwarded(target: str, here: int, there: int) -> Iterator[None]:
    process = subprocess.Popen([*KUBECTL, "port-forward", target, f"{here}:{there}"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # written once it listens
        yield
    finally:
        process.terminate()
        process.wait()


def down() -> None:
    """Removes the cluster."""
    run(KIND, "delete", "cluster", "--name", CLUSTER)


def everything() -> None:
    """All steps; the cluster is gone afterwards, and build/kind has its logs where one of them failed."""
    try:
        for step in (up, load, deploy, test):
            begin = time.monotonic()
            step()
            print(f"==> {step.__name__}: {time.monotonic() - begin:.0f} s", flush=True)
    except subprocess.CalledProcessError:
        subprocess.run([KIND, "export", "logs", "--name", CLUSTER, str(LOGS)], check=False)
        raise
    finally:
        down()


STEPS: dict[str, Callable[[], None]] = {
    "up": up,
    "load": load,
    "deploy": deploy,
    "test": test,
    "down": down,
    "all": everything,
}


def main() -> int:
    """Runs the command line: the exit code of the command that failed, 69 where a tool is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=STEPS)
    step = STEPS[parser.parse_args().step]
    check()
    try:
        step()
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
