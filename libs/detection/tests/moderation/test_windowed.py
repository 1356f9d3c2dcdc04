"""moderation.session with slow detectors: which text is released or held, and the limits."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from causeway_testing.guardrails.detectors import quick
from causeway_testing.guardrails.fake import ScriptedDetector, ScriptedJudge
from causeway_testing.servers import eventually
from detection.chunking.chunkers import Chunking
from detection.detectors.patterns.matching import Limits
from detection.detectors.regex import regex
from detection.domain import Action, DetectionContext, DetectorKind, Failure, OnError, Piece, Progress
from detection.moderation import whole_text
from detection.moderation.hold_back import HoldLimits
from detection.moderation.rules import Rule, redact
from detection.moderation.session import Session
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.whole_text import judge
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def workers() -> Iterator[ThreadPool]:
    """Yield the threads that scan long texts."""
    started = ThreadPool(1)
    yield started
    started.close()


def _rule(
    detector: ScriptedJudge | ScriptedDetector, action: Action = Action.REDACT, on_error: OnError = OnError.BLOCK
) -> Rule:
    return Rule("judge", detector, action, on_error, "#")


class _Client:
    """Feeds a session and releases the cleared text, as a caller must.

    Attributes:
        released: The text of each choice.
        pieces_read: The number of pieces that the session has read.
    """

    def __init__(self, session: Session, workers: ThreadPool) -> None:
        self._session = session
        self._workers = workers
        self._queue: asyncio.Queue[Piece | None] = asyncio.Queue()
        self._texts: dict[int, str] = {}
        self._until: dict[int, int] = {}
        self.released: dict[int, str] = {}
        self.steps: list[Progress] = []
        self.blocked = False
        self.pieces_read = 0
        self._task = asyncio.create_task(self._run())

    def feed(self, text: str, last: bool = False, choice: int = 0, reply: bytes = b"") -> None:
        self._queue.put_nowait(Piece(choice, text, last, reply))

    async def end(self) -> None:
        self._queue.put_nowait(None)
        await asyncio.wait_for(self._task, 60)

    async def leave(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def settle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)

    async def _pieces(self) -> AsyncIterator[Sequence[Piece]]:
        while (piece := await self._queue.get()) is not None:
            self.pieces_read += 1
            self._texts[piece.choice] = self._texts.get(piece.choice, "") + piece.text
            yield [piece]

    async def _run(self) -> None:
        async with contextlib.aclosing(self._session.run(self._pieces(), self._workers)) as run:
            async for steps in run:
                for step in steps:
                    self._take(step)

    def _take(self, step: Progress) -> None:
        assert not self.blocked
        self.steps.append(step)
        until, text = self._until.get(step.choice, 0), self._texts[step.choice]
        released = self.released.get(step.choice, "")
        assert until <= step.cleared_until <= len(text)
        if step.action is Action.BLOCK:
            assert step.cleared_until == until
            self.blocked = True
            return
        for finding in step.findings:
            start, end = finding.detection.start, finding.detection.end
            if finding.action is Action.REDACT and start is not None and end is not None:
                released += text[until:start] + finding.replacement
                until = max(until, end)
        self.released[step.choice] = released + text[until : step.cleared_until]
        self._until[step.choice] = step.cleared_until


async def test_text_waits_for_the_verdict_of_its_sentence(workers: ThreadPool) -> None:
    """A sentence is released after its verdict and not before. Spans have their positions in the whole text."""
    detector = ScriptedJudge("secret")
    detector.gate.clear()
    client = _Client(Session([_rule(detector)]), workers)
    client.feed("All is well. The secret is out. An")
    await client.settle()
    assert client.released.get(0, "") == ""
    detector.gate.set()
    await client.settle()
    assert client.released[0] == "All is well. The # is out."
    client.feed("d so on", last=True)
    await client.end()
    assert client.released[0] == "All is well. The # is out. And so on"
    (finding,) = [finding for step in client.steps for finding in step.findings]
    assert (finding.detection.start, finding.detection.end) == (17, 23)


async def test_waiting_sentences_are_judged_in_one_call(workers: ThreadPool) -> None:
    """The session makes one call at a time. The next call has all windows that became complete, except blank
    ones.
    """
    detector = ScriptedJudge("secret")
    detector.gate.clear()
    client = _Client(Session([_rule(detector)]), workers)
    for piece in ("One. T", "wo. T", "hree. F", "our。 "):
        client.feed(piece)
        await client.settle()
    detector.gate.set()
    client.feed("", last=True)
    await client.end()
    assert detector.calls == [["One."], [" Two.", " Three.", " Four。"]]
    assert client.released[0] == "One. Two. Three. Four。 "


async def test_a_reporting_rule_holds_no_text(workers: ThreadPool) -> None:
    """A detector that only reports holds no text. The findings in the whole text come with the last step."""
    detector = ScriptedJudge("secret", chunking=Chunking.WHOLE)
    client = _Client(Session([_rule(detector, Action.REPORT)]), workers)
    client.feed("A secret. And")
    await client.settle()
    assert client.released[0] == "A secret. And"
    client.feed(" more", last=True)
    await client.end()
    assert detector.calls == [["A secret. And more"]]
    assert [finding.detection.text for finding in client.steps[-1].findings] == ["secret"]


async def test_text_waits_for_the_slowest_detector(workers: ThreadPool) -> None:
    """Text that sentence, whole-text and quick detectors judge is released when the slowest has judged it."""
    sentences, quick = ScriptedJudge("one"), ScriptedDetector("zwei")
    whole = ScriptedJudge("two", chunking=Chunking.WHOLE)
    client = _Client(Session([_rule(sentences), _rule(whole), _rule(quick)]), workers)
    client.feed("Say one. Say two. Say zwei.")
    await client.settle()
    assert client.released.get(0, "") == ""
    client.feed("", last=True)
    await client.end()
    assert client.released[0] == "Say #. Say #. Say #."


async def test_a_block_ends_all_choices(workers: ThreadPool) -> None:
    """A blocking finding releases nothing and also ends the other choices."""
    detector = ScriptedJudge("secret")
    client = _Client(Session([_rule(detector, Action.BLOCK)]), workers)
    client.feed("Fine. A secret. So", choice=1)
    client.feed("Fine. Also fine. So", choice=0)
    await client.end()
    assert client.blocked
    assert "secret" not in "".join(client.released.values())


@pytest.mark.parametrize("on_error", OnError)
async def test_a_failure_blocks_unless_the_rule_allows_it(workers: ThreadPool, on_error: OnError) -> None:
    """A failing detector blocks the text, or the text is released with a warning if the rule allows failures."""
    detector = ScriptedJudge("secret", poison="poison")
    client = _Client(Session([_rule(detector, on_error=on_error)]), workers)
    client.feed("Fine. So")
    await client.settle()
    client.feed(" poison. And")
    await client.settle()
    client.feed(" on", last=True)
    await client.end()
    assert client.blocked is (on_error is OnError.BLOCK)
    assert client.released[0] == ("Fine." if client.blocked else "Fine. So poison. And on")
    failures = [failure for step in client.steps for failure in step.failures]
    assert failures == [Failure("judge", "a scripted failure")]


async def test_a_reached_time_limit_releases_no_text(workers: ThreadPool) -> None:
    """A reached time limit is a failure. The limit counts the time of the detector, not that of the model."""
    detector = ScriptedJudge("secret", seconds=0.2)
    client = _Client(Session([_rule(detector)]), workers)
    client.feed("A se")
    await asyncio.sleep(0.3)  # the model's time
    client.feed("ntence. An")
    await client.settle()
    assert client.released[0] == "A sentence."
    detector.gate.clear()
    client.feed("other. An")
    client.feed("d so on", last=True)
    await client.end()
    assert (client.blocked, client.released[0]) == (True, "A sentence.")
    assert client.steps[-1].failures == (Failure("judge", "the detector took longer than 0.2 s", 504),)


@pytest.mark.parametrize("chunking", Chunking)
async def test_a_window_above_the_hold_back_limit_is_a_failure(workers: ThreadPool, chunking: Chunking) -> None:
    """A window longer than the limit is a failure and releases nothing."""
    detector = ScriptedJudge("secret", chunking=chunking)
    client = _Client(Session([_rule(detector)], holding=HoldLimits(window=50, whole=50)), workers)
    for _ in range(6):
        client.feed("a" * 10)
    await client.end()
    assert (client.blocked, client.released.get(0, "")) == (True, "")
    assert client.steps[-1].failures[0].message == "more than 50 characters would have to be held back"


async def test_a_slow_detector_slows_the_stream(workers: ThreadPool) -> None:
    """While too much text waits for a detector, the session reads no further piece.

    Later it reads all pieces, and loses none. One call has at most 32 windows.
    """
    detector = ScriptedJudge("secret")
    detector.gate.clear()
    client = _Client(Session([_rule(detector)]), workers)
    sentence = "This sentence has some forty characters. "
    for _ in range(1000):
        client.feed(sentence)
    for _ in range(400):
        await asyncio.sleep(0)
    assert client.pieces_read <= 4096 // len(sentence) + 3
    detector.gate.set()
    client.feed("", last=True)
    await client.end()
    assert client.released[0] == sentence * 1000
    assert all(len(windows) <= 32 for windows in detector.calls)


async def test_a_caller_that_leaves_stops_the_detectors(workers: ThreadPool) -> None:
    """A caller that leaves cancels the running calls of detectors."""
    detector = ScriptedJudge("secret")
    detector.gate.clear()
    client = _Client(Session([_rule(detector)]), workers)
    client.feed("One. T")
    await client.settle()
    await client.leave()
    await client.settle()
    assert detector.cancelled == 1


async def test_a_detector_of_conversations_is_called_at_the_end(workers: ThreadPool) -> None:
    """A detector of conversations is called at the end, with the reply, even for an answer without text."""
    detector = ScriptedJudge("x", chunking=Chunking.WHOLE, kind=DetectorKind.CHAT)
    client = _Client(Session([_rule(detector, Action.REPORT)], DetectionContext(messages=b"[]")), workers)
    client.feed("", last=True, reply=b'{"tool_calls":[]}')
    await client.end()
    assert detector.calls == [[""]]
    assert detector.context is not None
    assert detector.context.replies == (b'{"tool_calls":[]}',)


async def test_text_is_released_by_sentences_on_request(workers: ThreadPool) -> None:
    """On request, text is released sentence by sentence, one step for each, with the findings of the sentence."""
    rule = Rule("q", quick(regex(Limits()), regex=["!"]), Action.REPORT, OnError.BLOCK, "#")
    client = _Client(Session([rule], chunking=Chunking.SENTENCE), workers)
    client.feed("One. Two! Thr")
    await client.settle()
    assert client.released[0] == "One. Two!"
    client.feed("ee", last=True)
    await client.end()
    assert [step.cleared_until for step in client.steps] == [4, 9, 15]
    assert [len(step.findings) for step in client.steps] == [0, 1, 0]


async def test_an_empty_text_has_a_last_step(workers: ThreadPool) -> None:
    """Even an empty text has a last step, which states that all text is judged."""
    client = _Client(Session([_rule(ScriptedJudge("x"))]), workers)
    client.feed("", last=True)
    await client.end()
    assert client.steps == [Progress(0, 0, fully_judged=True)]


async def test_choices_do_not_wait_for_each_other(workers: ThreadPool) -> None:
    """A choice with an incomplete sentence does not delay another choice."""
    client = _Client(Session([_rule(ScriptedJudge("x"))]), workers)
    client.feed("No end", choice=0)
    client.feed("Done. Yes", choice=1)
    await client.settle()
    assert client.released == {1: "Done."}
    await client.end()


_TEXTS = st.lists(
    st.one_of(st.text("aA. \n。é🔑", max_size=6), st.sampled_from(["secret", "top", "A secret. ", "!"])),
    max_size=10,
)


@given(
    pieces=_TEXTS,
    action=st.sampled_from([Action.REPORT, Action.REDACT]),
    chunking=st.sampled_from([None, *Chunking]),
)
def test_a_stream_has_the_findings_of_the_whole_text(
    pieces: list[str], action: Action, chunking: Chunking | None
) -> None:
    """For every split, the released text and the findings are those of the whole text."""

    async def run() -> None:
        workers = ThreadPool(1)
        rules = [_rule(ScriptedJudge("secret"), action), _rule(ScriptedDetector("top"), action)]
        client = _Client(Session(rules, chunking=chunking), workers)
        for piece in pieces:
            client.feed(piece)
        client.feed("", last=True)
        await client.end()
        text = "".join(pieces)
        (verdict,), _ = await judge([text], rules, DetectionContext(), workers)
        workers.close()
        assert client.released.get(0, "") == redact(text, verdict.findings, joint="")
        found = [finding for step in client.steps for finding in step.findings]
        assert sorted(map(repr, found)) == sorted(map(repr, verdict.findings))

    asyncio.run(run())


async def test_a_detector_across_choices_is_called_once(workers: ThreadPool) -> None:
    """A detector across choices is called once. A finding counts for each choice, but has a span only in the choice
    that contains it.
    """
    detector = ScriptedJudge("secret", chunking=Chunking.WHOLE, cross_choice=True)
    verdicts, _ = await judge(["a secret", "none"], [_rule(detector, Action.REPORT)], DetectionContext(), workers)
    assert detector.calls == [["a secret", "none"]]
    assert [[finding.detection.start for finding in verdict.findings] for verdict in verdicts] == [[2], [None]]


async def test_a_detector_across_choices_needs_no_windows(
    workers: ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A detector across choices gets whole texts. The texts are not cut into windows."""
    detector = ScriptedJudge("secret", chunking=Chunking.SENTENCE, cross_choice=True)
    monkeypatch.setattr(whole_text, "split_text", None)  # a call would fail
    texts = ["One. A secret.", "None."]
    _, failures = await judge(texts, [_rule(detector, Action.REPORT)], DetectionContext(), workers)
    assert (detector.calls, failures) == ([texts], [])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_growing_choices_are_judged_in_one_call(workers: ThreadPool, order: tuple[int, int]) -> None:
    """The detector is called once, when the answer ends. No choice is released before, and a finding counts for
    each choice.
    """
    detector = ScriptedJudge("secret", chunking=Chunking.WHOLE, cross_choice=True)
    client = _Client(Session([_rule(detector)]), workers)
    client.feed("a secret", choice=0)
    for choice in order:
        client.feed(" here", last=True, choice=choice)
    await client.settle()
    assert client.released == {}
    assert detector.calls == []
    await client.end()
    assert detector.calls == [["a secret here", " here"]]
    # The other choice has no span to replace, so the rule blocks it.
    assert client.blocked
    assert client.released == {0: "a # here"}


