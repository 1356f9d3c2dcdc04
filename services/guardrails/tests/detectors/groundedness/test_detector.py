"""guardrails.detectors.groundedness: sentences that no passage supports."""

import json

import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.guardrails.detectors import slow
from detection.chunking.chunkers import Chunking, windows_of
from detection.detectors.port import DetectorFailed, Judge
from detection.domain import Detection, DetectionContext, DetectorKind
from embedding.errors import CacheMissing
from embedding.port import Embedder
from guardrails.detectors.groundedness.detector import groundedness

_PASSAGES = ("The bearing will be renewed in 2027. It costs 300 euros.", "The pump is painted green.")


async def _open() -> Embedder:
    return HashingEmbedder()


async def _missing() -> Embedder:
    raise CacheMissing("not built")


async def _judge(judge: Judge, text: str) -> list[Detection]:
    windows = [window.text for window in windows_of(text, Chunking.SENTENCE)]
    return [
        found
        for detections in await judge.judge(windows, DetectionContext(passages=_PASSAGES))
        for found in detections
    ]


async def test_a_sentence_unlike_all_passages_is_a_finding() -> None:
    """A sentence that is like a sentence of a passage is grounded. Another sentence is a finding with the nearest
    passage.
    """
    judge = slow(groundedness(_open, 10))
    assert judge.kind is DetectorKind.CONTEXT_DOC
    assert await _judge(judge, "The bearing will be renewed. The pump is green. Yes.") == []
    (found,) = await _judge(judge, "The pump is painted green. Elephants eat grass in Africa daily.")
    assert (found.type, found.name, found.text) == (
        "groundedness",
        "ungrounded",
        "Elephants eat grass in Africa daily.",
    )
    assert found.score > 0.55
    assert json.loads(found.extra)["evidence"][0]["name"] == "nearest_passage"


async def test_an_unsupported_number_is_a_finding() -> None:
    """A number that no passage has is a finding, even in a sentence near to a passage. Numbers of citations are
    ignored.
    """
    judge = slow(groundedness(_open, 10))
    (found,) = await _judge(judge, "The bearing will be renewed in 2031 [handbook.pdf#page=9].")
    assert found.name == "unsupported_number"
    nearest, sentence, number = json.loads(found.extra)["evidence"]
    assert (nearest["name"], nearest["value"]) == ("nearest_passage", "0")
    assert sentence == {"name": "sentence", "value": "0:36"}
    assert number == {"name": "number", "value": "2031"}
    assert await _judge(judge, "The bearing will be renewed in 2027 [12].") == []
    unnumbered = slow(groundedness(_open, 10), numbers=False)
    assert await _judge(unnumbered, "The bearing will be renewed in 2031.") == []


@pytest.mark.parametrize(
    ("text", "parameter", "name"),
    [
        ("The bearing will be renewed in two thousand years.", "numbers", "unsupported_number"),
        ("The pump is painted red.", "names", "unsupported_colour"),
        ("The pump is not painted green.", "negations", "contradicted_negation"),
    ],
)
async def test_each_kind_of_difference_can_be_disabled(text: str, parameter: str, name: str) -> None:
    """The name of a finding is the kind of the difference. A parameter disables each kind."""
    (found,) = await _judge(slow(groundedness(_open, 10)), text)
    assert found.name == name
    assert await _judge(slow(groundedness(_open, 10), **{parameter: False}), text) == []


async def test_urls_instead_of_passages_are_refused() -> None:
    """The detector does not fetch documents. It refuses URLs with status 422, because the request is wrong."""
    context = DetectionContext(passages=("https://example.org/so",), urls=True)
    with pytest.raises(DetectorFailed, match="not their URLs") as failed:
        await slow(groundedness(_open, 10)).judge(["The bearing will be renewed."], context)
    assert failed.value.status == 422


async def test_without_the_model_the_detector_fails() -> None:
    """Without the model the detector fails and is unhealthy."""
    kind = groundedness(_missing, 10)
    with pytest.raises(DetectorFailed, match="embedding model"):
        await _judge(slow(kind), "The bearing will be renewed.")
    assert not (await kind.health()).healthy
    assert (await groundedness(_open, 10).health()).healthy
