"""The catalogue: reading, listing and deleting documents and indexes."""

import base64
import binascii
from collections.abc import Mapping, Sequence

import msgspec
from servicekit import keys
from servicekit.errors import InvalidRequest, NotFound, PermissionDenied
from servicekit.principal import Principal

from retriever.concurrency.retry import retry_when_replaced
from retriever.domain.access import may_see
from retriever.domain.changes import Deleted
from retriever.domain.document import Document
from retriever.domain.filter import METADATA_PREFIX, Filter, MatchAny
from retriever.domain.index import IndexSpec, IndexSummary
from retriever.domain.listing import DocumentPage, DocumentText, ListedChunk, PageRequest, TextRange
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index

MAX_PAGE_SIZE = 1000
DEFAULT_PAGE_SIZE = 100
MAX_TEXT_LENGTH = 1_000_000  # code points in one response
MAX_CHUNKS = 100
DEFAULT_CHUNKS = 50
_MAX_PAGE_BYTES = 4 * 1024 * 1024  # metadata of one page; keeps a response below 16 MiB
_TEXT_CHUNKS = 64  # maximum number of chunks in one read
_EXPECTED_CHUNK_LENGTH = 500  # expected code points of a chunk; determines how many chunks to read first


class Catalogue:
    """The documents of the indexes. Each method is limited to documents that the caller may see."""

    def __init__(self, indexes: Indexes) -> None:
        self._indexes = indexes

    @retry_when_replaced
    async def find(self, principal: Principal, index_name: str, document_id: str) -> Document | None:
        """Return one record, or None if it does not exist or the caller may not see it.

        Raises:
            NotFound: The index does not exist.
        """
        return await _visible_record(await self._indexes.get(principal.tenant, index_name), principal, document_id)

    @retry_when_replaced
    async def document(self, principal: Principal, index_name: str, document_id: str) -> Document:
        """Return one record.

        Raises:
            NotFound: The index or the document does not exist, or the caller may not see it.
        """
        _, document = await self._read(principal, index_name, document_id)
        return document

    async def _read(self, principal: Principal, index_name: str, document_id: str) -> tuple[Index, Document]:
        """Return an index and one of its records, without retrying."""
        index = await self._indexes.get(principal.tenant, index_name)
        found = await _visible_record(index, principal, document_id)
        if found is None:
            raise NotFound(f"Index '{index_name}' has no document '{document_id}'.", resource=document_id)
        return index, found

    @retry_when_replaced
    async def document_with_text(
        self, principal: Principal, index_name: str, document_id: str, part: TextRange
    ) -> tuple[Document, DocumentText]:
        """Return one record and a part of its text.

        Raises:
            NotFound: The index or the document does not exist, or the caller may not see it.
            InvalidRequest: The part is too long.
        """
        if part.length > MAX_TEXT_LENGTH:
            raise InvalidRequest(f"At most {MAX_TEXT_LENGTH} characters can be read at once.", field="text_length")
        index, found = await self._read(principal, index_name, document_id)
        return found, await text_of(index, found, part)

    @retry_when_replaced
    async def documents(
        self, principal: Principal, index_name: str, filter_: Filter, request: PageRequest
    ) -> DocumentPage:
        """Return a page of records, ordered by document id.

        A condition on ``page`` matches no record, because only chunks have this field. The page is shorter than
        requested if the metadata are too large for one response.

        Raises:
            NotFound: The index does not exist.
            InvalidRequest: The page size, the text length, the token or the offset is invalid.
        """
        size = _check(request)
        after = _from_token(request.token)
        index = await self._indexes.get(principal.tenant, index_name)
        ids = sorted(await index.collection.document_ids(index.scope(principal, filter_)))
        remaining = ids[request.offset or 0 :] if after is None else [id_ for id_ in ids if id_ > after]
        records = await index.collection.records(remaining[:size])
        page = _fitting(remaining[:size], records)
        found = tuple(records[id_] for id_ in page if id_ in records)
        length = request.text_length
        return DocumentPage(
            found,
            _to_token(page[-1]) if len(remaining) > len(page) else "",
            len(ids),
            ()
            if length is None
            else tuple([await text_of(index, document, TextRange(length)) for document in found]),
        )

    @retry_when_replaced
    async def chunks(
        self, principal: Principal, index_name: str, document_id: str, first: int, count: int
    ) -> tuple[Document, tuple[ListedChunk, ...]]:
        """Return one record and its chunks from number ``first`` on, in order. A count of 0 means the default.

        Raises:
            NotFound: The index or the document does not exist, or the caller may not see it.
            InvalidRequest: The count is too high.
        """
        if count > MAX_CHUNKS:
            raise InvalidRequest(f"A page has 1 to {MAX_CHUNKS} chunks.", field="page_size")
        index, found = await self._read(principal, index_name, document_id)
        stored = await index.collection.chunks_of(found.version, first, count or DEFAULT_CHUNKS)
        return found, tuple(
            ListedChunk(chunk.id, chunk.number, chunk.page, chunk.headings, chunk.text, found.citation(chunk.page))
            for chunk in stored
        )

    async def delete_documents(self, principal: Principal, index_name: str, document_ids: Sequence[str]) -> Deleted:
        """Delete documents, including the documents of embedded files, for example of e-mail attachments.

        Documents of embedded files are deleted first. The deletion is durable when this method returns.

        Raises:
            NotFound: The index does not exist.
            InvalidRequest: ``document_ids`` is empty.
        """
        if not document_ids:
            raise InvalidRequest("Name at least one document.", field="document_ids")
        deleted, not_found = [], []
        members = await self._members(principal, index_name, document_ids)
        for document_id in dict.fromkeys([*members, *document_ids]):
            index, document = await self._delete_document(principal, index_name, document_id)
            if document is not None:
                deleted.append(document)
            elif document_id in document_ids:
                not_found.append(document_id)
        await index.collection.sync()
        return Deleted(tuple(deleted), tuple(not_found))

    @retry_when_replaced
    async def _members(self, principal: Principal, index_name: str, document_ids: Sequence[str]) -> list[str]:
        return await _members(await self._indexes.get(principal.tenant, index_name), principal, document_ids)

    @retry_when_replaced
    async def _delete_document(
        self, principal: Principal, index_name: str, document_id: str
    ) -> tuple[Index, Document | None]:
        """Delete one document. Return its index, and its record unless the document was not found."""
        async with self._indexes.changing(principal.tenant, index_name, document_id) as index:
            document = await _visible_record(index, principal, document_id)
            if document is not None:
                async with index.lock.shared():
                    await self._indexes.shield.run(_delete(index, document))
            return index, document

    async def index(self, principal: Principal, index_name: str) -> IndexSpec:
        """Return the specification of an index, without reading its content.

        Raises:
            NotFound: The index does not exist.
        """
        return (await self._indexes.get(principal.tenant, index_name)).spec

    @retry_when_replaced
    async def summary(self, principal: Principal, index_name: str) -> IndexSummary:
        """Return an index with the numbers of documents and chunks that the caller may see.

        Raises:
            NotFound: The index does not exist.
        """
        return await _summary(await self._indexes.get(principal.tenant, index_name), principal)

    @retry_when_replaced
    async def indexes(self, principal: Principal) -> list[IndexSummary]:
        """Return the tenant's indexes, ordered by name, with the numbers of documents and chunks in scope.

        A document is in scope if the caller may see it.
        """
        return [await _summary(index, principal) for index in await self._indexes.of_tenant(principal.tenant)]

    async def compact(self, principal: Principal, index_name: str) -> None:
        """Compact an index: reclaim the space of removed points. The index remains available.

        Raises:
            NotFound: The index does not exist.
            PermissionDenied: The caller is not an administrator.
            Unavailable: The compaction failed; nothing changed.
            RateLimited: Too many compactions wait.
        """
        index = await self._indexes.get(principal.tenant, index_name)
        if not principal.sees_everything:
            raise PermissionDenied("Only administrators can compact an index.", resource=index_name)
        await index.collection.compact()

    async def delete_index(self, principal: Principal, index_name: str) -> None:
        """Delete an index with all its documents.

        Raises:
            NotFound: The index does not exist.
            PermissionDenied: The index has documents that the caller may not see.
        """
        await (await self._indexes.get(principal.tenant, index_name)).check_sees_all(principal)
        await self._indexes.delete(principal.tenant, index_name)


