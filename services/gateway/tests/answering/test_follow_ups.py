import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest
from gateway.answering.follow_ups import MAX_QUESTION_LENGTH, FollowUpSplitter, split_follow_ups
from gateway.domain import Batch, Delta, Event, Finish, FollowUps, Start, Usage
from hypothesis import given
from hypothesis import strategies as st

# Marks, line ends and words, in all combinations.
texts = st.lists(
    st.sampled_from(
        [
            "<",
            "<<",
            "<<Why?>>",
            ">",
            ">>",
            "\n",
            " ",
            "Why?",
            "It is so.",
            "a",
            "<<a",
            "\n- ",
            "\n 1. ",
            "2",
            ")",
            "\r\n",
        ]
    ),
    max_size=12,
).map("".join)
# The specification's form of a question: an optional bullet, two or more marks, words on one line.
_WORDS = rf"(?:(?!<<|>>)[^\n\0]){{1,{MAX_QUESTION_LENGTH}}}"
_BREAK = r"[\r\n]{1,2}"
_OPEN = r"(?:(?<=\n)[ \t]{0,8}(?:[-*\u2022]|\d{1,2}[.)])[ \t]{1,8})?<{2,4}"


def split(*pieces: str) -> tuple[str, list[str]]:
    splitter = FollowUpSplitter()
    shown = "".join(splitter.feed(piece) for piece in pieces)
    return shown + splitter.end(), splitter.questions


@pytest.mark.parametrize(
    ("text", "shown", "questions"),
    [
        ("An answer.", "An answer.", []),
        ("An answer.\n", "An answer.\n", []),
        ("An answer.\n\n<<Why?>>\n<<Who else?>>\n", "An answer.", ["Why?", "Who else?"]),
        ("An answer. << Why? >>", "An answer.", ["Why?"]),
        ("<<Why?>> An answer.", " An answer.", ["Why?"]),
        ("One <<Why?>> two", "One  two", ["Why?"]),
        ("a << b\nc", "a << b\nc", []),
        ("if a < b > c", "if a < b > c", []),
        ("An answer. <<Is it cut sh", "An answer.", []),
        ("An answer. <", "An answer. <", []),
        ("<<Why>?>>", "", ["Why>?"]),
        ("<<<Why?>>>", "", ["Why?"]),
        ("An answer. <<\nWhy?\n>>", "An answer.", ["Why?"]),
        ("An answer.\n\n1. <<Why?>>\n 2) <<Who?>>\n- <<Where?>>", "An answer.", ["Why?", "Who?", "Where?"]),
        ("A list:\n- one\n42\n<<Why?>>", "A list:\n- one\n42", ["Why?"]),
        ("An answer.\n- <<Is it cut sh", "An answer.", []),
        ("A list:\n- ", "A list:\n- ", []),
        ("One\n- <<Why?>> two", "One\n two", ["Why?"]),
        ("<<<<<<< HEAD\n", "<<<<<<< HEAD\n", []),
        ("<<a <<Why?>>", "<<a", ["Why?"]),
        ("<<>>", "<<>>", []),
        ("<<" + "x" * MAX_QUESTION_LENGTH + ">>", "", ["x" * MAX_QUESTION_LENGTH]),
        ("<<" + "x" * (MAX_QUESTION_LENGTH + 1) + ">>", "<<" + "x" * (MAX_QUESTION_LENGTH + 1) + ">>", []),
    ],
)
def test_questions_are_cut_out(text: str, shown: str, questions: list[str]) -> None:
    """Questions are cut out with their marks and the white space around them. Other text stays."""
    assert split(text) == (shown, questions)
    assert split(*text) == (shown, questions)


@given(texts, st.data())
def test_every_split_of_the_text_gives_the_same(text: str, data: st.DataObject) -> None:
    """The text and the questions are the same with every split."""
    whole = split(text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    ends = [*cuts, len(text)]
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], ends, strict=True)]
    assert split(*pieces) == whole
    assert split(*text) == whole


@given(texts)
def test_nothing_but_questions_is_missing(text: str) -> None:
    """Only complete questions, an incomplete one at the end and white space are missing from the text."""
    shown, questions = split(text)
    whole = re.compile(f"{_OPEN}(?!<)({_WORDS}|{_BREAK}{_WORDS}{_BREAK})>>+")
    begun = rf"{_OPEN}(?:(?!<)(?:{_WORDS}>?|{_BREAK}(?:{_WORDS}(?:{_BREAK}>?)?)?))?\Z"
    rest = re.sub(begun, "", whole.sub("\0", text)).replace("\0", "")
    assert "".join(shown.split()) == "".join(rest.split())
    assert questions == [match[1].strip() for match in whole.finditer(text) if match[1].strip()]


