from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from causeway_testing.gateway.answering import FakeGuardrails
from gateway.answering.checks import BlockedQuestion, Checks
from gateway.answering.request_texts import WITHHELD
from gateway.answering.timeline import QUERY, Timeline
from gateway.domain import (
    Action,
    DetectionOptions,
    Detections,
    Detector,
    DetectorFailure,
    Detectors,
    Direction,
    Finding,
    InputScope,
    Message,
    Passage,
    Turn,
    Verdict,
)
from servicekit.deadline import Deadline
from servicekit.errors import Blocked, http_status
from servicekit.principal import LOCAL

HISTORY = (
    Message("system", "secret of the system"),
    Message("user", "an old secret"),
    Message("assistant", "no secret"),
    Message("tool", "a secret result"),
)


def turn(action: Action, question: str = "a question", history: Sequence[Message] = ()) -> Turn:
    detectors = (Detector("words", action),)
    return Turn(LOCAL, question, tuple(history), detectors=Detectors(input=detectors, context=detectors))


async def check_input(
    requested: Turn, guardrails: FakeGuardrails | None = None
) -> tuple[Turn, tuple[Detections, ...]]:
    return await Checks(guardrails or FakeGuardrails()).check_input(requested, Timeline(), Deadline.after(5))


def passage(number: int, text: str) -> Passage:
    return Passage(f"p{number}", "docs", "d", "a.md", "a.md", text, 1.0)


async def test_without_detectors_the_guardrails_are_not_called() -> None:
    """Without detectors, the guardrails are not called, and the turn and the passages stay unchanged."""
    guardrails, requested = FakeGuardrails(), replace(turn(Action.BLOCK, "a secret"), detectors=Detectors())
    assert await check_input(requested, guardrails) == (requested, ())
    assert await Checks(guardrails).check_context(requested, (passage(1, "x"),), Timeline(), Deadline.after(5)) == (
        (passage(1, "x"),),
        (),
    )
    assert guardrails.judged_texts == []


async def test_users_and_tools_are_judged() -> None:
    """Messages of users and tools are judged. Messages of the system and the model are not."""
    guardrails = FakeGuardrails()
    requested = turn(Action.REDACT, "my secret", HISTORY)
    requested = replace(requested, detectors=Detectors(input=(Detector("words", Action.REDACT, requested=True),)))
    checked, found = await check_input(requested, guardrails)
    assert guardrails.judged_texts == ["an old secret", "a secret result", "my secret"]
    assert [message.text for message in checked.history] == [
        "secret of the system",
        "an old [REDACTED]",
        "no secret",
        "a [REDACTED] result",
    ]
    assert checked.question == "my [REDACTED]"
    assert [(event.direction, event.item) for event in found] == [(Direction.INPUT, item) for item in (1, 3, 4)]


async def test_a_blocked_question_names_the_finding() -> None:
    """A blocked question causes an error that names the finding."""
    with pytest.raises(Blocked, match="secret") as caught:
        await check_input(turn(Action.BLOCK, "my secret"))
    assert caught.value.field == "messages"


async def test_a_detector_that_fails_closed_is_named() -> None:
    """A detector that fails closed is named in the error."""

    class Guardrails(FakeGuardrails):
        async def detect(self, *_: Any, **__: Any) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
            return (Verdict(Action.BLOCK, (), ""),), (DetectorFailure("pii", "no answer"),)

    with pytest.raises(Blocked, match="pii failed"):
        await check_input(turn(Action.BLOCK), Guardrails())


async def test_an_old_message_does_not_close_a_conversation() -> None:
    """A finding in a message before the latest answer withholds that message and does not block the turn."""
    requested = turn(Action.BLOCK, history=(*HISTORY[:3], Message("tool", "a clean result")))
    checked, found = await check_input(requested)
    assert [message.text for message in checked.history] == [*[WITHHELD] * 3, "a clean result"]
    assert [(event.direction, event.item) for event in found] == [(Direction.INPUT, at) for at in range(3)]


async def test_an_old_call_of_a_tool_does_not_close_a_conversation() -> None:
    """A finding in an old tool call is replaced. A finding in the last message blocks the turn."""
    calls = b'{"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\\"a\\":\\"secret\\"}"}}]}'
    called = Message("assistant", "", b"", calls)
    requested = turn(Action.BLOCK, history=(Message("user", "Find it."), called, Message("tool", "Here.")))
    checked, _ = await check_input(requested)
    assert (b"secret" in checked.history[1].extra_json, WITHHELD.encode() in checked.history[1].extra_json) == (
        False,
        True,
    )
    with pytest.raises(Blocked):
        await check_input(turn(Action.BLOCK, question="", history=(Message("user", "Find it."), called)))


async def test_the_joined_parts_of_an_old_message_do_not_close_a_conversation() -> None:
    """A finding that spans parts of an old message is replaced. In the last message, it blocks the turn."""
    parted = Message("user", "a sec\nret", gaps=(5,))
    history = (parted, Message("assistant", "An answer."))
    checked, found = await check_input(turn(Action.BLOCK, history=history))
    assert checked.history[0].text == f"a {WITHHELD}"
    assert [(event.item, event.findings[0].action) for event in found] == [(0, Action.REDACT)]
    with pytest.raises(Blocked):
        await check_input(turn(Action.BLOCK, question="", history=(*history, parted)))


