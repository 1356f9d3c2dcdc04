"""Files for maintainers: Git hooks, the hosted workflow, and the records of architecture decisions."""

import re
from pathlib import Path

import yaml


def test_the_hooks_call_targets_of_the_makefile(root: Path) -> None:
    """Each hook runs `make` with an existing target, so that hooks and workflows run the same checks."""
    targets = set(re.findall(r"^([a-z0-9][a-z0-9-]*):", (root / "Makefile").read_text(), re.MULTILINE))
    configuration = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"] for repository in configuration["repos"] for hook in repository["hooks"]]
    assert entries
    assert {entry.removeprefix("make ") for entry in entries} <= targets


def test_the_hosted_workflow_runs_the_checks(root: Path) -> None:
    """Each push and each pull request runs `.ci/run`, which is executable."""
    workflow = yaml.safe_load((root / ".github/workflows/ci.yaml").read_text())
    assert set(workflow[True]) == {"push", "pull_request"}  # YAML 1.1 reads the key `on` as true
    assert ".ci/run" in [step.get("run") for step in workflow["jobs"]["checks"]["steps"]]
    assert (root / ".ci/run").stat().st_mode & 0o100


def test_decisions_have_a_status_and_a_date(root: Path) -> None:
    """The second paragraph of each record has its status and date. The numbers have no gaps."""
    records = sorted((root / "docs/adr").glob("0*.md"))
    for record in records:
        status = record.read_text().split("\n\n")[1]
        assert re.fullmatch(
            r"Status: (accepted|superseded by \[[^]]+\]\([^)]+\))\. Date: 20\d\d-\d\d-\d\d\.", status
        ), record.name
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))


def test_the_list_of_decisions_is_complete(root: Path) -> None:
    """docs/adr/README.md lists each record with its title."""
    page = (root / "docs/adr/README.md").read_text()
    listed = re.findall(r"^\| \[(\d+)\]\(([\w-]+\.md)\) \| (.*?) \|", page, re.MULTILINE)
    titles = [record.read_text().partition("\n")[0] for record in sorted((root / "docs/adr").glob("0*.md"))]
    assert [f"# {number}. {title}" for number, _, title in listed] == titles
    assert [int(name[:4]) for _, name, _ in listed] == [int(number) for number, _, _ in listed]
