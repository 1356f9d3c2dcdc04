from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ingest.parsing.child import parse
from ingest.parsing.content import Head, Page
from ingest.parsing.frames import Request

Read = Callable[..., tuple[Head, list[Page]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Parses bytes under a name as the child does, in this process."""

    def read(
        content: bytes, name: str, *, max_pages: int = 100, max_characters: int = 100_000
    ) -> tuple[Head, list[Page]]:
        path = tmp_path / "original"
        path.write_bytes(content)
        suffix = Path(name).suffix
        parts: Iterator[Head | Page] = parse(Request(str(path), suffix, max_pages, max_characters, 0, 0))
        head, *pages = parts
        assert isinstance(head, Head)
        return head, [page for page in pages if isinstance(page, Page)]

    return read
