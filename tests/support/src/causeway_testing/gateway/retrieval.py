"""The fake retriever with its documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.domain import Passage, Retrieval, SearchResults
from gateway.domain.documents import (
    PassagePage,
    ReadDocument,
    Removal,
    StoredDocument,
    StoredPage,
    StoredPassage,
    TextRange,
)
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, NotFound
from servicekit.principal import Principal


@dataclass(frozen=True, slots=True)
class FakeDocument:
    """A document of the fake retriever."""

    stored: StoredDocument
    oids: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)

    def visible_to(self, principal: Principal) -> bool:
        """Return whether the principal may see the document."""
        return principal.sees_everything or not self.oids or not set(self.oids).isdisjoint(principal.oids)

    def fields(self) -> dict[str, str]:
        """Return the fields for conditions."""
        return {
            "document_id": self.stored.document_id,
            "sourcefile": self.stored.sourcefile,
            **{f"metadata.{name}": value for name, value in self.metadata.items()},
        }


@dataclass(slots=True)
class FakeRetriever:
    """A retriever in memory. A search orders the passages by the number of words that they share with the query.

    Attributes:
        indexes: The passages of each index.
        queries: The queries of all searches.
        documents: The documents of each index.
        not_reranked: If not empty, the reranker fails, and searches with it report this reason.
    """

    indexes: dict[str, list[Passage]] = field(default_factory=dict)
    queries: list[str] = field(default_factory=list)
    documents: dict[str, list[FakeDocument]] = field(default_factory=dict)
    not_reranked: str = ""

    async def find(
        self, principal: Principal, index: str, values: Mapping[str, Sequence[str]], deadline: Deadline
    ) -> tuple[StoredDocument, ...]:
        """See `ports.documents.Catalogue`."""
        if index not in self.indexes:
            raise NotFound(f"No such index: '{index}' exists.", field="index", resource=index)
        return tuple(
            each.stored
            for each in sorted(self.documents.get(index, ()), key=lambda each: each.stored.document_id)
            if each.visible_to(principal)
            and all(each.fields().get(field) in accepted for field, accepted in values.items())
        )

    async def remove(
        self, principal: Principal, index: str, document_ids: Sequence[str], deadline: Deadline
    ) -> Removal:
        """See `ports.documents.Catalogue`."""
        if index not in self.indexes:
            raise NotFound(f"No such index: '{index}' exists.", field="index", resource=index)
        existing = {passage.document_id for passage in self.indexes[index]}
        existing |= {each.stored.document_id for each in self.documents.get(index, ())}
        with_pictures = {each.document_id for each in self.indexes[index] if each.has_pictures}
        requested = dict.fromkeys(document_ids)
        removed = [each.stored for each in self.documents.get(index, ()) if each.stored.document_id in requested]
        self.documents[index] = [
            each for each in self.documents.get(index, ()) if each.stored.document_id not in requested
        ]
        self.indexes[index] = [each for each in self.indexes[index] if each.document_id not in requested]
        return Removal(
            tuple(each for each in requested if each in existing),
            tuple(each for each in requested if each not in existing),
            tuple(each for each in requested if each in with_pictures),
            tuple(each.original for each in removed if each.original),
        )

    async def read(
        self, principal: Principal, index: str, document_id: str, part: TextRange, deadline: Deadline
    ) -> ReadDocument:
        """See `ports.documents.Catalogue`. The text consists of the document's passages."""
        stored, passages = self._document(principal, index, document_id)
        text = "\n\n".join(
            each.text
            for each in passages
            if part.first_page <= each.page and (not part.last_page or each.page <= part.last_page)
        )
        end = part.offset + part.length
        pages = max((each.page for each in passages), default=0)
        metadata = passages[0].metadata_json if passages else b"{}"
        category = passages[0].category if passages else ""
        return ReadDocument(stored, text[part.offset : end], len(text) > end, pages, category, metadata)

    async def passages(
        self, principal: Principal, index: str, document_id: str, first: int, count: int, deadline: Deadline
    ) -> PassagePage:
        """See `ports.documents.Catalogue`. The passages have the order of `indexes`."""
        stored, passages = self._document(principal, index, document_id)
        listed = tuple(
            StoredPassage(each.id, number, each.page, each.headings, each.text, each.sourcepage)
            for number, each in enumerate(passages)
        )
        return PassagePage(stored, listed[first : first + count], len(listed))

    def _document(self, principal: Principal, index: str, document_id: str) -> tuple[StoredDocument, list[Passage]]:
        if index not in self.indexes:
            raise NotFound(f"No such index: '{index}' exists.", field="index", resource=index)
        passages = [each for each in self.indexes[index] if each.document_id == document_id]
        known = [each for each in self.documents.get(index, ()) if each.stored.document_id == document_id]
        if not (passages or known) or not all(each.visible_to(principal) for each in known):
            raise NotFound(f"Index '{index}' has no document '{document_id}'.", resource=document_id)
        if known:
            return known[0].stored, passages
        return StoredDocument(document_id, passages[0].sourcefile, "", "", 0, 0.0), passages

    async def page(
        self, principal: Principal, index: str, count: int, token: str, deadline: Deadline
    ) -> StoredPage:
        """See `ports.documents.Catalogue`."""
        found = await self.find(principal, index, {}, deadline)
        if token and not any(each.document_id == token for each in found):
            raise InvalidRequest("page_token: the token is invalid.", field="page_token")
        rest = [each for each in found if each.document_id > token]
        return StoredPage(tuple(rest[:count]), rest[count - 1].document_id if len(rest) > count else "")

    async def retrieve(
        self, principal: Principal, retrieval: Retrieval, query: str, top: int, deadline: Deadline
    ) -> SearchResults:
        """See `ports.answering.Retriever`."""
        self.queries.append(query)
        if not query.strip():
            raise InvalidRequest("Query string cannot be empty.", field="query")
        await self.check_indexes(principal, retrieval.indexes, deadline)
        passages = [passage for index in retrieval.indexes for passage in self.indexes[index]]
        words = set(query.lower().split())
        passages.sort(key=lambda passage: (-len(words & set(passage.text.lower().split())), passage.id))
        if not retrieval.semantic_ranker or self.not_reranked:
            return SearchResults(tuple(passages[:top]), self.not_reranked if retrieval.semantic_ranker else "")
        return SearchResults(_reranked(passages, retrieval.minimum_reranker_score)[:top])

    async def check_indexes(self, principal: Principal, indexes: Sequence[str], deadline: Deadline) -> None:
        """See `ports.answering.Retriever`."""
        for index in indexes:
            if index not in self.indexes:
                raise NotFound(f"No such index: '{index}' exists.", field="index", resource=index)


def _reranked(passages: list[Passage], minimum_score: float | None) -> tuple[Passage, ...]:
    """Sort the passages by their reranker scores, and drop those without the minimum score, if there is one.

    If no passage has a reranker score, return all passages in their order.
    """
    scores = {each.id: each.reranker_score for each in passages if each.reranker_score is not None}
    if not scores:
        return tuple(passages)
    accepted_passages = [
        each
        for each in passages
        if minimum_score is None or scores.get(each.id, minimum_score - 1) >= minimum_score
    ]
    return tuple(sorted(accepted_passages, key=lambda each: (-scores.get(each.id, float("-inf")), each.id)))
