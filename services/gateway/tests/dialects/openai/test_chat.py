import contextlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from gateway.answering import prompts
from gateway.dialects.exchange import ChatRequest
from gateway.dialects.openai.chat import PLATFORM_MEMBERS, OpenAiChat
from gateway.domain import Action, Detector, Detectors, Message, PromptStyle, RetrievalMode, Turn
from gateway.frontends.profiles import Frontend
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import InvalidRequest
from servicekit.principal import LOCAL

USER = {"role": "user", "content": "What is a pivot?"}
DETECTORS = {"output": {"words": {"action": "redact"}}}


def parse(body: bytes | dict[str, Any], policy: Detectors | None = None) -> Turn:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    frontend = Frontend(detectors=policy or Detectors())
    return OpenAiChat().parse(ChatRequest(raw, LOCAL, frontend)).turn


def refused(body: bytes | dict[str, Any]) -> InvalidRequest:
    """Return the error of a request, raised by the parser or by the pipeline after the check of the index."""
    try:
        turn = parse(body)
    except InvalidRequest as error:
        return error
    assert turn.original.deferred_error is not None
    assert turn.original.required_indexes
    return turn.original.deferred_error


def test_a_number_of_a_message_that_is_out_of_range() -> None:
    """The gateway refuses the number in a message. It does not check the same number in another member."""
    body = b'{"index_name":"docs","messages":[{"role":"user","content":"Hi","weight":1e400}],"n":1e400}'
    assert refused(body).field == "messages[0].weight"


# --- pass-through -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"role":"user","content":"hi"}]}',
        b' { "model" : "m",\n "x" : 1.50, "x": 2, "big": 12345678901234567890123 , "n":1e400}\n',
        b'{"messages":"for the model to judge","temperature":"hot"}',
        b'{"metadata":{"deep":[[[]]]},"emoji":"\\ud83d\\ude00","index":"not ours"}',
        b'{"stream":true,"stream_options":5,"max_tokens":"many","raw":"\xff"}',
        b"{}",
    ],
)
def test_a_request_without_an_index_is_passed_through(body: bytes) -> None:
    """The body reaches the model server byte for byte, and the gateway does not check its members."""
    turn = parse(body)
    assert turn.original.passthrough
    assert turn.original.json == body


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (b'{"index_name":"","x":1.50}', b'{"x":1.50}'),
        (b'{"index_name":null, "x" : [ 1,  2 ] }', b'{"x":[ 1,  2 ]}'),
        (b'{"x":"\\u00e9","retrieval":{},"detectors":{},"context_token_ratio":0.2}', b'{"x":"\\u00e9"}'),
        (b'{"index\\u005fname":"","y":1e400}', b'{"y":1e400}'),
        (
            b'{"index_name":"docs","tools":[{"x":1.0}],"messages":[{"role":"user"}]}',
            b'{"tools":[{"x":1.0}],"messages":[{"role":"user"}]}',
        ),
        (b'{"functions":[{}],"index_name":"docs"}', b'{"functions":[{}]}'),
        (
            b'{"index_name":"docs","messages":[{"role":"function","content":"75F"},{"role":"user","content":"ok"}]}',
            b'{"messages":[{"role":"function","content":"75F"},{"role":"user","content":"ok"}]}',
        ),
        (
            b'{"index_name":"docs","messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}',
            b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}',
        ),
    ],
)
def test_own_members_are_removed(body: bytes, left: bytes) -> None:
    """The gateway removes its own members. The other members remain unchanged, byte for byte."""
    turn = parse(body)
    assert turn.original.passthrough
    assert turn.original.json == left


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CHECKED = {*PLATFORM_MEMBERS, "model", "stream", "messages"}


@given(
    st.dictionaries(st.text().filter(lambda name: name not in CHECKED), JSON, max_size=6),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
)
def test_any_member_remains_unchanged(members: dict[str, Any], indent: int | None, has_own: bool) -> None:
    """Members of any JSON value and layout remain unchanged, with or without the gateway's own members."""
    body = json.dumps(members | ({"index_name": ""} if has_own else {}), indent=indent, ensure_ascii=False).encode()
    turn = parse(body)
    assert json.loads(turn.original.json) == members
    if not has_own:
        assert turn.original.json == body
    else:
        before, after = (
            msgspec.json.decode(raw, type=dict[str, msgspec.Raw]) for raw in (body, turn.original.json)
        )
        assert {name: bytes(raw) for name, raw in after.items()} == {
            name: bytes(raw) for name, raw in before.items() if name != "index_name"
        }


