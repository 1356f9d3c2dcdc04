from pathlib import Path

import manifests
import pytest

OVERLAYS = sorted(path.name for path in (manifests.K8S / "overlays").iterdir())


@pytest.fixture(scope="session")
def root() -> Path:
    """The workspace's directory."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", params=OVERLAYS)
def cluster(request: pytest.FixtureRequest) -> manifests.Manifests:
    """What an overlay of deploy/k8s makes; tests run for each."""
    return manifests.build(request.param)
