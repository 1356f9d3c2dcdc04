"""A stack with a small language model, and one document in its index."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "examples" / "corpus"
INDEX = "llm"
START_SECONDS = 120.0


@pytest.fixture(scope="session")
def model_address() -> Iterator[str]:
    """Start the model server, and yield the URL of its API."""
    sys.path.insert(0, str(ROOT / "tools"))
    import up_llm

    python = Path(sys.prefix) / "llm" / "bin" / "python"
    assert python.exists(), "the small model is not installed: run `make .venv/.llm`"
    with up_llm.model_server(python) as address:
        yield address


@pytest.fixture(scope="session")
def http(model_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Start a stack, ingest the document, and yield an HTTP client for the gateway."""
    import up_llm

    data = tmp_path_factory.mktemp("stack")
    process = subprocess.Popen(
        [Path(sys.executable).with_name("causeway"), "up", "--port", "0", "--data-dir", data],
        env={**os.environ, **up_llm.settings(model_address)},
    )
    try:
        end = time.monotonic() + START_SECONDS
        while not (data / "stack.json").exists():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        url = httpx.Response(200, content=(data / "stack.json").read_bytes()).json()["url"]
        with httpx.Client(base_url=url, timeout=240) as client:
            subprocess.run(
                [
                    *(Path(sys.executable).with_name("causeway"), "ingest", CORPUS / "fares-and-tickets.md"),
                    *("--index", INDEX, "--url", url),
                ],
                check=True,
                timeout=120,
            )
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
