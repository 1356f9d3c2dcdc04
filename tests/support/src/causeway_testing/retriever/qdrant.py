"""A stand-in for a Qdrant server. The client's local mode executes the calls, which arrive over gRPC.

With the stand-in, tests check that each call exists in the server's API and has valid arguments. They also check
the effect of a call, as far as local mode behaves like the server. The stand-in ignores quantization and shards.
`qdrant_cluster` has several nodes, whose copies can fail.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc
from qdrant_client import AsyncQdrantClient, models
from qdrant_client import grpc as q
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc, grpc_to_payload

from causeway_testing.retriever import qdrant_spaces
from causeway_testing.servers import free_ports

VERSION = "1.19.0"

T = TypeVar("T")
Apply = Callable[[AsyncQdrantClient], Awaitable[T]]

_Context = grpc.aio.ServicerContext[Any, Any]


class Internal(Exception):
    """An error of the server or of its cluster, with which the stand-in answers a call.

    Args:
        message: The reason. The client gets it after `Service internal error: `.
        code: The gRPC status.
    """

    def __init__(self, message: str, code: grpc.StatusCode = grpc.StatusCode.INTERNAL) -> None:
        super().__init__(message)
        self.code = code


class Server:
    """The stand-in that `serving` yields.

    Attributes:
        url: The URL of the server.
        client: The client in local mode.
        params: The replication factor, write consistency and fan-out delay of each collection.
        version: The version that the server reports.
        calls: The names of the calls.
        created: The requests that created collections.
        indexed: The requests that created payload indexes.
        metadata: The gRPC metadata of the last call.
        before: A function that is awaited before each call, with the name of the call. It may wait or raise an
            error.
        api_key: The API key that calls need, or None.
        cut_off: How many of the next calls end without a message.
    """

    def __init__(self, url: str, client: AsyncQdrantClient) -> None:
        self.url = url
        self.client = client
        self.params: dict[str, dict[str, int]] = {}
        self.version = VERSION
        self.calls: list[str] = []
        self.created: list[q.CreateCollection] = []
        self.indexed: list[q.CreateFieldIndexCollection] = []
        self.metadata: dict[str, Any] = {}
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.api_key: str | None = None
        self.cut_off = 0

    async def change(self, apply: Apply[T]) -> T:
        """Change collections or aliases."""
        return await apply(self.client)

    async def write(self, request: Any, apply: Apply[Any]) -> Any:
        """Change points."""
        return await apply(self.client)

    async def read(self, request: Any, ask: Apply[T]) -> T:
        """Search, or count."""
        return await ask(self.client)

    async def points(self, request: Any, ask: Apply[list[models.Record]]) -> list[models.Record]:
        """Read points."""
        return await ask(self.client)


@asynccontextmanager
async def serving(credentials: grpc.ServerCredentials | None = None) -> AsyncIterator[Server]:
    """Start a server on a free loopback port, with TLS if there are credentials."""
    (port,) = free_ports(1)
    scheme = "http" if credentials is None else "https"
    stand_in = Server(f"{scheme}://127.0.0.1:{port}", AsyncQdrantClient(":memory:"))
    server = await listen(stand_in, port, credentials)
    try:
        yield stand_in
    finally:
        await server.stop(None)


async def listen(stand_in: Server, port: int, credentials: grpc.ServerCredentials | None = None) -> grpc.aio.Server:
    """Start a gRPC server that answers the calls to a node, and return the gRPC server."""
    server = grpc.aio.server(interceptors=[_CallRecorder(stand_in)], options=[("grpc.so_reuseport", 0)])
    generated: Any = q  # it has no types
    generated.add_PointsServicer_to_server(_Points(stand_in), server)
    generated.add_CollectionsServicer_to_server(_Collections(stand_in), server)
    generated.add_QdrantServicer_to_server(_Root(stand_in), server)
    if credentials is None:
        server.add_insecure_port(f"127.0.0.1:{port}")
    else:
        server.add_secure_port(f"127.0.0.1:{port}", credentials)
    await server.start()
    return server


class _CallRecorder(grpc.aio.ServerInterceptor):
    def __init__(self, stand_in: Server) -> None:
        self._stand_in = stand_in

    async def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        name = details.method.rpartition("/")[2]
        self._stand_in.calls.append(name)
        self._stand_in.metadata = dict(details.invocation_metadata)
        handler = await continuation(details)
        if self._stand_in.cut_off:
            self._stand_in.cut_off -= 1
            return grpc.unary_stream_rpc_method_handler(
                _nothing, handler.request_deserializer, handler.response_serializer
            )

        async def handle(request: Any, context: _Context) -> Any:
            if self._stand_in.api_key not in (None, self._stand_in.metadata.get("api-key")):
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "Must provide an API key")
            try:
                if self._stand_in.before is not None:
                    await self._stand_in.before(name)
                qdrant_spaces.check(name, request)
                return await handler.unary_unary(request, context)
            except ConnectionError:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "away")
            except Internal as error:
                await context.abort(error.code, f"Service internal error: {error}")
            except ValueError as error:
                missing = "not found" in str(error)
                code = grpc.StatusCode.NOT_FOUND if missing else grpc.StatusCode.INVALID_ARGUMENT
                await context.abort(code, str(error))

        return grpc.unary_unary_rpc_method_handler(
            handle, handler.request_deserializer, handler.response_serializer
        )


async def _nothing(_request: Any, _context: _Context) -> AsyncIterator[Any]:
    """End a call with the status OK and without a message, as if a node died while answering."""
    messages: tuple[Any, ...] = ()
    for message in messages:
        yield message


class _Root(q.qdrant_pb2_grpc.QdrantServicer):
    def __init__(self, stand_in: Server) -> None:
        self._stand_in = stand_in

    async def HealthCheck(self, _request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        return q.HealthCheckReply(title="stand-in", version=self._stand_in.version)


class _Points(q.points_service_pb2_grpc.PointsServicer):
    def __init__(self, stand_in: Server) -> None:
        self._stand_in = stand_in

    async def Upsert(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        points = [GrpcToRest.convert_point_struct(point) for point in request.points]
        options = {
            "update_filter": _filter(request, "update_filter"),
            "update_mode": GrpcToRest.convert_update_mode(request.update_mode),
        }
        return await self._write(request, lambda client: client.upsert(request.collection_name, points, **options))

    async def Delete(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        selector = GrpcToRest.convert_points_selector(request.points)
        return await self._write(request, lambda client: client.delete(request.collection_name, selector))

    async def SetPayload(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        payload = grpc_to_payload(request.payload)
        selector = GrpcToRest.convert_points_selector(request.points_selector)
        return await self._write(
            request, lambda client: client.set_payload(request.collection_name, payload, selector)
        )

    async def CreateFieldIndex(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        if not await self._stand_in.client.collection_exists(request.collection_name):
            raise ValueError(f"Collection {request.collection_name} not found")
        self._stand_in.indexed.append(request)
        return q.PointsOperationResponse(result=q.UpdateResult(operation_id=0, status=q.UpdateStatus.Completed))

    async def Get(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        found = await self._stand_in.points(
            request,
            lambda client: client.retrieve(
                request.collection_name,
                [GrpcToRest.convert_point_id(each) for each in request.ids],
                with_payload=GrpcToRest.convert_with_payload_interface(request.with_payload),
                with_vectors=GrpcToRest.convert_with_vectors_selector(request.with_vectors),
            ),
        )
        return q.GetResponse(result=[_record(each) for each in found])

    async def Scroll(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        async def page(client: AsyncQdrantClient) -> list[models.Record]:
            found, _ = await client.scroll(
                request.collection_name,
                scroll_filter=_filter(request),
                limit=request.limit + 1,
                offset=GrpcToRest.convert_point_id(request.offset) if request.HasField("offset") else None,
                with_payload=GrpcToRest.convert_with_payload_interface(request.with_payload),
                with_vectors=GrpcToRest.convert_with_vectors_selector(request.with_vectors),
            )
            return found

        found = await self._stand_in.points(request, page)
        following: Any = found[request.limit].id if len(found) > request.limit else None
        return q.ScrollResponse(
            result=[_record(each) for each in found[: request.limit]],
            next_page_offset=None if following is None else RestToGrpc.convert_extended_point_id(following),
        )

    async def Query(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        [found] = await self._query(request, [request])
        return q.QueryResponse(result=found)

    async def QueryBatch(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        found = await self._query(request, request.query_points)
        return q.QueryBatchResponse(result=[q.BatchResult(result=each) for each in found])

    async def _query(self, request: Any, queries: Sequence[Any]) -> list[list[Any]]:
        converted = [GrpcToRest.convert_query_points(each) for each in queries]
        found = await self._stand_in.read(
            request, lambda client: client.query_batch_points(request.collection_name, converted)
        )
        return [
            [
                RestToGrpc.convert_scored_point(point.model_copy(update={"payload": point.payload or {}}))
                for point in each.points
            ]
            for each in found
        ]

    async def Count(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        counted = await self._stand_in.read(
            request, lambda client: client.count(request.collection_name, _filter(request), exact=request.exact)
        )
        return q.CountResponse(result=q.CountResult(count=counted.count))

    async def _write(self, request: Any, apply: Apply[Any]) -> Any:
        result = await self._stand_in.write(request, apply)
        return q.PointsOperationResponse(result=RestToGrpc.convert_update_result(result))


class _Collections(q.collections_service_pb2_grpc.CollectionsServicer):
    def __init__(self, stand_in: Server) -> None:
        self._stand_in = stand_in
        self._client = stand_in.client

    async def CollectionExists(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        exists = await self._client.collection_exists(request.collection_name)
        return q.CollectionExistsResponse(result=q.CollectionExists(exists=exists))

    async def Get(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        info = RestToGrpc.convert_collection_info(await self._client.get_collection(request.collection_name))
        for name, value in self._stand_in.params.get(request.collection_name, {}).items():
            setattr(info.config.params, name, value)
        return q.GetCollectionInfoResponse(result=info)

    async def Create(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        self._stand_in.created.append(request)
        sparse = GrpcToRest.convert_sparse_vector_config(request.sparse_vectors_config)
        await self._stand_in.change(
            lambda client: client.create_collection(
                request.collection_name,
                vectors_config=GrpcToRest.convert_vectors_config(request.vectors_config),
                sparse_vectors_config=sparse,
            )
        )
        self._stand_in.params[request.collection_name] = {
            "replication_factor": request.replication_factor or 1,
            "write_consistency_factor": request.write_consistency_factor or 1,
        }
        return q.CollectionOperationResponse(result=True)

    async def Update(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        params = self._stand_in.params[request.collection_name]
        params |= {field.name: value for field, value in request.params.ListFields()}
        return q.CollectionOperationResponse(result=True)

    async def Delete(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        removed = await self._stand_in.change(lambda client: client.delete_collection(request.collection_name))
        self._stand_in.params.pop(request.collection_name, None)
        return q.CollectionOperationResponse(result=removed)

    async def List(self, _request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        found = (await self._client.get_collections()).collections
        return q.ListCollectionsResponse(collections=[q.CollectionDescription(name=each.name) for each in found])

    async def ListAliases(self, _request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        found = (await self._client.get_aliases()).aliases
        return q.ListAliasesResponse(aliases=[RestToGrpc.convert_alias_description(each) for each in found])

    async def ListCollectionAliases(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        found = (await self._client.get_collection_aliases(request.collection_name)).aliases
        return q.ListAliasesResponse(aliases=[RestToGrpc.convert_alias_description(each) for each in found])

    async def UpdateAliases(self, request: Any, _context: _Context) -> Any:  # noqa: N802  # gRPC's name
        changes = [GrpcToRest.convert_alias_operations(each) for each in request.actions]
        changed = await self._stand_in.change(lambda client: client.update_collection_aliases(changes))
        return q.CollectionOperationResponse(result=changed)


def _filter(request: Any, field: str = "filter") -> Any:
    return GrpcToRest.convert_filter(getattr(request, field)) if request.HasField(field) else None


def _record(point: models.Record) -> Any:
    return RestToGrpc.convert_retrieved_point(point.model_copy(update={"payload": point.payload or {}}))
