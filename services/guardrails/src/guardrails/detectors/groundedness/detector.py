"""The detector ``groundedness``: sentences of an answer that the passages do not support.

Sentences are compared by the cosine of their embeddings, which tells what is about something else. A sentence that
is near to a passage is compared with it word by word: numbers, dates, names and colours must be the passage's, and
beside the same words; negations and opposites must be the same. The words are English. It remains a comparison of
words; for the rest a model can be asked beside it.

A finding tells which sentence of which passage it was compared with by its place, not by its text: what an output
policy takes out of the answer must not come back in what is said about it.
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
from guardrails.detectors.groundedness.comparison import Difference, Place, Sources
from guardrails.detectors.params import Params
from guardrails.detectors.port import DetectorFailed, Judge
from guardrails.domain import Detection, DetectionContext, DetectorKind, Health

_TYPE = "groundedness"
_UNPROCESSABLE = 422
_MOST_PASSAGES = 400  # sentences of passages that are compared; each takes milliseconds
_FEWEST_LETTERS = 12  # with fewer a sentence says nothing that could be wrong: "Yes.", a list's number
_KEPT = 16  # answers whose passages are kept embedded
_OPPOSITE = ("negation", "opposite")
_NAMING = ("name", "colour")
_CITATION = re.compile(r"\[[^\]\n]{1,200}\]")

OpenEmbedder = Callable[[], Awaitable[Embedder]]
"""Opens the embedder when it is first needed; raises `SetupError`."""


class GroundednessParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    minimum: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="The least cosine to a sentence of a passage.")
    ] = 0.35
    numbers: Annotated[
        bool,
        msgspec.Meta(
            description="Whether numbers and dates that the passages do not have there are findings, too."
        ),
    ] = True
    names: Annotated[
        bool, msgspec.Meta(description="Whether the same holds for names and colours, and for their order.")
    ] = True
    negations: Annotated[
        bool, msgspec.Meta(description="Whether sentences that say the opposite of a passage are findings, too.")
    ] = True


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
        "Finds sentences of an answer that the passages do not support.",
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
        found: list[list[Detection]] = [[] for _ in windows]
        if not asked:
            return found
        try:
            vectors, sources = await self._passages.embedded(context.passages)
            answers = await self._passages.embed([bare[at] for at in asked])
        except (SetupError, CausewayError, UnembeddableText) as error:
            raise DetectorFailed("the embedding model cannot be used") from error
        cosines = answers @ vectors.T
        best = cosines.argmax(axis=1)
        # The comparison takes a fraction of a millisecond for each sentence of the passages.
        return await asyncio.to_thread(self._findings, windows, bare, asked, sources, best, cosines)

    def _findings(
        self,
        windows: Sequence[str],
        bare: Sequence[str],
        asked: Sequence[int],
        sources: Sources,
        best: npt.NDArray[np.intp],
        cosines: npt.NDArray[np.float32],
    ) -> list[list[Detection]]:
        found: list[list[Detection]] = [[] for _ in windows]
        for row, at in enumerate(asked):
            cosine, nearest = float(cosines[row, best[row]]), sources.sentences[best[row]][1]
            if cosine < self._params.minimum:
                found[at] = [_detection("ungrounded", windows[at], min(1.0, max(0.0, 1 - cosine)), nearest, cosine)]
                continue
            told = [each for each in sources.differences(bare[at]) if self._is_wanted(each)]
            if told:
                place = next((each.place for each in told if each.place is not None), nearest)
                name = f"{'contradicted' if told[0].name in _OPPOSITE else 'unsupported'}_{told[0].name}"
                found[at] = [_detection(name, windows[at], 1.0, place, cosine, told)]
        return found

    def _is_wanted(self, difference: Difference) -> bool:
        if difference.name in _OPPOSITE:
            return self._params.negations
        return self._params.names if difference.name in _NAMING else self._params.numbers


def _detection(
    name: str, window: str, score: float, place: Place, cosine: float, told: Sequence[Difference] = ()
) -> Detection:
    start = len(window) - len(window.lstrip())
    text = window.strip()
    evidence: list[dict[str, object]] = [
        {"name": "nearest_passage", "value": str(place.passage), "score": round(cosine, 4)},
        {"name": "sentence", "value": f"{place.start}:{place.end}"},
    ]
    evidence += [{"name": each.name, "value": each.value} for each in told]
    extra = msgspec.json.encode({"evidence": evidence})
    return Detection(_TYPE, name, text, start, start + len(text), score, extra)


class _Passages:
    """Embeds, and keeps the latest passages' vectors: an answer's sentences come one after the other."""

    def __init__(self, open_embedder: OpenEmbedder) -> None:
        self._open = open_embedder
        self._kept: dict[tuple[str, ...], asyncio.Task[tuple[npt.NDArray[np.float32], Sources]]] = {}

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """One row a text."""
        return await (await self._open()).embed(texts)

    async def embedded(self, passages: tuple[str, ...]) -> tuple[npt.NDArray[np.float32], Sources]:
        """One row for each sentence of the passages, and what they say."""
        task = self._kept.pop(passages, None)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.create_task(self._embedded(passages))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # all callers may have left
        self._kept[passages] = task
        if len(self._kept) > _KEPT:
            self._kept.pop(next(iter(self._kept)))
        # A caller that leaves does not take the vectors from the others.
        return await asyncio.shield(task)

    async def _embedded(self, passages: tuple[str, ...]) -> tuple[npt.NDArray[np.float32], Sources]:
        sentences = []
        for index, passage in enumerate(passages):
            for window in windows_of(passage, Chunking.SENTENCE):
                text = window.text.strip()
                if text:
                    start = window.start + window.text.index(text)
                    sentences.append((text, Place(index, start, start + len(text))))
        if len(sentences) > _MOST_PASSAGES:
            raise DetectorFailed(f"the passages have more than {_MOST_PASSAGES} sentences")
        return await self.embed([text for text, _ in sentences]), await asyncio.to_thread(Sources, sentences)
