"""guardrails.main: the real process."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
from causeway.guardrails.v1 import guardrails_pb2 as pb
from causeway.guardrails.v1 import guardrails_pb2_grpc
from causeway.identity.v1 import principal_pb2
from causeway_testing.servers import free_ports
from servicekit.channel import open_channel

pytestmark = pytest.mark.slow  # each test starts processes

_SERVICE = pb.DESCRIPTOR.services_by_name["GuardrailsService"]


async def test_the_process_serves_until_a_signal(tmp_path: Path) -> None:
    """The process serves the detectors of its files on its ports, and a signal ends it with 0."""
    port, api = free_ports(2)
    detectors, policy = tmp_path / "detectors.yaml", tmp_path / "policy.yaml"
    detectors.write_text("detectors:\n  hap: {kind: text_contents, url: 'http://127.0.0.1:1'}\n")
    policy.write_text("blockMessage: Not this.\nscanners: [{type: secrets}]\n")
    environment = {
        **os.environ,
        "CAUSEWAY_GUARDRAILS_PORT": str(port),
        "CAUSEWAY_GUARDRAILS_API_PORT": str(api),
        "CAUSEWAY_GUARDRAILS_DETECTORS_FILE": str(detectors),
        "CAUSEWAY_GUARDRAILS_POLICY_FILE": str(policy),
        "CAUSEWAY_LOG_FORMAT": "json",
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "guardrails", env=environment)
    try:
        async with open_channel(f"127.0.0.1:{port}", [_SERVICE]) as channel:
            stub = guardrails_pb2_grpc.GuardrailsServiceStub(channel)
            principal = principal_pb2.Principal(tenant="t")
            listed = await stub.ListDetectors(
                pb.ListDetectorsRequest(principal=principal), wait_for_ready=True, timeout=30
            )
            assert [detector.detector_id for detector in listed.detectors if detector.remote] == ["hap"]
            assert len(listed.detectors) > 1
            served_policy = await stub.GetPolicy(pb.GetPolicyRequest(principal=principal))
            assert [config.detector_id for config in served_policy.output] == ["secrets"]
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{api}/health") as health:
            assert health.status == 200
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_wrong_file_ends_the_process(tmp_path: Path) -> None:
    """A wrong configuration file ends the process, and the message names the place."""
    path = tmp_path / "detectors.yaml"
    path.write_text("detectors:\n  hap: {kind: text_contents}\n")
    environment = {**os.environ, "CAUSEWAY_GUARDRAILS_PORT": "0", "CAUSEWAY_GUARDRAILS_DETECTORS_FILE": str(path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "guardrails",
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode not in (0, None)
    assert b"line 2, detectors.hap.url" in output + errors
