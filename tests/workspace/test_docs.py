import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from causeway.cli.program import build_app

PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/adr/*.md",
    "bench/README.md",
    "deploy/**/*.md",
)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-")


def _anchors(page: Path) -> set[str]:
    return {
        _anchor(heading) for heading in re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    }


def test_the_readme_links_every_page(root: Path) -> None:
    """The README has a link to every page of docs/."""
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)\)", (root / "README.md").read_text()))
    assert linked == {str(page.relative_to(root)) for page in (root / "docs").glob("*.md")}


@pytest.mark.parametrize("pattern", PAGES)
def test_link_targets_exist(root: Path, pattern: str) -> None:
    """The files and headings in the links of the pages exist."""
    pages = sorted(root.glob(pattern))
    assert pages
    broken = []
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", _FENCED.sub("", page.read_text())):
            if link.startswith(("http://", "https://")):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append(f"{page.relative_to(root)}: {link}")
    assert broken == []


def test_every_page_has_an_example_that_a_test_runs(root: Path) -> None:
    """The source of another test names each page, except settings.md, which is generated, and comparison.md."""
    folders = ("tests", "cli/tests", "libs/*/tests", "services/*/tests")
    tests = {path for folder in folders for path in root.glob(f"{folder}/**/*.py")} - {Path(__file__)}
    sources = "".join(path.read_text() for path in tests)
    pages = {page.name for page in (root / "docs").glob("*.md")}
    assert {name for name in pages if name not in sources} == {"comparison.md", "settings.md"}
    assert "make demo" in (root / "docs" / "comparison.md").read_text()


def test_shared_modules_are_documented(root: Path) -> None:
    """The table of shared modules in ARCHITECTURE.md has exactly the modules of servicekit."""
    table = (root / "ARCHITECTURE.md").read_text().partition("## What is shared")[2].partition("\n## ")[0]
    named = {
        name for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    }
    modules = {path.stem for path in (root / "libs/servicekit/src/servicekit").glob("*.py")}
    assert named == {name for name in modules if not name.startswith("_")}


def _commands(page: Path) -> list[list[str]]:
    """Return the words of each `causeway` command in a shell block of a page."""
    shell = "\n".join(re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
    found = []
    for line in shell.replace("\\\n", " ").splitlines():
        if not re.search(r"\bcauseway ", line):
            continue
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.wordchars += "$:,{}"
        found += [
            list(itertools.takewhile(lambda word: word[0] not in "();<>|&", words))
            for word in words
            if word in ("causeway", ".venv/bin/causeway")
        ]
    return found


def test_the_commands_of_pages_exist(root: Path) -> None:
    """The command line accepts the commands and options of the pages."""
    command = typer.main.get_command(build_app())
    commands = [
        (page, words) for pattern in PAGES for page in sorted(root.glob(pattern)) for words in _commands(page)
    ]
    assert len(commands) > 20
    errors = []
    for page, words in commands:
        try:
            _parse(command, words)
        except Exception as error:  # any error of the parser
            if "does not exist" not in str(error):  # a file of the reader
                errors.append(f"{page.relative_to(root)}: causeway {shlex.join(words)}: {error}")
    assert errors == []


def _parse(command: Any, words: list[str]) -> None:
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    command.make_context("causeway", words)


def test_the_targets_of_pages_exist(root: Path) -> None:
    """The Makefile has the targets that the pages name."""
    targets = set(re.findall(r"^([a-z0-9][a-z0-9-]*):", (root / "Makefile").read_text(), re.MULTILINE))
    for pattern in PAGES:
        for page in root.glob(pattern):
            targeted = set(re.findall(r"(?:`|^)(?:\w+=\S+ )*make ([a-z0-9-]+)", page.read_text(), re.MULTILINE))
            assert targeted <= targets, page


def test_a_setting_has_one_description(root: Path) -> None:
    """A setting of several services has the same description in each of them."""
    rows = re.findall(
        r"^\| `(CAUSEWAY_\w+)` \| .*? \| (.*) \|$", (root / "docs/settings.md").read_text(), re.MULTILINE
    )
    meanings: dict[str, set[str]] = {}
    for name, meaning in rows:
        meanings.setdefault(name, set()).add(meaning)
    assert len(meanings) < len(rows)
    assert [name for name, texts in meanings.items() if len(texts) > 1] == []


def test_the_settings_of_pages_exist(root: Path) -> None:
    """The variables in pages are settings of services, of the command line or of the tests."""
    settings = set(re.findall(r"CAUSEWAY_\w+", (root / "docs/settings.md").read_text()))
    sources = [
        *root.glob("cli/src/**/*.py"),
        *root.glob("t*/**/*.py"),
        *root.glob("bench/**/*.py"),
        root / "Makefile",
    ]
    settings |= {name for path in sources for name in re.findall(r"CAUSEWAY_\w+", path.read_text())}
    keys = (root / "libs/servicekit/src/servicekit/keys.py").read_text()
    settings |= set(re.findall(r"CAUSEWAY_\w+", keys))
    for pattern in PAGES:
        for page in root.glob(pattern):
            named = set(re.findall(r"CAUSEWAY_[A-Z_]*[A-Z]\b", page.read_text()))
            assert named <= settings, (page.name, named - settings)
