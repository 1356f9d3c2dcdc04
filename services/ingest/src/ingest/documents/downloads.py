"""Documents that are to be fetched: the URL's content becomes the job's original, once and for all attempts."""

import asyncio
import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec

from ingest.documents.originals import room
from ingest.documents.report import Report
from ingest.domain import Document, FileJob, Progress, State, Validators
from ingest.ports import Originals, Web

_Facts = dict[str, msgspec.Raw]


class Downloads:
    """Fetches what jobs name by URLs.

    Args:
        web: What is behind URLs.
        originals: Where it goes.
    """

    def __init__(self, web: Web, originals: Originals) -> None:
        self._web = web
        self._originals = originals

    async def brought(self, job: FileJob, there: Document | None, report: Report) -> FileJob:
        """The job as if its document had been uploaded: with the original in its place, or as ``there`` has it,
        where the URL's server says that it is the same still.

        What one attempt has fetched the next one finds: the page may be another by then.

        Args:
            job: With a URL.
            there: The document as the index has it.
            report: Told of it.

        Raises:
            CausewayError: As `ports.Web.fetch` and `ports.Originals.put`.
        """
        await report.progress(Progress(fetching=True), State.PARSING)
        fetched = await self._originals.fetched(job.object_name)
        with tempfile.TemporaryDirectory(prefix="causeway-ingest-") as scratch:
            path = Path(scratch) / "original"
            if fetched is None:
                known = _validators(job, there)
                with room():
                    fetched = await self._web.fetch(job.url, path, known)
                if fetched is None and there is not None:
                    document = replace(
                        job.document,
                        sha256=there.sha256,
                        size_bytes=there.size_bytes,
                        metadata_json=_metadata(job, known or Validators()),
                    )
                    return replace(job, document=document)
                assert fetched is not None, "nobody says that a page is the same who was not asked"
                await self._originals.put(job.object_name, path, fetched)
            else:
                with room():
                    await self._originals.fetch(job.object_name, path, 0)
            sha256, size = await asyncio.to_thread(_measured, path)
        document = replace(
            job.document, sha256=sha256, size_bytes=size, metadata_json=_metadata(job, fetched.validators)
        )
        return replace(job, document=document, suffix=fetched.suffix)


def _validators(job: FileJob, there: Document | None) -> Validators | None:
    """Those of the version that is there, where it could stay."""
    if there is None or not there.reads_as(replace(job.document, sha256=there.sha256)):
        return None
    try:
        facts = msgspec.json.decode(there.metadata_json or b"{}", type=dict[str, object])
    except (ValueError, RecursionError):
        return None
    said = [facts.get(name) for name in ("url", "etag", "last_modified")]
    url, etag, last_modified = (each if isinstance(each, str) else "" for each in said)
    return Validators(etag, last_modified) if url == job.url and (etag or last_modified) else None


def _metadata(job: FileJob, validators: Validators) -> bytes:
    """The caller's metadata with the URL, and what tells whether it has changed."""
    facts = msgspec.json.decode(job.document.metadata_json or b"{}", type=_Facts)
    said = {"url": job.url, "etag": validators.etag, "last_modified": validators.last_modified}
    for name, value in said.items():
        facts.pop(name, None)
        if value:
            facts[name] = msgspec.Raw(msgspec.json.encode(value))
    return msgspec.json.encode(facts)


def _measured(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size
