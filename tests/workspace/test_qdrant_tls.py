"""The component `qdrant-tls`: TLS and an API key between the retriever and Qdrant."""

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
    """Return a function that builds the base with the components of a Qdrant cluster and with given components."""

    def with_components(*further: str) -> Manifests:
        k8s = Path(os.path.relpath(K8S, tmp_path.resolve()))
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [str(k8s / "base")],
            "components": [str(k8s / "components" / each) for each in (*COMPONENTS, *further)],
        }
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return manifests.build_directory(tmp_path)

    return with_components


def mounted(cluster: Manifests, workload: str) -> dict[str, str]:
    """Return the names of the Secrets that are mounted in a workload's first container, by their paths."""
    pod = cluster.pods[workload]
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    mounts = pod["containers"][0]["volumeMounts"]
    return {each["mountPath"]: secrets[each["name"]] for each in mounts if each["name"] in secrets}


def test_the_retriever_has_the_key_and_the_authority(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the retriever name files of mounted Secrets, and a host name in the server's certificate."""
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


def test_the_server_has_its_certificate_and_the_key(build: Build) -> None:
    """The server has the certificate of the Secret `qdrant-tls`, and the API key of the same Secret as the
    retriever. Its probes use HTTPS, with the same paths as without TLS.
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
def test_nodes_use_host_names_of_the_certificate(
    build: Build, tmp_path: Path, component: tuple[str, ...], scheme: str
) -> None:
    """The command of a pod starts Qdrant with a host name that is in the certificate. The test replaces the entry
    point by a script that prints its arguments.
    """
    cluster = build(*component)
    [server] = cluster.pods["qdrant"]["containers"]
    entry = tmp_path / "entrypoint.sh"
    entry.write_text('#!/bin/sh\necho "$@"\n')
    entry.chmod(0o755)
    arguments = {}
    for pod in ("qdrant-0", "qdrant-1"):
        environment = cluster.environment(server) | {"POD_NAME": pod}
        completed = subprocess.run(
            ["bash", *server["command"][1:]], cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE
        )
        arguments[pod] = completed.stdout.decode().split()
    assert arguments == {
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
def test_one_monitor_scrapes_each_node(build: Build, component: tuple[str, ...], scheme: str) -> None:
    """Exactly one PodMonitor selects the nodes. It uses their scheme, and with TLS also the API key."""
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
