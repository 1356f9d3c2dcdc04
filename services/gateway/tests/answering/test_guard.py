"""The guard receives batches of a model and returns batches for the client, as in the pipeline."""

import asyncio
import itertools
import json
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from causeway_testing.gateway.answering import FakeGuardrails
from causeway_testing.servers import eventually
from gateway.answering.guard import MAX_HELD_CHARACTERS, MAX_PIECE_LENGTH, OutputGuard
from gateway.answering.hold_back import MAX_REPLY_LENGTH
from gateway.answering.json_texts import replaced
from gateway.answering.other_texts import FIRST, MAX_TEXTS
from gateway.domain import (
    Action,
    Batch,
    Completion,
    Delta,
    Detections,
    Detector,
    DetectorFailure,
    Event,
    Finding,
    Finish,
    Start,
    Usage,
)
from gateway.domain.deltas import members_of, merge
from gateway.ports.answering import Clearance
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import encode
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, NotFound, Unavailable
from servicekit.principal import LOCAL

MESSAGE = "Withheld."


def finding(start: int, end: int, action: Action = Action.REDACT, replacement: str = "[X]") -> Finding:
    return Finding("d", "pii", "thing", 1.0, action, start, end, "?" * (end - start), replacement)


@dataclass
class PartialWatch:
    """A watch that clears a share of the uncleared text after each piece.

    Attributes:
        spans: The findings by choice. A finding is reported when its end is cleared, and no clearance splits it.
        shares: Percentages, used in turn after each piece. The last piece is cleared completely.
        blocks_at: The choice and the code point whose arrival causes a block.
        auxiliary: Whether the members other than a text are judged.
        resume: If given, the watch accepts pieces and returns no clearance until this event is set.
        at_once: Whether `feed` returns the clearances; else `clearances` yields them.
    """

    at_once: ClassVar[bool]
    spans: dict[int, list[Finding]] = field(default_factory=dict)
    shares: Sequence[int] = (100,)
    blocks_at: tuple[int, int] | None = None
    failure: CausewayError | None = None
    resume: asyncio.Event | None = None
    texts: dict[int, str] = field(default_factory=dict)
    complete: set[int] = field(default_factory=set)
    cleared: dict[int, int] = field(default_factory=dict)
    replies: dict[int, bytes] = field(default_factory=dict)
    pieces: int = 0
    auxiliary: bool = True
    ended: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        self._out: deque[Clearance] = deque()
        self._wake = asyncio.Event()

    async def feed(
        self, choice: int, text: str, *, last: bool = False, reply_json: bytes = b"", auxiliary: bool = False
    ) -> Sequence[Clearance]:
        assert choice not in self.complete, "a piece for a choice that was complete"
        assert not self.ended
        assert len(text) <= MAX_PIECE_LENGTH
        whole = self.texts[choice] = self.texts.get(choice, "") + text
        if last:
            self.complete.add(choice)
        share = 100 if last else self.shares[self.pieces % len(self.shares)]
        self.pieces += 1
        before = self.cleared.get(choice, 0)
        cleared = before + (len(whole) - before) * share // 100
        for span in self.spans.get(choice, ()):
            assert span.start is not None
            assert span.end is not None
            if span.start < cleared < span.end:
                cleared = span.start
        self.cleared[choice] = max(before, cleared) if self.auxiliary or not auxiliary else 0
        self.replies[choice] = reply_json
        reported = tuple(s for s in self.spans.get(choice, ()) if before < (s.end or 0) <= self.cleared[choice])
        blocked = self.blocks_at is not None and choice == self.blocks_at[0] and len(whole) > self.blocks_at[1]
        cleared = before if blocked else self.cleared[choice]
        clearance = Clearance(choice, cleared, reported, blocked, fully_judged=last and not blocked)
        if self.at_once and self.resume is None and self.failure is None:
            return (clearance,)
        self._out.append(clearance)
        self._wake.set()
        await asyncio.sleep(0)
        return ()

    async def end(self) -> None:
        self.ended = True
        self._wake.set()

    async def clearances(self) -> AsyncGenerator[Clearance, None]:
        try:
            while True:
                if self.resume is not None:
                    await self.resume.wait()
                if self.failure is not None and self.pieces:
                    raise self.failure
                while self._out:
                    yield self._out.popleft()
                    await asyncio.sleep(0)
                if self.ended:
                    return
                self._wake.clear()
                await self._wake.wait()
        finally:
            self.closed = True


@pytest.fixture(params=[True, False], ids=["at-once", "later"], scope="module", autouse=True)
def _both_ways(request: pytest.FixtureRequest) -> None:
    """Run each test with clearances from `feed`, and with clearances from `clearances`."""
    PartialWatch.at_once = request.param


