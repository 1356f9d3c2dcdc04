"""Components give the same result in any order, and overlays do not affect each other."""

import json
import os
from pathlib import Path
from typing import Any

import manifests
import pytest
import yaml
from manifests import K8S, Manifests

COMPONENTS = sorted(each.name for each in (K8S / "components").iterdir())
STORES = {"embedded-store": ("embedded-store",), "qdrant-cluster": ("qdrant-cluster", "qdrant-tls")}


def build(directory: Path, components: list[str]) -> Manifests:
    """Build the base with components in the given order."""
    k8s = Path(os.path.relpath(K8S, directory.resolve()))
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(k8s / "base")],
        "components": [str(k8s / "components" / each) for each in components],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return manifests.build_directory(directory)


def content(cluster: Manifests) -> list[str]:
    """Return the objects as sorted JSON, which does not depend on the order of the build."""
    return sorted(json.dumps(_sorted(each), sort_keys=True) for each in cluster.objects)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(each) for key, each in value.items()}
    if isinstance(value, list):
        found = [_sorted(each) for each in value]
        named = all(isinstance(each, dict) and "name" in each for each in found)
        return sorted(found, key=lambda each: each["name"]) if named else found
    return value


@pytest.mark.parametrize("store", ["embedded-store", "qdrant-cluster"])
def test_the_order_of_components_does_not_matter(store: str, tmp_path: Path) -> None:
    """A list of components and the reversed list give the same objects. So each pair of components is tested in
    both orders.
    """
    others = STORES[{"embedded-store": "qdrant-cluster", "qdrant-cluster": "embedded-store"}[store]]
    components = [each for each in COMPONENTS if each not in others]
    assert content(build(tmp_path, components)) == content(build(tmp_path, components[::-1]))


@pytest.mark.parametrize("before", ["embedded", "kind", "prod"])
@pytest.mark.parametrize("after", ["embedded", "kind", "prod"])
def test_services_do_not_select_pods_of_another_overlay(before: str, after: str) -> None:
    """No service of an overlay selects pods that an earlier overlay has left in the cluster."""
    old, new = manifests.build(before), manifests.build(after)
    current = {(each["kind"], name) for name, each in new.workloads.items()}
    remaining = {name: each for name, each in old.workloads.items() if (each["kind"], name) not in current}
    for service in new.of("Service"):
        for name, workload in remaining.items():
            labels = workload["spec"]["template"]["metadata"]["labels"]
            assert not service["spec"]["selector"].items() <= labels.items(), (
                f"{service['metadata']['name']}: {name}"
            )
