"""Who may speak to whom: the network policies of every overlay say it, no more and no less."""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from manifests import NAME, Manifests

SERVICES = ("gateway", "generator", "guardrails", "ingest", "retriever")
INTERNET = {
    "cidr": "0.0.0.0/0",
    "except": ["10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"],
}
Arrow = tuple[str, str, str]


def asks_dns(*names: str) -> set[Arrow]:
    return {(name, "dns", port) for name in names for port in ("53/UDP", "53/TCP")}


# The architecture's arrows: (who, whom, where). `namespace …` is everybody there, `client` everybody anywhere.
EMBEDDED = asks_dns("gateway", "ingest") | {
    ("client", "gateway", "8080/TCP"),
    ("gateway", "retriever", "50051/TCP"),
    ("gateway", "generator", "50052/TCP"),
    ("gateway", "guardrails", "50053/TCP"),
    ("gateway", "nats", "4222/TCP"),
    ("ingest", "retriever", "50051/TCP"),
    ("ingest", "nats", "4222/TCP"),
}
KIND = EMBEDDED | asks_dns("retriever") | {("retriever", "qdrant", "6334/TCP")}
PROD = (
    KIND
    | asks_dns(*SERVICES, "collector", "nats", "qdrant")
    | {(service, "collector", "4317/TCP") for service in SERVICES}
    | {("namespace monitoring", service, "9464/TCP") for service in SERVICES}
    | {
        ("collector", "namespace monitoring", "4317/TCP"),
        ("generator", "internet", "443/TCP"),
        ("namespace keda", "nats", "8222/TCP"),
        ("namespace monitoring", "nats", "7777/TCP"),
        ("namespace monitoring", "qdrant", "6333/TCP"),
        ("nats", "nats", "6222/TCP"),
        ("qdrant", "qdrant", "6335/TCP"),
    }
)
ARROWS = {
    "embedded": EMBEDDED,
    "kind": KIND,
    "prod": PROD,
    "prod-gpu": PROD | {("generator", "triton", "8001/TCP")},
}


def test_network_policies_are_the_arrows(cluster: Manifests) -> None:
    """Both ends of each arrow allow it and nothing else; every pod has a policy, and without one all is refused."""
    policies = {each["metadata"]["name"]: each["spec"] for each in cluster.of("NetworkPolicy")}
    assert policies.pop("default-deny") == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    incoming, outgoing, covered = set(), set(), set()
    for policy in policies.values():
        names = set(_selected(policy["podSelector"]))
        assert names <= cluster.workloads.keys()
        covered |= names
        # A direction without a rule must be none that the policy is about.
        assert policy.keys() - {"podSelector", "policyTypes"} == {each.lower() for each in policy["policyTypes"]}
        for name in names:
            for rule in policy.get("ingress", []):
                incoming |= {(peer, name, port) for peer in _peers(rule.get("from")) for port in _ports(rule)}
            for rule in policy.get("egress", []):
                outgoing |= {(name, peer, port) for peer in _peers(rule.get("to")) for port in _ports(rule)}
    arrows = ARROWS[cluster.overlay]
    pods = cluster.workloads.keys()
    assert covered == pods
    assert incoming == {arrow for arrow in arrows if arrow[1] in pods}
    assert outgoing == {arrow for arrow in arrows if arrow[0] in pods}


def _selected(selector: dict[str, Any]) -> list[str]:
    if "matchLabels" in selector:
        assert selector.keys() == {"matchLabels"}
        assert selector["matchLabels"].keys() == {NAME}
        return [selector["matchLabels"][NAME]]
    (expression,) = selector["matchExpressions"]
    assert (expression["key"], expression["operator"]) == (NAME, "In")
    return list(expression["values"])


def _peers(selectors: list[dict[str, Any]] | None) -> Iterator[str]:
    dns = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    if selectors is None:
        yield "client"
    for selector in selectors or []:
        if selector == dns:
            yield "dns"
        elif selector == {"ipBlock": INTERNET}:
            yield "internet"
        elif selector.keys() == {"namespaceSelector"}:
            yield f"namespace {selector['namespaceSelector']['matchLabels']['kubernetes.io/metadata.name']}"
        else:
            assert selector.keys() == {"podSelector"}
            yield from _selected(selector["podSelector"])


def _ports(rule: dict[str, Any]) -> Iterator[str]:
    for port in rule["ports"]:
        yield f"{port['port']}/{port['protocol']}"


def test_targets_are_headless_services(cluster: Manifests) -> None:
    """Whom a service is told to call is a headless service with that port; they are the arrows between pods."""
    headless = {
        (each["metadata"]["name"], str(port["port"]))
        for each in cluster.of("Service")
        if each["spec"].get("clusterIP") == "None"
        for port in each["spec"]["ports"]
    }
    calls = set()
    for service in SERVICES:
        (container,) = cluster.pods[service]["containers"]
        said = list(cluster.environment(container).values())
        if service == "generator":
            said += _model_servers(cluster)
        for value in said:
            if called := re.fullmatch(r"(?:dns:///|nats://|http://)?(\w+):(\d+)", value):
                assert called.groups() in headless
                calls.add((service, called[1], f"{called[2]}/TCP"))
    pods = cluster.workloads.keys()
    # Servers of one kind find each other by their own configuration.
    assert calls == {each for each in ARROWS[cluster.overlay] if {each[0], each[1]} <= pods and each[0] != each[1]}


def _model_servers(cluster: Manifests) -> list[str]:
    files = [each["data"]["models.yaml"] for each in cluster.of("ConfigMap") if "models.yaml" in each["data"]]
    return [server["url"] for file in files for server in yaml.safe_load(file)["servers"].values()]
