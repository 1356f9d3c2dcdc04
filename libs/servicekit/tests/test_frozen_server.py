"""A service with one hanging and one running process."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from servicekit import rpc
from servicekit.channel import open_channel
from servicekit.deadline import Deadline

GUARDRAILS = guardrails_pb2.DESCRIPTOR.services_by_name["GuardrailsService"]
SERVER = """
import asyncio
from test_channel import guardrails

async def serve():
    async with guardrails() as port:
        print(port, flush=True)
        await asyncio.Event().wait()

asyncio.run(serve())
"""


@contextlib.asynccontextmanager
async def server() -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Return a serving process and its port."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, cwd=Path(__file__).parent, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process, int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()


@pytest.mark.slow
async def test_a_process_that_hangs_beside_another_one() -> None:
    """The other process answers all calls. Calls to the hanging one are repeated after six seconds of silence."""
    async with server() as (first, one), server() as (_, other):
        target = f"ipv4:127.0.0.1:{one},127.0.0.1:{other}"
        async with open_channel(target, [GUARDRAILS]) as opened:
            method = guardrails_pb2_grpc.GuardrailsServiceStub(opened).DetectText

            async def ask() -> None:
                await rpc.unary(method, guardrails_pb2.DetectTextRequest(), Deadline.after(20))

            await asyncio.gather(*(ask() for _ in range(4)))
            first.send_signal(signal.SIGSTOP)
            await asyncio.gather(*(ask() for _ in range(4)))
            # The channel has closed this connection, so no other call waits.
            async with asyncio.timeout(5):
                await asyncio.gather(*(ask() for _ in range(20)))
            first.send_signal(signal.SIGCONT)
