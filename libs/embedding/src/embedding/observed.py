"""Records metrics and spans of embedding calls, but never the texts. Attributes follow OpenTelemetry's conventions.

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-spans.md
"""

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from opentelemetry.trace import SpanKind, StatusCode
from servicekit import metrics, telemetry

from embedding.port import Embedder

_tracer = telemetry.tracer(__name__)
_seconds = metrics.durations(
    __name__, "causeway.embedding.duration", "Seconds of a call to an embedding model, by model and error."
)
_texts = metrics.counter(__name__, "causeway.embedding.texts", "{text}", "Embedded texts, by model.")


class ObservedEmbedder:
    """An embedder with metrics and spans; see `embedding.port.Embedder`.

    Args:
        embedder: The embedder.
        provider: The kind of the model, as in `embedding.config.EmbeddingConfig`.
    """

    def __init__(self, embedder: Embedder, provider: str) -> None:
        self.model = embedder.model
        self.dimension = embedder.dimension
        self.max_tokens = embedder.max_tokens
        self.tokenizer = embedder.tokenizer
        self._embedder = embedder
        self._labels = {"gen_ai.request.model": embedder.model}
        self._attributes: dict[str, str | int] = {
            **self._labels,
            "gen_ai.operation.name": "embeddings",
            "gen_ai.provider.name": provider,
            "gen_ai.embeddings.dimension.count": embedder.dimension,
        }

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts; see `embedding.port.Embedder.embed`."""
        labels = self._labels
        start = time.perf_counter()
        with _tracer.start_as_current_span(
            f"embeddings {self.model}",
            kind=SpanKind.CLIENT,
            attributes={**self._attributes, "causeway.embeddings.texts": len(texts)},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                vectors = await self._embedder.embed(texts)
            except Exception as error:
                labels = {**labels, "error.type": type(error).__name__}
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR, type(error).__name__)
                raise
            else:
                _texts.add(len(texts), labels)
                return vectors
            finally:
                _seconds.record(time.perf_counter() - start, labels)

    async def aclose(self) -> None:
        """Close the embedder; see `embedding.port.Embedder.aclose`."""
        await self._embedder.aclose()
