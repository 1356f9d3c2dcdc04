"""A platform with its console in Chromium. Every test fails if the page reports an error or loads other hosts'
files.
"""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from causeway.cli import key_store
from causeway_testing.console import REPORT_VIOLATIONS, Platform, RecordedPage
from causeway_testing.openid_provider import run_provider
from causeway_testing.stack import run_stack
from playwright.sync_api import Browser, sync_playwright
from servicekit import api_keys

START_SECONDS = 120.0


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Start a stack with an empty index `handbook`."""
    data = tmp_path_factory.mktemp("stack")
    with (
        run_provider() as provider,
        run_stack(data, {"CAUSEWAY_AUTH": "keys,oidc", **provider.settings}) as running_stack,
    ):
        roles = {"admin": ("admin",), "ingest": ("ask", "ingest"), "ask": ("ask",)}
        keys = {name: api_keys.create(name, "local", user=name, roles=each) for name, each in roles.items()}

        async def add() -> None:
            async with key_store.opened(running_stack["nats_url"], 1) as store:
                for _, record in keys.values():
                    await store.add(record)

        asyncio.run(add())
        running = Platform(running_stack["url"], {name: key for name, (key, _) in keys.items()}, provider)
        end = time.monotonic() + START_SECONDS
        for role in roles:
            with running.client(role) as http:
                while http.get("/me").status_code != 200:
                    assert time.monotonic() < end, "the gateway does not accept the key"
                    time.sleep(0.02)
        yield running


@pytest.fixture(scope="session")
def browser(platform: Platform) -> Iterator[Browser]:
    """Start the installed Chromium. It starts after the platform, because Playwright keeps an event loop
    running.
    """
    program = shutil.which("chromium")
    assert program, "chromium is not installed: run `apt-get install chromium`"
    with sync_playwright() as playwright:
        # Chromium's own sandbox does not work as root in a container.
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Browser, platform: Platform) -> Iterator[Callable[..., RecordedPage]]:
    """Return a function that opens a page of a given size. Fail at the end of the test if a page had an error."""
    with contextlib.ExitStack() as contexts:
        opened: list[RecordedPage] = []

        def new(width: int = 1280, height: int = 800) -> RecordedPage:
            context = contexts.enter_context(browser.new_context(viewport={"width": width, "height": height}))
            context.set_default_timeout(20_000)
            page = context.new_page()
            recorded = RecordedPage(page, platform)
            provider = platform.provider
            ours = {urlsplit(each).netloc for each in (platform.url, provider.url, provider.tokens_url)}
            page.add_init_script(REPORT_VIOLATIONS)
            page.on("pageerror", lambda error: recorded.errors.append(f"error: {error}"))

            def check_message(message: Any) -> None:
                # Chromium logs every error response of a server. The page shows these errors itself.
                if message.type == "error" and "Failed to load resource" not in message.text:
                    recorded.errors.append(message.text)

            def check_host(request: Any) -> None:
                if urlsplit(request.url).scheme in ("http", "https") and urlsplit(request.url).netloc not in ours:
                    recorded.errors.append(f"request to {request.url}")

            def record_size(request: Any) -> None:
                sizes = request.sizes()
                recorded.bytes[urlsplit(request.url).path] = (
                    sizes["responseBodySize"] + sizes["responseHeadersSize"]
                )

            page.on("console", check_message)
            page.on("request", check_host)
            page.on("requestfinished", record_size)
            opened.append(recorded)
            return recorded

        yield new
        assert [each.errors for each in opened if each.errors] == []
