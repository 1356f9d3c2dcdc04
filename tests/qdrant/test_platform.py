"""The contract tests of the store and the end-to-end tests with a Qdrant server of one node and with a cluster."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from causeway_testing.retriever.qdrant_server import ServerNode, started

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = ["services/retriever/tests/stores/test_contract.py"]
SECONDS = 1500


def variables(nodes: list[ServerNode]) -> dict[str, str]:
    """Return the settings of a retriever with these nodes."""
    found = {"CAUSEWAY_QDRANT_URL": f"http://{nodes[0].address}"}
    if len(nodes) > 1:
        found["CAUSEWAY_QDRANT_HOSTS"] = ",".join(node.address for node in nodes)
        found["CAUSEWAY_QDRANT_REPLICAS"] = str(len(nodes))
        found["CAUSEWAY_QDRANT_WRITE_CONSISTENCY"] = str(len(nodes) // 2 + 1)
    return found


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("count", [1, 3], ids=["one-node", "three-nodes"])
@pytest.mark.parametrize(
    ("tests", "shared"),
    # The contract tests use both layouts themselves.
    [(CONTRACT, False), (["tests/e2e"], False), (["tests/e2e"], True)],
    ids=["contract", "end-to-end", "end-to-end-shared"],
)
async def test_the_platform_on_a_server(
    program: Path, tmp_path: Path, count: int, tests: list[str], shared: bool
) -> None:
    """The tests that pass with the embedded engine also pass with a server."""
    async with started(program, tmp_path, count) as nodes:
        own = {"PYTEST_ADDOPTS": "", "CAUSEWAY_TEST_QDRANT": "1", **variables(nodes)}
        own["CAUSEWAY_QDRANT_SHARED"] = str(shared).lower()
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
        running = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env={**os.environ, **own})
        try:
            async with asyncio.timeout(SECONDS):
                assert await running.wait() == 0
        finally:
            if running.returncode is None:
                running.kill()
                await running.wait()
