"""The Triton server for tests: its start and its end. The tests that use the server cover its answers."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from causeway_testing.triton import NoTriton, triton_server


def test_a_missing_server_is_reported_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The message has the command that installs the server."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(NoTriton, match=r"make \.venv/\.triton"), triton_server(tmp_path):
        pass


def test_a_model_that_cannot_be_loaded_is_reported(tmp_path: Path) -> None:
    """The error has the server's message about the model."""
    with pytest.raises(RuntimeError, match="missing"), triton_server(tmp_path, models=["missing"]):
        pass


def test_the_process_prints_its_address_and_ends_on_a_signal() -> None:
    """The process prints its address, and ends on a signal with the processes of its models."""
    models = Path(__file__).parents[3] / "deploy" / "triton" / "model_repository"
    command = [sys.executable, "-m", "causeway_testing.triton", str(models), "--model", "words"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
