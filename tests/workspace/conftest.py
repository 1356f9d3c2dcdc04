from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """The workspace's directory."""
    return Path(__file__).resolve().parents[2]