async def model(*batches: Batch | CausewayError) -> AsyncGenerator[Batch, None]:
    for batch in batches:
        if isinstance(batch, CausewayError):
            raise batch
        yield batch
        await asyncio.sleep(0)


async def guarded(
    watch: PartialWatch, *batches: Batch | CausewayError, protected: bool = True, chunked: bool = False
) -> list[Event]:
    events: list[Event] = []
    guard = OutputGuard(model(*batches), watch, MESSAGE, protected=protected, chunked=chunked)
    await collect(guard, events)
    return events


async def collect(guard: OutputGuard, events: list[Event]) -> None:
    async with aclosing(guard.events()) as out:
        async for batch in out:
            assert batch
            events += batch


def text_of(events: Sequence[Event], choice: int = 0) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta) and event.choice == choice)


def atoms(events: Sequence[Event], choice: int) -> list[str | bytes | Finish]:
    """Return the output of a choice by code points, raw deltas and finishes."""
    out: list[str | bytes | Finish] = []
    for event in events:
        if isinstance(event, Delta) and event.choice == choice:
            out += [*event.text, *filter(None, (event.delta_json, event.choice_json))]
        elif isinstance(event, Finish) and event.choice == choice:
            out.append(event)
    return out


CHOICES = st.integers(0, 2)
DELTAS = st.builds(
    Delta,
    CHOICES,
    st.text(max_size=6),
    st.sampled_from([b"", b'{"reasoning":"r"}', b'{"tool_calls":[]}']),
    st.sampled_from([b"", b'{"logprobs":null}']),
)
BATCHES = st.lists(st.lists(DELTAS, max_size=5), max_size=8)
SHARES = st.lists(st.integers(0, 100), min_size=1, max_size=5)


@given(BATCHES, SHARES, st.sets(CHOICES))
@settings(max_examples=100)
def test_clean_text_stays_unchanged(batches: list[list[Delta]], shares: list[int], finished: set[int]) -> None:
    """Clean text leaves unchanged with every split and rhythm, and each choice keeps its order."""
    finishes: list[Event] = [Finish(choice, "stop", b'{"stop_reason":1}') for choice in sorted(finished)]
    usage = Usage(1, 2)
    script: list[Batch] = [[Start(b"{}")], *batches, finishes, [usage]]
    events = asyncio.run(guarded(PartialWatch(shares=shares), *script, protected=False))
    sent = [event for batch in script for event in batch]
    for choice in range(3):
        assert atoms(events, choice) == atoms(sent, choice)
    assert events[0] == Start(b"{}")
    assert events[-1] == usage


@given(BATCHES, SHARES)
@settings(max_examples=50)
def test_nothing_leaves_before_it_is_cleared(batches: list[list[Delta]], shares: list[int]) -> None:
    """Text leaves only after the detectors have cleared it."""

    async def run() -> None:
        watch = PartialWatch(shares=shares)
        out: dict[int, int] = {}
        async with aclosing(OutputGuard(model(*batches), watch, MESSAGE).events()) as released:
            async for batch in released:
                for event in batch:
                    if isinstance(event, Delta):
                        out[event.choice] = out.get(event.choice, 0) + len(event.text)
                        assert out[event.choice] <= watch.cleared.get(event.choice, 0)

    asyncio.run(run())


@st.composite
def redactions(draw: st.DrawFn) -> tuple[str, list[Finding], list[int]]:
    text = draw(st.text(max_size=40))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    spans = [
        finding(a, b, replacement=draw(st.sampled_from(["", "[X]", "<MAIL>"])))
        for a, b in zip(cuts[::2], cuts[1::2], strict=False)
        if a < b
    ]
    splits = sorted(draw(st.lists(st.integers(0, len(text)), max_size=10)))
    return text, spans, splits


@given(redactions(), SHARES, st.booleans())
@settings(max_examples=150)
def test_findings_are_redacted(case: tuple[str, list[Finding], list[int]], shares: list[int], finish: bool) -> None:
    """Findings are replaced exactly once with every split of pieces and clearances."""
    text, spans, splits = case
    edges = [0, *splits, len(text)]
    batches: list[Batch] = [[Delta(0, text[a:b])] for a, b in itertools.pairwise(edges)]
    ending: list[Event] = [Finish(0, "stop")] if finish else []
    events = asyncio.run(guarded(PartialWatch({0: spans}, shares), *batches, ending))
    assert text_of(events) == replaced(text, [(span.start or 0, span.end or 0, span.replacement) for span in spans])
    reported = [found for event in events if isinstance(event, Detections) for found in event.findings]
    assert reported == spans
    assert [event for event in events if isinstance(event, Finish)] == ending


