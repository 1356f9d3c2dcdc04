"""TLS and an API key between the retriever and Qdrant with the component `qdrant-tls`."""

import fnmatch
import os
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import manifests
import pytest
import yaml
from manifests import K8S, NAME, Manifests
from retriever.settings import Settings

COMPONENTS = ("qdrant-cluster", "tls", "monitoring")
Build = Any


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Build the base with the components of a cluster and further ones."""

    def with_components(*further: str) -> Manifests:
        there = Path(os.path.relpath(K8S, tmp_path.resolve()))
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [str(there / "base")],
            "components": [str(there / "components" / each) for each in (*COMPONENTS, *further)],
        }
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return manifests.build_directory(tmp_path)

    return with_components


def mounted(cluster: Manifests, workload: str) -> dict[str, str]:
    """Return the Secrets of a workload's first container by their paths."""
    pod = cluster.pods[workload]
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    mounts = pod["containers"][0]["volumeMounts"]
    return {each["mountPath"]: secrets[each["name"]] for each in mounts if each["name"] in secrets}


def test_the_retriever_knows_key_and_authority(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings name mounted files of Secrets, and an address in the server's certificate."""
    cluster = build("qdrant-tls")
    for name, value in cluster.environment(cluster.pods["retriever"]["containers"][0]).items():
        monkeypatch.setenv(name, value)
    settings: Any = Settings()
    secrets = mounted(cluster, "retriever")
    assert secrets[str(settings.qdrant_ca_file.parent)] == "retriever-tls"
    assert settings.qdrant_ca_file.name == "ca.crt"
    assert secrets[str(settings.qdrant_api_key_file.parent)] == "qdrant"
    url = urlsplit(settings.qdrant_url)
    assert url.scheme == "https"
    [certificate] = [each for each in cluster.of("Certificate") if each["metadata"]["name"] == "qdrant"]
    assert url.hostname in certificate["spec"]["dnsNames"]
    leaves = [each["spec"] for each in cluster.of("Certificate") if not each["spec"].get("isCA")]
    assert {each["issuerRef"]["name"] for each in leaves} == {certificate["spec"]["issuerRef"]["name"]}


def test_the_server_shows_its_certificate_and_wants_the_key(build: Build) -> None:
    """The server uses the same Secrets as the retriever. Its probes use TLS with their paths, and no manifest
    contains the key.
    """
    plain, cluster = build(), build("qdrant-tls")
    [server] = cluster.pods["qdrant"]["containers"]
    environment = cluster.environment(server)
    assert environment["QDRANT__SERVICE__ENABLE_TLS"] == "true"
    files = [environment[f"QDRANT__TLS__{each}"] for each in ("CERT", "KEY", "CA_CERT")]
    assert {mounted(cluster, "qdrant")[str(Path(each).parent)] for each in files} == {"qdrant-tls"}
    [key] = [each for each in server["env"] if each["name"] == "QDRANT__SERVICE__API_KEY"]
    assert key["valueFrom"] == {"secretKeyRef": {"name": "qdrant", "key": "api-key"}}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        before = plain.pods["qdrant"]["containers"][0][probe]
        assert server[probe] == before | {"httpGet": before["httpGet"] | {"scheme": "HTTPS"}}


@pytest.mark.parametrize(("component", "scheme"), [((), "http"), (("qdrant-tls",), "https")])
def test_nodes_call_each_other_by_names_of_the_certificate(
    build: Build, tmp_path: Path, component: tuple[str, ...], scheme: str
) -> None:
    """The command of the pods gives the node a name of the certificate. An entry point that prints its arguments
    shows it.
    """
    cluster = build(*component)
    [server] = cluster.pods["qdrant"]["containers"]
    entry = tmp_path / "entrypoint.sh"
    entry.write_text('#!/bin/sh\necho "$@"\n')
    entry.chmod(0o755)
    said = {}
    for pod in ("qdrant-0", "qdrant-1"):
        environment = cluster.environment(server) | {"POD_NAME": pod}
        ran = subprocess.run(
            ["bash", *server["command"][1:]], cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE
        )
        said[pod] = ran.stdout.decode().split()
    assert said == {
        "qdrant-0": ["--uri", f"{scheme}://qdrant-0.qdrant:6335"],
        "qdrant-1": [
            *("--bootstrap", f"{scheme}://qdrant-0.qdrant:6335"),
            *("--uri", f"{scheme}://qdrant-1.qdrant:6335"),
        ],
    }
    assert ("QDRANT__CLUSTER__P2P__ENABLE_TLS" in cluster.environment(server)) == (scheme == "https")
    if component:
        [certificate] = [each for each in cluster.of("Certificate") if each["metadata"]["name"] == "qdrant"]
        names = certificate["spec"]["dnsNames"]
        assert any(fnmatch.fnmatch("qdrant-1.qdrant", each) for each in names)


@pytest.mark.parametrize(("component", "scheme"), [((), "http"), (("qdrant-tls",), "https")])
def test_one_monitor_asks_each_node(build: Build, component: tuple[str, ...], scheme: str) -> None:
    """The monitor uses each node's scheme, over TLS with the key."""
    cluster = build(*component)
    labels = cluster.workloads["qdrant"]["spec"]["template"]["metadata"]["labels"]

    def selects(selector: dict[str, Any]) -> bool:
        absent = {each["key"] for each in selector.get("matchExpressions", ())}
        return selector["matchLabels"].items() <= labels.items() and not absent & labels.keys()

    [monitor] = [
        each
        for each in cluster.of("PodMonitor")
        if NAME in each["spec"]["selector"].get("matchLabels", {}) and selects(each["spec"]["selector"])
    ]
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint.get("scheme", "http") == scheme
    assert ("authorization" in endpoint) == (scheme == "https")
