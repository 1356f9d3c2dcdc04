import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway.cli import reservation
from causeway.cli.commands.up import command_name

pytestmark = pytest.mark.slow

SERVICES = ["nats", "retriever", "generator", "guardrails", "ingest", "gateway"]


def _eventually(condition: Callable[[], bool], within: float = 60) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def start(causeway: list[str], stub_environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Yield a function that starts `causeway up`. Kill the processes after the test."""
    with contextlib.ExitStack() as stack:

        def run(*options: str, **environment: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [*causeway, "up", "--data-dir", str(tmp_path / "data"), *options],
                env={**stub_environment, **environment},
                stdout=subprocess.PIPE,
                stderr=stack.enter_context((tmp_path / "stderr").open("w")),
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield run


def test_start_restart_and_stop(start: Callable[..., Any], causeway: list[str], tmp_path: Path) -> None:
    """The command starts, describes itself in stack.json, refuses a second start, restarts a killed service, and
    stops with exit code 0.
    """
    process = start("--port", "0", "--json")
    printed = json.loads(process.stdout.readline())
    stack_json = tmp_path / "data" / "stack.json"
    described = json.loads(stack_json.read_text())
    assert printed == {name: value for name, value in described.items() if name != "nats_url"}
    assert printed["stack_file"] == str(stack_json)
    password = described["nats_url"].partition("//operator:")[2].partition("@")[0]
    assert password
    assert password not in json.dumps(printed)
    assert stack_json.stat().st_mode & 0o777 == 0o600
    data = tmp_path / "data"
    assert [path for path in (data, *data.rglob("*")) if path.stat().st_mode & 0o077] == []
    assert list(described["services"]) == SERVICES
    for name, service in described["services"].items():
        if name in ("nats", "gateway"):
            assert service["port"]
        else:
            assert "port" not in service
            assert Path(service["socket"]).parent.stat().st_mode & 0o777 == 0o700
    assert httpx.get(f"{described['url']}/readyz").status_code == 200
    with socket.create_connection(("127.0.0.1", described["services"]["nats"]["port"]), timeout=5) as broker:
        assert broker.recv(4) == b"INFO"

    again = subprocess.run(
        [*causeway, "up", "--data-dir", str(tmp_path / "data"), "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 4
    assert f"data at {described['url']}" in again.stderr

    old = described["services"]["retriever"]["pid"]
    os.kill(old, signal.SIGKILL)
    _eventually(lambda: json.loads(stack_json.read_text())["services"]["retriever"]["pid"] not in {old, None})
    assert "retriever ended (SIGKILL); will restart in 0.2 s" in (tmp_path / "stderr").read_text()

    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert not stack_json.exists()
    assert not (tmp_path / "data" / "sockets").exists()
    assert "serves on" in (tmp_path / "data" / "logs" / "retriever.log").read_text()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{described['url']}/readyz")


def test_a_disk_that_is_full(start: Callable[..., Any], tmp_path: Path) -> None:
    """The command restarts a killed service although it cannot write stack.json, and writes the file later."""
    process = start("--port", "0", "--json")
    process.stdout.readline()
    data, stderr = tmp_path / "data", tmp_path / "stderr"
    blocked = data / ".stack.json.new"
    blocked.mkdir()  # the file cannot be replaced, even by root
    old = json.loads((data / "stack.json").read_text())["services"]["retriever"]["pid"]
    os.kill(old, signal.SIGKILL)
    _eventually(lambda: "stack.json cannot be written" in stderr.read_text())
    _eventually(lambda: "retriever ended (SIGKILL); will restart" in stderr.read_text())
    blocked.rmdir()
    _eventually(lambda: "stack.json was written" in stderr.read_text())
    _eventually(lambda: _pid(data, "retriever") not in {old, None})
    again = _pid(data, "retriever")
    assert again is not None
    os.kill(again, signal.SIGKILL)
    _eventually(lambda: _pid(data, "retriever") not in {old, again, None})
    process.terminate()
    assert process.wait(60) == 0


def _pid(data: Path, service: str) -> int | None:
    pid: int | None = json.loads((data / "stack.json").read_text())["services"][service]["pid"]
    return pid


def test_readable_output(start: Callable[..., Any], tmp_path: Path) -> None:
    """The command prints the progress, the URL and a curl example. --verbose adds the logs. Ctrl-C ends the
    command.
    """
    page = tmp_path / "modules" / "static" / "index.html"  # as in the gateway's package with the console
    page.parent.mkdir()
    page.touch()
    process = start("--port", "0", "--verbose")
    first = process.stdout.readline()
    assert first.startswith("Causeway is ready at http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    printed = process.stdout.read()
    assert f"curl {first.split()[-1]}/documents" in printed
    assert f"The console is at {first.split()[-1]}/" in printed
    shown = (tmp_path / "stderr").read_text()
    assert "gateway is ready" in shown
    assert "guardrails | guardrails serves on" in shown
    assert "\x1b" not in first + shown


def test_each_service_has_a_port_for_its_metrics(start: Callable[..., Any]) -> None:
    """Each service gets its own metrics port, counted from CAUSEWAY_METRICS_PORT. The command prints the ports."""
    first = reservation.ports(0, 1)[0]
    process = start("--port", "0", CAUSEWAY_METRICS_PORT=str(first))
    assert process.stdout.readline().startswith("Causeway is ready at")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    [line] = [line for line in process.stdout if line.startswith("Metrics are at")]
    printed = dict(re.findall(r"(\w+) (\d+)", line.partition("/metrics: ")[2]))
    assert set(printed) == set(SERVICES) - {"nats"}
    ports = sorted(map(int, printed.values()))
    assert len(set(ports)) == 5
    assert first <= ports[0]


def test_the_name_of_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command in messages is a name if it is on PATH, else a path."""
    command = tmp_path / "causeway"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(command), "up"])
    monkeypatch.setenv("PATH", str(tmp_path / "elsewhere"))
    assert command_name() == str(command)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command_name() == "causeway"
    monkeypatch.setattr("sys.argv", ["/somewhere/__main__.py", "up"])
    assert command_name() == "causeway"