async def test_a_tools_result_since_the_latest_answer_can_block() -> None:
    """A tool's result after the latest answer can block the turn."""
    with pytest.raises(Blocked):
        await check_input(turn(Action.BLOCK, history=HISTORY))


async def test_a_turn_without_a_question_is_judged_by_its_history() -> None:
    """A turn without a question is judged by its history."""
    checked, _ = await check_input(turn(Action.REDACT, "", HISTORY))
    assert (checked.question, checked.history[-1].text) == ("", "a [REDACTED] result")


@pytest.mark.parametrize(
    ("action", "texts"),
    [(Action.BLOCK, ["clean"]), (Action.REDACT, ["clean", "a [REDACTED]"]), (Action.REPORT, ["clean", "a secret"])],
)
async def test_passages_are_judged(action: Action, texts: list[str]) -> None:
    """A blocked passage is omitted, a redacted one is changed, and a reported one is kept.

    Each finding has the number of its passage.
    """
    found_passages = (passage(1, "clean"), passage(2, "a secret"))
    allowed, found = await Checks(FakeGuardrails()).check_context(
        turn(action), found_passages, Timeline(), Deadline.after(5)
    )
    assert [passage.text for passage in allowed] == texts
    assert [(event.direction, event.item) for event in found] == [(Direction.CONTEXT, 1)]


async def test_captions_of_redacted_text_are_removed() -> None:
    """Captions that are no longer in their redacted passage are removed."""
    captions = ("A secret.", "In the clear.")
    found = tuple(replace(passage(1, text), captions=captions) for text in ("A secret. In the clear.", "Clear."))
    allowed, _ = await Checks(FakeGuardrails()).check_context(
        turn(Action.REDACT), found, Timeline(), Deadline.after(5)
    )
    assert [passage.captions for passage in allowed] == [("In the clear.",), captions]


async def test_the_failure_of_a_detector_is_an_event() -> None:
    """The failure of a detector is returned as an event without findings of its own."""
    failure = DetectorFailure("pii", "no answer")

    class Guardrails(FakeGuardrails):
        async def detect(self, *_: Any, **__: Any) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
            finding = Finding("words", "word", "secret", 1.0, Action.REPORT, 0, 1)
            return (Verdict(Action.REPORT, (finding,), ""),), (failure,)

    found = await Checks(Guardrails()).report_on_input(turn(Action.REPORT), Timeline(), Deadline.after(5))
    assert [event.failures for event in found] == [(), (failure,)]


async def test_reporting_detectors_are_called_separately() -> None:
    """`report_on_input` calls the reporting detectors with the original text, and `check_input` the others."""
    guardrails, timeline = FakeGuardrails(), Timeline()
    report, redact = Detector("words", Action.REPORT), Detector("words", Action.REDACT)
    requested = replace(turn(Action.REDACT, "my secret"), detectors=Detectors(input=(report, redact)))
    checks = Checks(guardrails)
    checked, found = await checks.check_input(requested, timeline, Deadline.after(5))
    assert (checked.question, [detections.findings[0].action for detections in found]) == (
        "my [REDACTED]",
        [Action.REDACT],
    )
    reported = await checks.report_on_input(requested, timeline, Deadline.after(5))
    assert [detections.findings[0].action for detections in reported] == [Action.REPORT]
    assert guardrails.judged_texts == ["my secret", "my secret"]
    assert timeline.detections == [*found, *reported]
    assert await checks.report_on_input(turn(Action.BLOCK, "my secret"), timeline, Deadline.after(5)) == ()
    assert len(guardrails.judged_texts) == 2


async def test_findings_have_positions_in_the_requests_messages() -> None:
    """Findings have the positions of the request's messages, also in a question made of several messages."""
    messages = (Message("user", "a secret"), Message("system", "be kind"), Message("user", "no secret"))
    requested = replace(
        turn(Action.REDACT, "a secret\n\nno secret", messages[1:2]),
        original=replace(
            turn(Action.REDACT, "a secret\n\nno secret", messages[1:2]).original,
            messages=messages,
            places=(1, 0, 2),
        ),
    )
    checked, found = await check_input(requested)
    assert checked.question == "a [REDACTED]\n\nno [REDACTED]"
    assert [(detections.item, [(f.start, f.end) for f in detections.findings]) for detections in found] == [
        (0, [(2, 8)]),
        (2, [(3, 9)]),
    ]