# --- the order of the checks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"x":NaN}', "not valid JSON"),
        (b'{"x":"\\ud800"}', "not valid JSON"),
        (b'{"x":' + b"[" * 100_000, "nested too deeply"),
        (b'{"x":1}{"y":2}', "not valid JSON"),
        (b'{"stream":"yes"}', "stream must be a boolean"),
        (b'{"model":7}', "model must be a string"),
        (b'{"index_name":7}', "index_name must be a string"),
        (b'{"index_name":"\xff"}', "index_name cannot be read"),
        (b'{"context_token_ratio":1e400}', "context_token_ratio cannot be read"),
        (b'{"detectors":[]}', "detectors must be an object"),
    ],
)
def test_invalid_json_and_own_members_are_refused(body: bytes, message: str) -> None:
    """The gateway refuses invalid JSON and wrong values of its own members, also in a pass-through."""
    assert message in refused(body).message


@pytest.mark.parametrize("index", ["", "docs"])
@pytest.mark.parametrize("ratio", ["0.1", "0.19999", "0.81", "-1", "5", "1e300", '"0.5"', "true", "[0.5]", "{}"])
def test_a_ratio_outside_its_bounds(ratio: str, index: str) -> None:
    """The message quotes the value, with or without an index."""
    body = f'{{"messages":[{{"role":"user","content":"q"}}],"index_name":"{index}","context_token_ratio":{ratio}}}'
    error = refused(body.encode())
    assert error.message == f"Invalid context_token_ratio: {ratio}. Must be between 0.2 and 0.8."
    assert error.field == "context_token_ratio"


def test_a_long_value_is_shortened_in_the_message() -> None:
    """The message of an error is short even if the refused value is long."""
    assert len(refused({"messages": [USER], "context_token_ratio": "x" * 100_000}).message) < 200


@pytest.mark.parametrize("name", ["a/b", "../etc", "-a", ".a", "a b", "ü", "x" * 129, "a\n", "*"])
def test_invalid_index_names_are_refused(name: str) -> None:
    """The gateway checks the name before the messages and the options, and names the field."""
    error = refused({"messages": 1, "context_token_ratio": 7, "index_name": name})
    assert error.message.startswith("Invalid index name")
    assert error.field == "index_name"


@pytest.mark.parametrize("name", ["a", "7", "A.b_c-d", "x" * 128])
def test_valid_index_names(name: str) -> None:
    """A name has up to 128 letters, digits, dots, underscores and hyphens."""
    assert parse({"messages": [USER], "index_name": name}).retrieval.indexes == (name,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"context_token_ratio": 0.1},
        {"messages": []},
        {"max_tokens": -1},
        {"detectors": []},
        {"retrieval": 7},
        {"stream_options": "x"},
        {"messages": [{"role": "assistant", "content": "A joint."}]},
    ],
)
def test_an_unknown_index_is_reported_first(wrong: dict[str, Any]) -> None:
    """The parser defers an error of the messages or the options, so that the pipeline checks the index first."""
    turn = parse({"messages": [USER], "index_name": "docs", "stream": True} | wrong)
    assert turn.original.deferred_error is not None
    assert (turn.original.required_indexes, turn.retrieval.indexes) == (("docs",), ())


@pytest.mark.parametrize(
    "reason",
    [
        {"tools": [{}]},
        {"functions": [{}]},
        {"messages": [USER, {"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    ],
)
def test_an_index_that_is_not_searched_must_exist(reason: dict[str, Any]) -> None:
    """If a request passes through, the index must still exist. A search checks its index itself."""
    turn = parse({"messages": [USER], "index_name": "docs"} | reason)
    assert turn.original.passthrough
    assert turn.original.required_indexes == ("docs",)
    assert parse({"messages": [USER], "index_name": "docs"}).original.required_indexes == ()
    assert parse({"messages": [USER]} | reason).original.required_indexes == ()


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.8, None])
def test_a_ratio_within_its_bounds(ratio: float | None) -> None:
    """The gateway accepts both bounds. Null means the default."""
    turn = parse({"messages": [USER], "index_name": "docs", "context_token_ratio": ratio})
    assert turn.retrieval.context_token_ratio == (ratio or 0.5)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "Invalid request format: messages must be a non-empty list of objects."),
        ("hello", "Invalid request format: messages must be a non-empty list of objects."),
        ([1], "Invalid request format: messages must be a non-empty list of objects."),
        ([{"content": "x"}], "Invalid request format: messages must contain 'role'."),
        ([{"role": "", "content": "x"}], "Invalid request format: messages must contain 'role'."),
        ([{"role": 3, "content": "x"}], "Invalid request format: messages must contain 'role'."),
        ([{"role": "user"}], "Invalid request format: messages must contain 'content' for role 'user'."),
        (
            [{"role": "system", "content": None}, USER],
            "Invalid request format: messages must contain 'content' for role 'system'.",
        ),
        ([{"role": "user", "content": ""}], "Invalid request format: user messages must contain 'content'."),
        ([{"role": "user", "content": []}], "Invalid request format: user messages must contain 'content'."),
        (
            [{"role": "user", "content": {"type": "text"}}],
            "Invalid request format: 'content' must be a string or a list of parts.",
        ),
        (
            [USER, {"role": "assistant", "content": "A joint."}],
            "There must be a user prompt since the latest assistant message.",
        ),
        (
            [{"role": "user", "content": "  "}],
            "There must be a user prompt since the latest assistant message.",
        ),
        ([{"role": "system", "content": "x"}], "There must be a user prompt since the latest assistant message."),
    ],
)
def test_messages_that_cannot_be_searched_for(messages: Any, message: str) -> None:
    """The gateway refuses malformed messages and messages without a question, with RAGEngine's error messages."""
    error = refused({"messages": messages, "index_name": "docs"})
    assert error.message == message
    assert (error.field or "").startswith("messages")


