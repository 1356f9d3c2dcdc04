"""The console in a browser: a platform, pages whose errors are recorded, and scripts that replace its answers."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from causeway_testing.openid_provider import Provider

ROOT = Path(__file__).resolve().parents[4]
AXE = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
REPORT_VIOLATIONS = """
document.addEventListener('securitypolicyviolation', (event) => {
  console.error(`violation: ${event.violatedDirective} ${event.blockedURI}`)
})
"""
"""A script that reports violations of the page's content security policy."""
STREAM = """
(options) => {
  const usual = window.fetch
  const encoder = new TextEncoder()
  const line = (value) => encoder.encode(JSON.stringify(value) + '\\n')
  window.fetch = (url, init) => {
    if (!String(url).endsWith('chat/stream')) return usual(url, init)
    const body = new ReadableStream({
      async start(stream) {
        const wait = (go) => options.pace ? setTimeout(go, options.pace) : requestAnimationFrame(go)
        const data_points = { text: [], images: [], citations: options.known }
        stream.enqueue(line({ context: { data_points, thoughts: [] } }))
        for (let sent = 0; sent < options.tokens.length; sent += options.at_once) {
          await new Promise(wait)
          for (const delta of options.tokens.slice(sent, sent + options.at_once)) stream.enqueue(line({ delta }))
        }
        stream.enqueue(line({ context: { thoughts: [{ title: 'Answer', description: 'stop', props: {} }] } }))
        stream.close()
      },
    })
    return Promise.resolve(new Response(body))
  }
}
"""
"""A script that replaces the answers. It sends `at_once` tokens per animation frame, or every `pace` ms."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A running stack that accepts API keys and the provider's tokens.

    Attributes:
        url: The URL of its gateway.
        keys: API keys by role.
        provider: The provider that signs users in.
    """

    url: str
    keys: dict[str, str]
    provider: Provider

    def client(self, role: str = "admin") -> httpx.Client:
        """Open a client of the HTTP API with the key of a role."""
        return httpx.Client(base_url=self.url, headers={"api-key": self.keys[role]}, timeout=60)


@dataclass(slots=True)
class RecordedPage:
    """A page with its errors.

    Attributes:
        page: Playwright's page.
        errors: Violations of the content security policy, errors of scripts, and requests to other hosts.
        bytes: The transferred bytes by path.
    """

    page: Any
    platform: Platform
    errors: list[str] = field(default_factory=list)
    bytes: dict[str, int] = field(default_factory=dict)

    def open(self, path: str = "", key: str = "admin") -> Any:
        """Open a page of the console, signed in with the key of a role, or not signed in if `key` is empty."""
        if key:
            credential = json.dumps(self.platform.keys[key])
            self.page.add_init_script(
                f"if (location.origin === {json.dumps(self.platform.url)}) "
                f"sessionStorage.setItem('causeway.credential', {credential})"
            )
        self.page.goto(f"{self.platform.url}/{path}")
        return self.page

    def check(self) -> None:
        """Check that the page is accessible by axe's rules, in light and dark."""
        self.page.evaluate(AXE.read_text())
        for _ in ("light", "dark"):
            found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            violations = [
                f"{each['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
                for each in found["violations"]
                for node in each["nodes"][:3]
            ]
            assert not violations, "\n".join(violations)
            self.page.evaluate(
                "document.documentElement.dataset.theme = "
                "document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'"
            )


def long_answer(paragraphs: int) -> list[str]:
    """Return the tokens of an answer with lists, code, a table and citations of `a.md`."""
    paragraph = (
        "Some **words** of a paragraph that cites a source [a.md], and `code`.\n\n- an item\n- another [a.md]\n\n"
    )
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n\ny = 2\n```\n\n"
    text = "".join(paragraph + (table if number % 5 == 0 else "") for number in range(paragraphs))
    return [text[start : start + 4] for start in range(0, len(text), 4)]
