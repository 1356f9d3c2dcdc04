"""A stack with a small language model, and one document in its index."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from causeway_testing.stack import run_stack

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "examples" / "corpus"
INDEX = "llm"


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

    with (
        run_stack(tmp_path_factory.mktemp("stack"), up_llm.settings(model_address)) as running,
        httpx.Client(base_url=running["url"], timeout=240) as client,
    ):
        subprocess.run(
            [
                *(Path(sys.executable).with_name("causeway"), "ingest", CORPUS / "fares-and-tickets.md"),
                *("--index", INDEX, "--url", running["url"]),
            ],
            check=True,
            timeout=120,
        )
        yield client
