"""Fetches documents from URLs. The content becomes the original of the job. All attempts of the job use it."""

import asyncio
import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec

from ingest.documents.originals import full_disk_is_unavailable
from ingest.documents.report import Report
from ingest.domain import Document, FileJob, Progress, State, Validators
from ingest.ports import Originals, Web

_Facts = dict[str, msgspec.Raw]


class Downloads:
    """Fetches the documents of jobs with URLs.

    Args:
        web: Fetches URLs.
        originals: The store of the originals.
        max_bytes: Maximum size of an original.
    """

    def __init__(self, web: Web, originals: Originals, *, max_bytes: int) -> None:
        self._web = web
        self._originals = originals
        self._max_bytes = max_bytes

    async def fetch(self, job: FileJob, existing: Document | None, report: Report) -> FileJob:
        """Return the job as if its document had been uploaded.

        The method stores the content as the job's original. If the URL's server reports no change, the document has
        the SHA-256 and the size of ``existing``, and no original is stored. A later attempt uses the content that
        an earlier attempt fetched, because the page may have changed since.

        Args:
            job: A job with a URL.
            existing: The version of the document in the index; None if the index has none.
            report: The report of the job.

        Raises:
            CausewayError: As `ports.Web.fetch`, and as `fetch`, `put` and `download_info` of `ports.Originals`.
            OwnershipLost: Another worker runs the job, or the job has ended.
        """
        await report.record_progress(Progress(fetching=True), State.PARSING)
        fetched = await self._originals.download_info(job.object_name)
        with tempfile.TemporaryDirectory(prefix="causeway-ingest-") as scratch:
            path = Path(scratch) / "original"
            if fetched is None:
                known = _validators(job, existing)
                with full_disk_is_unavailable():
                    fetched = await self._web.fetch(job.url, path, known)
                if fetched is None and existing is not None:
                    document = replace(
                        job.document,
                        sha256=existing.sha256,
                        size_bytes=existing.size_bytes,
                        metadata_json=_metadata(job, known or Validators()),
                    )
                    return replace(job, document=document)
                assert fetched is not None, "a page cannot be unchanged without validators"
                await self._originals.put(job.object_name, path, fetched)
            else:
                with full_disk_is_unavailable():
                    # The size is not known here, so the time-out is that of the largest original.
                    await self._originals.fetch(job.object_name, path, self._max_bytes)
            sha256, size = await asyncio.to_thread(_sha256_and_size, path)
        document = replace(
            job.document, sha256=sha256, size_bytes=size, metadata_json=_metadata(job, fetched.validators)
        )
        return replace(job, document=document, suffix=fetched.suffix)


def _validators(job: FileJob, existing: Document | None) -> Validators | None:
    """Return the validators of the version in the index; None if the content is needed in any case."""
    if existing is None or not existing.has_same_content_as(replace(job.document, sha256=existing.sha256)):
        return None
    try:
        facts = msgspec.json.decode(existing.metadata_json or b"{}", type=dict[str, object])
    except (ValueError, RecursionError):
        return None
    entries = [facts.get(name) for name in ("url", "etag", "last_modified")]
    url, etag, last_modified = (value if isinstance(value, str) else "" for value in entries)
    return Validators(etag, last_modified) if url == job.url and (etag or last_modified) else None


def _metadata(job: FileJob, validators: Validators) -> bytes:
    """Return the caller's metadata with the URL and its validators."""
    facts = msgspec.json.decode(job.document.metadata_json or b"{}", type=_Facts)
    entries = {"url": job.url, "etag": validators.etag, "last_modified": validators.last_modified}
    for name, value in entries.items():
        facts.pop(name, None)
        if value:
            facts[name] = msgspec.Raw(msgspec.json.encode(value))
    return msgspec.json.encode(facts)


def _sha256_and_size(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size
