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
from servicekit.errors import CausewayError, DeadlineExceeded, RateLimited, Unavailable
from servicekit.triton import TensorModel, TritonAddress, TritonFailed

from retriever.clients.reranker_file import TritonEntry
from retriever.ports.reranker import Rating, Unranked

_log = structlog.get_logger(__name__)
_TYPES: dict[str, Any] = {"INT64": np.int64, "INT32": np.int32}
_FLOATS = "FP32"
_KNOWN = ("input_ids", "attention_mask", "token_type_ids")


class TritonReranker:
    """Asks over gRPC; connected by the first request. See `rerankers.port.Reranker`.

    Raises:
        ValueError: The tokenizer cannot be read.
    """

    def __init__(self, entry: TritonEntry) -> None:
        self._entry = entry
        self._who = f"The reranker '{entry.name}'"
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(entry.tokenizer))
        except Exception as error:  # the library raises nothing more exact
            raise ValueError(f"the tokenizer {entry.tokenizer} cannot be read: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a document is five characters of it
        self._tokenizer.enable_truncation(entry.max_tokens, strategy="longest_first")
        address = TritonAddress(entry.url, entry.tls, entry.ca_file, entry.api_key)
        self._model = TensorModel(address, entry.public_model, self._tensors)

    async def rate(self, query: str, texts: Sequence[str]) -> list[Rating]:
        """Asks for a batch after the other, those of about the same length together."""
        encoded = await asyncio.to_thread(self._encode, query, texts)
        order = sorted(range(len(texts)), key=lambda at: len(encoded[at]))
        ratings: dict[int, Rating] = {}
        try:
            for start in range(0, len(order), self._entry.batch):
                some = order[start : start + self._entry.batch]
                scores = await self._scores([encoded[at] for at in some])
                ratings.update((at, Rating(score)) for at, score in zip(some, scores, strict=True))
        except TritonFailed as error:
            raise self._failure(error) from error
        return [ratings[at] for at in range(len(texts))]

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._model.aclose()

    def _encode(self, query: str, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        pairs = [(_encodable(query), _encodable(text)) for text in texts]
        return self._tokenizer.encode_batch(pairs)

    async def _scores(self, encoded: Sequence[tokenizers.Encoding]) -> list[float]:
        inputs, target = await self._model.contract()
        rows = {
            "input_ids": [each.ids for each in encoded],
            "attention_mask": [each.attention_mask for each in encoded],
            "token_type_ids": [each.type_ids for each in encoded],
        }
        given = [(name, kind, _padded(rows[name], _TYPES[kind])) for name, kind in inputs]
        logits, count = await self._model.infer(given, target), len(encoded)
        if logits is None or logits.size not in (count, 2 * count) or not np.isfinite(logits).all():
            raise Unranked(f"{self._who} sent something else than one logit or two for each text.")
        classes = logits.reshape(count, -1).astype(np.float64)
        # The probability of the second of two classes is the logistic function of their difference.
        logit = classes[:, -1] - (classes[:, 0] if classes.shape[1] > 1 else 0.0)
        scores: list[float] = (1 / (1 + np.exp(-np.clip(logit, -500, 500)))).tolist()
        return scores

    def _tensors(self, metadata: Any) -> tuple[list[tuple[str, str]], str]:
        """Names and types of the inputs, and the name of the output."""
        inputs = [(each.name, each.datatype) for each in metadata.inputs]
        outputs = [each.name for each in metadata.outputs if each.datatype == _FLOATS]
        if not outputs or any(name not in _KNOWN or kind not in _TYPES for name, kind in inputs):
            raise Unranked(f"The model '{self._entry.public_model}' does not turn token ids into FP32 logits.")
        return inputs, outputs[0]

    def _failure(self, error: TritonFailed) -> CausewayError:
        code = error.code.name if error.code else ""
        _log.warning("the reranker refused", reranker=self._entry.name, code=code, said=error.said)
        match error.code:
            case grpc.StatusCode.RESOURCE_EXHAUSTED:
                return RateLimited(f"{self._who} takes no more at present.")
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
                return Unavailable(f"{self._who} cannot be reached, or its model is not ready.")
            case grpc.StatusCode.DEADLINE_EXCEEDED:
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
