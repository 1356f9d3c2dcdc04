"""The guard receives batches of a model and returns batches for the client, as in the pipeline."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest
from causeway_testing.gateway.partial_watch import MESSAGE, PartialWatch, collect, finding, guarded, model, text_of
from gateway.answering.guard import MAX_PIECE_LENGTH, OutputGuard
from gateway.answering.hold_back import MAX_REPLY_LENGTH
from gateway.answering.json_texts import replaced
from gateway.answering.other_texts import FIRST, MAX_TEXTS
from gateway.domain import (
    Action,
    Batch,
    Completion,
    Delta,
    Detections,
    Event,
    Finding,
    Finish,
    Start,
    Usage,
)
from gateway.ports.answering import Clearance
from hypothesis import given, settings
from hypothesis import strategies as st
from servicekit.errors import Unavailable


@pytest.fixture(params=[True, False], ids=["at-once", "later"], scope="module", autouse=True)
def _both_ways(request: pytest.FixtureRequest) -> None:
    """Run each test with clearances from `feed`, and with clearances from `clearances`."""
    PartialWatch.at_once = request.param


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
