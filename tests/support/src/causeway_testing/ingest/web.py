"""A fake of the web for tests, in memory."""

import asyncio
from pathlib import Path

from ingest.domain import DownloadInfo, Validators
from servicekit.errors import NotFound


class MemoryWeb:
    """Pages by URL, each with its validators."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[bytes, DownloadInfo]] = {}
        self.bodies = 0
        """The number of sent bodies."""
        self.sending = asyncio.Event()
        self.sending.set()
        """Clear this event to hold all responses."""

    async def fetch(self, url: str, target: Path, known: Validators | None) -> DownloadInfo | None:
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
