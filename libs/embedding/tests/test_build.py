import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from embedding.build import build, main
from embedding.cache import GRAPH, TOKENIZER, model_directory
from embedding.errors import WeightsMismatch
from embedding.minilm import MiniLmEmbedder
from embedding.weights import ModelFiles, find_minilm_files

pytestmark = pytest.mark.slow


def test_building_again_changes_nothing(built_cache: Path) -> None:
    """If the graph exists, a build neither writes anything nor needs the weights."""
    directory = model_directory(built_cache, "int8")
    before = {file.name: file.stat().st_mtime_ns for file in directory.iterdir()}
    built = build(built_cache, files=ModelFiles(weights=Path("gone"), tokenizer=Path("gone")))
    assert built.directory == directory
    assert not built.created
    assert {file.name: file.stat().st_mtime_ns for file in directory.iterdir()} == before
    assert set(before) == {GRAPH, TOKENIZER}


def test_a_refused_build_leaves_nothing(tmp_path: Path) -> None:
    """Forged weights lead to an error and an empty cache."""
    forged = tmp_path / "model.safetensors"
    forged.write_bytes(b"forged")
    cache = tmp_path / "cache"
    with pytest.raises(WeightsMismatch):
        build(cache, files=replace(find_minilm_files(), weights=forged))
    assert not cache.exists()


def test_two_processes_may_build_at_once(tmp_path: Path) -> None:
    """Both builds succeed, one result remains, and it can be loaded. No partial file remains beside it."""
    command = [sys.executable, "-m", "embedding.build", "--cache", str(tmp_path), "--json"]
    builders = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    outputs = [builder.communicate(timeout=100) for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0], outputs
    facts = [json.loads(output) for output, _ in outputs]
    assert sum(fact["created"] for fact in facts) == 1
    directory = model_directory(tmp_path, "int8")
    assert {fact["directory"] for fact in facts} == {str(directory)}
    assert list(tmp_path.iterdir()) == [directory]
    MiniLmEmbedder.load(tmp_path)


def test_others_may_read_the_cache(tmp_path: Path, built_cache: Path) -> None:
    """Services of other users can read the cache: all users may read its directory and files."""
    directory = model_directory(built_cache, "int8")
    assert directory.stat().st_mode & 0o055 == 0o055
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in directory.iterdir())


def test_the_command_prints_the_directory(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints a line with the directory of the graph, and ends with exit code 0."""
    assert main(["--cache", str(cache)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"graph exists already: {model_directory(cache, 'int8')} ")


def test_the_command_prints_json(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json, the line is an object with the same values."""
    assert main(["--cache", str(cache), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["directory"] == str(model_directory(cache, "int8"))
    assert facts["created"] is False
    assert facts["bytes"] > 20_000_000


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the reason on stderr without a stack, and ends with exit code 1."""
    (tmp_path / "file").touch()
    assert main(["--cache", str(tmp_path / "file" / "cache")]) == 1
    message = capsys.readouterr().err
    assert message.startswith("embedding.build: ")
    assert "Traceback" not in message
