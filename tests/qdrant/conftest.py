"""The program of a Qdrant server, which `CAUSEWAY_QDRANT_SERVER` names. The tests start one or three nodes."""

from pathlib import Path

import pytest
from causeway_testing.retriever.qdrant_server import NoServer, server_program


@pytest.fixture(scope="session")
def program() -> Path:
    """Return the server's program."""
    try:
        return server_program()
    except NoServer as error:
        pytest.exit(str(error), returncode=2)