def test_all_processes_end_when_the_command_is_killed(start: Callable[..., Any]) -> None:
    """After SIGKILL to the command, all its processes end, and the command can start again."""
    process = start("--port", "0", "--json")
    url = json.loads(process.stdout.readline())["url"]
    process.kill()

    def is_down() -> bool:
        try:
            httpx.get(f"{url}/readyz")
        except httpx.HTTPError:
            return True
        return False

    _eventually(is_down)
    process = start("--port", "0", "--json")
    assert json.loads(process.stdout.readline())["url"]
    process.terminate()
    assert process.wait(60) == 0


def test_a_wrong_configuration(start: Callable[..., Any], tmp_path: Path) -> None:
    """A service that refuses its configuration ends the command with exit code 1 and the service's message."""
    process = start("--port", "0", STUB_EXIT_GENERATOR="78")
    assert process.wait(60) == 1
    shown = (tmp_path / "stderr").read_text()
    assert "generator refuses its configuration" in shown
    assert "CAUSEWAY_SOMETHING: Field required" in shown
    assert "will restart" not in shown


def test_a_service_that_is_never_ready(start: Callable[..., Any], tmp_path: Path) -> None:
    """The command ends with exit code 1 after --timeout, and prints the last lines of the missing service."""
    process = start("--port", "0", "--timeout", "10", STUB_EXIT_GATEWAY="1")
    assert process.wait(60) == 1
    shown = (tmp_path / "stderr").read_text()
    assert "not ready after 10 s" in shown
    assert "gateway ended (exit code 1)" in shown
    assert "gateway | gateway: CAUSEWAY_SOMETHING: Field required" in shown


def test_a_port_in_use(start: Callable[..., Any], tmp_path: Path) -> None:
    """A port in use causes exit code 4 before any service starts."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert start("--port", str(port)).wait(60) == 4
    assert f"port {port} cannot be used" in (tmp_path / "stderr").read_text()
    assert not (tmp_path / "data" / "logs").exists()