def test_the_field_of_a_bad_message_is_named() -> None:
    """The error's field contains the position of the message in the list."""
    error = refused({"index_name": "docs", "messages": [USER, {"role": "user"}]})
    assert error.field == "messages[1].content"


def test_a_bad_message_is_refused_before_a_role_passes_it_through() -> None:
    """The gateway checks all messages before it decides on a pass-through."""
    messages = [{"role": "tool", "content": "x", "tool_call_id": "1"}, {"role": "user", "content": ""}]
    assert "user messages" in refused({"index_name": "docs", "messages": messages}).message


def _has_own_members(members: bytes) -> bool:
    return not msgspec.json.decode(members, type=dict[str, msgspec.Raw]).keys().isdisjoint(PLATFORM_MEMBERS)


WORDS = st.sampled_from(["", "docs", "user", "assistant", "system", "tool", "text", "hybrid", "block", "\x00"])
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
PARTS = st.lists(st.fixed_dictionaries({}, optional={"type": WORDS | ANYTHING, "text": ANYTHING}), max_size=3)
MESSAGES = st.lists(
    st.fixed_dictionaries({}, optional={"role": WORDS | ANYTHING, "content": ANYTHING | PARTS, "name": ANYTHING}),
    max_size=4,
)
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "index_name": st.just("docs") | ANYTHING,
        "context_token_ratio": st.floats(0, 1) | ANYTHING,
        "messages": MESSAGES | ANYTHING,
        "model": st.just("m") | ANYTHING,
        "stream": st.booleans() | ANYTHING,
        "stream_options": st.fixed_dictionaries({"include_usage": st.booleans() | ANYTHING}) | ANYTHING,
        "max_tokens": st.integers(1, 100) | ANYTHING,
        "max_completion_tokens": st.integers(1, 100) | ANYTHING,
        "tools": ANYTHING,
        "functions": ANYTHING,
        "detectors": st.dictionaries(st.sampled_from(["input", "output"]), ANYTHING, max_size=2) | ANYTHING,
        "retrieval": st.dictionaries(
            st.sampled_from(["mode", "top", "minimum_score", "similarity_threshold"]), ANYTHING, max_size=3
        )
        | ANYTHING,
        "metadata": ANYTHING,
    },
)


@given(REQUESTS | ANYTHING, st.sampled_from(["utf-8", "utf-16", "latin-1"]))
def test_any_json_is_a_turn_or_is_refused(document: Any, encoding: str) -> None:
    """The parser returns a turn that the pipeline can use, or refuses the request."""
    content = json.dumps(document, ensure_ascii=encoding != "utf-8").encode(encoding, "replace")
    try:
        turn = parse(content)
    except InvalidRequest:
        return
    if turn.original.deferred_error is not None:
        assert turn.original.required_indexes == (document["index_name"],)
    elif turn.original.passthrough:
        assert not _has_own_members(turn.original.json)
    else:
        assert prompts.compose(turn, ())
        assert turn.retrieval.indexes in ((), (document.get("index_name"),))
        assert bool(turn.question.strip()) or not turn.retrieval.indexes
        assert not _has_own_members(turn.parameters_json)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_turn_or_are_refused(content: bytes) -> None:
    """The parser raises no error other than `InvalidRequest`, even for bytes that are not JSON."""
    for body in (content, b'{"index_name":"docs","messages":[{"role":"user","content":"%b"}]}' % content):
        with contextlib.suppress(InvalidRequest):
            parse(body)


