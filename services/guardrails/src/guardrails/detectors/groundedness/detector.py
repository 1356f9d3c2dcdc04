"""The detector ``groundedness``: finds sentences of an answer that the passages do not support.

The cosine of the embeddings shows whether a sentence has the same subject as a passage. The detector then compares
the sentence with the passages word by word. Numbers, dates, names and colours must be in a passage, next to the
same words. Negations and opposites must agree. The word lists are English. The detector compares words, not
meanings. To compare meanings, configure a model as a remote detector (docs/guardrails.md).

A finding has the position of the passage's sentence, not its text, because the text could contain words that an
output policy removes from the answer.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from detection.chunking.chunkers import Chunking, windows_of
from detection.detectors.factory import BuiltIn
from detection.detectors.params import Params
from detection.detectors.port import DetectorFailed, Judge
from detection.domain import Detection, DetectionContext, DetectorKind, Health
from embedding.errors import SetupError, UnembeddableText
from embedding.port import Embedder
from servicekit.errors import CausewayError

from guardrails.detectors.groundedness.comparison import Difference, Place, Sources

_TYPE = "groundedness"
_UNPROCESSABLE = 422
_MAX_SENTENCES = 400  # sentences of the passages, which are all compared with each sentence of an answer
_MIN_LETTERS = 12  # a shorter sentence makes no claim; for example "Yes." or the number of a list item
_CACHE_SIZE = 16  # the number of cached sets of passages
_OPPOSITE = ("negation", "opposite")
_NAMING = ("name", "colour")
_CITATION = re.compile(r"\[[^\]\n]{1,200}\]")

OpenEmbedder = Callable[[], Awaitable[Embedder]]
"""Opens the embedder on first use; raises `SetupError`."""


class GroundednessParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    minimum: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="The minimum cosine to a sentence of a passage.")
    ] = 0.35
    numbers: Annotated[
        bool,
        msgspec.Meta(
            description="Whether to report numbers, units and dates that the passages do not have next to the same "
            "words."
        ),
    ] = True
    names: Annotated[
        bool,
        msgspec.Meta(
            description="Whether to report names and colours that the passages do not have next to the same words."
        ),
    ] = True
    negations: Annotated[
        bool, msgspec.Meta(description="Whether to report sentences that contradict a passage.")
    ] = True


def groundedness(open_embedder: OpenEmbedder, seconds: float) -> BuiltIn[GroundednessParams]:
    """Return the factory of the detector.

    Args:
        open_embedder: Opens the model.
        seconds: The time limit of one call.
    """
    passages = _Passages(open_embedder)

    async def probe() -> Health:
        try:
            await open_embedder()
        except (SetupError, CausewayError):
            return Health(healthy=False, reason="the embedding model is not built or cannot be loaded")
        return Health(healthy=True)

    return BuiltIn(
        "groundedness",
        "Finds sentences of an answer that the passages do not support.",
        GroundednessParams,
        lambda params: Groundedness(params, passages, seconds),
        kind=DetectorKind.CONTEXT_DOC,
        probe=probe,
    )


class Groundedness(Judge):
    """Compares sentences with passages.

    The score of a sentence without a similar passage is 1 minus the greatest cosine to a sentence of a passage. The
    score of a sentence with a difference from the passages is 1.
    """

    kind = DetectorKind.CONTEXT_DOC
    chunking = Chunking.SENTENCE

    def __init__(self, params: GroundednessParams, passages: "_Passages", seconds: float) -> None:
        self._params = params
        self._passages = passages
        self.seconds = seconds

    async def judge(self, windows: Sequence[str], context: DetectionContext) -> list[list[Detection]]:
        """See `Judge.judge`."""
        if context.urls:
            raise DetectorFailed("the detector needs the texts of the passages, not their URLs", _UNPROCESSABLE)
        texts = [_CITATION.sub(" ", window) for window in windows]
        indices = [index for index, text in enumerate(texts) if sum(map(str.isalpha, text)) >= _MIN_LETTERS]
        found: list[list[Detection]] = [[] for _ in windows]
        if not indices:
            return found
        try:
            vectors, sources = await self._passages.embed_passages(context.passages)
            embedded = await self._passages.embed([texts[index] for index in indices])
        except (SetupError, CausewayError, UnembeddableText) as error:
            raise DetectorFailed("the embedding model cannot be used") from error
        cosines = embedded @ vectors.T
        best = cosines.argmax(axis=1)
        # In a thread: each comparison of two sentences takes a fraction of a millisecond, and there can be many.
        return await asyncio.to_thread(self._findings, windows, texts, indices, sources, best, cosines)

    def _findings(
        self,
        windows: Sequence[str],
        texts: Sequence[str],
        indices: Sequence[int],
        sources: Sources,
        best: npt.NDArray[np.intp],
        cosines: npt.NDArray[np.float32],
    ) -> list[list[Detection]]:
        found: list[list[Detection]] = [[] for _ in windows]
        for row, index in enumerate(indices):
            cosine, nearest = float(cosines[row, best[row]]), sources.sentences[best[row]][1]
            if cosine < self._params.minimum:
                found[index] = [
                    _detection("ungrounded", windows[index], min(1.0, max(0.0, 1 - cosine)), nearest, cosine)
                ]
                continue
            differences = [
                difference for difference in sources.differences(texts[index]) if self._is_reported(difference)
            ]
            if differences:
                place = next((other.place for other in differences if other.place is not None), nearest)
                name = (
                    f"{'contradicted' if differences[0].name in _OPPOSITE else 'unsupported'}_{differences[0].name}"
                )
                found[index] = [_detection(name, windows[index], 1.0, place, cosine, differences)]
        return found

    def _is_reported(self, difference: Difference) -> bool:
        if difference.name in _OPPOSITE:
            return self._params.negations
        return self._params.names if difference.name in _NAMING else self._params.numbers


def _detection(
    name: str, window: str, score: float, place: Place, cosine: float, differences: Sequence[Difference] = ()
) -> Detection:
    start = len(window) - len(window.lstrip())
    text = window.strip()
    evidence: list[dict[str, object]] = [
        {"name": "nearest_passage", "value": str(place.passage), "score": round(cosine, 4)},
        {"name": "sentence", "value": f"{place.start}:{place.end}"},
    ]
    evidence += [{"name": difference.name, "value": difference.value} for difference in differences]
    extra = msgspec.json.encode({"evidence": evidence})
    return Detection(_TYPE, name, text, start, start + len(text), score, extra)


class _Passages:
    """Embeds texts. It caches the vectors of recent passages, because sentences of an answer arrive one by one."""

    def __init__(self, open_embedder: OpenEmbedder) -> None:
        self._open = open_embedder
        self._cache: dict[tuple[str, ...], asyncio.Task[tuple[npt.NDArray[np.float32], Sources]]] = {}

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return one row for each text."""
        return await (await self._open()).embed(texts)

    async def embed_passages(self, passages: tuple[str, ...]) -> tuple[npt.NDArray[np.float32], Sources]:
        """Return one row for each sentence of the passages, and the analysed sentences."""
        task = self._cache.pop(passages, None)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.create_task(self._embed_passages(passages))
            # Retrieve the exception, because all callers may have been cancelled.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._cache[passages] = task
        if len(self._cache) > _CACHE_SIZE:
            self._cache.pop(next(iter(self._cache)))
        # The cancellation of one caller must not cancel the task of other callers.
        return await asyncio.shield(task)

    async def _embed_passages(self, passages: tuple[str, ...]) -> tuple[npt.NDArray[np.float32], Sources]:
        sentences = []
        for index, passage in enumerate(passages):
            for window in windows_of(passage, Chunking.SENTENCE):
                text = window.text.strip()
                if text:
                    start = window.start + window.text.index(text)
                    sentences.append((text, Place(index, start, start + len(text))))
        if len(sentences) > _MAX_SENTENCES:
            raise DetectorFailed(f"the passages have more than {_MAX_SENTENCES} sentences")
        return await self.embed([text for text, _ in sentences]), await asyncio.to_thread(Sources, sentences)
