"""The contract of the port, on the fake and on the adapter with a real server over that fake."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from causeway.retriever.v1 import retriever_pb2, retriever_pb2_grpc
from causeway_testing.gateway.indexes import FakeEmbedder
from causeway_testing.servers import grpc_service
from gateway.clients.embedder import GrpcEmbedder
from gateway.clients.retriever import DESCRIPTOR
from gateway.domain.embeddings import EmbeddingModel
from gateway.ports.index_management import Embedder
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, NotFound
from servicekit.principal import LOCAL, Principal


class Servicer(retriever_pb2_grpc.RetrieverServiceServicer):
    """The retriever's service over the fake, with its limits."""

    def __init__(self) -> None:
        self._fake = FakeEmbedder()
        self.sizes: list[int] = []

    async def Embed(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        self.sizes.append(len(request.texts))
        if len(request.texts) > 256 or sum(map(len, request.texts)) > 1_000_000:
            raise InvalidRequest("Too many texts.")
        principal = Principal.from_proto(request.principal)
        made = await self._fake.embed(principal, request.model, request.texts, Deadline.of(context))
        counts = [len(text.split()) for text in request.texts]
        return retriever_pb2.EmbedResponse(
            model=made.model,
            embeddings=[
                retriever_pb2.Embedding(vector=vector, token_count=count + 9, embedded_token_count=count)
                for vector, count in zip(made.vectors, counts, strict=True)
            ],
        )

    async def ListEmbeddingModels(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        models = await self._fake.models(Principal.from_proto(request.principal), Deadline.of(context))
        return retriever_pb2.ListEmbeddingModelsResponse(
            models=[
                retriever_pb2.EmbeddingModel(
                    name=model.name, dimension=model.dimension, max_tokens=model.max_tokens
                )
                for model in models
            ]
        )


@pytest.fixture
def servicer() -> Servicer:
    return Servicer()  # type: ignore[abstract]  # the other methods are not called


@pytest.fixture
async def adapter(servicer: Servicer) -> AsyncIterator[GrpcEmbedder]:
    def add(server: Any) -> None:
        retriever_pb2_grpc.add_RetrieverServiceServicer_to_server(servicer, server)

    async with grpc_service(DESCRIPTOR, add) as channel:
        yield GrpcEmbedder(channel)


@pytest.fixture(params=["fake", "grpc"])
def embedder(request: pytest.FixtureRequest, adapter: GrpcEmbedder) -> Embedder:
    return FakeEmbedder() if request.param == "fake" else adapter


def soon() -> Deadline:
    return Deadline.after(5)


async def test_vectors_have_the_order_of_the_texts(embedder: Embedder) -> None:
    """Vectors are in the order of the texts, equal texts have equal vectors, and the tokens are counted."""
    made = await embedder.embed(LOCAL, "", ["a b", "c", "a b"], soon())
    assert (made.model, made.tokens, len(made.vectors)) == ("fake-embedder", 5, 3)
    assert list(made.vectors[0]) == list(made.vectors[2])
    named = await embedder.embed(LOCAL, "fake-embedder", ["c"], soon())
    assert list(named.vectors[0]) == list(made.vectors[1])


async def test_an_unknown_model_and_a_blank_text_are_refused(embedder: Embedder) -> None:
    """An unknown model and a blank text are refused."""
    with pytest.raises(NotFound, match="nope"):
        await embedder.embed(LOCAL, "nope", ["a"], soon())
    with pytest.raises(InvalidRequest):
        await embedder.embed(LOCAL, "", ["a", " "], soon())


async def test_models_are_listed(embedder: Embedder) -> None:
    """Models are listed with their dimensions and their window."""
    assert await embedder.models(LOCAL, soon()) == (EmbeddingModel("fake-embedder", 2, 256),)


async def test_many_texts_are_split_into_several_calls(adapter: GrpcEmbedder, servicer: Servicer) -> None:
    """A call has a limited number and length of texts, and the vectors keep the order of the texts."""
    texts = [f"text {number}" for number in range(600)]
    made = await adapter.embed(LOCAL, "", texts, soon())
    assert servicer.sizes == [256, 256, 88]
    expected = await FakeEmbedder().embed(LOCAL, "", texts, soon())
    assert [tuple(round(x, 6) for x in vector) for vector in made.vectors] == list(expected.vectors)
    assert made.tokens == 1200
    servicer.sizes.clear()
    await adapter.embed(LOCAL, "", ["x" * 600_000, "y" * 400_000, "z"], soon())
    assert servicer.sizes == [2, 1]
