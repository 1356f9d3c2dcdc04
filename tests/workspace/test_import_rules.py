"""The import rules of pyproject.toml hold for every module of the folders that they name.

The test copies the sources and adds a module with forbidden imports to each folder that a rule protects. One run of
import-linter over the copy must report every one of them.
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

_PLANTED = "planted"


@dataclass(frozen=True)
class Plant:
    """An import that a rule forbids.

    Attributes:
        rule: The name of the rule.
        importer: The new module that imports.
        imported: What it imports.
    """

    rule: str
    importer: str
    imported: str


def _options(root: Path) -> Mapping[str, Any]:
    options: Mapping[str, Any] = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]
    return options


def _layers(contract: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each layer's module with a module of the layer above it, in every container."""
    containers = contract.get("containers", [""])
    layers = [re.split(r"\s*[|:]\s*", layer.strip("() ")) for layer in contract["layers"]]
    for container in containers:
        for above, below in itertools.pairwise(layers):
            for module in below:
                yield f"{container}.{module.strip('() ')}", f"{container}.{above[0].strip('() ')}"


def _forbidden(contract: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each source of the rule with each of the modules that it must not import."""
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
            pytest.fail(f"the test does not know rules of the type {kind}")


class Copy:
    """A copy of the sources, in which modules can be planted.

    Args:
        root: The repository.
        folder: Where the copy goes.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._roots: dict[str, Path] = {}
        for package in _options(root)["root_packages"]:
            [source] = [*root.glob(f"*/*/src/{package}"), *root.glob(f"tests/support/src/{package}")][:1]
            self._roots[package] = folder / package
            shutil.copytree(source, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        self.folder = folder

    def importer(self, module: str) -> str:
        """Return the name of the module that imports for ``module``: a new one in a folder, itself otherwise."""
        return f"{module}.{_PLANTED}" if (self._path(module) / "__init__.py").is_file() else module

    def plant(self, importer: str, imported: str) -> None:
        """Append an import to a module, which need not exist."""
        with self._path(importer).with_suffix(".py").open("a") as file:
            file.write(f"\nimport {imported}\n")

    def _path(self, module: str) -> Path:
        return self.folder.joinpath(*module.split("."))

    def lint(self, root: Path) -> str:
        """Run import-linter with the rules of the repository over the copy, and return its output."""
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
def plants_and_report(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Plant], dict[str, str]]:
    """Plant the forbidden imports; return them, and import-linter's report of each broken rule by its name."""
    copy = Copy(root, tmp_path_factory.mktemp("copy"))
    plants = [
        Plant(contract["name"], copy.importer(source), imported)
        for contract in _options(root)["contracts"]
        for source, imported in _forbidden(contract)
    ]
    for importer, imported in sorted({(plant.importer, plant.imported) for plant in plants}):
        copy.plant(importer, imported)
    output = copy.lint(root)
    _, _, broken = output.partition("Broken contracts\n")
    sections = re.split(r"^(.+)\n-{3,}\n", broken, flags=re.MULTILINE)
    return plants, dict(zip(sections[1::2], sections[2::2], strict=True))


def test_every_rule_is_broken_by_what_it_forbids(
    plants_and_report: tuple[list[Plant], dict[str, str]], root: Path
) -> None:
    """A forbidden import in a new module of a protected folder breaks the rule, and is named."""
    plants, report = plants_and_report
    assert set(report) == {contract["name"] for contract in _options(root)["contracts"]}
    missed = [
        plant
        for plant in plants
        if not re.search(rf"\b{re.escape(plant.importer)} -> {re.escape(plant.imported)}[ .]", report[plant.rule])
    ]
    assert missed == []


ADAPTERS = {
    "gateway": {"adapters", "background_runs", "clients", "routers", "routes", "server"},
    "retriever": {"backup_servicer", "clients", "servicer", "stores", "wire"},
    "generator": {"configuration", "openai", "servicer", "triton"},
    "guardrails": {"detector_api", "remote", "servicer", "wire"},
    "ingest": {"adapters"},
}
"""The folders and modules of each service that may import a transport, beside its composition root."""


@pytest.mark.parametrize("service", ADAPTERS)
def test_everything_but_adapters_is_protected(service: str, root: Path) -> None:
    """A rule forbids gRPC in every folder of a service except the adapters, also in new folders."""
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


def test_no_rule_accepts_indirect_imports(root: Path) -> None:
    """A forbidden import through another module is found."""
    assert [each["name"] for each in _options(root)["contracts"] if each.get("allow_indirect_imports")] == []