async def test_clean_choices_that_are_judged_in_one_call_are_released(workers: ThreadPool) -> None:
    """Clean choices are released. A choice that is too long is not judged, and fails alone."""
    detector = ScriptedJudge("secret", chunking=Chunking.WHOLE, cross_choice=True)
    rule = _rule(detector, on_error=OnError.ALLOW)
    client = _Client(Session([rule], holding=HoldLimits(whole=10)), workers)
    client.feed("fine", last=True, choice=0)
    client.feed("longer than ten", last=True, choice=1)
    client.feed("good", last=True, choice=2)
    await client.end()
    assert client.released == {0: "fine", 1: "longer than ten", 2: "good"}
    assert detector.calls == [["fine", "good"]]
    assert [step.failures[0].detector_id for step in client.steps if step.failures] == ["judge"]


async def test_a_caller_that_leaves_stops_the_call_for_all_choices(workers: ThreadPool) -> None:
    """A caller that leaves cancels the call, as for any other detector."""
    detector = ScriptedJudge("secret", chunking=Chunking.WHOLE, cross_choice=True)
    detector.gate.clear()
    client = _Client(Session([_rule(detector)]), workers)
    client.feed("fine", last=True)
    ending = asyncio.ensure_future(client.end())
    await eventually(lambda: bool(detector.calls))
    ending.cancel()
    await client.leave()
    assert detector.cancelled == 1


