"""Fixtures: a stub gateway with scripted responses, and functions that run the command."""

import importlib.util
import os
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from causeway.cli.main import main

STUBS = Path(__file__).parent / "stubs"


@dataclass(frozen=True)
class Result:
    """The output and the exit code of a command."""

    exit_code: int
    stdout: str
    stderr: str


Cli = Callable[..., Result]


@pytest.fixture
def gateway() -> Iterator[Any]:
    """Run a stub gateway on a free port. ``gateway.url`` is its address."""
    spec = importlib.util.spec_from_file_location("stub_gateway", STUBS / "gateway.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stub = module.Gateway()
    server = uvicorn.Server(uvicorn.Config(stub, ws="none", log_level="warning", timeout_graceful_shutdown=1))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        stub.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield stub
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def no_gateway() -> str:
    """Return the URL of a port on which no server listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Return a function that runs a command line in an empty directory, in this process."""
    monkeypatch.chdir(tmp_path)
    for name in ("CAUSEWAY_URL", "CAUSEWAY_DATA_DIR", "CAUSEWAY_API_KEY", "CAUSEWAY_NATS_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Result(int(end.value.code or 0), out, err)

    return run


@pytest.fixture
def stub_environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which all services except the broker are stubs."""
    modules = tmp_path / "modules"
    modules.mkdir()
    shutil.copy(STUBS / "gateway.py", modules)
    for name in ("retriever", "generator", "guardrails", "ingest"):
        shutil.copy(STUBS / "service.py", modules / f"{name}.py")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CAUSEWAY_")}
    return {**inherited, "PYTHONPATH": str(modules)}


@pytest.fixture
def causeway() -> list[str]:
    """Return the arguments that run the command in a new process."""
    return [sys.executable, "-m", "causeway.cli"]
