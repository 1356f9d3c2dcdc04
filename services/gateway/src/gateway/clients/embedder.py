"""Call the retriever's embedding models over gRPC."""

from collections.abc import Iterator, Sequence

import grpc
from causeway.retriever.v1 import retriever_pb2, retriever_pb2_grpc
from servicekit import rpc
from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.embeddings import EmbeddingModel, Embeddings

_MAX_TEXTS = 256
_MAX_CHARACTERS = 1_000_000
"""The limits of one call, from the gRPC contract."""


class GrpcEmbedder:
    """`ports.index_management.Embedder` over a channel to the retriever."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = retriever_pb2_grpc.RetrieverServiceStub(channel)

    async def embed(self, principal: Principal, model: str, texts: Sequence[str], deadline: Deadline) -> Embeddings:
        """See `ports.index_management.Embedder`. The calls are sequential, because one call occupies the model."""
        vectors: list[Sequence[float]] = []
        tokens = 0
        for batch in _batches(texts):
            request = retriever_pb2.EmbedRequest(principal=principal.to_proto(), model=model, texts=batch)
            response: retriever_pb2.EmbedResponse = await rpc.unary(self._stub.Embed, request, deadline)
            model = response.model
            vectors += (embedding.vector for embedding in response.embeddings)
            tokens += sum(embedding.embedded_token_count for embedding in response.embeddings)
        return Embeddings(model, tuple(vectors), tokens)

    async def models(self, principal: Principal, deadline: Deadline) -> tuple[EmbeddingModel, ...]:
        """See `ports.index_management.Embedder`."""
        request = retriever_pb2.ListEmbeddingModelsRequest(principal=principal.to_proto())
        response: retriever_pb2.ListEmbeddingModelsResponse = await rpc.unary(
            self._stub.ListEmbeddingModels, request, deadline
        )
        return tuple(EmbeddingModel(model.name, model.dimension, model.max_tokens) for model in response.models)


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and (len(batch) == _MAX_TEXTS or characters + len(text) > _MAX_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch
