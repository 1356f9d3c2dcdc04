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
"""Programs that run in a separate environment, and the name of its requirements file."""


def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text()


def source(image: str) -> Path:
    """Return the directory of the package that an image contains."""
    return ROOT / "cli" if image == "cli" else ROOT / "services" / image


@pytest.mark.parametrize("service", IMAGES)
def test_an_image_has_the_packages_that_its_service_imports(service: str) -> None:
    """The lock file of each image has all packages that the service imports."""
    ours = {"causeway", "embedding", "servicekit", "text", "detection", service}
    distributions = packages_distributions()
    pinned = {environment: _pinned(environment) for environment in (service, *SEPARATE.values())}
    for file in (source(service) / "src").rglob("*.py"):
        path = str(file.relative_to(ROOT))
        for module in _imports(ast.parse(file.read_text())) - ours - sys.stdlib_module_names:
            # The packages of a separate program may not be installed here. They have the same names as their
            # modules.
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


def test_images_of_services_that_embed_have_the_model() -> None:
    """Each image has a stage with or without the embedding model. Services that use the embedding library have
    it.
    """
    stages = re.findall(r"^FROM (no-model|model) AS (\w+)-model$", dockerfile(), re.MULTILINE)
    embeds = {image: "causeway-embedding" in (source(image) / "pyproject.toml").read_text() for image in IMAGES}
    assert {service: stage == "model" for stage, service in stages} == embeds


def test_the_image_runs_as_an_unprivileged_user() -> None:
    """The last stage runs as the user of the pods, not as root, and has no pip. The base image is pinned by
    digest.
    """
    last = dockerfile().rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (\S+)$", last, re.MULTILINE) == ["65532:65532"]
    assert "pip uninstall" in last
    assert re.search(
        r"^ARG BASE_IMAGE=[\w/.-]+:\d+\.\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}$", dockerfile(), re.MULTILINE
    )


def test_the_build_context_has_what_it_copies() -> None:
    """Every source of a COPY instruction exists, and .dockerignore includes it in the build context."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in rules
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile(), re.MULTILINE):
        for source in copied.split():
            assert source.split("/")[0] in allowed
            for service in SERVICES:
                assert (ROOT / source.replace("${SERVICE}", service)).exists()


def test_an_image_has_labels() -> None:
    """The labels name the title, description, version, revision, source, licences and base image."""
    labels = set(re.findall(r"org\.opencontainers\.image\.([\w.]+)=", dockerfile()))
    assert labels >= {"title", "description", "version", "revision", "source", "licenses", "base.name"}


def test_a_release_builds_and_signs_every_image() -> None:
    """The workflow builds each image, attaches its SBOM and provenance, and signs the pushed digest."""
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())["jobs"]["images"]
    assert sorted(release["strategy"]["matrix"]["service"]) == IMAGES
    (build,) = (step["run"] for step in release["steps"] if "buildx build" in step.get("run", ""))
    assert {"--push", "--sbom=true", "--provenance=mode=max"} <= set(build.split())
    arguments = set(re.findall(r"--build-arg (\w+)=", build))
    assert arguments == {"SERVICE", "VERSION", "REVISION", "SOURCE"}
    assert arguments <= set(re.findall(r"^ARG (\w+)", dockerfile(), re.MULTILINE))
    (sign,) = (step["run"] for step in release["steps"] if "cosign sign" in step.get("run", ""))
    assert "containerimage.digest" in sign
    assert release["permissions"]["id-token"] == "write"


def test_every_image_is_built() -> None:
    """`make images` builds the image of each service and of the command line."""
    found = re.search(r"^IMAGES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    assert sorted(found[1].split()) == IMAGES
