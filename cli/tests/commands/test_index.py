import json
from collections.abc import Callable
from typing import Any

import pytest

OWN_SETTINGS = {
    "chunk_tokens": None,
    "chunk_overlap": None,
    "fusion": "ranks",
    "dense_weight": 0.25,
    "expand": False,
    "ocr": "off",
}


def rebuild_state(state: str, done: int, error: str = "") -> dict[str, Any]:
    """Return the state of a rebuild of four documents, in the format of the route."""
    finished = None if state == "running" else "2026-01-01T00:00:01.5Z"
    counts = {"documents_done": done, "documents_total": 4}
    return {"state": state, "embedding": "bge", **OWN_SETTINGS, **counts, "error": error, "finished_at": finished}


@pytest.fixture
def index(gateway: Any, cli: Callable[..., Any]) -> Callable[..., Any]:
    """Run ``causeway index`` against a gateway with one index."""
    gateway.settings = {
        "notes": {
            "index_name": "notes",
            "embedding": "minilm",
            "language": "legacy",
            **OWN_SETTINGS,
            "documents": 1200,
            "chunks": 4000,
        }
    }
    return lambda *arguments: cli("index", *arguments, "--url", gateway.url)


def test_indexes_are_listed(gateway: Any, index: Callable[..., Any]) -> None:
    """The list shows each index with its sizes and its own settings. An empty list is not an error."""
    listed = index("list").stdout.splitlines()
    own = "fusion ranks, dense-weight 0.25, expand no, ocr off"
    assert " ".join(listed[1].split()) == f"notes 1,200 4,000 minilm legacy {own}"
    assert json.loads(index("list", "--json").stdout) == gateway.settings["notes"]
    gateway.settings = {}
    empty = index("list")
    assert (empty.exit_code, "causeway ingest" in empty.stdout) == (0, True)
    assert index("list", "--json").stdout == ""


def test_an_index_is_shown(gateway: Any, index: Callable[..., Any]) -> None:
    """The command prints all settings of the index and its last rebuild. An unknown index causes exit code 1."""
    shown = index("show", "notes").stdout
    assert "dense-weight   0.25" in shown
    assert "legacy: all words are treated as English until a rebuild" in shown
    assert "chunk-tokens   platform default" in shown
    assert "1,200 documents in 4,000 passages" in shown
    assert json.loads(index("show", "notes", "--json").stdout) == {**gateway.settings["notes"], "rebuild": None}
    gateway.rebuilding = [rebuild_state("succeeded", 4)]
    assert (
        "The rebuild for bge succeeded: 4 documents, at 2026-01-01 00:00:01 UTC." in index("show", "notes").stdout
    )
    missing = index("show", "other")
    assert (missing.exit_code, missing.stderr) == (1, "causeway: No such index: 'other' exists.\n")


def test_an_index_is_created(gateway: Any, index: Callable[..., Any]) -> None:
    """The created index has exactly the given settings."""
    created = index(
        "create", "new", "-e", "bge", "--language", "de", "--chunk-tokens", "64", "--no-expand", "--json"
    )
    expected = {"index_name": "new", "embedding": "bge", "language": "de", "chunk_tokens": 64, "expand": False}
    assert json.loads(created.stdout) == expected
    assert "new" in gateway.settings


def test_settings_are_changed(gateway: Any, index: Callable[..., Any]) -> None:
    """The command changes settings, or resets them to the platform's values. Invalid values cause exit code 2 and
    change nothing.
    """
    done = index("set", "notes", "--fusion", "scores", "--dense-weight", "0", "--unset", "expand")
    assert done.exit_code == 0
    settings = gateway.settings["notes"]
    assert (settings["fusion"], settings["dense_weight"], settings["expand"]) == ("scores", 0.0, None)
    for wrong in ([], ["--fusion", "best"], ["--dense-weight", "2"], ["--unset", "embedding"]):
        assert index("set", "notes", *wrong).exit_code == 2
    both = index("set", "notes", "--dense-weight", "1", "--unset", "dense-weight")
    assert (both.exit_code, both.stderr) == (
        2,
        "causeway: dense-weight is both set and unset; use only one of the two options\n",
    )
    assert gateway.settings["notes"]["dense_weight"] == 0.0


def test_a_rebuild_is_started(gateway: Any, index: Callable[..., Any]) -> None:
    """Without --wait the command ends when the rebuild has started."""
    gateway.rebuilding = [rebuild_state("running", 0), rebuild_state("succeeded", 4)]
    started = index("rebuild", "notes", "--embedding", "bge", "--language", "fr")
    assert started.exit_code == 0
    assert started.stdout.startswith("The rebuild for bge is running: 0 of 4 documents.\n")
    assert gateway.requests == [{"embedding": "bge", "language": "fr"}]
    assert len(gateway.rebuilding) == 1


@pytest.mark.parametrize(("state", "exit_code"), [("succeeded", 0), ("failed", 1)])
def test_wait_follows_a_rebuild(gateway: Any, index: Callable[..., Any], state: str, exit_code: int) -> None:
    """With --wait the command prints the progress. A failed rebuild causes exit code 1 with the reason."""
    gateway.rebuilding = [
        rebuild_state("running", 0),
        rebuild_state("running", 2),
        rebuild_state(state, 4, "It is away."),
    ]
    done = index("rebuild", "notes", "--embedding", "bge", "--wait")
    assert done.exit_code == exit_code
    assert done.stderr == "2 of 4 documents\n"
    assert ("It is away." in done.stdout) == (state == "failed")
    gateway.rebuilding = [rebuild_state("running", 0), rebuild_state(state, 4)]
    machine = index("rebuild", "notes", "--wait", "--json")
    assert (machine.exit_code, json.loads(machine.stdout)["state"]) == (exit_code, state)


def test_wait_ends_if_the_rebuild_is_gone(gateway: Any, index: Callable[..., Any]) -> None:
    """If the platform no longer shows the rebuild, for example because the index was deleted, --wait fails."""
    gateway.rebuilding = [rebuild_state("running", 0), None]
    gone = index("rebuild", "notes", "--embedding", "bge", "--wait")
    assert (gone.exit_code, gone.stdout) == (1, "")
    assert "the rebuild of 'notes' cannot be followed: the index was deleted" in gone.stderr


def test_an_index_is_removed(gateway: Any, index: Callable[..., Any]) -> None:
    """Without a terminal, the command removes an index only with --yes."""
    refused = index("delete", "notes")
    assert (refused.exit_code, "1,200 documents; use --yes" in refused.stderr) == (2, True)
    assert "notes" in gateway.settings
    assert index("delete", "notes", "--yes").stdout == "deleted: notes\n"
    assert gateway.settings == {}