@pytest.mark.parametrize("second", [(4, 8), (3, 5), (2, 8), (2, 3)])
async def test_overlapping_findings_are_replaced_together(second: tuple[int, int]) -> None:
    """Overlapping findings are replaced together, without a rest of either."""
    spans = [finding(2, 8, replacement="[A]"), finding(*second, replacement="[B]")]

    class OverlappingWatch(PartialWatch):
        at_once = False

        async def clearances(self) -> AsyncGenerator[Clearance, None]:
            async for clearance in super().clearances():
                found = tuple(spans) if clearance.cleared_until == 10 else ()
                yield Clearance(0, clearance.cleared_until, found, blocked=False)

    watch = OverlappingWatch(shares=(0,))
    events = await guarded(watch, [Delta(0, "ab345")], [Delta(0, "678yz")], [Finish(0, "stop")])
    assert text_of(events) == "ab_[A]_yz"


async def test_a_long_text_in_one_event() -> None:
    """Text beyond every bound in one event is judged in pieces and released completely with its redaction."""
    text = "0123456789" * 40_000
    watch = PartialWatch({0: [finding(MAX_PIECE_LENGTH - 3, MAX_PIECE_LENGTH + 3)]}, shares=(90, 50))
    events = await guarded(watch, [Delta(0, text), Finish(0, "stop")])
    assert text_of(events) == text[: MAX_PIECE_LENGTH - 3] + "_[X]_" + text[MAX_PIECE_LENGTH + 3 :]


async def test_a_report_changes_nothing() -> None:
    """A reported finding leaves the text unchanged and is returned as an event."""
    watch = PartialWatch({0: [finding(0, 2, Action.REPORT, "")]})
    events = await guarded(watch, [Delta(0, "abc")], [Finish(0, "stop")])
    assert text_of(events) == "abc"
    assert [type(event) for event in events] == [Detections, Delta, Finish]


async def test_a_redacted_delta_keeps_its_other_members() -> None:
    """A delta whose text is redacted keeps its members that do not repeat the text."""
    watch = PartialWatch({0: [finding(0, 3, replacement="")]})
    raw = b'{"content_filter_results":{"hate":1},"logprobs":{"content":[{"token":"abc"}]},"token_ids":[5]}'
    events = await guarded(watch, [Delta(0, "abc", b"", raw)], [Finish(0, "stop", raw)])
    kept = b'{"content_filter_results":{"hate":1}}'
    assert [event for event in events if isinstance(event, Delta)] == []
    assert Finish(0, "stop", kept) in events


async def test_log_probabilities_are_left_out() -> None:
    """Log probabilities and token ids are left out, and an event names them once. A null is not named."""
    raw = b'{"logprobs":{"content":[{"token":"a","top_logprobs":[{"token":"123-45-6789"}]}]},"token_ids":[5]}'
    for finish, left_out in ((raw, ("choices[0].logprobs", "choices[0].token_ids")), (b'{"logprobs":null}', ())):
        deltas = [[Delta(0, "a", b"", finish)], [Delta(0, "b", b"", finish)]]
        events = await guarded(PartialWatch(), *deltas, [Finish(0, "stop", finish)])
        assert text_of(events) == "ab"
        assert not any(event.choice_json for event in events if isinstance(event, Delta))
        assert [event.omitted_paths for event in events if isinstance(event, Detections)] == [left_out] * bool(
            left_out
        )


async def test_members_of_a_choice_without_text_leave_once() -> None:
    """The members of a choice without text leave once, before its finish."""
    events = await guarded(PartialWatch(), [Delta(0, "", b'{"annotations":["x"]}')], [Finish(0, "stop")])
    assert events == [Delta(0, "", b'{"annotations":["x"]}'), Finish(0, "stop")]


async def test_a_whole_answer_with_too_many_texts() -> None:
    """Members with more texts than detectors accept are left out and named. The content stays."""
    inner = [json.dumps({"a": "b"}) for _ in range(MAX_TEXTS)]
    body = {"choices": [{"index": 0, "message": {"content": "ab"}}], "many": inner, "few": 1}
    events = await guarded(PartialWatch(), [Completion(json.dumps(body).encode())])
    assert [event.omitted_paths for event in events if isinstance(event, Detections)] == [("many", "few")]
    assert json.loads(events[-1].raw_json) == {"choices": body["choices"]}  # type: ignore[union-attr]  # the event is the answer


async def test_other_members_are_bounded() -> None:
    """Members larger than detectors can judge are left out and named."""
    piece = json.dumps({"annotations": ["x" * 50_000]}).encode()
    deltas: list[Batch] = [[Delta(0, "", piece)] for _ in range(20)]
    events = await guarded(PartialWatch(), *deltas, [Finish(0, "stop")])
    assert [event.omitted_paths for event in events if isinstance(event, Detections)] == [
        ("choices[0].message.annotations",)
    ]


