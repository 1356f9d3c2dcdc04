"""The kinds of detectors that a route accepts."""

from dataclasses import replace

import pytest
from causeway_testing.gateway.answering import FakeGuardrails
from gateway.answering.detector_kinds import DetectorKinds
from gateway.domain import Action, Chunking, DetectionOptions, Detector, DetectorInfo, DetectorKind, Detectors, Turn
from servicekit.deadline import Deadline
from servicekit.errors import NotFound, Unprocessable
from servicekit.principal import LOCAL, Principal


class Guardrails(FakeGuardrails):
    """Guardrails with a detector that judges sentences and one that judges whole texts."""

    async def detectors(
        self, principal: Principal, deadline: Deadline, *, health: bool = False
    ) -> tuple[DetectorInfo, ...]:
        assert not health
        return (
            DetectorInfo("talk", DetectorKind.CHAT, streaming=False),
            DetectorInfo("words", DetectorKind.CONTENTS),
        )


def turn(*names: str, chunking: Chunking | None = None, **kinds: DetectorKind) -> Turn:
    output = tuple(Detector(name, Action.REPORT) for name in names)
    return Turn(
        LOCAL,
        "Hi",
        detectors=Detectors(output=output),
        detection=DetectionOptions(
            chunking=chunking, kinds=tuple((name, frozenset((kind,))) for name, kind in kinds.items())
        ),
    )


async def admit(requested: Turn) -> tuple[Turn, tuple[DetectorInfo, ...]]:
    return await DetectorKinds(Guardrails()).admit(requested, Deadline.after(1))


async def test_an_unknown_detector_is_refused() -> None:
    """An unknown detector is refused, and the refusal names it."""
    with pytest.raises(NotFound, match="detector `missing` not found"):
        await admit(turn(missing=DetectorKind.CHAT))


async def test_a_detector_of_another_kind_is_refused() -> None:
    """A detector of another kind is refused."""
    with pytest.raises(Unprocessable, match="detector `talk` is not supported by this endpoint"):
        await admit(turn(words=DetectorKind.CONTENTS, talk=DetectorKind.CONTENTS))


async def test_known_detectors_are_returned() -> None:
    """The known detectors are returned. For a turn without kinds, none are requested."""
    _, known = await admit(turn(words=DetectorKind.CONTENTS))
    assert [info.detector_id for info in known] == ["talk", "words"]
    plain = turn("words")
    assert await admit(plain) == (plain, ())


@pytest.mark.parametrize(
    ("names", "chunking"), [(("talk",), Chunking.MINIMAL), (("talk", "words"), Chunking.SENTENCE)]
)
async def test_the_detectors_decide_on_the_split_of_an_answer(names: tuple[str, ...], chunking: Chunking) -> None:
    """An answer is cut into sentences if one of its detectors judges sentences."""
    requested = turn(*names, chunking=Chunking.DETECTORS)
    decided, _ = await admit(requested)
    assert decided == replace(requested, detection=replace(requested.detection, chunking=chunking))
