"""The import rules of pyproject.toml apply to every module of the folders that they name.

The test copies the sources, and adds a module with forbidden imports to each folder that a rule protects. A run of
import-linter on the copy must report all forbidden imports.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_NEW_MODULE = "forbidden"


@dataclass(frozen=True)
class ForbiddenImport:
    """An import that a rule forbids.

    Attributes:
        rule: The name of the rule.
        importer: The new module that has the import.
        imported: The module that it imports.
    """

    rule: str
    importer: str
    imported: str


def _options(root: Path) -> Mapping[str, Any]:
    options: Mapping[str, Any] = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]
    return options


def _layers(contract: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each module of a layer with a module of the layer above it, for every container."""
    containers = contract.get("containers", [""])
    layers = [re.split(r"\s*[|:]\s*", layer.strip("() ")) for layer in contract["layers"]]
    for container in containers:
        for above, below in itertools.pairwise(layers):
            for module in below:
                yield f"{container}.{module.strip('() ')}", f"{container}.{above[0].strip('() ')}"


def _forbidden(contract: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each module that a rule protects with each module that it must not import."""
    match contract["type"]:
        case "forbidden":
            for source in contract["source_modules"]:
                for imported in contract["forbidden_modules"]:
                    yield source, imported
        case "independence":
            modules = contract["modules"]
            yield from ((module, other) for module in modules for other in modules if module != other)
        case "layers":
            yield from _layers(contract)
        case kind:
            pytest.fail(f"the test does not support rules of the type {kind}: add the type to _forbidden")


class Copy:
    """A copy of the sources, to which imports can be added.

    Args:
        root: The repository.
        folder: The directory of the copy.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._roots: dict[str, Path] = {}
        for package in _options(root)["root_packages"]:
            [source] = [*root.glob(f"*/*/src/{package}"), *root.glob(f"tests/support/src/{package}")][:1]
            self._roots[package] = folder / package
            shutil.copytree(source, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        self.folder = folder

    def importer(self, module: str) -> str:
        """Return the name of the module that gets the import: a new module if ``module`` is a folder, otherwise
        itself.
        """
        return f"{module}.{_NEW_MODULE}" if (self._path(module) / "__init__.py").is_file() else module

    def add_import(self, importer: str, imported: str) -> None:
        """Append an import to a module. Create the module if it does not exist."""
        with self._path(importer).with_suffix(".py").open("a") as file:
            file.write(f"\nimport {imported}\n")

    def _path(self, module: str) -> Path:
        return self.folder.joinpath(*module.split("."))

    def lint(self, root: Path) -> str:
        """Run import-linter on the copy with the rules of the repository, and return its output."""
        result = subprocess.run(
            [
                str(Path(sys.executable).parent / "lint-imports"),
                "--config",
                str(root / "pyproject.toml"),
                "--no-cache",
            ],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder), "COLUMNS": "500"},
            capture_output=True,
            text=True,
            check=False,
        )
        return result.stdout + result.stderr


@pytest.fixture(scope="module")
def imports_and_report(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[ForbiddenImport], dict[str, str]]:
    """Add the forbidden imports to a copy. Return them, and the report of import-linter by the name of each broken
    rule.
    """
    copy = Copy(root, tmp_path_factory.mktemp("copy"))
    imports = [
        ForbiddenImport(contract["name"], copy.importer(source), imported)
        for contract in _options(root)["contracts"]
        for source, imported in _forbidden(contract)
    ]
    for importer, imported in sorted({(each.importer, each.imported) for each in imports}):
        copy.add_import(importer, imported)
    output = copy.lint(root)
    _, _, broken = output.partition("Broken contracts\n")
    sections = re.split(r"^(.+)\n-{3,}\n", broken, flags=re.MULTILINE)
    return imports, dict(zip(sections[1::2], sections[2::2], strict=True))


def test_every_rule_reports_its_forbidden_imports(
    imports_and_report: tuple[list[ForbiddenImport], dict[str, str]], root: Path
) -> None:
    """A forbidden import in a new module of a protected folder breaks the rule, and the report names it."""
    imports, report = imports_and_report
    assert set(report) == {contract["name"] for contract in _options(root)["contracts"]}
    missed = [
        each
        for each in imports
        if not re.search(rf"\b{re.escape(each.importer)} -> {re.escape(each.imported)}[ .]", report[each.rule])
    ]
    assert missed == []


ADAPTERS = {
    "gateway": {"adapters", "background_runs", "clients", "routers", "routes", "server"},
    "retriever": {"backup_servicer", "clients", "servicer", "stores", "wire"},
    "generator": {"configuration", "openai", "servicer", "triton"},
    "guardrails": {"detector_api", "remote", "servicer", "wire"},
    "ingest": {"adapters"},
}
"""The folders and modules of each service that may import gRPC, besides its composition root."""


@pytest.mark.parametrize("service", ADAPTERS)
def test_everything_except_adapters_is_protected(service: str, root: Path) -> None:
    """A rule forbids gRPC in every folder of a service except the adapters. The test fails for a new folder without
    a rule.
    """
    protected = {
        source
        for contract in _options(root)["contracts"]
        if contract["type"] == "forbidden" and "grpc" in contract["forbidden_modules"]
        for source in contract["source_modules"]
    }
    folder = root / "services" / service / "src" / service
    children = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    root_modules = {"__init__", "__main__", "main", "move_indexes", "settings"}
    assert {each for each in children - root_modules if f"{service}.{each}" not in protected} == ADAPTERS[service]


def test_no_rule_allows_indirect_imports(root: Path) -> None:
    """The rules also forbid an import through another module."""
    assert [each["name"] for each in _options(root)["contracts"] if each.get("allow_indirect_imports")] == []
