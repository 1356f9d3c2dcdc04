"""Cross-encoders on a Triton Inference Server: token ids of query and passage in, one logit or two out.

The model is one that was exported as it is, say a Hugging Face sequence classifier as ONNX: inputs ``input_ids``,
``attention_mask`` and, where it has them, ``token_type_ids``; the first FP32 output holds the logits. One logit
becomes a score by the logistic function, of two the second one's probability is the score: 0 to 1.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import structlog
import tokenizers
from servicekit import telemetry
from servicekit.errors import CausewayError, DeadlineExceeded, InvalidRequest, RateLimited, Unavailable

from retriever.rerankers.file import TritonEntry
from retriever.rerankers.port import Rating, Unranked

_log = structlog.get_logger(__name__)
_TYPES: dict[str, Any] = {"INT64": np.int64, "INT32": np.int32}
_FLOATS = "FP32"
_KNOWN = ("input_ids", "attention_mask", "token_type_ids")


class TritonReranker:
    """Asks over gRPC; connected by the first request. See `rerankers.port.Reranker`.

    Raises:
        InvalidRequest: The tokenizer cannot be read.
    """

    def __init__(self, entry: TritonEntry) -> None:
        self._entry = entry
        self._who = f"The reranker '{entry.name}'"
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(entry.tokenizer))
        except Exception as error:  # the library raises nothing more exact
            raise InvalidRequest(f"The tokenizer {entry.tokenizer} cannot be read: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a document is five characters of it
        self._tokenizer.enable_truncation(entry.max_tokens, strategy="longest_first")
        self._made: Any = None
        self._looking = asyncio.Lock()
        self._described: tuple[list[tuple[str, str]], str] | None = None

    async def rate(self, query: str, texts: Sequence[str]) -> list[Rating]:
        """Asks for a batch after the other, those of about the same length together."""
        from tritonclient.utils import InferenceServerException

        encoded = await asyncio.to_thread(self._encode, query, texts)
        order = sorted(range(len(texts)), key=lambda at: len(encoded[at]))
        ratings: dict[int, Rating] = {}
        try:
            for start in range(0, len(order), self._entry.batch):
                some = order[start : start + self._entry.batch]
                scores = await self._infer([encoded[at] for at in some])
                ratings.update((at, Rating(score)) for at, score in zip(some, scores, strict=True))
        except InferenceServerException as error:
            self._described = None  # the model may be another by now
            raise self._failure(error) from error
        return [ratings[at] for at in range(len(texts))]

    async def aclose(self) -> None:
        """Closes the connection."""
        if self._made is not None:
            await self._made.close()
            self._made = None

    def _encode(self, query: str, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        pairs = [(_encodable(query), _encodable(text)) for text in texts]
        return self._tokenizer.encode_batch(pairs)

    async def _infer(self, encoded: Sequence[tokenizers.Encoding]) -> list[float]:
        from tritonclient.grpc import InferInput

        inputs, target = await self._look()
        rows = {
            "input_ids": [each.ids for each in encoded],
            "attention_mask": [each.attention_mask for each in encoded],
        }
        rows["token_type_ids"] = [each.type_ids for each in encoded]
        given = []
        for name, kind in inputs:
            array = _padded(rows[name], _TYPES[kind])
            given.append(InferInput(name, list(array.shape), kind))
            given[-1].set_data_from_numpy(array)
        answer = await self._client.infer(self._entry.public_model, given, headers=self._headers())
        return self._scores(answer.as_numpy(target), len(encoded))

    def _scores(self, logits: npt.NDArray[np.float32] | None, count: int) -> list[float]:
        if logits is None or logits.size not in (count, 2 * count) or not np.isfinite(logits).all():
            raise Unranked(f"{self._who} sent something else than one logit or two for each text.")
        rows = logits.reshape(count, -1).astype(np.float64)
        # The probability of the second of two classes is the logistic function of their difference.
        logit = rows[:, -1] - (rows[:, 0] if rows.shape[1] > 1 else 0.0)
        scores: list[float] = (1 / (1 + np.exp(-np.clip(logit, -500, 500)))).tolist()
        return scores

    async def _look(self) -> tuple[list[tuple[str, str]], str]:
        """Names and types of the inputs, and the name of the output."""
        async with self._looking:
            if self._described is None:
                name = self._entry.public_model
                model = await self._client.get_model_metadata(name, headers=self._headers())
                inputs = [(each.name, each.datatype) for each in model.inputs]
                outputs = [each.name for each in model.outputs if each.datatype == _FLOATS]
                if not outputs or any(at not in _KNOWN or kind not in _TYPES for at, kind in inputs):
                    raise Unranked(f"The model '{name}' does not turn token ids into FP32 logits.")
                self._described = inputs, outputs[0]
            return self._described

    @property
    def _client(self) -> Any:
        if self._made is None:
            # Imported here: it costs 15 MB, which only who has such a model shall pay.
            from tritonclient.grpc.aio import InferenceServerClient

            self._made = InferenceServerClient(
                self._entry.url,
                ssl=self._entry.tls,
                root_certificates=None if self._entry.ca_file is None else str(self._entry.ca_file),
                channel_args=[
                    ("grpc.initial_reconnect_backoff_ms", 100),
                    ("grpc.max_reconnect_backoff_ms", 2000),
                    ("grpc.enable_http_proxy", 0),
                ],
            )
        return self._made

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        telemetry.inject(headers)
        if self._entry.api_key is not None:
            headers["authorization"] = f"Bearer {self._entry.api_key.get_secret_value()}"
        return headers

    def _failure(self, error: Any) -> CausewayError:
        code = str(error.status()).partition(".")[2]
        _log.warning("the reranker refused", reranker=self._entry.name, code=code, said=error.message())
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED.name:
            return RateLimited(f"{self._who} takes no more at present.")
        if code in (grpc.StatusCode.UNAVAILABLE.name, grpc.StatusCode.CANCELLED.name):
            return Unavailable(f"{self._who} cannot be reached, or its model is not ready.")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED.name:
            return DeadlineExceeded(f"{self._who} did not answer in time.")
        return Unranked(f"{self._who} failed.")


def _encodable(text: str) -> str:
    """The text without lone surrogates, which no tokenizer takes."""
    return text.encode(errors="replace").decode()


def _padded(rows: Sequence[Sequence[int]], kind: Any) -> npt.NDArray[Any]:
    longest = max(len(row) for row in rows)
    array = np.zeros((len(rows), longest), kind)
    for at, row in enumerate(rows):
        array[at, : len(row)] = row
    return array
