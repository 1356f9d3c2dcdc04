import functools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import manifests
import pytest
import yaml

OVERLAYS = sorted(path.name for path in (manifests.K8S / "overlays").iterdir())


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root directory of the repository."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", params=OVERLAYS)
def cluster(request: pytest.FixtureRequest) -> manifests.Manifests:
    """Build an overlay of deploy/k8s. A test that uses this fixture runs for each overlay."""
    return manifests.build(request.param)


@pytest.fixture(scope="session")
def compose_in() -> Callable[..., manifests.Manifests]:
    """Return a function that builds a user's overlay in a directory. It is based on an overlay of deploy/k8s, and
    has components and other fields of a kustomization.
    """

    def build(directory: Path, overlay: str, components: Sequence[str] = (), **fields: Any) -> manifests.Manifests:
        k8s = Path(os.path.relpath(manifests.K8S, directory.resolve()))
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "causeway",
            "resources": [str(k8s / "overlays" / overlay)],
            "components": [str(k8s / "components" / each) for each in components],
        }
        (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization | fields))
        return manifests.build_directory(directory)

    return build


@pytest.fixture
def compose(tmp_path: Path, compose_in: Callable[..., manifests.Manifests]) -> Callable[..., manifests.Manifests]:
    """Return `compose_in` for the temporary directory of the test, which has the files that the overlay names."""
    return functools.partial(compose_in, tmp_path)


@pytest.fixture
def documented(root: Path) -> Callable[[str], dict[str, Any]]:
    """Return a function that returns the kustomization in docs/deploy.md whose first line contains given words."""

    def read(words: str) -> dict[str, Any]:
        page = (root / "docs" / "deploy.md").read_text()
        (block,) = (
            each
            for each in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
            if words in each.partition("\n")[0]
        )
        kustomization: dict[str, Any] = yaml.safe_load(block)
        return kustomization

    return read