# --- the conversation ---------------------------------------------------------------------------------------------


def contents(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


@pytest.mark.parametrize(
    ("messages", "question", "history"),
    [
        (["s:be kind", "u:what?"], "what?", ["s:be kind"]),
        (["s:be kind", "u:a", "a:b", "u:c"], "c", ["s:be kind", "u:a", "a:b"]),
        (["u:a", "a:b", "u:c", "u:d"], "c\n\nd", ["u:a", "a:b"]),
        (["u:a", "s:x", "u:b"], "a\n\nb", ["s:x"]),
        (["u:a", "a:b", "u:c", "d:x"], "c", ["u:a", "a:b", "d:x"]),
    ],
)
def test_the_question_follows_the_latest_answer(messages: list[str], question: str, history: list[str]) -> None:
    """The user's messages since the latest answer are the question.

    The other messages are the history, in order.
    """
    roles = {"s": "system", "u": "user", "a": "assistant", "d": "developer"}
    split = [(roles[message[0]], message[2:]) for message in messages]
    turn = parse({"index_name": "docs", "messages": [{"role": r, "content": c} for r, c in split]})
    assert not turn.original.passthrough
    assert turn.question == question
    assert contents(turn.history) == [(roles[message[0]], message[2:]) for message in history]
    assert turn.style is PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE
    joined = "\n\n" in question
    assert contents(turn.original.messages) == (
        [(roles[message[0]], message[2:]) for message in messages] if joined else []
    )
    # `places` lists the positions in the request: first those of the history, then those of the question.
    moved = [split[place] for place in turn.original.places]
    assert moved[: len(history)] == contents(turn.history)
    assert "\n\n".join(text for _, text in moved[len(history) :]) == question
    assert sorted(turn.original.places) == list(range(len(split)))


def test_text_parts_are_lines() -> None:
    """The text of a content with several parts has a line for each part."""
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert parse({"index_name": "docs", "messages": [{"role": "user", "content": parts}]}).question == "one\ntwo"


def test_other_members_of_messages_remain() -> None:
    """The model gets a message's name, its tool calls and its other parts unchanged."""
    body = (
        b'{"index_name":"docs","messages":[{"role":"assistant","content":null,"tool_calls":[{"x":1.0}]},'
        b'{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},'
        b'{"role":"system","content":"s","name":"n"},{"role":"user","content":"q"}]}'
    )
    calls, refusal, system = parse(body).history
    assert calls == Message("assistant", "", b"", b'{"tool_calls":[{"x":1.0}]}')
    assert refusal == Message("assistant", "", b'[{"type":"refusal","refusal":"no"}]')
    assert system == Message("system", "s", b"", b'{"name":"n"}')


def test_the_callers_parameters_reach_the_model() -> None:
    """The model gets all members that the gateway does not use itself, byte for byte."""
    body = (
        b'{"model":"m","messages":[{"role":"user","content":"q"}],"index_name":"docs","stream":true,'
        b'"stream_options":{"include_usage":true},"temperature":0.70,"n":2,"stop":["a"],"vendor":{"x":1e400}}'
    )
    turn = parse(body)
    assert turn.parameters_json == b'{"temperature":0.70,"n":2,"stop":["a"],"vendor":{"x":1e400}}'
    assert turn.model == "m"
    assert (turn.retrieval.indexes, turn.retrieval.top) == (("docs",), None)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 8, "max_tokens": 7}, 8),
        ({}, None),
        ({"max_tokens": None}, None),
    ],
)
def test_the_limit_of_the_answer(members: dict[str, Any], expected: int | None) -> None:
    """The gateway reads both of OpenAI's names for the limit, and prefers the newer one."""
    assert parse({"index_name": "docs", "messages": [USER]} | members).max_tokens == expected


@pytest.mark.parametrize(
    "members",
    [
        {"max_tokens": 0},
        {"max_tokens": "many"},
        {"max_tokens": True},
        {"max_tokens": 10**30},
        {"stream_options": 5},
        {"retrieval": {"mode": "magic"}},
        {"retrieval": {"top": 0}},
        {"retrieval": {"minimum_score": "high"}},
        {"retrieval": {"similarity_threshold": 1.5}},
        {"max_tokens": -1},
        {"max_completion_tokens": 2.5},
    ],
)
def test_settings_of_a_search_are_checked(members: dict[str, Any]) -> None:
    """The gateway refuses a wrong value of each setting of a search, and names the field."""
    name, value = next(iter(members.items()))
    field = f"{name}.{next(iter(value))}" if isinstance(value, dict) else name
    assert refused({"index_name": "docs", "messages": [USER]} | members).field == field


