"""The web in memory for tests."""

import asyncio
from pathlib import Path

from ingest.domain import Fetched, Validators
from servicekit.errors import NotFound


class MemoryWeb:
    """Pages by URL with validators."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[bytes, Fetched]] = {}
        self.bodies = 0
        """How many bodies were sent."""
        self.sending = asyncio.Event()
        self.sending.set()
        """Cleared, nobody gets an answer."""

    async def fetch(self, url: str, target: Path, known: Validators | None) -> Fetched | None:
        """See `ingest.ports.Web.fetch`."""
        await self.sending.wait()
        if url not in self.pages:
            raise NotFound("There is no document at the URL.")
        content, fetched = self.pages[url]
        if known is not None and known == fetched.validators:
            return None
        self.bodies += 1
        await asyncio.to_thread(target.write_bytes, content)
        return fetched
