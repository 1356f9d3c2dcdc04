import json
from collections.abc import Callable
from typing import Any

import pytest
from servicekit.keys import document_id


@pytest.fixture
def documents(gateway: Any, cli: Callable[..., Any]) -> Callable[..., Any]:
    """Run ``causeway documents`` against a gateway with three documents in an index."""
    gateway.stored = {"notes": {"a.md": b"A", "folder/b.md": b"B", "bad.md": b"C"}}
    gateway.access = {"a.md": {"oids": ["ann"], "groups": ["crew"]}}
    gateway.passages = [f"Passage {number}." for number in range(5)]
    return lambda command, *arguments: cli("documents", command, "-i", "notes", *arguments, "--url", gateway.url)


def test_documents_are_listed(gateway: Any, documents: Callable[..., Any]) -> None:
    """The list shows who may see each document, up to --limit, and says if it has more. --json prints the
    gateway's objects.
    """
    lines = [" ".join(line.split()) for line in documents("list").stdout.splitlines()]
    assert lines[1] == "a.md text/markdown 1.23 kB ann, group crew"
    assert lines[3] == "folder/b.md text/markdown 1.23 kB all callers of the tenant"
    limited = documents("list", "-n", "1").stdout.splitlines()
    assert (len(limited), limited[2]) == (3, "The list has more entries; --limit shows more.")
    assert len(documents("list", "-n", "1", "--json").stdout.splitlines()) == 1
    assert "--limit" not in documents("list", "-n", "3").stdout
    listed = [json.loads(line) for line in documents("list", "--json").stdout.splitlines()]
    assert [document["sourcefile"] for document in listed] == ["a.md", "bad.md", "folder/b.md"]
    gateway.stored["notes"].clear()
    assert "no such index" in documents("list").stderr


def test_passages_are_shown(gateway: Any, documents: Callable[..., Any]) -> None:
    """The command prints the first passages of a document, up to --limit. The argument is a name or an id."""
    shown = documents("passages", "a.md").stdout
    assert shown.startswith("a.md (Top > Below)\nPassage 0.\n\na.md\nPassage 1.\n")
    assert documents("passages", document_id("a.md")).stdout == shown
    assert documents("passages", "a.md", "-n", "2").stdout.endswith("2 of 5 passages; --limit shows more.\n")
    texts = [json.loads(line)["text"] for line in documents("passages", "a.md", "--json").stdout.splitlines()]
    assert texts == gateway.passages
    missing = documents("passages", "c.md")
    assert (missing.exit_code, "no document 'c.md' that you may see" in missing.stderr) == (1, True)


def test_the_access_list_is_shown_and_changed(gateway: Any, documents: Callable[..., Any]) -> None:
    """The options replace users and groups. The command waits for the job, and fails if the job fails."""
    assert documents("access", "a.md").stdout == "a.md: ann, group crew\n"
    changed = documents("access", "folder/b.md", "-u", "bob", "-u", "bob", "-g", "deck")
    assert changed.stdout == "folder/b.md: bob, group deck\n"
    assert gateway.access["folder/b.md"] == {"oids": ["bob"], "groups": ["deck"]}
    opened = json.loads(documents("access", "a.md", "--all", "--json").stdout)
    assert (opened["oids"], opened["groups"]) == ([], [])
    assert gateway.access["a.md"] == {"oids": [], "groups": []}
    refused = documents("access", "a.md", "--all", "--user", "ann")
    assert (refused.exit_code, gateway.access["a.md"]["oids"]) == (2, [])
    failed = documents("access", "bad.md", "--user", "ann")
    assert (failed.exit_code, "bad.md is encrypted" in failed.stderr) == (1, True)