def test_settings_of_a_search_are_read() -> None:
    """A request sets the mode, the number of passages, the categories and the lowest score."""
    options = {"mode": "text", "top": 7, "include_category": "a", "exclude_category": "b", "minimum_score": 0.5}
    retrieval = parse({"index_name": "docs", "messages": [USER], "retrieval": options}).retrieval
    assert retrieval.mode is RetrievalMode.TEXT
    assert (retrieval.top, retrieval.include_category, retrieval.exclude_category) == (7, "a", "b")
    assert retrieval.minimum_score == 0.5


def test_a_request_overrides_the_deployments_threshold() -> None:
    """The deployment's threshold applies if the request has none or null."""

    def threshold(options: Any) -> float | None:
        body = json.dumps({"index_name": "docs", "messages": [USER], "retrieval": options}).encode()
        return OpenAiChat(0.3).parse(ChatRequest(body, LOCAL)).turn.retrieval.similarity_threshold

    assert threshold(None) == threshold({"similarity_threshold": None}) == 0.3
    assert threshold({"similarity_threshold": 0}) == 0
    assert threshold({"similarity_threshold": -1}) == -1


@pytest.mark.parametrize(
    ("names", "extra"),
    [(["Ann"], b'{"name":"Ann"}'), (["Ann", "Ann"], b'{"name":"Ann"}'), (["Ann", "Bob"], b""), ([None], b"")],
)
def test_extra_members_of_the_question_remain(names: list[str | None], extra: bytes) -> None:
    """Extra members of the question's messages remain if all of these messages have the same ones."""
    messages = [{"role": "user", "content": "q"} | ({"name": name} if name else {}) for name in names]
    turn = parse({"index_name": "docs", "messages": messages})
    assert turn.original.question_extra_json == extra
    assert prompts.compose(turn, ())[-1].extra_json == extra


# --- detectors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tools", [{}, {"tools": [{"type": "function"}], "tool_choice": "auto"}])
def test_detectors_prevent_a_pass_through(tools: dict[str, Any]) -> None:
    """The gateway parses the messages of a request with detectors, and passes its tools to the model."""
    turn = parse({"messages": [USER], "detectors": DETECTORS, "index_name": "docs" if tools else ""} | tools)
    assert not turn.original.passthrough
    assert turn.retrieval.indexes == ()
    assert turn.question == "What is a pivot?"
    assert json.loads(turn.parameters_json) == tools
    assert turn.detectors.output == (Detector("words", Action.REDACT),)
    assert b"detectors" not in turn.original.json


def test_the_deployments_detectors_apply_to_every_request() -> None:
    """A request can add detectors, but cannot remove those of the deployment."""
    policy = Detectors(input=(Detector("pii", Action.BLOCK),), output=(Detector("pii", Action.BLOCK),))
    assert parse({"messages": [USER]}, policy).detectors == policy
    turn = parse({"messages": [USER], "detectors": {"output": {"pii": {"action": "report"}}}}, policy)
    assert turn.detectors.output == (Detector("pii", Action.BLOCK), Detector("pii", Action.REPORT))
    assert [detector.requested for detector in turn.detectors.output] == [False, True]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}, {"role": "user", "content": "c"}],
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
            {"role": "tool", "tool_call_id": "1", "content": "r"},
        ],
        [{"role": "user", "content": "a", "name": "Ann"}],
    ],
)
def test_detectors_alone_do_not_rearrange_messages(messages: list[dict[str, Any]]) -> None:
    """Without retrieval, the model gets all messages in their order, even if the last one is a tool's result."""
    turn = parse({"messages": messages, "detectors": DETECTORS})
    sent = prompts.compose(turn, ())
    assert contents(sent) == [(message["role"], message["content"] or "") for message in messages]
    extras = [
        {name: value for name, value in message.items() if name not in ("role", "content")} for message in messages
    ]
    assert [json.loads(message.extra_json or b"{}") for message in sent] == extras


def test_detectors_with_images_are_refused() -> None:
    """The gateway refuses detectors together with an image, because detectors cannot read images."""
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    error = refused({"messages": [USER, image], "detectors": DETECTORS})
    assert error.field == "messages[1].content"
    assert "detectors" in error.message


def test_an_empty_detectors_block_is_passed_through() -> None:
    """A request with an empty block of detectors still passes through."""
    assert parse({"messages": "x", "detectors": {"input": {}, "output": None}}).original.passthrough
