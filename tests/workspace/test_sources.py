import ast
import functools
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ["libs/*", "services/*", "cli"]
MAX_LINES = 350
# The parts are separate, so that this file does not contain the strings.
FOREIGN = {
    "a path of one machine": r"(?<![\w.~}])/("
    + "|".join(["wo" + "rk", "ro" + "ot", "home/" + r"\w+"])
    + r")(?![\w.-])",
    "a host of a package registry": "|".join(
        ["py" + r"pi\.org", "python" + r"hosted\.org", "registry" + r"\.npmjs", "npm" + r"js\.(org|com)"]
    ),
    "a path outside the checkout": r"\.\./" + r"(shared|seeds)\b",
}


def _packages(root: Path) -> list[Path]:
    return sorted(path for pattern in PACKAGES for path in root.glob(pattern) if (path / "pyproject.toml").exists())


def _modules(package: Path) -> list[Path]:
    return sorted(path for path in (package / "src").rglob("*.py") if "contracts" not in package.parts)


def _files(root: Path) -> list[Path]:
    """Return the files of the project: those in git, and those that git would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := root / name).is_file()]


def test_files_do_not_depend_on_one_machine(root: Path) -> None:
    """No file contains an absolute path of one machine, a host of a package registry, or a path outside the
    checkout.
    """
    found = [
        f"{path.relative_to(root)}:{number}: {what}: {match[0]}"
        for path in _files(root)
        for number, line in enumerate(path.read_bytes().decode(errors="replace").splitlines(), 1)
        for what, pattern in FOREIGN.items()
        # the home directory of root in a container is permitted
        if (match := re.search(pattern, line.replace("target=/ro" + "ot/.cache", "")))
    ]
    assert not found, "\n".join(found)


def test_modules_are_short(root: Path) -> None:
    """No module exceeds the limit of lines. A longer module usually has more than one responsibility."""
    lines = {
        str(path.relative_to(root)): len(path.read_text().splitlines())
        for package in _packages(root)
        for path in _modules(package)
    }
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def _tests(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield node


def test_every_test_has_a_docstring(root: Path) -> None:
    """Each test function has a docstring."""
    missing = [
        f"{path.relative_to(root)}:{test.lineno}: {test.name}"
        for path in _files(root)
        if path.name.startswith("test_") and path.suffix == ".py"
        for test in _tests(ast.parse(path.read_text()))
        if not ast.get_docstring(test)
    ]
    assert not missing, "\n".join(missing)


@functools.cache
def _installed() -> dict[str, set[str]]:
    """Return the names of the distributions that contain each installed module."""
    modules: dict[str, set[str]] = {}
    for distribution in importlib.metadata.distributions():
        name = _normal(distribution.metadata["Name"])
        for file in distribution.files or ():
            if file.suffix in (".py", ".so"):
                parts = [*file.parts[:-1], file.name.split(".")[0]]
                module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                modules.setdefault(module, set()).add(name)
    return modules


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _workspace(root: Path) -> dict[str, set[str]]:
    """Return the modules of this repository with the names of their packages."""
    modules: dict[str, set[str]] = {}
    for package in _packages(root):
        name = tomllib.loads((package / "pyproject.toml").read_text())["project"]["name"]
        for path in (package / "src").rglob("*.py"):
            parts = path.relative_to(package / "src").with_suffix("").parts
            modules.setdefault(".".join(parts[:-1] if parts[-1] == "__init__" else parts), set()).add(name)
    return modules


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _owners(module: str, known: dict[str, set[str]]) -> set[str]:
    """Return the distributions that contain an imported name. The longest known prefix of the name decides. A
    module that is not installed, because it belongs to a separate environment, is in the distribution with its
    name.
    """
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if owners := known.get(".".join(parts[:length])):
            return owners
    return {_normal(parts[0])}


@pytest.mark.parametrize(
    "name",
    [
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
    ],
)
def test_a_package_declares_what_it_imports(root: Path, name: str) -> None:
    """The pyproject.toml of each package names the distributions of all its imports."""
    (package,) = [path for path in _packages(root) if path.name == name]
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    extras = project.get("optional-dependencies", {}).values()
    declared = {_normal(project["name"])} | {
        _normal(match[0])
        for line in [*project["dependencies"], *(each for extra in extras for each in extra)]
        if (match := re.match(r"[\w.-]+", line))
    }
    known = _installed() | _workspace(root)
    missing = {
        f"{' or '.join(sorted(owners))}: {path.relative_to(package)}"
        for path in _modules(package)
        for module in _imports(path)
        if module.split(".")[0] not in sys.stdlib_module_names and not (owners := _owners(module, known)) & declared
    }
    assert not missing, "\n".join(sorted(missing))