async def text_of(index: Index, document: Document, part: TextRange) -> DocumentText:
    """Return a part of a document's text, joined from its chunks."""
    text = ""
    skipped = number = 0  # code points that were skipped before the part; chunks that were read
    has_begun = is_complete = False
    while number < document.chunk_count and len(text) <= part.length and not is_complete:
        missing = part.length - len(text) + part.offset - skipped
        count = min(missing // _EXPECTED_CHUNK_LENGTH + 1, _TEXT_CHUNKS)
        chunks = await index.collection.chunks_of(document.version, number, count)
        if not chunks:
            break  # removed meanwhile
        number += count
        for chunk in chunks:
            if part.has_page(chunk.page):
                added = chunk.continuation if has_begun or not part.first_page else chunk.text
                has_begun = True
                to_skip = min(len(added), part.offset - skipped)
                skipped += to_skip
                text += added[to_skip:]
        # Chunks are ordered by page.
        is_complete = bool(part.last_page) and chunks[-1].page > part.last_page
    has_more = number < document.chunk_count and not is_complete
    return DocumentText(text[: part.length], is_truncated=len(text) > part.length or has_more)


async def _summary(index: Index, principal: Principal) -> IndexSummary:
    scope = index.scope(principal)
    return IndexSummary(
        index.spec, await index.collection.count_documents(scope), await index.collection.count_chunks(scope)
    )


async def _members(index: Index, principal: Principal, document_ids: Sequence[str]) -> list[str]:
    """Return the ids of the documents of files embedded in these documents, at any depth, innermost first."""
    found: list[str] = []
    outer: Sequence[str] = [id_ for id_ in document_ids if await _visible_record(index, principal, id_) is not None]
    while outer:
        is_member = MatchAny(f"{METADATA_PREFIX}{keys.PART_OF_ID}", tuple(outer))
        ids = await index.collection.document_ids(index.scope(principal, Filter(must=(is_member,))))
        records = await index.collection.records([id_ for id_ in ids if id_ not in document_ids])
        outer = [id_ for id_, record in records.items() if _is_member(record) and id_ not in found]
        found += outer
    return found[::-1]


def _is_member(document: Document) -> bool:
    """Return whether a document is an embedded file of another document.

    The metadata alone do not prove this, because they may be wrong. So the id that follows from the metadata must
    be the document's id.
    """
    facts = msgspec.json.decode(document.metadata_json or b"{}", type=dict[str, object])
    name = document.sourcefile.removeprefix(f"{facts.get(keys.PART_OF)}/")
    return document.document_id == keys.member_id(str(facts.get(keys.PART_OF_ID)), name)


async def _visible_record(index: Index, principal: Principal, document_id: str) -> Document | None:
    found = (await index.collection.records([document_id])).get(document_id)
    return found if found is not None and may_see(principal, found.access) else None


async def _delete(index: Index, document: Document) -> None:
    await index.collection.mark(document.document_id)
    try:
        await index.collection.remove_record(document.document_id)
    finally:
        await index.settle(document.document_id)


def _check(request: PageRequest) -> int:
    size = request.size or DEFAULT_PAGE_SIZE
    if size > MAX_PAGE_SIZE:
        raise InvalidRequest(f"A page has 1 to {MAX_PAGE_SIZE} documents.", field="page_size")
    if request.token and request.offset is not None:
        raise InvalidRequest("Send a page token or an offset, not both.", field="offset")
    if size * (request.text_length or 0) > MAX_TEXT_LENGTH:
        raise InvalidRequest(
            f"A page has at most {MAX_TEXT_LENGTH} characters of text; {size} documents of {request.text_length} "
            "characters are more.",
            field="text_length",
        )
    return size


def _fitting(ids: Sequence[str], records: Mapping[str, Document]) -> Sequence[str]:
    """Return the ids whose records fit in one response, at least the first id."""
    size = 0
    for position, id_ in enumerate(ids):
        size += len(records[id_].metadata_json) if id_ in records else 0
        if position and size > _MAX_PAGE_BYTES:
            return ids[:position]
    return ids


def _to_token(document_id: str) -> str:
    return base64.urlsafe_b64encode(document_id.encode()).decode()


def _from_token(token: str) -> str | None:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode() if token else None
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(
            "The page token is invalid. Send the token that a listing returned.", field="page_token"
        ) from error
