"""The published Open WebUI, with its page in Chromium."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway_testing.servers import free_ports

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

HERE = Path(__file__).parent
PROGRAMS = Path(sys.prefix) / "open-webui" / "bin"
QUESTION = "When will the pivot bearing be renewed?"
ANSWER = "4 January to 19 March 2027"
SOURCE = "brannoch-bridge-maintenance-plan.pdf#page=4"
READY_SECONDS = 240.0


@contextlib.asynccontextmanager
async def open_webui(platform: Any, data: Path) -> AsyncIterator[str]:
    """Start Open WebUI with the front end profile of docs/clients.md, for one user without a login. Yield its
    URL.
    """
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    environment = {
        "OPENAI_API_BASE_URL": f"{platform.url}/harbour/v1",
        "OPENAI_API_KEY": platform.key,
        "ENABLE_OLLAMA_API": "false",
        "RAG_EMBEDDING_ENGINE": "openai",
        "OFFLINE_MODE": "true",
        "WEBUI_AUTH": "false",
        "WEBUI_SECRET_KEY": "test",
        "DATA_DIR": str(data),
    }
    with (data / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(PROGRAMS / "open-webui", "serve", "--host", "127.0.0.1", "--port", str(port)),
            env={**os.environ, **environment},
            cwd=data,
            stdout=log,
            stderr=log,
        )
    try:
        end = time.monotonic() + READY_SECONDS
        async with httpx.AsyncClient(base_url=url) as http:
            while True:
                assert process.returncode is None, (data / "log").read_text()[-2000:]
                assert time.monotonic() < end, "Open WebUI was not ready in time"
                with contextlib.suppress(httpx.TransportError):
                    if (await http.get("/health")).status_code == 200:
                        break
                await asyncio.sleep(0.2)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()


@pytest.mark.timeout(600)
async def test_a_question_on_the_page(platform: Any, tmp_path: Path) -> None:
    """The page shows the answer from the index with its source."""
    if shutil.which("chromium") is None:
        pytest.skip("the page of Open WebUI is not tested: chromium is not installed")
    async with open_webui(platform, tmp_path) as url:
        page = HERE / "python" / "open_webui_page.py"
        shown = await platform.outcome(PROGRAMS / "python", page, url, "extractive", QUESTION, ANSWER)
    assert f"[{SOURCE}]" in shown
