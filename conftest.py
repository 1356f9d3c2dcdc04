"""Settings for the tests of all packages."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from servicekit.original_settings import OriginalSettings

# Hypothesis must not fail a test because a busy machine is slow. It limits the number of examples only.
settings.register_profile("causeway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("causeway")

# With structlog's default, a logged exception has the values of all variables of the stack, which takes seconds.
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback

_TIMEOUT = pytest.StashKey[Any]()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Record a test's time-out for `pytest_exception_interact`."""
    item.stash[_TIMEOUT] = settings


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Start the timer of a failed test again.

    After a failure, pytest-timeout stops the timer, so that a user can debug. Without a timer, a teardown that
    hangs would stop the complete run.
    """
    if isinstance(node, pytest.Item) and (settings := node.stash.get(_TIMEOUT, None)) is not None:
        node.ihook.pytest_timeout_set_timer(item=node, settings=settings)


def pytest_collection_finish() -> None:
    """Exempt the modules and the collected tests from garbage collection.

    They exist until the end of the run, and a process has more than 500,000 of their objects. Otherwise, each full
    collection visits all of them.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Start an S3-compatible store, and return its URL. All tests share the store, because a start takes seconds.
    Each test has its own bucket.
    """
    from causeway_testing.s3 import s3_server

    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def s3_settings(s3_endpoint: str, tmp_path: Path) -> OriginalSettings:
    """Return the settings for a new bucket of the store."""
    from causeway_testing.s3 import bucket_settings

    return bucket_settings(s3_endpoint, tmp_path)
