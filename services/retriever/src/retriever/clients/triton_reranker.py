"""Cross-encoders on a Triton Inference Server.

A cross-encoder maps the token ids of a query and a passage to one or two logits. The model is a plain export, for
example a Hugging Face sequence classifier in ONNX. Its inputs are ``input_ids``, ``attention_mask`` and optionally
``token_type_ids``. Its first FP32 output has the logits. The score is between 0 and 1: the logistic function of a
single logit, or the probability of the second class if there are two logits.
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
from retriever.ports.reranker import Rating, RerankerFailed

_log = structlog.get_logger(__name__)
_TYPES: dict[str, Any] = {"INT64": np.int64, "INT32": np.int32}
_FLOATS = "FP32"
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class TritonReranker:
    """A client over gRPC; see `ports.reranker.Reranker`. The first request connects.

    Raises:
        ValueError: The tokenizer cannot be read.
    """

    def __init__(self, entry: TritonEntry) -> None:
        self._entry = entry
        self._subject = f"The reranker '{entry.name}'"
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(entry.tokenizer))
        except Exception as error:  # the library raises no specific exception
            raise ValueError(f"the tokenizer {entry.tokenizer} cannot be read: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a text is not a separator
        self._tokenizer.enable_truncation(entry.max_tokens, strategy="longest_first")
        address = TritonAddress(entry.url, entry.tls, entry.ca_file, entry.api_key)
        self._model = TensorModel(address, entry.public_model, self._tensors)

    async def rate(self, query: str, texts: Sequence[str]) -> list[Rating]:
        """Rate the texts in batches, one batch after the other. The texts of a batch have similar lengths."""
        encoded = await asyncio.to_thread(self._encode, query, texts)
        order = sorted(range(len(texts)), key=lambda at: len(encoded[at]))
        ratings: dict[int, Rating] = {}
        try:
            for start in range(0, len(order), self._entry.batch):
                batch = order[start : start + self._entry.batch]
                scores = await self._scores([encoded[at] for at in batch])
                ratings.update((at, Rating(score)) for at, score in zip(batch, scores, strict=True))
        except TritonFailed as error:
            raise self._failure(error) from error
        return [ratings[at] for at in range(len(texts))]

    async def aclose(self) -> None:
        """Close the connection."""
        await self._model.aclose()

    def _encode(self, query: str, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        pairs = [(_encodable(query), _encodable(text)) for text in texts]
        return self._tokenizer.encode_batch(pairs)

    async def _scores(self, encoded: Sequence[tokenizers.Encoding]) -> list[float]:
        inputs, target = await self._model.contract()
        rows = {
            "input_ids": [encoding.ids for encoding in encoded],
            "attention_mask": [encoding.attention_mask for encoding in encoded],
            "token_type_ids": [encoding.type_ids for encoding in encoded],
        }
        tensors = [(name, kind, _padded(rows[name], _TYPES[kind])) for name, kind in inputs]
        logits, count = await self._model.infer(tensors, target), len(encoded)
        if logits is None or logits.size not in (count, 2 * count) or not np.isfinite(logits).all():
            raise RerankerFailed(f"{self._subject} did not send one or two logits for each text.")
        classes = logits.reshape(count, -1).astype(np.float64)
        # The probability of the second of two classes is the logistic function of the difference of the logits.
        logit = classes[:, -1] - (classes[:, 0] if classes.shape[1] > 1 else 0.0)
        scores: list[float] = (1 / (1 + np.exp(-np.clip(logit, -500, 500)))).tolist()
        return scores

    def _tensors(self, metadata: Any) -> tuple[list[tuple[str, str]], str]:
        """Return the names and types of the inputs, and the name of the output."""
        inputs = [(tensor.name, tensor.datatype) for tensor in metadata.inputs]
        outputs = [tensor.name for tensor in metadata.outputs if tensor.datatype == _FLOATS]
        if not outputs or any(name not in _INPUTS or kind not in _TYPES for name, kind in inputs):
            raise RerankerFailed(f"The model '{self._entry.public_model}' does not map token ids to FP32 logits.")
        return inputs, outputs[0]

    def _failure(self, error: TritonFailed) -> CausewayError:
        code = error.code.name if error.code else ""
        _log.warning("the reranker request failed", reranker=self._entry.name, code=code, reason=error.message)
        match error.code:
            case grpc.StatusCode.RESOURCE_EXHAUSTED:
                return RateLimited(f"{self._subject} does not accept more requests at present.")
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
                return Unavailable(f"{self._subject} cannot be reached, or its model is not ready.")
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return DeadlineExceeded(f"{self._subject} did not answer in time.")
        return RerankerFailed(f"{self._subject} failed.")


def _encodable(text: str) -> str:
    """Return the text with ``?`` in place of lone surrogates, which tokenizers refuse."""
    return text.encode(errors="replace").decode()


def _padded(rows: Sequence[Sequence[int]], kind: Any) -> npt.NDArray[Any]:
    longest = max(len(row) for row in rows)
    array = np.zeros((len(rows), longest), kind)
    for at, row in enumerate(rows):
        array[at, : len(row)] = row
    return array
