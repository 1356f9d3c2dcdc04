"""Reads and changes the platform's indexes, documents, jobs, dead letters, responses and data of users."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from causeway.cli.answers import Job, StoredDocument
from causeway.cli.client import Client
from causeway.cli.errors import CommandError, RequestRefused
from causeway.cli.options import resolve_url
from servicekit import keys

R = TypeVar("R", Job, StoredDocument)
T = TypeVar("T")

_PAGE_SIZE = 1000
_DELETE_BATCH_SIZE = 100
_PASSAGES_PAGE_SIZE = 100
_RESPONSES_PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class Replayed:
    """The ids of the jobs that were submitted again, and the given ids that have no dead letter."""

    replayed: tuple[str, ...]
    not_found: tuple[str, ...]


def run_with_library(
    url: str | None, data_dir: Path, api_key: str, function: Callable[["Library"], Awaitable[T]]
) -> T:
    """Call a function with the library of the selected platform; return its result.

    Raises:
        CommandError: See `Client`.
    """

    async def run() -> T:
        async with Client(resolve_url(url, data_dir), api_key=api_key) as client:
            return await function(Library(client))

    return asyncio.run(run())


class Library:
    """The indexes, documents, jobs and responses of a platform. The methods raise the errors of `Client`.

    Args:
        client: The platform's client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def documents(self, index: str) -> list[StoredDocument]:
        """Return all documents of an index; an empty list if the index does not exist."""
        try:
            return [
                _read(StoredDocument, document)
                async for document in self._items("/documents", "documents", index=index)
            ]
        except RequestRefused as error:
            if error.status == 404:
                return []
            raise

    async def stored_documents(self, index: str, limit: int) -> list[dict[str, Any]]:
        """Return documents of an index in the platform's format, ordered by id."""
        return await _take(limit, self._items("/documents", "documents", min(limit, _PAGE_SIZE), index=index))

    async def find_document(self, index: str, name: str) -> dict[str, Any] | None:
        """Return the document with a name or an id; None if the index does not contain it."""
        async for document in self._items("/documents", "documents", index=index):
            if (
                name in (document["sourcefile"], document["document_id"])
                or keys.file_name(name) == document["sourcefile"]
            ):
                return dict(document)
        return None

    async def passages(self, index: str, document_id: str, limit: int) -> tuple[list[dict[str, Any]], int]:
        """Return the first passages of a document, and the number of all its passages."""
        found: list[dict[str, Any]] = []
        while True:
            query = {"offset": len(found), "limit": min(_PASSAGES_PAGE_SIZE, limit - len(found))}
            page = await self._client.call("GET", f"{_document(index, document_id)}/passages", query=query)
            found += page["passages"]
            if not page["passages"] or len(found) >= limit:
                return found, int(page["total"])

    async def change_access(self, index: str, document_id: str, oids: list[str], groups: list[str]) -> Job:
        """Replace the access list of a document; return the job."""
        body = {"oids": oids, "groups": groups}
        return _read(Job, await self._client.call("PUT", f"{_document(index, document_id)}/access", body=body))

    async def remove(self, index: str, document_ids: Sequence[str]) -> None:
        """Delete documents; ignore documents that do not exist."""
        for start in range(0, len(document_ids), _DELETE_BATCH_SIZE):
            batch = list(document_ids[start : start + _DELETE_BATCH_SIZE])
            await self._client.call("POST", f"{_index(index)}/documents/delete", body={"doc_ids": batch})

    async def indexes(self) -> list[dict[str, Any]]:
        """Return the indexes in the platform's format, ordered by name."""
        found = await self._client.call("GET", "/indexes", query={"details": "true"})
        return [dict(index) for index in found]

    async def index(self, name: str) -> dict[str, Any]:
        """Return an index in the platform's format."""
        return dict(await self._client.call("GET", _index(name)))

    async def create_index(self, name: str, settings: Mapping[str, object]) -> dict[str, Any]:
        """Create an index; return its settings."""
        return dict(await self._client.call("POST", "/indexes", body={"index_name": name, **settings}))

    async def update_index(self, name: str, changes: Mapping[str, object]) -> dict[str, Any]:
        """Change settings of an index; None selects the platform's value. Return all settings."""
        return dict(await self._client.call("PATCH", _index(name), body=dict(changes)))

    async def delete_index(self, name: str) -> None:
        """Delete an index with all its contents."""
        await self._client.call("DELETE", _index(name))

    async def delete_user(self, name: str, issuer: str) -> dict[str, int]:
        """Delete the stored data of a user; return the number of deleted records of each kind."""
        query = {"issuer": issuer} if issuer else {}
        found = await self._client.call("DELETE", f"/users/{quote(name, safe='')}", query=query)
        return dict(found["deleted"])

    async def responses(self, limit: int) -> list[dict[str, Any]]:
        """Return the responses of all users, the newest first."""
        return await _take(limit, self._items("/responses", "responses", min(limit, _RESPONSES_PAGE_SIZE)))

    async def response(self, response_id: str) -> dict[str, Any]:
        """Return the state of a response."""
        return dict(await self._client.call("GET", _response(response_id)))

    async def cancel_response(self, response_id: str) -> dict[str, Any]:
        """Cancel a background response; return its state."""
        return dict(await self._client.call("POST", f"{_response(response_id)}/cancel"))

    async def delete_response(self, response_id: str) -> None:
        """Delete a response with its events."""
        await self._client.call("DELETE", _response(response_id))

    async def rebuild(self, name: str, settings: Mapping[str, object]) -> dict[str, Any]:
        """Start to rebuild an index; return its progress."""
        return dict(await self._client.call("POST", f"{_index(name)}/rebuild", body=dict(settings)))

    async def last_rebuild(self, name: str) -> dict[str, Any] | None:
        """Return the running or last rebuild; None if no rebuild exists or the caller may not see it."""
        try:
            return dict(await self._client.call("GET", f"{_index(name)}/rebuild"))
        except RequestRefused as error:
            if error.status in (403, 404):
                return None
            raise

    async def job(self, job_id: str) -> Job:
        """Return the state of a job."""
        return _read(Job, await self._client.call("GET", f"/jobs/{quote(job_id, safe='')}"))

    async def jobs(self, index: str, state: str, limit: int) -> list[dict[str, Any]]:
        """Return jobs in the platform's format, most recently changed first."""
        filters = {name: value for name, value in (("index", index), ("state", state)) if value}
        return await _take(limit, self._items("/jobs", "jobs", limit, **filters))

    async def lanes(self) -> list[dict[str, Any]]:
        """Return the lanes of the queue, each with its numbers of jobs and places."""
        return list((await self._client.call("GET", "/jobs/lanes"))["lanes"])

    async def dead(self, limit: int) -> list[dict[str, Any]]:
        """Return dead letters in the platform's format, the newest first."""
        return await _take(limit, self._items("/jobs/dead", "jobs", limit))

    async def cancel(self, job_id: str) -> Job:
        """Cancel a job; return its state."""
        return _read(Job, await self._client.call("POST", f"/jobs/{quote(job_id, safe='')}/cancel"))

    async def replay(self, job_ids: Sequence[str] | None) -> Replayed:
        """Submit the jobs with these ids again; None: all jobs with a dead letter."""
        body = {"all": True} if job_ids is None else {"job_ids": list(job_ids)}
        found = await self._client.call("POST", "/jobs/dead/replay", body=body)
        return Replayed(tuple(found["replayed"]), tuple(found["not_found"]))

    async def _items(self, path: str, name: str, page_size: int = _PAGE_SIZE, **query: str) -> AsyncIterator[Any]:
        token = ""
        while True:
            paging = {"page_token": token} if token else {}
            page = await self._client.call(
                "GET", path, query={**query, **paging, "limit": min(page_size, _PAGE_SIZE)}
            )
            for item in page[name]:
                yield item
            token = page["next_page_token"]
            if not token:
                return


def _index(name: str) -> str:
    return f"/indexes/{quote(name, safe='')}"


def _document(index: str, document_id: str) -> str:
    return f"{_index(index)}/documents/{quote(document_id, safe='')}"


def _response(response_id: str) -> str:
    return f"/responses/{quote(response_id, safe='')}"


async def _take(limit: int, items: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    taken: list[dict[str, Any]] = []
    async for item in items:
        taken.append(item)
        if len(taken) == limit:
            break
    return taken


def _read(kind: type[R], body: Any) -> R:
    try:
        return kind.of(body)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CommandError(f"the platform's response is invalid: {str(body)[:200]!r}") from error
