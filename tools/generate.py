"""Generate the code of libs/contracts from proto/, or check that it is current.

Usage: python tools/generate.py [--check]
"""

import argparse
import filecmp
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
TARGET = ROOT / "libs" / "contracts" / "src"


def generate(target: Path) -> None:
    """Write messages, servicers, stubs and their types into ``target``."""
    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    plugins = Path(sys.executable).parent
    include = Path(protoc.__file__).parent / "_proto"
    command = [
        "protoc",
        f"--proto_path={PROTO}",
        f"--proto_path={include}",
        f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}",
        f"--python_out={target}",
        f"--grpc_python_out={target}",
        f"--mypy_out=quiet:{target}",
        f"--mypy_grpc_out=quiet:{target}",
        *sources,
    ]
    if protoc.main(command) != 0:
        raise SystemExit("protoc failed")
    # protoc writes a stub module even for a file without a service.
    for path in target.rglob("*_pb2_grpc.py*"):
        if not re.search(r"^class \w+Servicer\b", path.read_text(), re.MULTILINE):
            path.unlink()
    for path in target.rglob("v1"):
        (path.parent / "__init__.py").touch()
        (path / "__init__.py").touch()
    # `causeway` has no __init__.py: it is a namespace package that `causeway.cli` shares.
    (target / "causeway" / "py.typed").touch()


def differences(left: Path, right: Path) -> list[str]:
    """Return the relative names of the files that differ or exist only in one directory."""
    names = {
        path.relative_to(base)
        for base in (left, right)
        for path in base.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return sorted(
        str(name)
        for name in names
        if not (left / name).exists()
        or not (right / name).exists()
        or not filecmp.cmp(left / name, right / name, shallow=False)
    )


def main() -> int:
    """Run the command line; return 1 if the check finds outdated code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the code is outdated")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        fresh = Path(directory)
        generate(fresh)
        changed = differences(fresh, TARGET)
        if arguments.check:
            for name in changed:
                print(f"libs/contracts/src/{name} does not match proto/; run `make proto`")
            return 1 if changed else 0
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(fresh, TARGET)
    subprocess.run([Path(sys.executable).parent / "buf", "lint", str(PROTO)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
