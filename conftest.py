"""What holds for the tests of all packages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from servicekit.original_settings import OriginalSettings

# A test may be slow because the machine is busy: only hypothesis' counts matter, not its clocks.
settings.register_profile("causeway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("causeway")

_TIMEOUT = pytest.StashKey[Any]()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Keeps a test's time-out for `pytest_exception_interact`."""
    item.stash[_TIMEOUT] = settings


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Sets the timer of a test again that has failed.

    pytest-timeout ends it, for the sake of debuggers. A teardown that hangs after a failure would hang the run.
    """
    if isinstance(node, pytest.Item) and (settings := node.stash.get(_TIMEOUT, None)) is not None:
        node.ihook.pytest_timeout_set_timer(item=node, settings=settings)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Address of an S3-compatible store. It takes seconds to start: tests share it, each with its own bucket."""
    from causeway_testing.s3 import s3_server

    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def s3_settings(s3_endpoint: str, tmp_path: Path) -> OriginalSettings:
    """Settings for an empty bucket."""
    from causeway_testing.s3 import bucket_settings

    return bucket_settings(s3_endpoint, tmp_path)
