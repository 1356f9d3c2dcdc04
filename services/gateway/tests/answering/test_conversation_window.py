import json
from dataclasses import replace
from typing import Any

import pytest
from causeway_testing.gateway.answering import FakeGenerator
from gateway.answering import prompts
from gateway.answering.budget import ANSWER_TOKENS, NODE_TOKENS
from gateway.answering.conversation_window import ConversationWindow, Fit, exchanges, left_out
from gateway.answering.timeline import Timeline
from gateway.domain import (
    Message,
    OriginalRequest,
    Passage,
    PromptOptions,
    Retrieval,
    Selection,
    TokenCounts,
    Turn,
)
from hypothesis import given
from hypothesis import strategies as st
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest
from servicekit.principal import LOCAL


def words(number: int) -> str:
    return " ".join(["w"] * number)


def passage(number: int, size: int) -> Passage:
    """Return a passage with a given number of tokens, including its name."""
    name = f"{number}.md"
    return Passage(f"p{number}", "docs", "d", name, name, words(size - 1), 1.0 / number)


def turn(question: int, *history: int, follow_ups: bool = False, **more: Any) -> Turn:
    """Return a turn with messages of these sizes, of users and assistants in turns."""
    messages = tuple(
        Message("assistant" if at % 2 else "user", words(size), extra_json=b'{"name":"%d"}' % at)
        for at, size in enumerate(history)
    )
    return Turn(
        LOCAL,
        words(question),
        messages,
        retrieval=Retrieval(("docs",)),
        prompting=PromptOptions(system_prompt="", follow_ups=follow_ups),
        **more,
    )


async def fit(window: int, requested: Turn, *passages: Passage, only_quotes: bool = False) -> Fit:
    generator = FakeGenerator(window=window, only_quotes=only_quotes)
    found = Selection(passages) if requested.retrieval.indexes else None
    stage = ConversationWindow(generator, NODE_TOKENS)
    return await stage.fit(requested, found, Timeline(), Deadline.after(5))


async def prompt_tokens(fitted: Fit) -> int:
    passages = fitted.selection.passages if fitted.selection else ()
    messages = prompts.compose(fitted.turn, passages)
    return (await FakeGenerator().count_tokens(LOCAL, "", (), messages, Deadline.after(5))).messages


async def test_a_turn_that_fits_stays_unchanged() -> None:
    """A turn that fits stays the same object."""
    requested = turn(10, 10, 10)
    fitted = await fit(8192, requested, passage(1, 100))
    assert fitted.turn is requested
    assert fitted == Fit(requested, Selection((passage(1, 100),), 100), 0, free_tokens=fitted.free_tokens)


async def test_the_oldest_exchanges_are_left_out() -> None:
    """The oldest exchanges are left out completely, and their messages are counted."""
    requested = turn(10, 500, 500, 500, 500, 500, 500)
    fitted = await fit(4000, requested, passage(1, 300))
    assert fitted.turn.history == requested.history[2:]
    assert fitted.left_out == 2
    assert fitted.selection == Selection((passage(1, 300),), 300)


async def test_without_a_search_the_history_gets_all_tokens() -> None:
    """Without a search, the history gets the tokens of the passages too."""
    requested = replace(turn(10, *[500] * 6), retrieval=Retrieval())
    fitted = await fit(4500, requested)
    assert (fitted.left_out, fitted.selection) == (0, None)
    assert (await fit(3000, requested)).left_out > 0


async def test_passages_precede_the_history_up_to_their_share() -> None:
    """Passages get up to their share before the history, and the history gets the rest."""
    requested = turn(10, *[200] * 20)
    fitted = await fit(4096, requested, *(passage(number, 400) for number in range(1, 20)))
    assert fitted.selection is not None
    free = 4096 - 11 - 150 - ANSWER_TOKENS
    assert free * 0.5 - 400 < fitted.selection.tokens <= free * 0.5
    assert 0 < len(fitted.turn.history) < 20


async def test_a_short_answer_does_not_reduce_the_sources() -> None:
    """A short answer does not reduce the number of passages."""
    passages = [passage(number, 300) for number in range(1, 4)]
    fitted = await fit(8192, turn(10, max_tokens=100), *passages)
    assert fitted.selection == Selection(tuple(passages), 900)


async def test_messages_of_the_system_and_the_question_stay() -> None:
    """The system's messages and the messages of the question stay."""
    requested = turn(10, 900, 900)
    rules, file = Message("system", words(100)), Message("user", words(800))
    requested = replace(requested, history=(rules, *requested.history, file))
    fitted = await fit(2500, requested)
    assert fitted.turn.history == (rules, file)
    assert fitted.left_out == 2


