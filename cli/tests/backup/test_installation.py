"""The addresses of an installation that is backed up."""

from pathlib import Path
from typing import Any, NoReturn

import pytest
from causeway.cli import stack_file
from causeway.cli.backup import installation
from causeway.cli.errors import Unreachable


@pytest.mark.parametrize(
    ("nats_url", "retriever", "running", "expected"),
    [
        (None, "127.0.0.1:1", {}, "nats://127.0.0.1:4222"),
        (None, "127.0.0.1:1", {"nats_url": "nats://127.0.0.1:5"}, "nats://127.0.0.1:5"),
        ("nats://127.0.0.1:6", None, {"nats_url": "nats://127.0.0.1:5"}, "nats://127.0.0.1:6"),
    ],
)
async def test_the_url_of_nats(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nats_url: str | None,
    retriever: str | None,
    running: dict[str, Any],
    expected: str,
) -> None:
    """The given URL is used, else the URL of the running stack, else the default."""

    async def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ConnectionRefusedError

    monkeypatch.setattr(installation, "connect", refuse)
    if running:
        stack_file.write(tmp_path, running)
    with pytest.raises(Unreachable, match=f"NATS does not answer at {expected} "):
        async with installation.opened(nats_url, retriever, tmp_path):
            pass