@given(texts)
def test_text_without_marks_is_released_at_once(text: str) -> None:
    """Text without marks is released at once, except white space and a bullet at its end."""
    plain = text.replace("<", "")
    early = re.sub(r"\n[ \t]{0,8}(?:\d{1,2}|(?:-|\d{1,2}[.)])[ \t]{0,8})\Z", "", plain).rstrip()
    splitter = FollowUpSplitter()
    assert "".join(splitter.feed(character) for character in plain) == early
    assert splitter.end() == plain[len(early) :]


ANSWER = "At nine.\n\n<<And on Sundays?>>\n<<From where?>>\n"
QUESTIONS = FollowUps(("And on Sundays?", "From where?"))


async def of(*batches: Batch) -> AsyncGenerator[Batch, None]:
    for batch in batches:
        yield batch


async def events(*batches: Batch) -> list[Event]:
    out: list[Event] = []
    async with aclosing(split_follow_ups(of(*batches))) as parts:
        async for batch in parts:
            assert batch
            out += batch
    return out


def shown(found: Sequence[Event], choice: int = 0) -> str:
    return "".join(event.text for event in found if isinstance(event, Delta) and event.choice == choice)


async def test_questions_follow_the_text() -> None:
    """The questions follow the text and precede the finish."""
    found = await events([Start()], [Delta(0, ANSWER)], [Finish(0, "stop"), Usage(1, 2)])
    assert found == [Start(), Delta(0, "At nine."), QUESTIONS, Finish(0, "stop"), Usage(1, 2)]


@given(st.lists(st.integers(0, len(ANSWER)), max_size=8), st.lists(st.booleans(), min_size=10, max_size=10))
async def test_every_split_of_tokens_and_batches_gives_the_same(cuts: list[int], apart: list[bool]) -> None:
    """The text and the questions are the same with every split into tokens and batches."""
    ends = [0, *sorted(cuts), len(ANSWER)]
    batches: list[list[Event]] = [[]]
    for (begin, end), alone in zip(itertools.pairwise(ends), apart, strict=False):
        if alone:
            batches.append([])
        batches[-1].append(Delta(0, ANSWER[begin:end]))
    found = await events(*batches, [Finish(0, "stop")])
    assert shown(found) == "At nine."
    assert found[-2:] == [QUESTIONS, Finish(0, "stop")]


async def test_an_event_without_marks_stays_the_same_object() -> None:
    """An event without marks stays the same object."""
    delta = Delta(0, "At")
    assert (await events([delta], [Finish(0, "stop")]))[0] is delta


async def test_a_mark_without_a_question_is_released_before_the_finish() -> None:
    """A mark that does not become a question is released before the finish."""
    found = await events([Delta(0, "a <")], [Delta(0, "\n")], [Finish(0, "stop")])
    assert shown(found) == "a <\n"
    assert found[-1] == Finish(0, "stop")


async def test_a_stream_without_a_finish_releases_its_text() -> None:
    """A stream without a finish releases its text without an incomplete question, and gets no finish."""
    assert shown(await events([Delta(0, "a <<b")])) == "a"


async def test_other_members_stay() -> None:
    """Members other than the text, and deltas without text, stay."""
    found = await events([Delta(0, "<<a>>", b"", b'{"logprobs":1}'), Delta(0, "", b'{"reasoning":"x"}')])
    assert found == [
        Delta(0, "", b"", b'{"logprobs":1}'),
        Delta(0, "", b'{"reasoning":"x"}'),
        FollowUps(("a",)),
    ]


async def test_a_filtered_answer_has_no_questions() -> None:
    """An answer that ends with `content_filter` has no questions."""
    found = await events([Delta(0, ANSWER)], [Finish(0, "content_filter")])
    assert found == [Delta(0, "At nine."), Finish(0, "content_filter")]


async def test_questions_of_an_answer_that_was_cut_short() -> None:
    """An answer that is cut short has its complete questions."""
    found = await events([Delta(0, "a <<b?>> <<c")], [Finish(0, "length")])
    assert found == [Delta(0, "a"), FollowUps(("b?",)), Finish(0, "length")]


async def test_three_at_most_and_each_once() -> None:
    """At most three different questions are returned."""
    found = await events([Delta(0, "<<a>><<b>><<a>><<c>><<d>>")], [Finish(0, "stop")])
    assert found[-2] == FollowUps(("a", "b", "c"))


async def test_choices_do_not_mix() -> None:
    """Marks of different choices are separate, and the questions of the first choice are returned."""
    found = await events(
        [Delta(0, "a <<b"), Delta(1, "c>>"), Delta(0, "?>>")], [Finish(1, "stop"), Finish(0, "stop")]
    )
    assert (shown(found, 0), shown(found, 1)) == ("a", "c>>")
    assert found[-2] == FollowUps(("b?",))


async def test_leaving_closes_the_source() -> None:
    """The source is closed as soon as the reader leaves."""
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[Batch, None]:
        try:
            while True:
                yield [Delta(0, "a")]
        finally:
            closed.set()

    async with aclosing(split_follow_ups(endless())) as parts:
        await anext(parts)
    assert closed.is_set()
