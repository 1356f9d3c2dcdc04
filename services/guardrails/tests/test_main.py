"""guardrails.main: the process as it is run."""

import asyncio
import os
import signal
import sys

import pytest
from causeway.guardrails.v1 import guardrails_pb2 as pb
from causeway.guardrails.v1 import guardrails_pb2_grpc
from causeway.identity.v1 import principal_pb2
from servicekit.channel import open_channel
from servicekit.testing import free_ports

_SERVICE = pb.DESCRIPTOR.services_by_name["GuardrailsService"]


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
async def test_process(sign: signal.Signals) -> None:
    """The process serves on its port, and ends with 0 when it is told to."""
    (port,) = free_ports(1)
    environment = {**os.environ, "CAUSEWAY_GUARDRAILS_PORT": str(port), "CAUSEWAY_LOG_FORMAT": "json"}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "guardrails", env=environment)
    try:
        async with open_channel(f"127.0.0.1:{port}", [_SERVICE]) as channel:
            stub = guardrails_pb2_grpc.GuardrailsServiceStub(channel)
            principal = principal_pb2.Principal(tenant="t")
            listed = await stub.ListDetectors(
                pb.ListDetectorsRequest(principal=principal), wait_for_ready=True, timeout=30
            )
            assert len(listed.detectors) == 2
        process.send_signal(sign)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_wrong_settings() -> None:
    """A wrong setting ends the process at once, with the code that says that starting again will not help."""
    environment = {**os.environ, "CAUSEWAY_GUARDRAILS_PORT": "many"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "guardrails", env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 78
    assert b"CAUSEWAY_GUARDRAILS_PORT" in errors
