"""A platform for third-party clients: the embedded models, a scripted model, and an API key."""

import asyncio
import contextlib
import json
import os
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from causeway.cli import key_store
from causeway_testing.model_server import ModelServer
from causeway_testing.recipes import PYTHON
from causeway_testing.stack import run_stack_async
from servicekit import api_keys

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "clients.md"
CORPUS = ROOT / "examples" / "corpus"
INDEX = "handbook"
SCRIPTED = "scripted"
FINAL_STATES = ("succeeded", "unchanged", "failed", "cancelled")
READY_SECONDS = 120.0
INGEST_SECONDS = 240.0
PROGRAM_SECONDS = 280.0
# LangChain downloads the tables of OpenAI's tokenizer from a host that may be unreachable. LlamaIndex has them.
TOKENIZERS = str(next(PYTHON.parents[1].glob("lib/*/site-packages/llama_index/core/_static/tiktoken_cache"), ""))


@dataclass(frozen=True, slots=True)
class Platform:
    """A running stack whose index `handbook` has the sample corpus.

    Attributes:
        url: The URL of its gateway.
        key: An administrator's API key.
        model: The server of its model `scripted`. The default model is the embedded one.
    """

    url: str
    key: str
    model: ModelServer

    async def run_to_end(self, *command: str | Path, cwd: Path | None = None) -> tuple[int, str]:
        """Run a client program until it ends, and return its exit code and its output.

        The program gets the URL and the API key in the variables `CAUSEWAY_URL` and `CAUSEWAY_KEY`.
        """
        # The client must not read the settings of this machine for other servers.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "AZURE_"))
        }
        process = await asyncio.create_subprocess_exec(
            *(str(word) for word in command),
            cwd=cwd,
            env={
                "TIKTOKEN_CACHE_DIR": TOKENIZERS,
                **environment,
                "CAUSEWAY_URL": self.url,
                "CAUSEWAY_KEY": self.key,
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            printed, _ = await asyncio.wait_for(process.communicate(), PROGRAM_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        assert process.returncode is not None
        return process.returncode, printed.decode()

    async def run(self, *command: str | Path, cwd: Path | None = None) -> str:
        """Run a client program, assert that it succeeds, and return its output."""
        code, printed = await self.run_to_end(*command, cwd=cwd)
        assert code == 0, printed
        return printed

    async def outcome(self, *command: str | Path) -> Any:
        """Run a client program, and return the JSON of its last line of output."""
        return json.loads((await self.run(*command)).splitlines()[-1])


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def platform(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Platform]:
    """Start a stack with authentication, the sample corpus in the index `handbook`, and the front end profile of
    docs/clients.md.
    """
    data = tmp_path_factory.mktemp("stack")
    profiles = tmp_path_factory.mktemp("profiles") / "frontends.yaml"
    [documented] = re.findall(r"^```yaml\n(frontends:\n.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    profiles.write_text(documented)
    async with ModelServer.started() as model:
        environment = {
            "CAUSEWAY_AUTH": "keys",
            "CAUSEWAY_OPENAI_BASE_URL": model.url,
            "CAUSEWAY_OPENAI_MODELS": f"{SCRIPTED}=stub",
            "CAUSEWAY_MODEL": "extractive",
            "CAUSEWAY_FRONTENDS_FILE": str(profiles),
        }
        async with run_stack_async(data, environment) as running:
            key, record = api_keys.create("chief", "default", roles=("admin",))
            async with key_store.opened(running["nats_url"], 1) as store:
                await store.add(record)
            async with httpx.AsyncClient(base_url=running["url"], headers={"api-key": key}, timeout=60) as http:
                await _ingest(http)
            yield Platform(running["url"], key, model)


async def _ingest(http: httpx.AsyncClient) -> None:
    """Wait until the gateway accepts the key, and ingest the sample corpus."""
    end = time.monotonic() + READY_SECONDS
    while (await http.get("/indexes")).status_code != 200:
        assert time.monotonic() < end, "the gateway does not accept the key"
        await asyncio.sleep(0.02)
    files = [("file", (path.name, path.read_bytes())) for path in sorted(CORPUS.iterdir())]
    answer = await http.post("/documents", data={"index": INDEX}, files=files)
    assert answer.status_code == 202, answer.text
    end = time.monotonic() + INGEST_SECONDS
    for job in answer.json()["jobs"]:
        while (state := (await http.get(f"/jobs/{job['id']}")).json()["state"]) not in FINAL_STATES:
            assert time.monotonic() < end, f"job {job['id']} did not end in time"
            await asyncio.sleep(0.05)
        assert state == "succeeded", state
