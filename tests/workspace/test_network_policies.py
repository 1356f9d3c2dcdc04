"""The network policies of every overlay permit exactly the connections that the architecture has."""

import re
from collections.abc import Callable, Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import yaml
from ingest.web.addresses import is_public
from manifests import NAME, Manifests, build

SERVICES = ("gateway", "generator", "guardrails", "ingest", "retriever")
INTERNET: list[dict[str, Any]] = [
    {
        "cidr": "0.0.0.0/0",
        "except": [
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16"),
            *("172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3"),
        ],
    },
    {
        "cidr": "::/0",
        "except": ["::/8", "2001::/23", "2002::/16", "3fff::/20", "fc00::/7", "fe80::/9", "ff00::/8"],
    },
]
Connection = tuple[str, str, str]
Compose = Callable[..., Manifests]


DNS = {
    "podSelector": {},
    "policyTypes": ["Egress"],
    "egress": [
        {
            "to": [
                {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                    "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                },
                {"ipBlock": {"cidr": "169.254.20.10/32"}},  # NodeLocal DNSCache
            ],
            "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
        },
        {
            "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}}],
            "ports": [{"port": 5353, "protocol": "UDP"}, {"port": 5353, "protocol": "TCP"}],
        },
    ],
}
# The connections of the architecture: (from, to, port). `namespace …` means all pods of the namespace, and `client`
# any address.
EMBEDDED = {
    ("client", "gateway", "8080/TCP"),
    ("gateway", "retriever", "50051/TCP"),
    ("gateway", "generator", "50052/TCP"),
    ("gateway", "guardrails", "50053/TCP"),
    ("gateway", "nats", "4222/TCP"),
    ("ingest", "retriever", "50051/TCP"),
    ("ingest", "nats", "4222/TCP"),
}
KIND = EMBEDDED | {("retriever", "qdrant", "6334/TCP")}
PROD = (
    KIND
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
CONNECTIONS = {
    "embedded": EMBEDDED,
    "kind": KIND,
    "prod": PROD,
    "prod-gpu": PROD | {("generator", "triton", "8001/TCP"), ("namespace monitoring", "triton", "8002/TCP")},
}
# Additional connections of components that are in no overlay.
COMPONENTS = {
    "backup": {("backup", "nats", "4222/TCP"), ("backup", "retriever", "50051/TCP")},
    "ingest-urls": {("ingest", "internet", "80/TCP"), ("ingest", "internet", "443/TCP")},
    "s3-originals": {("gateway", "internet", "443/TCP"), ("ingest", "internet", "443/TCP")},
    "remote-detectors": {("guardrails", "namespace detectors", port) for port in ("8000/TCP", "8085/TCP")},
}


def test_network_policies_permit_the_connections(cluster: Manifests) -> None:
    """The policies of both ends permit each connection, and permit nothing else except DNS."""
    assert_connections(cluster, CONNECTIONS[cluster.overlay])


@pytest.mark.parametrize(
    ("overlay", "components"), [*(("embedded", [each]) for each in COMPONENTS), ("prod", list(COMPONENTS))]
)
def test_a_component_adds_its_connections(overlay: str, components: list[str], compose: Compose) -> None:
    """A user's overlay with components permits exactly the connections of the overlay and of the components."""
    added = set().union(*(COMPONENTS[each] for each in components))
    assert_connections(compose(overlay, components=components), CONNECTIONS[overlay] | added)


def test_detectors_can_be_in_another_network(compose: Compose, documented: Callable[[str], dict[str, Any]]) -> None:
    """The patch of docs/deploy.md changes the component's policy to another network."""
    shown = documented("remote detectors")
    cluster = compose("embedded", components=["remote-detectors"], patches=shown["patches"])
    policies = {each["metadata"]["name"]: each["spec"] for each in cluster.of("NetworkPolicy")}
    (rule,) = policies["guardrails-detectors"]["egress"]
    assert rule["to"] == [{"ipBlock": {"cidr": "10.20.0.0/24"}}]
    assert policies.keys() - {"guardrails-detectors"} == {
        each["metadata"]["name"] for each in build("embedded").of("NetworkPolicy")
    }


@pytest.mark.parametrize(
    "address",
    [
        *("10.1.2.3", "100.100.100.200", "127.0.0.1", "168.63.129.16", "169.254.169.254", "172.31.0.1"),
        *("192.168.1.1", "0.0.0.0", "192.0.0.192", "198.18.0.1", "224.0.0.1", "255.255.255.255"),
        *(
            "::1",
            "::ffff:10.0.0.1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
        ),
        *("2001:0:a00:1::", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2001:4860::8888"),
    ],
)
def test_the_internet_is_public(address: str) -> None:
    """The policies permit exactly the public addresses, from which a worker may fetch documents."""
    found = ip_address(address)
    allowed = any(
        found in ip_network(block["cidr"]) and not any(found in ip_network(each) for each in block["except"])
        for block in INTERNET
        if ip_network(block["cidr"]).version == found.version
    )
    assert allowed == is_public(address)


def assert_connections(cluster: Manifests, connections: set[Connection]) -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in cluster.of("NetworkPolicy")}
    assert policies.pop("default-deny") == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert policies.pop("dns") == DNS
    incoming, outgoing, covered = set(), set(), set()
    for policy in policies.values():
        names = set(_selected(policy["podSelector"]))
        assert names <= cluster.workloads.keys()
        covered |= names
        # A policy permits no connections in a direction for which it has no rule.
        assert policy.keys() - {"podSelector", "policyTypes"} <= {each.lower() for each in policy["policyTypes"]}
        for name in names:
            for rule in policy.get("ingress", []):
                incoming |= {(peer, name, port) for peer in _peers(rule.get("from")) for port in _ports(rule)}
            for rule in policy.get("egress", []):
                outgoing |= {(name, peer, port) for peer in _peers(rule.get("to")) for port in _ports(rule)}
    pods = cluster.workloads.keys()
    assert covered == pods
    assert incoming == {connection for connection in connections if connection[1] in pods}
    assert outgoing == {connection for connection in connections if connection[0] in pods}


def _selected(selector: dict[str, Any]) -> list[str]:
    if "matchLabels" in selector:
        assert selector.keys() == {"matchLabels"}
        assert selector["matchLabels"].keys() == {NAME}
        return [selector["matchLabels"][NAME]]
    (expression,) = selector["matchExpressions"]
    assert (expression["key"], expression["operator"]) == (NAME, "In")
    return list(expression["values"])


def _peers(selectors: list[dict[str, Any]] | None) -> Iterator[str]:
    if selectors is None:
        yield "client"
    for selector in selectors or []:
        if selector == {"ipBlock": INTERNET[0]}:
            assert {"ipBlock": INTERNET[1]} in (selectors or [])
            yield "internet"
        elif selector == {"ipBlock": INTERNET[1]}:
            assert {"ipBlock": INTERNET[0]} in (selectors or [])
        elif selector.keys() == {"namespaceSelector"}:
            yield f"namespace {selector['namespaceSelector']['matchLabels']['kubernetes.io/metadata.name']}"
        else:
            assert selector.keys() == {"podSelector"}
            yield from _selected(selector["podSelector"])


def _ports(rule: dict[str, Any]) -> Iterator[str]:
    for port in rule["ports"]:
        yield f"{port['port']}/{port['protocol']}"


def test_targets_are_headless_services(cluster: Manifests) -> None:
    """Each target in the settings of a service is a headless service with that port. The targets are exactly the
    connections between pods.
    """
    headless = {
        (each["metadata"]["name"], str(port["port"]))
        for each in cluster.of("Service")
        if each["spec"].get("clusterIP") == "None"
        for port in each["spec"]["ports"]
    }
    calls = set()
    for service in SERVICES:
        (container,) = cluster.pods[service]["containers"]
        values = list(cluster.environment(container).values())
        if service == "generator":
            values += _model_servers(cluster)
        for value in values:
            if called := re.fullmatch(r"(?:dns:///|nats://|http://)?(\w+):(\d+)", value):
                assert called.groups() in headless
                calls.add((service, called[1], f"{called[2]}/TCP"))
    pods = cluster.workloads.keys()
    # Connections between pods of the same workload are in the configuration of NATS or Qdrant.
    assert calls == {
        each for each in CONNECTIONS[cluster.overlay] if {each[0], each[1]} <= pods and each[0] != each[1]
    }


def _model_servers(cluster: Manifests) -> list[str]:
    files = [
        each["data"]["models.yaml"] for each in cluster.of("ConfigMap") if "models.yaml" in each.get("data", {})
    ]
    return [server["url"] for file in files for server in yaml.safe_load(file)["servers"].values()]