@pytest.mark.parametrize(
    ("action", "on_error", "blocks"),
    [
        (Action.REPORT, OnError.BLOCK, False),
        (Action.REPORT, OnError.ALLOW, False),
        (Action.REDACT, OnError.BLOCK, True),
        (Action.REDACT, OnError.ALLOW, False),
        (Action.BLOCK, OnError.BLOCK, True),
        (Action.BLOCK, OnError.ALLOW, False),
    ],
)
async def test_an_answer_without_passages(
    workers: ThreadPool, action: Action, on_error: OnError, blocks: bool
) -> None:
    """Without passages, a comparing detector is not called, and this is reported. If its rule protects the text,
    ``on_error`` decides whether the text passes. This applies to growing and to whole texts.
    """
    scripted = ScriptedJudge("secret", kind=DetectorKind.CONTEXT_DOC)
    rule = _rule(scripted, action, on_error)
    client = _Client(Session([rule]), workers)
    client.feed("Nine years. ")
    client.feed("Or ten.", last=True)
    await client.end()
    [failure] = [failure for step in client.steps for failure in step.failures]
    assert (failure.not_asked, failure.status, scripted.calls) == (True, 422, [])
    assert client.blocked is blocks
    assert client.released.get(0, "") == ("" if blocks else "Nine years. Or ten.")
    (verdict,), (reported,) = await judge(["Nine years."], [rule], DetectionContext(), workers)
    assert reported == failure
    assert verdict.action is (Action.BLOCK if blocks else Action.NONE)
