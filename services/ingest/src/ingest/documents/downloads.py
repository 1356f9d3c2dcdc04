"""Documents from URLs: the fetched content becomes the original of the job, once for all attempts."""

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
    """Fetches the documents of jobs with URLs.

    Args:
        web: Fetches URLs.
        originals: The store of the originals.
    """

    def __init__(self, web: Web, originals: Originals) -> None:
        self._web = web
        self._originals = originals

    async def brought(self, job: FileJob, there: Document | None, report: Report) -> FileJob:
        """Return the job as if its document had been uploaded.

        The original is in the store or, if the URL's server reports no change, that of ``there``. A later attempt
        uses what an earlier one has fetched, because the page may have changed since.

        Args:
            job: A job with a URL.
            there: The document's version in the index.
            report: The report of the job.

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
                assert fetched is not None, "a page cannot be unchanged without validators"
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
    """Return the validators of the version in the index, if that version could stay."""
    if there is None or not there.reads_as(replace(job.document, sha256=there.sha256)):
        return None
    try:
        facts = msgspec.json.decode(there.metadata_json or b"{}", type=dict[str, object])
    except (ValueError, RecursionError):
        return None
    validators_seen = [facts.get(name) for name in ("url", "etag", "last_modified")]
    url, etag, last_modified = (each if isinstance(each, str) else "" for each in validators_seen)
    return Validators(etag, last_modified) if url == job.url and (etag or last_modified) else None


def _metadata(job: FileJob, validators: Validators) -> bytes:
    """Return the caller's metadata with the URL and its validators."""
    facts = msgspec.json.decode(job.document.metadata_json or b"{}", type=_Facts)
    validators_seen = {"url": job.url, "etag": validators.etag, "last_modified": validators.last_modified}
    for name, value in validators_seen.items():
        facts.pop(name, None)
        if value:
            facts[name] = msgspec.Raw(msgspec.json.encode(value))
    return msgspec.json.encode(facts)


def _measured(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size
