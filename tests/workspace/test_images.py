"""Rules for the Dockerfile and the image of each service."""

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SERVICES = sorted(path.name for path in (ROOT / "services").iterdir())
IMAGES = sorted([*SERVICES, "cli"])
SEPARATE = {
    "services/guardrails/src/guardrails/detectors/presidio/child.py": "pii",
    "services/ingest/src/ingest/ocr/child.py": "ocr",
}
"""Programs that run in an environment of their own, and its requirements."""


def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text()


def source(image: str) -> Path:
    """Return the directory of an image's package."""
    return ROOT / "cli" if image == "cli" else ROOT / "services" / image


@pytest.mark.parametrize("service", IMAGES)
def test_an_image_holds_what_its_service_imports(service: str) -> None:
    """The lock of each image has all packages that its service imports."""
    ours = {"causeway", "embedding", "servicekit", "text", "detection", service}
    distributions = packages_distributions()
    pinned = {environment: _pinned(environment) for environment in (service, *SEPARATE.values())}
    for file in (source(service) / "src").rglob("*.py"):
        path = str(file.relative_to(ROOT))
        for module in _imports(ast.parse(file.read_text())) - ours - sys.stdlib_module_names:
            # A separate program's packages need not be installed here. They have the names of its modules.
            names = distributions.get(module, [module] if path in SEPARATE else [])
            assert {re.sub(r"[-_.]+", "-", name).lower() for name in names} & pinned[SEPARATE.get(path, service)], (
                f"{path} imports {module}"
            )


def _pinned(name: str) -> set[str]:
    return set(re.findall(r"^([\w.-]+)==", (ROOT / f"requirements/{name}.txt").read_text(), re.MULTILINE))


def _imports(tree: ast.Module) -> set[str]:
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module.partition(".")[0])
    return modules


def test_the_image_is_made_for_every_service() -> None:
    """Each image has a stage that decides about the model. Services with the embedding library get it."""
    stages = re.findall(r"^FROM (no-model|model) AS (\w+)-model$", dockerfile(), re.MULTILINE)
    embeds = {image: "causeway-embedding" in (source(image) / "pyproject.toml").read_text() for image in IMAGES}
    assert {service: stage == "model" for stage, service in stages} == embeds


def test_the_image_runs_as_its_pods_do() -> None:
    """The last stage is not root and has no installer. Its base image is pinned by digest."""
    last = dockerfile().rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (\S+)$", last, re.MULTILINE) == ["65532:65532"]
    assert "pip uninstall" in last
    assert re.search(
        r"^ARG BASE_IMAGE=[\w/.-]+:\d+\.\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}$", dockerfile(), re.MULTILINE
    )


def test_the_build_sees_what_it_copies() -> None:
    """Every source of a COPY exists, and .dockerignore permits exactly these."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in rules
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile(), re.MULTILINE):
        for source in copied.split():
            assert source.split("/")[0] in allowed
            for service in SERVICES:
                assert (ROOT / source.replace("${SERVICE}", service)).exists()


def test_an_image_says_what_it_is() -> None:
    """The labels have the title, version, source, licence and base."""
    labels = set(re.findall(r"org\.opencontainers\.image\.([\w.]+)=", dockerfile()))
    assert labels >= {"title", "description", "version", "revision", "source", "licenses", "base.name"}


def test_a_release_makes_and_signs_every_image() -> None:
    """The workflow builds each image, attaches its list of contents, and signs the pushed digest."""
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())["jobs"]["images"]
    assert sorted(release["strategy"]["matrix"]["service"]) == IMAGES
    (build,) = (step["run"] for step in release["steps"] if "buildx build" in step.get("run", ""))
    assert {"--push", "--sbom=true", "--provenance=mode=max"} <= set(build.split())
    given = set(re.findall(r"--build-arg (\w+)=", build))
    assert given == {"SERVICE", "VERSION", "REVISION", "SOURCE"}
    assert given <= set(re.findall(r"^ARG (\w+)", dockerfile(), re.MULTILINE))
    (sign,) = (step["run"] for step in release["steps"] if "cosign sign" in step.get("run", ""))
    assert "containerimage.digest" in sign
    assert release["permissions"]["id-token"] == "write"


def test_every_image_is_built() -> None:
    """`make images` builds the image of each service and of the command line."""
    found = re.search(r"^IMAGES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    assert sorted(found[1].split()) == IMAGES
