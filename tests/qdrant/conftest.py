"""A Qdrant server's program, which `CAUSEWAY_QDRANT_SERVER` names, with one node and with three."""

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
