"""The objects of an overlay of deploy/k8s, built with kubectl's kustomize."""

import functools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
K8S = ROOT / "deploy" / "k8s"
NAME = "app.kubernetes.io/name"


@dataclass(frozen=True, slots=True)
class Manifests:
    """The objects of an overlay.

    Attributes:
        overlay: The name of the overlay.
        objects: The objects for the cluster.
    """

    overlay: str
    objects: list[dict[str, Any]]

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the objects of some kinds."""
        return [each for each in self.objects if each["kind"] in kinds]

    @property
    def workloads(self) -> dict[str, dict[str, Any]]:
        """Deployments, stateful sets and cron jobs, by name."""
        return {each["metadata"]["name"]: each for each in self.of("Deployment", "StatefulSet", "CronJob")}

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        """The pod specification of each workload."""
        return {
            name: each["spec"].get("jobTemplate", each)["spec"]["template"]["spec"]
            for name, each in self.workloads.items()
        }

    @property
    def containers(self) -> list[dict[str, Any]]:
        """All containers of all pods."""
        return [each for pod in self.pods.values() for each in pod.get("initContainers", []) + pod["containers"]]

    def requests(self, *, surge: int = 0) -> tuple[float, int]:
        """Return the CPU cores and the bytes of memory that the pods of deployments and stateful sets request.

        The pods of a cron job run for a short time, so they are not part of the sums. Nor are init containers.

        Args:
            surge: The number of additional pods of each workload, for example during an update.
        """
        cores, memory = 0.0, 0
        for workload in self.of("Deployment", "StatefulSet"):
            pods = workload["spec"]["replicas"] + surge
            for container in workload["spec"]["template"]["spec"]["containers"]:
                requests = container["resources"]["requests"]
                cores += pods * cpu_cores(requests["cpu"])
                memory += pods * size(requests["memory"])
        return cores, memory

    def config(self, name: str) -> dict[str, str]:
        """Return the content of a config map, by its complete name: kustomize adds a hash of the content."""
        (found,) = (each for each in self.of("ConfigMap") if each["metadata"]["name"] == name)
        return dict(found.get("data", {}))

    def environment(self, container: dict[str, Any]) -> dict[str, str]:
        """Return the plain-text variables of a container. Its own variables override those of its config maps."""
        found: dict[str, str] = {}
        for source in container.get("envFrom", []):
            found |= self.config(source["configMapRef"]["name"])
        return found | {each["name"]: each["value"] for each in container.get("env", []) if "value" in each}

    def services_of(self, workload: str) -> Iterator[dict[str, Any]]:
        """Return the services for the pods of a workload."""
        labels = self.workloads[workload]["spec"]["template"]["metadata"]["labels"]
        return (each for each in self.of("Service") if each["spec"]["selector"].items() <= labels.items())


@functools.cache
def build(overlay: str) -> Manifests:
    """Build an overlay of deploy/k8s once; raises the errors of `build_directory`."""
    return build_directory(K8S / "overlays" / overlay)


def build_directory(directory: Path) -> Manifests:
    """Build the kustomization of a directory. The overlay has the name of the directory.

    Raises:
        subprocess.CalledProcessError: The build failed; kubectl has written the reason to stderr.
    """
    command = [str(Path(sys.executable).with_name("kubectl")), "kustomize", str(directory)]
    built = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return Manifests(directory.name, list(yaml.load_all(built.stdout, yaml.CSafeLoader)))


def cpu_cores(quantity: str) -> float:
    """Return a Kubernetes quantity of CPU in cores: ``2`` is 2.0, and ``250m`` is 0.25."""
    return int(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


def size(quantity: str) -> int:
    """Return a Kubernetes quantity of bytes, with the suffix Ki, Mi or Gi, in bytes."""
    units = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}
    return int(quantity[:-2]) * units[quantity[-2:]]
