"""What the indexes hold: reading, listing and removing documents and indexes."""

import base64
import binascii
from collections.abc import Sequence

from servicekit.errors import InvalidRequest, NotFound, PermissionDenied
from servicekit.principal import Principal

from retriever.access import may_see
from retriever.domain import Deleted, Document, DocumentPage, Filter, IndexSummary
from retriever.indexes import Index, Indexes
from retriever.store.port import EVERYTHING

MAX_PAGE_SIZE = 1000
DEFAULT_PAGE_SIZE = 100


class Catalogue:
    """The documents of the indexes, as far as the asker may see them."""

    def __init__(self, indexes: Indexes) -> None:
        self._indexes = indexes

    async def document(self, principal: Principal, index_name: str, document_id: str) -> Document:
        """One record.

        Raises:
            NotFound: There is no such index or document, or not for the asker.
        """
        index = self._indexes.get(principal.tenant, index_name)
        found = await _visible(index, principal, document_id)
        if found is None:
            raise NotFound(
                f"No such document: '{document_id}' exists in index '{index_name}'.", resource=document_id
            )
        return found

    async def documents(
        self, principal: Principal, index_name: str, filter_: Filter, page_size: int, page_token: str
    ) -> DocumentPage:
        """A page of records, ordered by document id. A condition on ``page``, a chunk's field, holds for none.

        Raises:
            NotFound: There is no such index.
            InvalidRequest: The page's size or token is none.
        """
        if page_size > MAX_PAGE_SIZE:
            raise InvalidRequest(f"A page has 1 to {MAX_PAGE_SIZE} documents.", field="page_size")
        size = page_size or DEFAULT_PAGE_SIZE
        after = _from_token(page_token)
        index = self._indexes.get(principal.tenant, index_name)
        ids = sorted(await index.collection.document_ids(index.scope(principal, filter_)))
        rest = ids if after is None else [each for each in ids if each > after]
        page = rest[:size]
        records = await index.collection.records(page)
        return DocumentPage(
            tuple(records[each] for each in page if each in records),
            _to_token(page[-1]) if len(rest) > size else "",
            len(ids),
        )

    async def delete_documents(self, principal: Principal, index_name: str, document_ids: Sequence[str]) -> Deleted:
        """Removes documents; none of them is found once this has returned, nor after a restart.

        Raises:
            NotFound: There is no such index.
            InvalidRequest: No document is named.
        """
        if not document_ids:
            raise InvalidRequest("No document is named.", field="document_ids")
        index = self._indexes.get(principal.tenant, index_name)
        deleted, not_found = [], []
        for document_id in dict.fromkeys(document_ids):
            async with index.lock(document_id):
                document = await _visible(index, principal, document_id)
                if document is None:
                    not_found.append(document_id)
                else:
                    await self._indexes.finisher.finish(_delete(index, document))
                    deleted.append(document)
        await index.collection.sync()
        return Deleted(tuple(deleted), tuple(not_found))

    async def indexes(self, principal: Principal) -> list[IndexSummary]:
        """The tenant's indexes, ordered by name, each with the numbers of what the asker may see."""
        return [
            IndexSummary(
                index.spec,
                await index.collection.count_documents(index.scope(principal)),
                await index.collection.count_chunks(index.scope(principal)),
            )
            for index in self._indexes.of(principal.tenant)
        ]

    async def delete_index(self, principal: Principal, index_name: str) -> None:
        """Removes an index with everything in it.

        Raises:
            NotFound: There is no such index.
            PermissionDenied: It holds documents that the asker may not see.
        """
        index = self._indexes.get(principal.tenant, index_name)
        all_documents = await index.collection.count_documents(EVERYTHING)
        if await index.collection.count_documents(index.scope(principal)) < all_documents:
            raise PermissionDenied(
                f"Index '{index_name}' holds documents that are not open to you.", resource=index_name
            )
        await self._indexes.delete(principal.tenant, index_name)


async def _visible(index: Index, principal: Principal, document_id: str) -> Document | None:
    found = (await index.collection.records([document_id])).get(document_id)
    return found if found is not None and may_see(principal, found.access) else None


async def _delete(index: Index, document: Document) -> None:
    await index.collection.mark(document.document_id)
    await index.collection.remove_record(document.document_id)
    index.hide(document.version)
    await index.settle(document.document_id)


def _to_token(document_id: str) -> str:
    return base64.urlsafe_b64encode(document_id.encode()).decode()


def _from_token(token: str) -> str | None:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode() if token else None
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest("Not a token that a listing gave.", field="page_token") from error
