"""The figures of docs/sizing.md equal the values in the manifests and settings."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from gateway.settings import Settings
from generator.configuration.schema import DeploymentEntry
from manifests import K8S, build, size
from servicekit.server import GrpcServer

SCALED = ("gateway", "generator", "guardrails", "retriever", "ingest")


@pytest.fixture(scope="module")
def rows(root: Path) -> dict[str, list[list[str]]]:
    """Return the cells of each table row in the section about the manifests, by the first cell."""
    part = (root / "docs/sizing.md").read_text().partition("\n## The manifests\n")[2]
    found: dict[str, list[list[str]]] = {}
    for line in re.findall(r"^\| (.*) \|$", part, re.MULTILINE):
        first, *others = (cell.strip() for cell in line.split("|"))
        found.setdefault(first, []).append(others)
    return found


def _read(*path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(K8S.joinpath(*path).read_text()))


def _pair(resources: dict[str, str]) -> str:
    return f"{resources['cpu']}, {resources['memory']}"


@pytest.mark.parametrize("service", SCALED)
def test_services_have_the_documented_resources(rows: dict[str, list[list[str]]], service: str) -> None:
    """The requests, limits, replicas and autoscaler targets of the page equal those of `base`."""
    [deployment] = _read("base", service, "deployment.yaml")
    [autoscaler] = [each["spec"] for each in _read("base", service, "autoscaler.yaml")]
    resources = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]
    [metric] = autoscaler["metrics"]
    assert rows[service][0][:4] == [
        _pair(resources["requests"]),
        _pair(resources["limits"]),
        f"{autoscaler['minReplicas']} to {autoscaler['maxReplicas']}",
        f"{metric['resource']['target']['averageUtilization']} %",
    ]


def test_the_smallest_installation_needs_the_documented_resources(root: Path) -> None:
    """docs/deploy.md states the sum of the requests and volumes of the overlay `embedded`."""
    overlay = build("embedded")
    cores, memory = overlay.requests()
    volumes = sum(
        workload["spec"]["replicas"] * size(claim["spec"]["resources"]["requests"]["storage"])
        for workload in overlay.workloads.values()
        for claim in workload["spec"].get("volumeClaimTemplates", [])
    )
    gib = size("1Gi")
    needs = f"{cores} free CPU cores, {memory / gib} GiB of free memory and {volumes // gib} GiB for volumes"
    assert needs in (root / "docs/deploy.md").read_text()


@pytest.mark.parametrize("store", ["nats", "qdrant"])
def test_stores_have_the_documented_resources(rows: dict[str, list[list[str]]], store: str) -> None:
    """The requests, limits, replicas and volume sizes of the page equal those of `base`."""
    [found] = [each["spec"] for each in _read("base", store, "stateful-set.yaml")]
    resources = found["template"]["spec"]["containers"][0]["resources"]
    [claim] = found["volumeClaimTemplates"]
    assert rows[store][0][:5] == [
        _pair(resources["requests"]),
        _pair(resources["limits"]),
        str(found["replicas"]),
        "",
        claim["spec"]["resources"]["requests"]["storage"],
    ]


def test_keda_has_the_documented_thresholds(rows: dict[str, list[list[str]]]) -> None:
    """The replicas and thresholds of the page equal those of the component `keda`."""
    objects = {each["metadata"]["name"]: each["spec"] for each in _read("components", "keda", "scaled-object.yaml")}
    [answers] = [each["metadata"] for each in objects["gateway"]["triggers"] if each["name"] == "answers"]
    [calls] = [each["metadata"] for each in objects["generator"]["triggers"] if each["name"] == "answers"]
    jobs = objects["ingest"]["advanced"]["scalingModifiers"]
    thresholds = {
        "gateway": f"{answers['threshold']} answers",
        "generator": f"{calls['threshold']} answers",
        "ingest": f"{jobs['target']} jobs",
    }
    assert objects.keys() == thresholds.keys()
    for service, threshold in thresholds.items():
        spec = objects[service]
        assert rows[service][1] == [f"{spec['minReplicaCount']} to {spec['maxReplicaCount']}", threshold]


@pytest.mark.parametrize("service", ["gateway", "generator", "guardrails", "retriever"])
def test_autoscalers_allow_the_replicas_for_1000_streams(root: Path, service: str) -> None:
    """The maximum of each autoscaler, including KEDA, is at least the number of replicas in the table for 1,000
    streams.
    """
    page = (root / "docs/sizing.md").read_text()
    [needed] = re.findall(rf"^\| {service}\b[^|]*: cores; replicas \|[^|]*\| [\d.]+; (\d+) \|", page, re.MULTILINE)
    [autoscaler] = [each["spec"] for each in _read("base", service, "autoscaler.yaml")]
    maxima = [autoscaler["maxReplicas"]] + [
        each["spec"]["maxReplicaCount"]
        for each in _read("components", "keda", "scaled-object.yaml")
        if each["metadata"]["name"] == service
    ]
    assert min(maxima) >= int(needed)


def test_keda_scales_generators_by_their_calls() -> None:
    """KEDA scales generators by running and waiting answers. The threshold is at most half of their capacity."""
    objects = {each["metadata"]["name"]: each["spec"] for each in _read("components", "keda", "scaled-object.yaml")}
    [calls] = [each["metadata"] for each in objects["generator"]["triggers"] if each["name"] == "answers"]
    counted = set(re.findall(r"sum\((\w+)\{", calls["query"]))
    assert counted == {"causeway_deployment_busy", "causeway_deployment_waiting"}
    max_calls = inspect.signature(GrpcServer.__init__).parameters["max_concurrent_calls"].default
    assert int(calls["threshold"]) <= max_calls // 2


def test_the_page_has_the_admission_limits(rows: dict[str, list[list[str]]]) -> None:
    """The limits on the page are the defaults of the settings. No manifest overrides them."""
    fields = Settings.model_fields
    limits = {
        f"`CAUSEWAY_{name.upper()}`": fields[name].default
        for name in ("max_answers", "max_requests", "max_connections")
    } | {
        "`max_concurrency` of a deployment, for each generator": DeploymentEntry.model_fields[
            "max_concurrency"
        ].default,
        "concurrent gRPC calls of generator, retriever and guardrails": inspect.signature(GrpcServer.__init__)
        .parameters["max_concurrent_calls"]
        .default,
    }
    assert {name: rows[name][0] for name in limits} == {name: [str(value)] for name, value in limits.items()}
    settings = "".join(path.read_text() for path in K8S.rglob("*.yaml"))
    assert [name for name in limits if name.strip("`") + "=" in settings] == []