async def test_a_question_that_is_too_long_is_refused() -> None:
    """A question that is too long is refused. A history that is too long is cut."""
    # The question is followed by "Sources:".
    for requested in (turn(10), turn(9, 5000, 5000)):
        assert (await fit(11, requested)).turn.history == ()
        with pytest.raises(InvalidRequest, match="Prompt length exceeds context window"):
            await fit(9, requested)


@given(
    st.integers(1, 6000),
    st.integers(1, 3000),
    st.lists(st.integers(0, 900), max_size=12).map(lambda sizes: sizes[: len(sizes) // 2 * 2]),
    st.lists(st.integers(1, 900), max_size=6),
    st.none() | st.integers(1, 9000),
    st.floats(0.2, 0.8),
)
async def test_prompt_and_answer_fit_the_window(
    window: int, question: int, history: list[int], sizes: list[int], answer_limit: int | None, ratio: float
) -> None:
    """The prompt and the answer fit the window, or the request is refused. The answer keeps its space."""
    parameters = json.dumps({"max_tokens": answer_limit} if answer_limit else {}).encode()
    requested = turn(question, *history, max_tokens=answer_limit, parameters_json=parameters)
    requested = replace(requested, retrieval=Retrieval(("docs",), context_token_ratio=ratio))
    if question + 1 > window:
        with pytest.raises(InvalidRequest):
            await fit(window, requested)
        return
    fitted = await fit(window, requested, *(passage(at, size) for at, size in enumerate(sizes, 1)))
    length = await prompt_tokens(fitted)
    limit = json.loads(fitted.turn.parameters_json).get("max_tokens")
    assert length + (limit or 0) <= window
    assert limit == fitted.turn.max_tokens
    assert fitted.left_out + len(fitted.turn.history) == len(history)
    left = window - question - 1 - 150
    assert window - length >= min(limit or ANSWER_TOKENS, left // 2)
    if answer_limit:
        assert limit == answer_limit or length + limit == window


async def test_a_picture_counts_with_its_size() -> None:
    """A picture in the history counts with its size."""
    requested = turn(10, 10, 10)
    picture = replace(requested.history[0], text="", content_json=b"[]")
    requested = replace(requested, history=(picture, requested.history[1]))
    assert (await fit(2000, requested)).left_out == 2
    assert (await fit(4000, requested)).left_out == 0


async def test_text_beside_a_picture_counts() -> None:
    """The text parts of a message with a picture count in addition to the picture."""
    requested = turn(10, 10, 10)
    parts = [{"type": "text", "text": words(3000)}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    picture = replace(requested.history[0], text="", content_json=json.dumps(parts).encode())
    requested = replace(requested, history=(picture, requested.history[1]))
    assert (await fit(4000, requested)).left_out == 2
    assert (await fit(8000, requested)).left_out == 0


async def test_tool_calls_count() -> None:
    """The arguments of tool calls in the history count."""
    requested = turn(10, 10, 10, 10, 10)
    asking, answering, result, ending = requested.history
    extra = {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": words(3000)}}]}
    calling = replace(answering, text="", extra_json=json.dumps(extra).encode())
    requested = replace(requested, history=(asking, calling, replace(result, role="tool"), ending))
    assert (await fit(3500, requested)).left_out == 4
    assert (await fit(8000, requested)).left_out == 0


async def test_an_unknown_window_cuts_nothing() -> None:
    """A model with an unknown window gets the whole history and a bounded number of passages."""
    fitted = await fit(0, turn(10, *[5000] * 10), *(passage(number, 1000) for number in range(1, 20)))
    assert fitted.left_out == 0
    assert fitted.selection is not None
    assert 1 < len(fitted.selection.passages) < 8


async def test_a_model_that_only_quotes_is_not_asked_for_questions() -> None:
    """A model that only quotes gets no request for follow-up questions."""
    requested = turn(10, follow_ups=True)
    assert not (await fit(4000, requested, only_quotes=True)).turn.prompting.follow_ups
    assert (await fit(4000, requested)).turn.prompting.follow_ups


ROLES = ["system", "developer", "user", "assistant", "tool"]
ROLE = dict(zip("sduat", ROLES, strict=True))


def messages_of(roles: str) -> list[Message]:
    return [Message(ROLE[role], role) for role in roles]


def test_an_exchange_ends_with_its_answer() -> None:
    """An exchange ends with its last answer and may have several questions and answers."""
    assert exchanges(messages_of("uauuauaa")) == [[0, 1], [2, 3, 4], [5, 6, 7]]


def test_system_messages_belong_to_no_exchange() -> None:
    """The system's messages belong to no exchange."""
    assert exchanges(messages_of("suadsua")) == [[1, 2], [5, 6]]


def test_messages_after_the_latest_answer_belong_to_the_question() -> None:
    """Messages after the latest answer belong to the question and to no exchange."""
    assert exchanges(messages_of("uauu")) == [[0, 1]]
    assert exchanges(messages_of("uu")) == []


def test_a_greeting_is_an_exchange() -> None:
    """A greeting of the assistant is an exchange."""
    assert exchanges(messages_of("aua")) == [[0], [1, 2]]


def test_the_latest_exchanges_stay() -> None:
    """The latest exchanges that fit in a row stay."""
    found = exchanges(messages_of("uauaua"))
    assert left_out(found, [1] * 6, 6) == frozenset()
    assert left_out(found, [1] * 6, 5) == {0, 1}
    assert left_out(found, [1, 1, 9, 9, 1, 1], 5) == {0, 1, 2, 3}
    assert left_out(found, [1] * 6, 0) == {0, 1, 2, 3, 4, 5}


@given(st.lists(st.tuples(st.sampled_from(ROLES), st.integers(0, 50)), max_size=20), st.integers(-10, 300))
def test_the_kept_exchanges_fit(messages: list[tuple[str, int]], free_tokens: int) -> None:
    """The kept exchanges are the last ones, fit the space, and one more would not fit."""
    history = [Message(role, "x") for role, _ in messages]
    found = exchanges(history)
    sizes = [messages[at][1] for exchange in found for at in exchange]
    omitted = left_out(found, sizes, free_tokens)
    kept = [exchange for exchange in found if not omitted & set(exchange)]
    assert kept == found[len(found) - len(kept) :]
    assert omitted == {at for exchange in found[: len(found) - len(kept)] for at in exchange}
    total = sum(messages[at][1] for exchange in kept for at in exchange)
    assert not kept or total <= free_tokens
    if len(kept) < len(found):
        assert total + sum(messages[at][1] for at in found[len(found) - len(kept) - 1]) > free_tokens
    assert not any(history[at].role in ("system", "developer") for at in omitted)


class CountingGenerator(FakeGenerator):
    """A generator that counts its calls."""

    calls = 0

    async def count_tokens(self, *arguments: Any) -> TokenCounts:
        """See `ports.answering.Generator`."""
        self.calls += 1
        return await super().count_tokens(*arguments)


def plain(question: int, *history: int, max_tokens: int | None = None) -> Turn:
    """Return a turn whose messages have only texts."""
    requested = turn(question, *history, max_tokens=max_tokens)
    return replace(requested, history=tuple(replace(message, extra_json=b"") for message in requested.history))


async def fit_by(generator: CountingGenerator, requested: Turn, *passages: Passage) -> Fit:
    stage = ConversationWindow(generator, NODE_TOKENS)
    return await stage.fit(requested, Selection(passages), Timeline(), Deadline.after(5))


async def test_a_turn_that_fits_by_its_bytes_is_not_counted() -> None:
    """A turn that fits by its bytes is not counted, once the window is known. Other turns are."""
    generator = CountingGenerator(window=4096)
    requested = plain(10, 10, 10)
    first = await fit_by(generator, requested, passage(1, 100))
    again = await fit_by(generator, requested, passage(1, 100))
    assert generator.calls == 1
    assert (again.turn, again.left_out) == (first.turn, first.left_out)
    assert again.selection is not None
    assert first.selection is not None
    assert again.selection.passages == first.selection.passages
    await fit_by(generator, requested, passage(1, 1500))
    await fit_by(generator, plain(10, 1500, 10), passage(1, 100))
    await fit_by(generator, plain(2000), passage(1, 100))
    await fit_by(
        generator, replace(requested, prompting=replace(requested.prompting, pictures=True)), passage(1, 100)
    )
    await fit_by(generator, replace(requested, original=OriginalRequest(tools_json=b"[{}]")), passage(1, 100))
    assert generator.calls == 6


@given(
    window=st.integers(1500, 6000),
    question=st.integers(1, 300),
    history=st.lists(st.integers(1, 300), max_size=4),
    sizes=st.lists(st.integers(2, 400), max_size=4),
    max_tokens=st.none() | st.integers(1, 3000),
)
async def test_bounds_and_counts_give_the_same_result(
    window: int, question: int, history: list[int], sizes: list[int], max_tokens: int | None
) -> None:
    """Bounds and counts give the same passages and the same history."""
    requested = plain(question, *history, max_tokens=max_tokens)
    passages = [passage(number, size) for number, size in enumerate(sizes, 1)]
    generator = CountingGenerator(window=window)
    counted = await fit_by(generator, requested, *passages)
    bounded = await fit_by(generator, requested, *passages)
    assert (bounded.turn, bounded.left_out) == (counted.turn, counted.left_out)
    assert bounded.selection is not None
    assert counted.selection is not None
    assert bounded.selection.passages == counted.selection.passages
    assert bounded.free_tokens <= counted.free_tokens
