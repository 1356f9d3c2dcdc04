import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import structlog
from causeway_testing.leaks.world import World, open_world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    async with open_world(tmp_path_factory.mktemp("front-ends")) as opened:
        yield opened
    structlog.reset_defaults()
