"""The installation that is backed up: its addresses, and the end of a stack that the command has started."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from causeway.cli import operator_connection, stack_file
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

    monkeypatch.setattr(operator_connection, "connect", refuse)
    if running:
        stack_file.write(tmp_path, running)
    with pytest.raises(Unreachable, match=f"NATS does not answer at {expected} "):
        async with installation.opened(nats_url, retriever, tmp_path):
            pass


@pytest.mark.parametrize("received", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_started_stack(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: signal.Signals
) -> None:
    """A signal during a backup stops the stack that the command has started. The exit code is 130."""
    calls: list[str] = []

    class Stack:
        def __init__(self, *_: Any, **__: Any) -> None:
            calls.append("created")

        async def start_store(self, *, within: float) -> None:
            os.kill(os.getpid(), received)
            await asyncio.sleep(within)

        async def stop(self) -> None:
            calls.append("stopped")

        def kill(self) -> None:
            calls.append("killed")

    monkeypatch.setattr(installation, "Stack", Stack)
    monkeypatch.setattr(os, "umask", lambda _: 0)  # the command would change the umask of the other tests
    result = cli("backup", tmp_path / "backup", "--data-dir", tmp_path / "data")
    assert (result.exit_code, result.stderr, calls) == (130, "", ["created", "stopped"])
