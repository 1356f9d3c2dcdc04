"""The console in a browser: the platform behind it, and pages that are watched."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from causeway_testing.openid_provider import Provider

ROOT = Path(__file__).resolve().parents[4]
AXE = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
WATCH = """
document.addEventListener('securitypolicyviolation', (event) => {
  console.error(`violation: ${event.violatedDirective} ${event.blockedURI}`)
})
"""
"""A script that tells violations of the page's policy."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A running stack that takes API keys and the provider's tokens.

    Attributes:
        url: Where its gateway listens.
        keys: API keys, by the role that each has.
        provider: Signs users in.
    """

    url: str
    keys: dict[str, str]
    provider: Provider

    def client(self, role: str = "admin") -> httpx.Client:
        """A client of the HTTP API with the key of a role."""
        return httpx.Client(base_url=self.url, headers={"api-key": self.keys[role]}, timeout=60)


@dataclass(slots=True)
class Watched:
    """A page, and what it did that it should not.

    Attributes:
        page: Playwright's.
        wrong: Violations of its policy, errors of its scripts, requests to elsewhere.
        bytes: What was transferred for it, by the path.
    """

    page: Any
    platform: Platform
    wrong: list[str] = field(default_factory=list)
    bytes: dict[str, int] = field(default_factory=dict)

    def open(self, place: str = "", key: str = "admin") -> Any:
        """Open a place of the console, signed in with the key of a role; empty: not signed in."""
        if key:
            kept = json.dumps(self.platform.keys[key])
            self.page.add_init_script(
                f"if (location.origin === {json.dumps(self.platform.url)}) "
                f"sessionStorage.setItem('causeway.credential', {kept})"
            )
        self.page.goto(f"{self.platform.url}/{place}")
        return self.page

    def check(self) -> None:
        """The page is accessible, by the rules of axe, in light and dark."""
        for _ in ("light", "dark"):
            self.page.evaluate(AXE.read_text())
            found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            told = [
                f"{each['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
                for each in found["violations"]
                for node in each["nodes"][:3]
            ]
            assert not told, "\n".join(told)
            self.page.evaluate(
                "document.documentElement.dataset.theme = "
                "document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'"
            )