@pytest.mark.parametrize("action", list(Action))
async def test_a_search_query_is_cleared(action: Action) -> None:
    """A search query is accepted unless a detector would change it. Without detectors, none is called."""
    guardrails, timeline = FakeGuardrails(), Timeline()
    requested = replace(turn(action), detectors=Detectors(output=(Detector("words", action),)))
    checks = Checks(guardrails)
    assert await checks.clears_query(requested, "a word", timeline, Deadline.after(5))
    assert await checks.clears_query(requested, "a secret", timeline, Deadline.after(5)) is (
        action is Action.REPORT
    )
    assert guardrails.judged_texts == ["a word", "a secret"]
    assert await checks.clears_query(
        replace(requested, detectors=Detectors()), "a secret", timeline, Deadline.after(5)
    )
    assert len(guardrails.judged_texts) == 2
    assert [(detections.direction, detections.item) for detections in timeline.detections] == [
        (Direction.OUTPUT, QUERY)
    ]


class FailingGuardrails(FakeGuardrails):
    """Guardrails whose detector fails with the given status."""

    status = 0

    async def detect(self, *args: Any, **more: Any) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
        verdicts = tuple(Verdict(Action.BLOCK, (), "") for _ in args[3])
        return verdicts, (DetectorFailure("words", "it failed", self.status),)


@pytest.mark.parametrize(("status", "http"), [(0, 503), (500, 503), (429, 429), (504, 504)])
async def test_a_failing_detector_is_no_client_error(status: int, http: int) -> None:
    """A failing detector is answered with 503, 429 or 504 instead of 400."""
    guardrails, timeline = FailingGuardrails(), Timeline()
    guardrails.status = status
    with pytest.raises(BlockedQuestion, match="the detector words failed") as error:
        await Checks(guardrails).check_input(turn(Action.BLOCK), timeline, Deadline.after(5))
    assert http_status(error.value) == http
    assert error.value.detections == tuple(timeline.detections)
    assert timeline.detections[0].failures == (DetectorFailure("words", "it failed", status),)


async def test_findings_are_recorded_at_once() -> None:
    """Findings of each direction are recorded at once."""
    timeline, checks = Timeline(), Checks(FakeGuardrails())
    await checks.report_on_input(turn(Action.REPORT, "a secret"), timeline, Deadline.after(5))
    await checks.check_context(turn(Action.REDACT), (passage(1, "a secret"),), timeline, Deadline.after(5))
    with pytest.raises(BlockedQuestion):
        await checks.check_input(turn(Action.BLOCK, "a secret"), timeline, Deadline.after(5))
    recorded = [(detections.direction, detections.findings[0].action) for detections in timeline.detections]
    assert recorded == [
        (Direction.INPUT, Action.REPORT),
        (Direction.CONTEXT, Action.REDACT),
        (Direction.INPUT, Action.BLOCK),
    ]


async def test_a_report_of_a_passage_does_not_quote_redacted_text() -> None:
    """A report of a passage does not quote text that another detector redacted."""

    class TwoDetectors(FakeGuardrails):
        async def detect(self, *args: Any, **more: Any) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
            found = (
                Finding("r", "t", "all", 1.0, Action.REPORT, 0, 8, "a secret"),
                Finding("w", "t", "word", 1.0, Action.REDACT, 2, 8, "secret", "[X]"),
                Finding("r", "t", "start", 1.0, Action.REPORT, 0, 1, "a"),
            )
            return (Verdict(Action.REDACT, found, "a [X]"),), ()

    _, (found,) = await Checks(TwoDetectors()).check_context(
        turn(Action.REDACT), (passage(1, "a secret"),), Timeline(), Deadline.after(5)
    )
    assert [finding.withheld for finding in found.findings] == [True, False, False]


LAST = DetectionOptions(input_scope=InputScope.LAST)


@pytest.mark.parametrize("action", [Action.BLOCK, Action.REDACT])
async def test_a_request_cannot_limit_a_policy_to_the_last_message(action: Action) -> None:
    """A request cannot limit the detectors of a policy to the last message."""
    history = (Message("user", "my secret"), Message("user", "and"))
    requested = replace(turn(action, "a question", history), detection=LAST)
    if action is Action.BLOCK:
        with pytest.raises(Blocked):
            await check_input(requested)
    else:
        checked, _ = await check_input(requested)
        assert [message.text for message in checked.history] == ["my [REDACTED]", "and"]


async def test_a_requests_own_detectors_judge_the_last_message_alone() -> None:
    """The detectors of a request judge only its last message.

    Each text is judged once together with the policy's.
    """
    own = Detectors(input=(Detector("words", Action.BLOCK, requested=True),))
    for history, question in ((HISTORY, "a question"), (HISTORY[:3], "")):
        guardrails = FakeGuardrails()
        requested = replace(turn(Action.REDACT, question, history), detection=LAST, detectors=own)
        if question:
            await check_input(requested, guardrails)
        else:
            with pytest.raises(Blocked):
                await check_input(requested, guardrails)
        assert guardrails.judged_texts == [question or "no secret"]
    both = replace(turn(Action.REDACT, "my secret", HISTORY[:3]), detection=LAST)
    guardrails = FakeGuardrails()
    with pytest.raises(Blocked):
        await check_input(replace(both, detectors=both.detectors + own), guardrails)
    assert guardrails.judged_texts == ["secret of the system", "an old secret", "no secret", "my secret"]