CALL = b'{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]}'
MORE = b'{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}'


@pytest.mark.parametrize("finished", [True, False])
async def test_every_choice_is_ended_for_the_detectors_once(finished: bool) -> None:
    """Each choice with text or calls is ended once for the detectors, with or without a finish."""
    watch = PartialWatch(shares=(0,))
    ending = [Finish(0, "stop"), Finish(1, "stop"), Finish(2, "tool_calls"), Finish(3, "stop")] if finished else []
    events = await guarded(
        watch, [Delta(0, "a"), Delta(1, "b"), Delta(2, "", CALL)], [Delta(0, "c"), Delta(2, "", MORE)], ending
    )
    assert {number for number in watch.complete if number < FIRST} == {0, 1, 2}
    assert watch.ended
    assert text_of(events, 0) == "ac"
    assert text_of(events, 1) == "b"
    finishes = [event for event in events if isinstance(event, Finish)]
    assert sorted(finishes, key=lambda finish: finish.choice) == ending
    # The detectors see the whole call.
    assert watch.replies[2] == b'{"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]}'
    assert [event.delta_json for event in events if isinstance(event, Delta) and event.choice == 2] == [CALL, MORE]


async def test_raw_deltas_do_not_wait_for_text_of_other_choices() -> None:
    """Without a protecting detector, raw deltas do not wait for the text of other choices."""
    watch = PartialWatch(shares=(0,))
    gate = asyncio.Event()

    async def slow() -> AsyncGenerator[Batch, None]:
        yield [Delta(0, "held"), Delta(1, "", b'{"tool_calls":[1]}')]
        await gate.wait()

    async with aclosing(OutputGuard(slow(), watch, MESSAGE, protected=False).events()) as out:
        assert await asyncio.wait_for(anext(out), 60) == [Delta(1, "", b'{"tool_calls":[1]}')]
        gate.set()


async def test_calls_wait_for_the_verdict() -> None:
    """Tool calls leave only after the verdict on the whole message."""
    watch = PartialWatch(blocks_at=(0, 5))
    events = await guarded(
        watch, [Delta(0, "so: "), Delta(0, "", CALL)], [Delta(0, "", MORE)], [Delta(0, "secret")]
    )
    assert text_of(events) == "so: " + MESSAGE
    assert not any(event.delta_json for event in events if isinstance(event, Delta))


async def test_members_that_are_not_judged_do_not_leave() -> None:
    """Members that no protecting detector judges are left out and named."""
    thought = Delta(0, "", b'{"reasoning_content":"the secret is"}')
    parts = Delta(0, "", b'{"content":[{"type":"text","text":"secret"}],"audio":{"data":"c2VjcmV0"}}')
    events = await guarded(PartialWatch(auxiliary=False), [thought, parts], [Delta(0, "ok")], [Finish(0, "stop")])
    assert [event for event in events if isinstance(event, Delta)] == [Delta(0, "ok")]
    left_out = sorted(path for event in events if isinstance(event, Detections) for path in event.omitted_paths)
    path = "choices[0].message."
    assert left_out == [f"{path}audio", f"{path}content", f"{path}reasoning_content"]
    events = await guarded(PartialWatch(), [thought, parts], [Finish(0, "stop")], protected=False)
    assert events == [thought, parts, Finish(0, "stop")]


