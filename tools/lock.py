"""Renews requirements/*.txt, the pinned and hashed dependencies of the workspace and of each service.

Usage: python tools/lock.py [--check] [--upgrade]

The files hold versions and hashes, no addresses: whichever registry the machine uses serves them.
"""

import argparse
import subprocess
import sys
import tempfile
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
}
EXTRAS = {"model": "build"}
MEMBERS = [
    "contracts",
    "servicekit",
    "embedding",
    "gateway",
    "retriever",
    "generator",
    "guardrails",
    "ingest",
    "cli",
]


def compile_one(name: str, source: str, target: Path, *, upgrade: bool) -> None:
    """Writes one file; keeps the versions it already pins unless told to upgrade."""
    command = [
        str(Path(sys.executable).parent / "uv"), "pip", "compile", source,
        "--output-file", str(target / f"{name}.txt"),
        "--universal", "--generate-hashes", "--quiet", "--no-emit-index-url", "--no-emit-find-links",
        "--no-annotate",        "--custom-compile-command", "make lock",
        *(flag for member in MEMBERS for flag in ("--no-emit-package", f"causeway-{member}")),
    ]  # fmt: skip
    if name not in ("bootstrap", "dev"):
        # One version of everything in the whole platform.
        command += ["--constraint", str(target / "dev.txt")]
    if name in EXTRAS:
        command += ["--extra", EXTRAS[name]]
    if upgrade:
        command += ["--upgrade"]
    subprocess.run(command, cwd=ROOT, check=True)


def main() -> int:
    """Runs the command line; 1 where the check finds a file out of step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a file is out of step")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    arguments = parser.parse_args()
    stale = []
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        for name in SOURCES:
            pinned = TARGET / f"{name}.txt"
            if pinned.exists():
                (work / pinned.name).write_bytes(pinned.read_bytes())
        for name, source in SOURCES.items():
            compile_one(name, source, work, upgrade=arguments.upgrade)
            fresh, pinned = work / f"{name}.txt", TARGET / f"{name}.txt"
            if not pinned.exists() or fresh.read_bytes() != pinned.read_bytes():
                stale.append(name)
                if not arguments.check:
                    pinned.write_bytes(fresh.read_bytes())
    for name in stale:
        print(f"requirements/{name}.txt {'is out of step (run `make lock`)' if arguments.check else 'renewed'}")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
