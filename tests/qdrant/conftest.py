"""A Qdrant server's program, as `CAUSEWAY_QDRANT_SERVER` names it: one node, and a cluster of three."""

from pathlib import Path

import pytest
from causeway_testing.retriever.qdrant_server import NoServer, server_program


@pytest.fixture(scope="session")
def program() -> Path:
    """The server's program."""
    try:
        return server_program()
    except NoServer as error:
        pytest.exit(str(error), returncode=2)
