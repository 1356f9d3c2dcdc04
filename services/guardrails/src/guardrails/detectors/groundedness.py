"""The detector ``groundedness``: sentences of an answer that no passage is near to.

Sentences are compared by the cosine of their embeddings. That tells what is about something else, and a number that
is nowhere in the passages; it does not tell a sentence from its opposite, for which a model can be asked beside it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from embedding.errors import SetupError, UnembeddableText
from embedding.port import Embedder
from servicekit.errors import CausewayError

from guardrails.chunking.chunkers import Chunking, windows_of
from guardrails.detectors.factory import BuiltIn
from guardrails.detectors.params import Params
from guardrails.detectors.port import DetectorFailed, Judge
from guardrails.domain import Detection, DetectionContext, DetectorKind, Health

_TYPE = "groundedness"
_UNPROCESSABLE = 422
_MOST_PASSAGES = 400  # sentences of passages that are compared; each takes milliseconds
_FEWEST_LETTERS = 12  # with fewer a sentence says nothing that could be wrong: "Yes.", a list's number
_KEPT = 16  # answers whose passages are kept embedded
_NUMBER = re.compile(r"(?<![\w\[(])\d+(?:[.,]\d+)*(?![\w\])])")
_CITATION = re.compile(r"\[[^\]\n]{1,200}\]")

OpenEmbedder = Callable[[], Awaitable[Embedder]]
"""Opens the embedder when it is first needed; raises `SetupError`."""


class GroundednessParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    minimum: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="The least cosine to a sentence of a passage.")
    ] = 0.35
    numbers: Annotated[bool, msgspec.Meta(description="Whether numbers that no passage has are findings, too.")] = (
        True
    )


def groundedness(open_embedder: OpenEmbedder, seconds: float) -> BuiltIn[GroundednessParams]:
    """The detector.

    Args:
        open_embedder: Where the model comes from.
        seconds: What one answer may take.
    """
    passages = _Passages(open_embedder)

    async def probe() -> Health:
        try:
            await open_embedder()
        except (SetupError, CausewayError):
            return Health(healthy=False, reason="the embedding model is not built")
        return Health(healthy=True)

    return BuiltIn(
        "groundedness",
        "Finds sentences of an answer that no passage is near to.",
        GroundednessParams,
        lambda params: Groundedness(params, passages, seconds),
        kind=DetectorKind.CONTEXT_DOC,
        probe=probe,
    )


class Groundedness(Judge):
    """See the module. A sentence's score is how far it is from the nearest passage: 1 - cosine."""

    kind = DetectorKind.CONTEXT_DOC
    chunking = Chunking.SENTENCE

    def __init__(self, params: GroundednessParams, passages: "_Passages", seconds: float) -> None:
        self._params = params
        self._passages = passages
        self.seconds = seconds

    async def judge(self, windows: Sequence[str], context: DetectionContext) -> list[list[Detection]]:
        """See `Judge.judge`."""
        if context.urls:
            raise DetectorFailed("the detector takes the passages as texts, not as addresses", _UNPROCESSABLE)
        if not any(passage.strip() for passage in context.passages):
            raise DetectorFailed("the detector needs the passages that the text should rest on", _UNPROCESSABLE)
        bare = [_CITATION.sub(" ", window) for window in windows]
        asked = [at for at, text in enumerate(bare) if sum(map(str.isalpha, text)) >= _FEWEST_LETTERS]
        near: dict[int, tuple[float, int]] = {}
        try:
            if asked:
                vectors, owners = await self._passages.embedded(context.passages)
                answers = await self._passages.embed([bare[at] for at in asked])
                cosines = answers @ vectors.T
                best = cosines.argmax(axis=1)
                near = {at: (float(cosines[row, best[row]]), owners[best[row]]) for row, at in enumerate(asked)}
        except (SetupError, CausewayError, UnembeddableText) as error:
            raise DetectorFailed("the embedding model cannot be used") from error
        known = frozenset(number for passage in context.passages for number in _NUMBER.findall(passage))
        return [self._sentence(window, bare[at], near.get(at), known) for at, window in enumerate(windows)]

    def _sentence(
        self, window: str, bare: str, near: tuple[float, int] | None, known: frozenset[str]
    ) -> list[Detection]:
        start = len(window) - len(window.lstrip())
        text = window.strip()
        found = []
        if near is not None and near[0] < self._params.minimum:
            evidence = {
                "evidence": [{"name": "nearest_passage", "value": str(near[1]), "score": round(near[0], 4)}]
            }
            score = min(1.0, max(0.0, 1 - near[0]))
            extra = msgspec.json.encode(evidence)
            found.append(Detection(_TYPE, "ungrounded", text, start, start + len(text), score, extra))
        elif near is not None and self._params.numbers:
            unknown = [number for number in _NUMBER.findall(bare) if number not in known]
            if unknown:
                evidence = {"evidence": [{"name": "number", "value": number} for number in unknown]}
                extra = msgspec.json.encode(evidence)
                found.append(Detection(_TYPE, "unsupported_number", text, start, start + len(text), 1.0, extra))
        return found


class _Passages:
    """Embeds, and keeps the latest passages' vectors: an answer's sentences come one after the other."""

    def __init__(self, open_embedder: OpenEmbedder) -> None:
        self._open = open_embedder
        self._kept: dict[tuple[str, ...], asyncio.Task[tuple[npt.NDArray[np.float32], list[int]]]] = {}

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """One row a text."""
        return await (await self._open()).embed(texts)

    async def embedded(self, passages: tuple[str, ...]) -> tuple[npt.NDArray[np.float32], list[int]]:
        """One row for each sentence of the passages, and which passage it is of."""
        task = self._kept.pop(passages, None)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.create_task(self._embedded(passages))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # all callers may have left
        self._kept[passages] = task
        if len(self._kept) > _KEPT:
            self._kept.pop(next(iter(self._kept)))
        # A caller that leaves does not take the vectors from the others.
        return await asyncio.shield(task)

    async def _embedded(self, passages: tuple[str, ...]) -> tuple[npt.NDArray[np.float32], list[int]]:
        sentences = [
            (window.text.strip(), index)
            for index, passage in enumerate(passages)
            for window in windows_of(passage, Chunking.SENTENCE)
            if window.text.strip()
        ]
        if len(sentences) > _MOST_PASSAGES:
            raise DetectorFailed(f"the passages have more than {_MOST_PASSAGES} sentences")
        return await self.embed([text for text, _ in sentences]), [index for _, index in sentences]
