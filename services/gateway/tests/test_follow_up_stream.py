import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest
from gateway.domain import Batch, Delta, Event, Finish, FollowUps, Start, Usage
from gateway.follow_up_stream import parted
from hypothesis import given
from hypothesis import strategies as st

MESSAGE = "Withheld."
ANSWER = "At nine.\n\n<<And on Sundays?>>\n<<From where?>>\n"
QUESTIONS = FollowUps(("And on Sundays?", "From where?"))


async def of(*batches: Batch) -> AsyncGenerator[Batch, None]:
    for batch in batches:
        yield batch


async def events(*batches: Batch) -> list[Event]:
    out: list[Event] = []
    async with aclosing(parted(of(*batches), MESSAGE)) as parts:
        async for batch in parts:
            assert batch
            out += batch
    return out


def shown(found: Sequence[Event], choice: int = 0) -> str:
    return "".join(event.text for event in found if isinstance(event, Delta) and event.choice == choice)


async def test_questions_come_behind_everything() -> None:
    """The text without them and without the line breaks before them, then the model's end, then the questions."""
    found = await events([Start()], [Delta(0, ANSWER)], [Finish(0, "stop"), Usage(1, 2)])
    assert found == [Start(), Delta(0, "At nine."), Finish(0, "stop"), Usage(1, 2), QUESTIONS]


@given(st.lists(st.integers(0, len(ANSWER)), max_size=8), st.lists(st.booleans(), min_size=10, max_size=10))
async def test_it_does_not_matter_how_tokens_and_batches_are_cut(cuts: list[int], apart: list[bool]) -> None:
    """A mark may be split across tokens, and tokens may come alone or together."""
    ends = [0, *sorted(cuts), len(ANSWER)]
    batches: list[list[Event]] = [[]]
    for (begin, end), alone in zip(itertools.pairwise(ends), apart, strict=False):
        if alone:
            batches.append([])
        batches[-1].append(Delta(0, ANSWER[begin:end]))
    found = await events(*batches, [Finish(0, "stop")])
    assert shown(found) == "At nine."
    assert found[-2:] == [Finish(0, "stop"), QUESTIONS]


async def test_text_that_needs_nothing_cut_is_not_made_anew() -> None:
    """The hot path: the very same events."""
    delta = Delta(0, "At")
    assert (await events([delta], [Finish(0, "stop")]))[0] is delta


async def test_what_was_no_question_is_shown_before_the_end() -> None:
    """A mark that never became one, and the white space that the text ends with."""
    found = await events([Delta(0, "a <")], [Delta(0, "\n")], [Finish(0, "stop")])
    assert shown(found) == "a <\n"
    assert found[-1] == Finish(0, "stop")


async def test_a_stream_that_just_ends_shows_all() -> None:
    """Without a finish the finish is not made up, and a question that was cut short is none."""
    assert shown(await events([Delta(0, "a <<b")])) == "a"


async def test_what_stands_beside_the_text_stays() -> None:
    """Log probabilities of tokens whose text is held back, pieces that have no text at all."""
    found = await events([Delta(0, "<<a>>", b"", b'{"logprobs":1}'), Delta(0, "", b'{"reasoning":"x"}')])
    assert found == [
        Delta(0, "", b"", b'{"logprobs":1}'),
        Delta(0, "", b'{"reasoning":"x"}'),
        FollowUps(("a",)),
    ]


@pytest.mark.parametrize("before", ["At nine. <<And on", "At nine. <<And on Sundays?>>", "At nine. "])
async def test_a_stopped_answer_has_no_questions(before: str) -> None:
    """The message that stands for the rest is shown as it is, whatever was held back before it."""
    found = await events([Delta(0, before)], [Delta(0, MESSAGE), Finish(0, "content_filter")])
    assert "".join(shown(found).split()) == "Atnine.Withheld."
    assert "<<" not in shown(found)
    assert found[-1] == Finish(0, "content_filter")


async def test_a_model_that_stops_itself_has_no_questions() -> None:
    """Its server's filter is as good as ours."""
    found = await events([Delta(0, ANSWER)], [Finish(0, "content_filter")])
    assert found == [Delta(0, "At nine."), Finish(0, "content_filter")]


async def test_questions_of_an_answer_that_was_cut_short() -> None:
    """Those that are whole."""
    found = await events([Delta(0, "a <<b?>> <<c")], [Finish(0, "length")])
    assert found == [Delta(0, "a"), Finish(0, "length"), FollowUps(("b?",))]


async def test_three_at_most_and_each_once() -> None:
    """However many the model writes."""
    found = await events([Delta(0, "<<a>><<b>><<a>><<c>><<d>>")], [Finish(0, "stop")])
    assert found[-1] == FollowUps(("a", "b", "c"))


async def test_choices_do_not_mix() -> None:
    """A mark that begins in one is not ended by another; the first one's questions count."""
    found = await events(
        [Delta(0, "a <<b"), Delta(1, "c>>"), Delta(0, "?>>")], [Finish(1, "stop"), Finish(0, "stop")]
    )
    assert (shown(found, 0), shown(found, 1)) == ("a", "c>>")
    assert found[-1] == FollowUps(("b?",))


async def test_leaving_closes_what_it_reads() -> None:
    """At once, not when the garbage is collected."""
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[Batch, None]:
        try:
            while True:
                yield [Delta(0, "a")]
        finally:
            closed.set()

    async with aclosing(parted(endless(), MESSAGE)) as parts:
        await anext(parts)
    assert closed.is_set()
