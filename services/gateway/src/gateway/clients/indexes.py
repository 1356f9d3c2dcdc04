"""The retriever's management of indexes over gRPC."""

from collections.abc import Sequence

import grpc
from causeway.retriever.v1 import filter_pb2, retriever_pb2, retriever_pb2_grpc
from servicekit import rpc
from servicekit.deadline import Deadline
from servicekit.errors import NotFound
from servicekit.principal import Principal

from gateway.texts import DocumentPage, Equals, ListedDocument


class GrpcIndexes:
    """`ports_index.Indexes` over a channel to the retriever."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = retriever_pb2_grpc.RetrieverServiceStub(channel)

    async def names(self, principal: Principal, deadline: Deadline) -> tuple[str, ...]:
        """See `ports_index.Indexes`."""
        request = retriever_pb2.ListIndexesRequest(principal=principal.to_proto())
        response: retriever_pb2.ListIndexesResponse = await rpc.unary(self._stub.ListIndexes, request, deadline)
        return tuple(index.name for index in response.indexes)

    async def documents(
        self,
        principal: Principal,
        index: str,
        *,
        offset: int,
        limit: int,
        text_length: int,
        conditions: Sequence[Equals],
        deadline: Deadline,
    ) -> DocumentPage:
        """See `ports_index.Indexes`."""
        request = retriever_pb2.ListDocumentsRequest(
            principal=principal.to_proto(),
            index=index,
            page_size=limit,
            offset=offset,
            text_length=text_length,
            filter=filter_pb2.Filter(must=[metadata_condition(each) for each in conditions]),
        )
        response: retriever_pb2.ListDocumentsResponse = await rpc.unary(self._stub.ListDocuments, request, deadline)
        listed = tuple(
            ListedDocument(
                document.document_id,
                text.text,
                document.metadata_json or b"{}",
                document.sha256,
                text.is_truncated,
            )
            for document, text in zip(response.documents, response.texts, strict=True)
        )
        return DocumentPage(listed, response.total)

    async def delete(self, principal: Principal, index: str, deadline: Deadline) -> None:
        """See `ports_index.Indexes`."""
        request = retriever_pb2.DeleteIndexRequest(principal=principal.to_proto(), index=index)
        await rpc.unary(self._stub.DeleteIndex, request, deadline)

    async def persist(self, principal: Principal, index: str, path: str, deadline: Deadline) -> None:
        """See `ports_index.Indexes`."""
        request = retriever_pb2.PersistIndexRequest(principal=principal.to_proto(), index=index, path=path)
        await rpc.unary(self._stub.PersistIndex, request, deadline)

    async def load(
        self, principal: Principal, index: str, path: str, deadline: Deadline, *, overwrite: bool = False
    ) -> None:
        """See `ports_index.Indexes`."""
        request = retriever_pb2.LoadIndexRequest(
            principal=principal.to_proto(), index=index, path=path, overwrite=overwrite
        )
        try:
            await rpc.unary(self._stub.LoadIndex, request, deadline)
        except NotFound as error:
            raise NotFound(f"Path does not exist: {path}", resource=path) from error


def metadata_condition(equals: Equals) -> filter_pb2.Condition:
    """The retriever's condition that metadata have a value."""
    field = f"metadata.{equals.key}"
    return filter_pb2.Condition(match_any=filter_pb2.MatchAny(field=field, json_values=[equals.json_value]))
