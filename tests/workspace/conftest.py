import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import manifests
import pytest
import yaml

OVERLAYS = sorted(path.name for path in (manifests.K8S / "overlays").iterdir())


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the workspace's directory."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", params=OVERLAYS)
def cluster(request: pytest.FixtureRequest) -> manifests.Manifests:
    """Build an overlay of deploy/k8s. Tests run for each overlay."""
    return manifests.build(request.param)


@pytest.fixture
def compose(tmp_path: Path) -> Callable[..., manifests.Manifests]:
    """Give a function that builds a user's overlay on top of one of ours, with components and fields of a
    kustomization.

    Its files are looked for in the test's temporary directory.
    """

    def build(overlay: str, components: list[str] | None = None, **fields: Any) -> manifests.Manifests:
        there = Path(os.path.relpath(manifests.K8S, tmp_path.resolve()))
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "causeway",
            "resources": [str(there / "overlays" / overlay)],
            "components": [str(there / "components" / each) for each in components or []],
        }
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization | fields))
        return manifests.build_directory(tmp_path)

    return build


@pytest.fixture
def documented(root: Path) -> Callable[[str], dict[str, Any]]:
    """Return the part of a kustomization in docs/deploy.md whose first line has these words."""

    def read(words: str) -> dict[str, Any]:
        page = (root / "docs" / "deploy.md").read_text()
        (found,) = (
            each
            for each in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
            if words in each.partition("\n")[0]
        )
        shown: dict[str, Any] = yaml.safe_load(found)
        return shown

    return read
