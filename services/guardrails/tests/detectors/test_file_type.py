"""guardrails.detectors.file_type: whether a text is valid JSON, YAML or XML."""

import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from causeway_testing.guardrails.detectors import slow
from detection.detectors.params import BadParam
from detection.domain import Action, DetectionContext, OnError, Piece
from detection.moderation.rules import Rule
from detection.moderation.session import Session
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.whole_text import judge
from guardrails.detectors.file_type import file_type
from guardrails.detectors.structure.process import CheckLimits, CheckProcesses

_SCHEMA = json.dumps(
    {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "pattern": "^(x+)+$"}}}
)
_BOMB = "a: &a [1,1]\n" + "".join(
    f"{c}: &{c} [{', '.join(['*' + p] * 40)}]\n" for p, c in zip("abc", "bcd", strict=True)
)
_XML_BOMB = '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'


@pytest.fixture
async def processes() -> AsyncIterator[CheckProcesses]:
    """Yield processes that parse texts, with enough time for a busy machine."""
    processes = CheckProcesses(CheckLimits(seconds=20))
    yield processes
    await processes.aclose()


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("json", ['{"a": [1, null]}', "3"], ["{", "{'a': 1}", "", "[NaN]", "-Infinity", "[" * 100_000]),
        (
            "yaml",
            ["a: 1\nb: [x, y]", "- a\n- b"],
            ["a: b: c", "plain words", "a: [", _BOMB, "!!python/object:a {}"],
        ),
        ("xml", ["<a><b/></a>"], ["<a>", "text", _XML_BOMB]),
        (
            "json-within",
            ['So: {"a": 1} and {"b": {}}.', "no objects, {braces} only"],
            ['So: {"a": 1', 'So: {"a": Infinity}'],
        ),
        (
            f"json-with-schema:{_SCHEMA}",
            ['{"a": "xx"}'],
            ['{"a": 1}', "{}", "[]", "{", json.dumps({"a": "x" * 40 + "!"})],
        ),
        (f"yaml-with-schema:{_SCHEMA}", ["a: xx"], ["a: 1", "b: x"]),
    ],
)
async def test_a_text_in_the_wrong_format_is_a_finding(
    kind: str, good: list[str], bad: list[str], processes: CheckProcesses
) -> None:
    """A text in the wrong format is one detection, whose span is the whole text, with the reason."""
    detector = slow(file_type(processes), file_type=[kind])
    assert await detector.judge(good, DetectionContext()) == [[]] * len(good)
    for text, (found,) in zip(bad, await detector.judge(bad, DetectionContext()), strict=True):
        assert (found.start, found.end, found.type) == (0, len(text), "file_type")
        assert found.name.startswith(f"invalid_{kind.partition('-')[0]}")
        assert json.loads(found.extra)["metadata"]["reason"]


async def test_a_number_of_objects_can_be_required(processes: CheckProcesses) -> None:
    """The parameters can require a number of objects in the text."""
    detector = slow(file_type(processes), file_type=["json-within"], required_elements=2)
    enough, few = await detector.judge(['{"a": 1} {"b": 2}', '{"a": 1}'], DetectionContext())
    assert enough == []
    assert [found.name for found in few] == ["invalid_json_within"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("yaml", "- " * 50_000),
        ("yaml", "{" * 100_000),
        ("yaml", "? " * 50_000),
        ("yaml", "\n".join(" " * at + "a:" for at in range(400))),
        ("yaml", "a: " + "[" * 100_000 + "]" * 100_000),
        ("json", "[" * 100_000),
        ("json", "[" * 50_000 + "]" * 50_000),
        ("json-within", '{"a":' * 50_000),
        ("xml", "<a>" * 50_000 + "</a>" * 50_000),
        (f"yaml-with-schema:{_SCHEMA}", "- " * 50_000),
    ],
)
async def test_a_text_with_too_deep_nesting_is_a_finding(kind: str, text: str, processes: CheckProcesses) -> None:
    """A text that would overflow a parser's stack, or take minutes, is a finding like any other invalid text."""
    ((found,),) = await slow(file_type(processes), file_type=[kind]).judge([text], DetectionContext())
    assert "nested deeper than 200 levels" in json.loads(found.extra)["metadata"]["reason"]


@pytest.mark.parametrize("text", ["", " \n"])
async def test_a_blank_text_is_not_json(text: str, processes: CheckProcesses) -> None:
    """A blank text is not JSON, whether it arrives whole or in pieces."""
    rule = Rule("file_type", slow(file_type(processes), file_type=["json"]), Action.BLOCK, OnError.BLOCK, "")
    workers = ThreadPool(1)
    try:
        [verdict], failures = await judge([text], [rule], DetectionContext(), workers)
        assert (verdict.action, failures) == (Action.BLOCK, [])

        async def pieces() -> AsyncIterator[list[Piece]]:
            yield [Piece(0, text, last=True)]

        async with contextlib.aclosing(Session([rule]).run(pieces(), workers)) as run:
            assert [step.action async for steps in run for step in steps][-1] is Action.BLOCK
    finally:
        workers.close()


@pytest.mark.parametrize(
    "wrong",
    [
        "pdf", "json-with-schema:", "json-with-schema:{", 'json-with-schema:{"type": 3}',
        'json-with-schema:{"$ref": "http://127.0.0.1:1/schema"}', "xml-with-schema:{}",
        "json-with-schema:" + '{"not":' * 1_000 + "{}" + "}" * 1_000,
        'json-with-schema:{"pattern": "((x{999}){999}){999}"}',
    ],
)  # fmt: skip
async def test_wrong_parameters_are_refused(wrong: str, processes: CheckProcesses) -> None:
    """Unknown formats and unusable schemas are refused with their path. The service fetches no reference."""
    with pytest.raises(BadParam) as raised:
        slow(file_type(processes), file_type=["json", wrong])
    assert raised.value.path == "file_type[1]"
