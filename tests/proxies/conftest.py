"""A platform with two tenants behind real proxies. Each proxy has its configuration from docs/proxies.md."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from causeway.cli import key_store
from causeway_testing.model_server import ModelServer
from causeway_testing.proxies import PROXIES, configurations
from causeway_testing.stack import run_stack_async
from servicekit import api_keys

PAGE = Path(__file__).resolve().parents[2] / "docs" / "proxies.md"
READY_SECONDS = 120.0
IDLE_SECONDS = 1.5
"""The gateway closes a connection that has been idle for this time. Some tests give the proxies a shorter limit."""
PUBLIC_PATH = "/causeway"
"""The same value as in docs/proxies.md."""
TENANTS = ("north", "south")


@dataclass(frozen=True, slots=True)
class Platform:
    """A running stack.

    Attributes:
        port: The port of its gateway.
        keys: An administrator's API key for each tenant.
        model: The server of its model.
    """

    port: int
    keys: Mapping[str, str]
    model: ModelServer

    def headers(self, tenant: str) -> dict[str, str]:
        """Return the headers of a tenant's administrator."""
        return {"api-key": self.keys[tenant]}


StartProxy = Callable[..., AbstractAsyncContextManager[int]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def platform(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Platform]:
    """Start a stack with authentication, an administrator for each tenant, and a scripted model."""
    data = tmp_path_factory.mktemp("stack")
    async with ModelServer.started() as model:
        environment = {
            "CAUSEWAY_AUTH": "keys",
            "CAUSEWAY_METRICS_OPEN": "true",
            "CAUSEWAY_PUBLIC_PATH": PUBLIC_PATH,
            "CAUSEWAY_IDLE_TIMEOUT": str(IDLE_SECONDS),
            "CAUSEWAY_DEFAULT_INDEX": "",
            "CAUSEWAY_OPENAI_BASE_URL": model.url,
            "CAUSEWAY_OPENAI_MODELS": "stub",
            "CAUSEWAY_MODEL": "stub",
        }
        async with run_stack_async(data, environment) as stack:
            created_keys = {tenant: api_keys.create("chief", tenant, roles=("admin",)) for tenant in TENANTS}
            async with key_store.opened(stack["nats_url"], 1) as store:
                for _, record in created_keys.values():
                    await store.add(record)
            port = httpx.URL(stack["url"]).port or 0
            running = Platform(port, {tenant: key for tenant, (key, _) in created_keys.items()}, model)
            async with httpx.AsyncClient(base_url=stack["url"]) as http:
                for tenant in TENANTS:
                    await _wait_for_key(http, running.headers(tenant))
            yield running


async def _wait_for_key(http: httpx.AsyncClient, headers: Mapping[str, str]) -> None:
    """Wait until the gateway knows a key."""
    end = time.monotonic() + READY_SECONDS
    while (await http.get("/indexes", headers=headers)).status_code != 200:
        assert time.monotonic() < end, "the gateway does not accept the key"
        await asyncio.sleep(0.02)


@pytest.fixture(params=list(PROXIES))
def proxy(request: pytest.FixtureRequest) -> str:
    """Return the name of a proxy. If the proxy is not installed, skip the test before it scripts the model."""
    name: str = request.param
    _skip_if_missing(name)
    return name


def _skip_if_missing(name: str) -> None:
    if PROXIES[name].executable is None:
        pytest.skip(f"{name} is not installed: there is no program '{PROXIES[name].program}' on the path")


@pytest.fixture(scope="session")
def start_proxy(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> StartProxy:
    """Return a function that starts a proxy in front of the platform, with changes to the page's configuration.

    A change is a text of the configuration and its replacement. If the proxy is not installed, the test is skipped.
    """
    documented = configurations(PAGE.read_text())

    def start(name: str, *changes: tuple[str, str]) -> AbstractAsyncContextManager[int]:
        _skip_if_missing(name)
        configuration = documented[name]
        for old, new in changes:
            assert old in configuration, f"the page's configuration of {name} has no {old!r}"
            configuration = configuration.replace(old, new)
        return PROXIES[name].started(tmp_path_factory.mktemp(name), configuration, platform.port)

    return start
