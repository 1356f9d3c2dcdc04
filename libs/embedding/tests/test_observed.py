from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.servers import measured, traced
from embedding.observed import ObservedEmbedder
from servicekit.errors import Unavailable


class UnavailableEmbedder(HashingEmbedder):
    """Raises an error instead of an answer."""

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        raise Unavailable("no server")


def metric_value(name: str, **labels: str) -> float:
    return sum(value for found, value in measured(name) if labels.items() <= found.items())


async def test_a_call_is_measured() -> None:
    """A call records its time, its texts and a span with the conventions' names. No text is recorded."""
    measured("")
    traced("")
    inner = HashingEmbedder()
    observed = ObservedEmbedder(inner, "tests")
    before = metric_value("causeway_embedding_texts_total", gen_ai_request_model=inner.model)
    vectors = await observed.embed(["one text", "another"])
    assert np.array_equal(vectors, await inner.embed(["one text", "another"]))
    assert metric_value("causeway_embedding_texts_total", gen_ai_request_model=inner.model) == before + 2
    assert metric_value("causeway_embedding_duration_seconds_count", gen_ai_request_model=inner.model) >= 1
    assert dict(traced(f"embeddings {inner.model}")[-1].attributes or {}) == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "tests",
        "gen_ai.request.model": inner.model,
        "gen_ai.embeddings.dimension.count": inner.dimension,
        "causeway.embeddings.texts": 2,
    }


async def test_a_failed_call_is_measured() -> None:
    """A failed call is measured with its error, and the caller gets the error unchanged."""
    measured("")
    traced("")
    observed = ObservedEmbedder(UnavailableEmbedder(), "tests")
    with pytest.raises(Unavailable, match="no server"):
        await observed.embed(["text"])
    assert metric_value("causeway_embedding_duration_seconds_count", error_type="Unavailable") >= 1
    assert (traced(f"embeddings {observed.model}")[-1].attributes or {})["error.type"] == "Unavailable"
