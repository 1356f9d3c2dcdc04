import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from causeway.cli import stack_file
from servicekit.server import GrpcServer


def test_all_services_are_ready(gateway: Any, cli: Callable[..., Any]) -> None:
    """The command prints each service with its state and exits with 0. Without a terminal, the output has no
    control characters.
    """
    result = cli("status", "--url", gateway.url)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == f"{gateway.url} is ready"
    for name in ("gateway", "nats", "retriever", "generator", "guardrails"):
        assert any(line.split()[:2] == [name, "ok"] for line in result.stdout.splitlines())
    assert "\x1b" not in result.stdout


def test_an_unavailable_service(gateway: Any, cli: Callable[..., Any]) -> None:
    """An unavailable service causes exit code 1 and is printed with the reason."""
    gateway.services["generator"] = "unavailable"
    result = cli("status", "--url", gateway.url)
    assert result.exit_code == 1
    assert "is not ready" in result.stdout
    assert "connection refused" in result.stdout


def test_json_with_the_local_stack(gateway: Any, cli: Callable[..., Any], tmp_path: Path) -> None:
    """The command takes the URL and the processes from the stack file of the data directory."""
    services = {"retriever": {"pid": 12, "port": 34}}
    stack_file.write(tmp_path, {"url": gateway.url, "services": services, "nats_url": ""})
    found = json.loads(cli("status", "--data-dir", tmp_path, "--json").stdout)
    assert found["url"] == gateway.url
    assert found["ready"] is True
    assert found["services"]["retriever"] == {
        "status": "ok",
        "detail": "",
        "latency_ms": None,
        "pid": 12,
        "port": 34,
    }
    assert found["services"]["gateway"]["latency_ms"] > 0


async def test_services_that_the_gateway_does_not_check(
    gateway: Any, cli: Callable[..., Any], tmp_path: Path
) -> None:
    """The command checks the stack's services that the gateway does not report. If one is unavailable, it exits
    with 1.
    """
    tmp_path.chmod(0o700)
    server = GrpcServer(f"unix:{tmp_path}/ingest.sock", [])
    await server.start()
    services = {"ingest": {"pid": 12, "socket": f"{tmp_path}/ingest.sock"}}
    stack_file.write(tmp_path, {"url": gateway.url, "services": services, "nats_url": ""})

    def status() -> Any:
        return cli("status", "--data-dir", tmp_path, "--json")

    running = await asyncio.to_thread(status)
    assert running.exit_code == 0
    assert json.loads(running.stdout)["services"]["ingest"]["status"] == "ok"
    await server.stop(0)
    stopped = await asyncio.to_thread(status)
    assert stopped.exit_code == 1
    assert json.loads(stopped.stdout)["services"]["ingest"]["detail"] == "unavailable"


def test_no_gateway_answers(no_gateway: str, cli: Callable[..., Any]) -> None:
    """Without a gateway, the exit code is 3."""
    assert cli("status", "--url", no_gateway).exit_code == 3
