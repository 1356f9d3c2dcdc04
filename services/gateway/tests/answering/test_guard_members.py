"""The guard judges the members of an answer other than its texts: reasoning, tool calls, citations, usage."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from causeway_testing.gateway.answering import FakeGuardrails
from causeway_testing.gateway.partial_watch import MESSAGE, collect, model
from gateway.answering.guard import OutputGuard
from gateway.domain import Action, Batch, Completion, Delta, Detections, Detector, Event, Finish, Start, Usage
from gateway.domain.deltas import members_of, merge
from msgspec.json import encode
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from servicekit.principal import LOCAL


async def redacted_output(*batches: Batch) -> list[Event]:
    """Return the output of a model's batches with the word "secret" redacted in all members."""
    events: list[Event] = []
    async with FakeGuardrails().watch(LOCAL, (Detector("words", Action.REDACT),), Deadline.after(60)) as watch:
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
