import errno
import os
from pathlib import Path

import pytest
from causeway.cli import stack_file
from causeway.cli.options import DEFAULT_URL, resolve_url


def test_the_written_file_is_read(tmp_path: Path) -> None:
    """`read` returns the written content. Removing a missing file is not an error."""
    stack_file.write(tmp_path, {"url": "http://127.0.0.1:9"})
    assert stack_file.read(tmp_path) == {"url": "http://127.0.0.1:9"}
    assert [path.name for path in tmp_path.iterdir()] == ["stack.json"]
    stack_file.remove(tmp_path)
    stack_file.remove(tmp_path)
    assert stack_file.read(tmp_path) == {}


@pytest.mark.parametrize("content", ["", "{", "[1]", '"x"'])
def test_an_invalid_file_counts_as_no_stack(tmp_path: Path, content: str) -> None:
    """If the content is not a JSON object, `read` returns an empty description."""
    (tmp_path / "stack.json").write_text(content)
    assert stack_file.read(tmp_path) == {}


def test_precedence_of_urls(tmp_path: Path) -> None:
    """The given URL overrides the URL of the running stack, which overrides the default."""
    assert resolve_url(None, tmp_path) == DEFAULT_URL
    stack_file.write(tmp_path, {"url": "http://127.0.0.1:9"})
    assert resolve_url(None, tmp_path) == "http://127.0.0.1:9"
    assert resolve_url("http://elsewhere", tmp_path) == "http://elsewhere"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full, the old file remains and no partial file is left."""
    stack_file.write(tmp_path, {"url": "http://127.0.0.1:9"})

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        stack_file.write(tmp_path, {"url": "http://127.0.0.1:8"})
    assert stack_file.read(tmp_path) == {"url": "http://127.0.0.1:9"}
    assert [path.name for path in tmp_path.iterdir()] == ["stack.json"]
