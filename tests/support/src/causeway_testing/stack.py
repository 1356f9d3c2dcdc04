"""Complete stacks on free ports of this machine, as `causeway up` starts them."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_PAUSE_SECONDS = 0.05


class _StackProcess:
    """The process of `causeway up`."""

    def __init__(self, data: Path, environment: Mapping[str, str], output: int | None = None) -> None:
        self._file = data / "stack.json"
        self._process = subprocess.Popen(
            [Path(sys.executable).with_name("causeway"), "up", "--port", "0", "--data-dir", data],
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
        )

    def wait_until_ready(self) -> dict[str, Any]:
        """Return the content of stack.json when the stack is ready.

        Raises:
            RuntimeError: The process has ended.
            TimeoutError: The stack is not ready in time.
        """
        end = time.monotonic() + _START_SECONDS
        while not self._file.exists():
            if self._process.poll() is not None:
                raise RuntimeError(f"causeway up ended with {self._process.returncode}")
            if time.monotonic() > end:
                raise TimeoutError(f"the stack was not ready within {_START_SECONDS:g} s")
            time.sleep(_PAUSE_SECONDS)
        found: dict[str, Any] = json.loads(self._file.read_text())
        return found

    def stop(self) -> int:
        """Send SIGTERM to the process, and return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(_STOP_SECONDS)


@contextlib.contextmanager
def run_stack(data: Path, environment: Mapping[str, str], *, quiet: bool = False) -> Iterator[dict[str, Any]]:
    """Run a stack for the block, and yield the content of its stack.json: for example `url` and `nats_url`.

    After the block, stop the stack with SIGTERM, and check its exit code.

    Args:
        data: The data directory.
        environment: The settings, in addition to the environment of this process.
        quiet: Whether the output is discarded, and does not go to the output of this process.

    Raises:
        RuntimeError: The stack ends during its start.
        TimeoutError: The stack is not ready within two minutes.
    """
    process = _StackProcess(data, environment, subprocess.DEVNULL if quiet else None)
    try:
        yield process.wait_until_ready()
    finally:
        code = process.stop()
    assert code == 0, f"causeway up ended with {code}"


@contextlib.asynccontextmanager
async def run_stack_async(data: Path, environment: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """Do the same as `run_stack`, and let other tasks run in the meantime."""
    process = _StackProcess(data, environment)
    try:
        yield await asyncio.to_thread(process.wait_until_ready)
    finally:
        code = await asyncio.to_thread(process.stop)
    assert code == 0, f"causeway up ended with {code}"
