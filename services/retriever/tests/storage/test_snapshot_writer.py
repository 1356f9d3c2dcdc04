"""Writing snapshots."""

from pathlib import Path
from typing import IO, Any

import pytest
from retriever.domain.document import Document
from retriever.domain.index import IndexSpec
from retriever.storage.snapshot_writer import Writer

OPEN = Path.open


def test_a_full_disk_keeps_no_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full, the file with the points is removed."""

    def full(path: Path, mode: str = "r", *args: Any, **options: Any) -> IO[Any]:
        if mode != "xb":
            return OPEN(path, mode, *args, **options)
        path.touch()
        return OPEN(Path("/dev/full"), "wb")

    monkeypatch.setattr(Path, "open", full)
    writer = Writer(tmp_path, IndexSpec("t", "i", "model", 2))
    writer.record(Document("d"))
    with pytest.raises(OSError, match="No space left"), writer:
        writer.commit()
    assert list(tmp_path.iterdir()) == []