async def test_too_many_calls_are_not_judged() -> None:
    """Tool calls above the bound cause an error, and none of them leaves."""
    out: list[Event] = []
    call = b'{"tool_calls":[{"index":0,"function":{"arguments":"%b"}}]}' % (b"x" * 1000)
    batches: list[Batch] = [[Delta(0, "", call)] for _ in range(MAX_REPLY_LENGTH // 1000 + 1)]
    with pytest.raises(Unavailable, match="tool calls are too long"):
        await collect(OutputGuard(model(*batches, [Finish(0, "stop")]), PartialWatch(), MESSAGE), out)
    assert out == []


async def test_a_choice_ends_when_it_is_judged() -> None:
    """A choice ends once it is judged. A later block of another choice does not end it again."""
    gate = asyncio.Event()

    async def slow() -> AsyncGenerator[Batch, None]:
        yield [Delta(0, "done"), Finish(0, "stop"), Delta(1, "on"), Finish(2, "length")]
        await gate.wait()
        yield [Delta(1, " secret")]

    out: list[Event] = []
    async with aclosing(OutputGuard(slow(), PartialWatch(blocks_at=(1, 4)), MESSAGE).events()) as events:
        async for batch in events:
            out += batch
            if Finish(0, "stop") in out and Finish(2, "length") in out:
                gate.set()
    assert [event for event in out if isinstance(event, Finish)] == [
        Finish(2, "length"),
        Finish(0, "stop"),
        Finish(1, "content_filter"),
    ]
    assert text_of(out, 0) == "done"


async def test_a_chunk_is_one_event() -> None:
    """Text that is cleared at once leaves in one event with its members, after its findings."""

    class SplittingWatch(PartialWatch):
        at_once = False

        async def clearances(self) -> AsyncGenerator[Clearance, None]:
            async for clearance in super().clearances():
                if clearance.fully_judged:
                    yield Clearance(0, 4, (finding(1, 2, Action.REPORT, ""),), blocked=False)
                    yield Clearance(0, 6, (), blocked=False, fully_judged=True)

    batches: list[Batch] = [
        [Delta(0, "ab", b"", b'{"logprobs":{"content":[1]}}')],
        [
            Delta(0, "cde", b"", b'{"logprobs":{"content":[2]}}'),
            Delta(0, "f", b"", b'{"logprobs":{"content":[3]}}'),
        ],
    ]
    events = await guarded(SplittingWatch(), *batches, [Finish(0, "stop")], protected=False, chunked=True)
    assert [type(events[0]), *events[1:]] == [
        Detections,
        Delta(0, "abcd", b"", b'{"logprobs":{"content":[1]}}'),
        Delta(0, "ef", b"", b'{"logprobs":{"content":[2,3]}}'),
        Finish(0, "stop"),
    ]


async def test_the_usage_so_far_precedes_its_chunk() -> None:
    """In chunks, the usage so far leaves before its chunk, and again at the end."""
    script: list[Batch] = [
        [Delta(0, "a"), Usage(3, 1)],
        [Delta(0, "b"), Usage(3, 2)],
        [Finish(0, "stop"), Usage(3, 2)],
    ]
    # The detectors clear nothing of the first piece, and both with the second.
    events = await guarded(PartialWatch(shares=(0, 100)), *script, chunked=True)
    assert events == [Usage(3, 2), Delta(0, "ab"), Usage(3, 2), Finish(0, "stop"), Usage(3, 2)]
    events = await guarded(PartialWatch(), *script)
    assert events == [Delta(0, "a"), Delta(0, "b"), Finish(0, "stop"), Usage(3, 2)]
    # Without counts, no count is invented.
    assert await guarded(PartialWatch(), [Delta(0, "a")], [Finish(0, "stop")], chunked=True) == [
        Delta(0, "a"),
        Finish(0, "stop"),
    ]


async def test_a_report_does_not_quote_redacted_text() -> None:
    """A report does not quote text that another finding replaces."""
    hidden = [finding(2, 6), finding(0, 3, Action.REPORT, ""), finding(5, 8, Action.REPORT, "")]
    shown = finding(6, 8, Action.REPORT, "")
    events = await guarded(PartialWatch({0: [*hidden, shown]}), [Delta(0, "ab345678")], [Finish(0, "stop")])
    found = {f: f.withheld for event in events if isinstance(event, Detections) for f in event.findings}
    assert sorted((f.start, f.end, f.action) for f, withheld in found.items() if withheld) == [
        (0, 3, Action.REPORT),
        (5, 8, Action.REPORT),
    ]
    assert len(found) == 4


async def test_a_block_ends_every_choice() -> None:
    """A block ends every choice with the message and ``content_filter``."""
    watch = PartialWatch(blocks_at=(1, 3))
    events = await guarded(
        watch,
        [Delta(0, "free ")],
        [Delta(1, "ok")],
        [Delta(1, " secret")],
        [Delta(0, "more"), Delta(1, "more")],
        [Finish(0, "stop"), Finish(1, "stop")],
    )
    assert text_of(events, 0).startswith("free ")
    assert text_of(events, 0).endswith(MESSAGE)
    assert text_of(events, 1) == "ok" + MESSAGE
    assert [event for event in events if isinstance(event, Finish)] == [
        Finish(0, "content_filter"),
        Finish(1, "content_filter"),
    ]


async def test_nothing_leaves_after_a_block() -> None:
    """Neither cleared text nor other members leave after a block."""
    reported = asyncio.Event()

    class LateWatch(PartialWatch):
        at_once = False

        async def clearances(self) -> AsyncGenerator[Clearance, None]:
            yield Clearance(0, 0, (), blocked=True)
            reported.set()
            yield Clearance(1, 2, (), blocked=False)
            await asyncio.sleep(1)

    async def talkative() -> AsyncGenerator[Batch, None]:
        yield [Delta(0, "ab"), Delta(1, "cd")]
        await asyncio.sleep(0)
        await reported.wait()
        for _ in range(10):
            yield [Delta(2, "", b'{"tool_calls":[]}')]

    watch = LateWatch()
    out: list[Event] = []
    guard = OutputGuard(talkative(), watch, MESSAGE)
    # The reader is slow: all events above occur before it reads.
    async with aclosing(guard.events()) as events:
        async for batch in events:
            out += batch
    assert text_of(out, 0) == text_of(out, 1) == MESSAGE
    assert not any(event.delta_json for event in out if isinstance(event, Delta))


@given(st.text(min_size=1, max_size=30), st.integers(0, 29), SHARES, st.integers(1, 5))
@settings(max_examples=80)
def test_a_block_releases_only_cleared_text(text: str, at: int, shares: list[int], step: int) -> None:
    """A block releases only a beginning of the text that was cleared before."""
    watch_cleared: list[int] = []

    async def run() -> list[Event]:
        watch = PartialWatch(shares=shares, blocks_at=(0, min(at, len(text) - 1)))
        pieces: list[Batch] = [[Delta(0, text[i : i + step])] for i in range(0, len(text), step)]
        events = await guarded(watch, *pieces, [Finish(0, "stop")])
        watch_cleared.append(watch.cleared[0])
        return events

    events = asyncio.run(run())
    out = text_of(events)
    assert out.endswith(MESSAGE)
    assert text.startswith(out.removesuffix(MESSAGE))
    # The piece that made the detector block was not cleared with it.
    assert len(out.removesuffix(MESSAGE)) <= min(at, len(text) - 1) // step * step
    assert events[-1] == Finish(0, "content_filter")


async def test_a_block_wins_over_a_model_that_fails() -> None:
    """A block holds although the model fails afterwards."""
    watch = PartialWatch(blocks_at=(0, 0))
    events = await guarded(watch, [Delta(0, "secret")], Unavailable("gone"))
    assert events[-1] == Finish(0, "content_filter")


async def test_the_failure_of_a_detector_is_an_event() -> None:
    """The failure of a detector is returned as an event."""

    class FailingWatch(PartialWatch):
        at_once = False

        async def clearances(self) -> AsyncGenerator[Clearance, None]:
            failures: tuple[DetectorFailure, ...] = (DetectorFailure("d", "no answer"),)
            async for clearance in super().clearances():
                yield Clearance(clearance.choice, clearance.cleared_until, (), False, failures)
                failures = ()

    events = await guarded(FailingWatch(), [Delta(0, "a")], [Finish(0, "stop")])
    assert [event.failures for event in events if isinstance(event, Detections)] == [
        (DetectorFailure("d", "no answer"),)
    ]


async def test_a_failing_model_is_raised_after_the_cleared_text() -> None:
    """A failure of the model is raised after the cleared text."""
    watch = PartialWatch()
    out: list[Event] = []
    guard = OutputGuard(model([Delta(0, "a")], [Delta(0, "b")], Unavailable("gone")), watch, MESSAGE)
    with pytest.raises(Unavailable, match="gone"):
        await collect(guard, out)
    assert text_of(out).startswith("a")
    assert watch.closed


async def test_failing_detectors_are_raised() -> None:
    """A failure of the detectors is raised before any output."""
    watch = PartialWatch(failure=NotFound("detector `x` not found"))
    out: list[Event] = []
    guard = OutputGuard(model([Start(b"{}"), Delta(0, "a")], [Delta(0, "b")]), watch, MESSAGE)
    with pytest.raises(NotFound):
        await collect(guard, out)
    assert out == []


async def test_detectors_that_end_too_early_are_a_failure() -> None:
    """Detectors that end early cause an error, and the remaining text does not leave."""

    class EarlyEndingWatch(PartialWatch):
        at_once = False

        async def clearances(self) -> AsyncGenerator[Clearance, None]:
            yield Clearance(0, 1, (), blocked=False)

    forever = asyncio.Event()

    async def endless() -> AsyncGenerator[Batch, None]:
        yield [Delta(0, "ab")]
        await forever.wait()

    out: list[Event] = []
    with pytest.raises(Unavailable, match="judged"):
        await collect(OutputGuard(endless(), EarlyEndingWatch(), MESSAGE), out)
    assert text_of(out) == "a"


async def test_text_that_was_never_cleared_is_a_failure() -> None:
    """Text without a clearance at the end causes an error."""

    class IncompleteWatch(PartialWatch):
        at_once = False

        async def clearances(self) -> AsyncGenerator[Clearance, None]:
            async for clearance in super().clearances():
                yield Clearance(clearance.choice, 1, (), blocked=False)

    with pytest.raises(Unavailable, match="judged"):
        await guarded(IncompleteWatch(), [Delta(0, "ab")], [Finish(0, "stop")])


class EndlessModel:
    """A model that never stops and counts its batches."""

    def __init__(self, piece: str, raw: bytes = b"") -> None:
        self._piece = piece
        self._raw = raw
        self.produced = 0
        self.closed = False

    async def batches(self) -> AsyncGenerator[Batch, None]:
        try:
            while True:
                self.produced += len(self._piece) + len(self._raw)
                yield [Delta(0, self._piece, self._raw)]
                await asyncio.sleep(0)
        finally:
            self.closed = True


@pytest.mark.parametrize("share", [0, 100])
async def test_the_model_is_not_read_far_ahead(share: int) -> None:
    """The guard reads at most its bound and a batch ahead of slow detectors or a slow client."""
    model_stream, watch = EndlessModel("x" * 1000), PartialWatch(shares=(share,))
    async with (
        aclosing(model_stream.batches()) as batches,
        aclosing(OutputGuard(batches, watch, MESSAGE).events()) as out,
    ):
        reading = asyncio.ensure_future(anext(out))
        await asyncio.sleep(0.05)
        before = model_stream.produced
        for _ in range(1000):
            await asyncio.sleep(0)
        assert model_stream.produced == before <= MAX_HELD_CHARACTERS + 2 * 1000
        if share:
            # Further reading makes room.
            await reading
            await anext(out)
            await eventually(lambda: model_stream.produced > before)
        reading.cancel()
        await asyncio.wait([reading])


async def test_raw_deltas_count_towards_the_bound() -> None:
    """Raw deltas count in the bound of the guard."""
    model_stream = EndlessModel("", b'{"tool_calls":[' + b"1," * 500 + b"1]}")
    async with (
        aclosing(model_stream.batches()) as batches,
        aclosing(OutputGuard(batches, PartialWatch(), MESSAGE, protected=False).events()) as out,
    ):
        await anext(out)
        await asyncio.sleep(0.05)
        assert model_stream.produced <= 2 * MAX_HELD_CHARACTERS + 4000


async def test_leaving_early_stops_both_tasks() -> None:
    """A client that leaves early stops the reading of the model and the detectors."""
    model_stream, watch = EndlessModel("x"), PartialWatch()
    async with aclosing(model_stream.batches()) as batches:
        async with aclosing(OutputGuard(batches, watch, MESSAGE).events()) as out:
            await anext(out)
        produced = model_stream.produced
        await asyncio.sleep(0.02)
        assert model_stream.produced == produced
    assert model_stream.closed
    assert watch.closed
    assert len(asyncio.all_tasks()) == 1


async def test_being_cancelled_stops_both_tasks() -> None:
    """A cancellation stops both tasks of the guard."""
    watch = PartialWatch(resume=asyncio.Event())
    guard = OutputGuard(model([Delta(0, "a")]), watch, MESSAGE)
    reading = asyncio.ensure_future(anext(guard.events()))
    await asyncio.sleep(0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await eventually(lambda: len(asyncio.all_tasks()) == 1)
    assert watch.closed


async def redacted_output(*batches: Batch | CausewayError, words: Sequence[str] = ("secret",)) -> list[Event]:
    """Return the output of a model's batches with the words redacted in all members."""
    guardrails = FakeGuardrails(tuple(words))
    detectors = (Detector("words", Action.REDACT),)
    events: list[Event] = []
    async with guardrails.watch(LOCAL, detectors, Deadline.after(60)) as watch:
        await collect(OutputGuard(model(*batches), watch, MESSAGE), events)
    return events


async def test_reasoning_is_judged_in_pieces() -> None:
    """Reasoning leaves as it is cleared, with words redacted across its pieces, before the text."""
    gate = asyncio.Event()

    async def slow() -> AsyncGenerator[Batch, None]:
        yield [Delta(0, "", b'{"reasoning_content":"Hm. The sec"}')]
        await gate.wait()
        yield [Delta(0, "", b'{"reasoning_content":"ret is."}'), Delta(0, "", b'{"refusal":"No secret."}')]
        yield [Delta(0, "No."), Finish(0, "stop")]

    guardrails = FakeGuardrails()
    out: list[Event] = []
    async with (
        guardrails.watch(LOCAL, (Detector("words", Action.REDACT),), Deadline.after(60)) as watch,
        aclosing(OutputGuard(slow(), watch, MESSAGE).events()) as batches,
    ):
        out += await asyncio.wait_for(anext(batches), 60)
        assert out == [Delta(0, "", b'{"reasoning_content":"Hm. The "}')]
        gate.set()
        async for batch in batches:
            out += batch
    whole: dict[str, str] = {}
    for event in out:
        if isinstance(event, Delta) and event.delta_json:
            for name, text in members_of(event.delta_json).items():
                whole[name] = whole.get(name, "") + text
    assert whole == {"reasoning_content": "Hm. The [REDACTED] is.", "refusal": "No [REDACTED]."}
    assert isinstance(out[-1], Finish)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (['{"who": "the sec', 'ret"}'], '{"who":"the [REDACTED]"}'),
        (['{"who": "the \\u0073ecret"}'], '{"who":"the [REDACTED]"}'),
        (['{"secret": 1}'], '{"[REDACTED]":1}'),
        (['{"a": ["sec", "ret"]}'], '{"a":["[REDACTED]","[REDACTED]"]}'),
        (['{"a": "{\\"b\\": \\"secret\\"}"}'], '{"a":"{\\"b\\":\\"[REDACTED]\\"}"}'),
        (["secret, and no JSON"], "[REDACTED], and no JSON"),
        (['{"a": 1}'], '{"a": 1}'),
    ],
)
async def test_arguments_of_tool_calls_are_judged(pieces: list[str], expected: str) -> None:
    """Arguments of tool calls are redacted in any JSON form and split, and stay JSON."""
    calls: list[Batch] = [
        [Delta(0, "", encode({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": piece}}]}))]
        for piece in pieces
    ]
    events = await redacted_output(*calls, [Finish(0, "tool_calls")])
    whole: dict[str, Any] = {}
    for event in events:
        if isinstance(event, Delta):
            merge(whole, members_of(event.delta_json))
    assert whole["tool_calls"][0]["function"]["arguments"] == expected


async def test_members_outside_the_choices_are_judged() -> None:
    """Members outside the choices are redacted in place, and their findings have no positions."""
    start = Start(b'{"id":"x","citations":["https://a.test/secret","https://b.test"]}')
    usage = Usage(1, 2, b'{"prompt_tokens":1,"completion_tokens":2,"note":"secret"}')
    events = await redacted_output([start], [Delta(0, "ok")], [Finish(0, "stop", b'{"matched":"secret"}'), usage])
    starts = [members_of(event.raw_json) for event in events if isinstance(event, Start)]
    assert {name: value for members in starts for name, value in members.items()} == {
        "id": "x",
        "citations": ["https://a.test/[REDACTED]", "https://b.test"],
    }
    assert Finish(0, "stop", b'{"matched":"[REDACTED]"}') in events
    [counts] = [event for event in events if isinstance(event, Usage)]
    assert members_of(counts.raw_json)["note"] == "[REDACTED]"
    findings = [finding for event in events if isinstance(event, Detections) for finding in event.findings]
    assert [(found.start, found.text) for found in findings] == [(None, "")] * 3


async def test_a_whole_answer_keeps_its_other_bytes() -> None:
    """An answer without findings stays byte for byte. Otherwise only the found words change."""
    raw = b'{"id": "x", "choices": [{"index": 0, "message": {"content": "ok", "refusal": null}}], "usage": null}'
    assert await redacted_output([Completion(raw)]) == [Completion(raw)]
    parts = [{"type": "text", "text": "The sec"}, {"type": "text", "text": "ret."}]
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":"secret"}'}}
    message = {"role": "assistant", "content": parts, "refusal": None, "tool_calls": [call]}
    answer = {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "search": "secret"}
    events = await redacted_output([Completion(encode(answer))])
    [completion] = [event for event in events if isinstance(event, Completion)]
    members = members_of(completion.raw_json)
    [choice] = members["choices"]
    assert [part["text"] for part in choice["message"]["content"]] == ["The [REDACTED]", "."]
    assert choice["message"]["refusal"] is None
    assert choice["message"]["tool_calls"] == [
        {**call, "function": {"name": "f", "arguments": '{"a":"[REDACTED]"}'}}
    ]
    assert members["search"] == "[REDACTED]"


@pytest.mark.parametrize(
    "choices",
    [
        ["secret"],
        {"secret": 1},
        [{"message": "secret"}],
        [{"message": {"content": {"text": "secret"}}}],
        [{"message": {"content": "ok", "tool_calls": ["secret"]}}],
        [{"text": ["secret"]}],
        [{"index": "secret", "text": "ok"}],
    ],
)
async def test_a_whole_answer_with_text_that_is_not_judged_is_refused(choices: Any) -> None:
    """An answer is refused if a text in it has a type that the detectors do not judge."""
    with pytest.raises(Unavailable, match="Check the model server"):
        await redacted_output([Completion(encode({"choices": choices}))])


async def test_a_text_beside_a_message_is_judged() -> None:
    """The member `text` of a choice with a message is judged like other members."""
    answer = {"choices": [{"index": 0, "message": {"content": "ok"}, "text": "secret"}]}
    [completion] = [
        event for event in await redacted_output([Completion(encode(answer))]) if isinstance(event, Completion)
    ]
    assert members_of(completion.raw_json)["choices"] == [
        {"index": 0, "message": {"content": "ok"}, "text": "[REDACTED]"}
    ]
