import json
from dataclasses import replace
from typing import Any

import pytest
import structlog
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.gateway.retrieval import FakeRetriever
from gateway.answering import prompts
from gateway.answering.budget import NODE_TOKENS
from gateway.answering.context_selection import ContextSelection, labelled
from gateway.answering.timeline import Timeline
from gateway.domain import (
    Message,
    OriginalRequest,
    Passage,
    PromptStyle,
    Retrieval,
    SearchResults,
    Selection,
    TokenCounts,
    Turn,
)
from hypothesis import given
from hypothesis import strategies as st
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, NotFound
from servicekit.principal import LOCAL

RATIOS = st.floats(0.2, 0.8)
LIMITS = st.none() | st.integers(1, 20_000)


def words(number: int) -> str:
    return " ".join(["w"] * number)


def passage(number: int, size: int, similarity: float | None = 0.9) -> Passage:
    """Return a passage with a given number of tokens, including its name."""
    name = f"{number}.md"
    return Passage(f"p{number}", "docs", "d", name, name, words(size - 1), 1.0 / number, dense_score=similarity)


def turn(prompt: int, max_tokens: int | None = None, ratio: float = 0.5, **more: Any) -> Turn:
    members = {} if max_tokens is None else {"max_tokens": max_tokens}
    return Turn(
        LOCAL,
        words(prompt),
        retrieval=Retrieval(("docs",), context_token_ratio=ratio, **more),
        style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
        max_tokens=max_tokens,
        parameters_json=json.dumps(members).encode(),
        original=OriginalRequest(json=json.dumps(members | {"messages": []}).encode()),
    )


class OrderedRetriever(FakeRetriever):
    """A retriever that finds all passages in the given order."""

    async def retrieve(self, *_: Any) -> SearchResults:
        return SearchResults(tuple(self.indexes["docs"]))


class SelectionForWindow:
    """A selection for a model with this window."""

    def __init__(self, window: int, *passages: Passage) -> None:
        self.generator = FakeGenerator(window=window)
        self.passages = passages
        self.stage = ContextSelection(OrderedRetriever({"docs": list(passages)}), self.generator, NODE_TOKENS)

    async def select(self, requested: Turn) -> tuple[Turn, Selection]:
        found = await self.stage.search(
            replace(requested, retrieval=replace(requested.retrieval, top=7)), requested.question, *clock()
        )
        assert found is not None
        return await self.stage.select(requested, found, *clock())

    async def prompt_tokens(self, requested: Turn, selection: Selection) -> int:
        counts = await self.generator.count_tokens(
            LOCAL, "", (), prompts.compose(requested, selection.passages), Deadline.after(5)
        )
        return counts.messages


def clock() -> tuple[Timeline, Deadline]:
    return Timeline(), Deadline.after(5)


def sent(requested: Turn) -> Any:
    """Return the limit that the model receives."""
    limits = [json.loads(raw).get("max_tokens") for raw in (requested.parameters_json, requested.original.json)]
    assert limits == [requested.max_tokens] * 2
    return requested.max_tokens


@given(st.integers(1, 20_000), st.integers(1, 20_000), LIMITS, RATIOS, st.lists(st.integers(1, 3000), max_size=8))
async def test_prompt_passages_and_answer_fit_the_window(
    window: int, prompt: int, max_tokens: int | None, ratio: float, sizes: list[int]
) -> None:
    """The prompt, the passages and the answer fit the window, or the request is refused. The order stays."""
    world = SelectionForWindow(window, *(passage(at, size) for at, size in enumerate(sizes, 1)))
    requested = turn(prompt, max_tokens, ratio)
    if prompt > window:
        with pytest.raises(InvalidRequest, match="Prompt length exceeds context window"):
            await world.select(requested)
        return
    fit, selection = await world.select(requested)
    length = await world.prompt_tokens(fit, selection)
    assert length + (sent(fit) or 0) <= window
    if max_tokens is None:
        assert sent(fit) is None
    else:
        assert sent(fit) == min(max_tokens, window - length)
    numbers = [int(passage.id[1:]) for passage in selection.passages]
    assert numbers == sorted(numbers)
    assert len(numbers) + selection.too_large == len(sizes)


async def test_the_documented_example() -> None:
    """A window of 8192, a prompt of 500, a limit of 1000 and a ratio of 0.6 give passages of 600 tokens."""
    world = SelectionForWindow(8192, passage(1, 300), passage(2, 301), passage(3, 300), passage(4, 1))
    fit, selection = await world.select(turn(500, 1000, 0.6))
    assert [passage.id for passage in selection.passages] == ["p1", "p3"]
    assert (selection.tokens, selection.too_large) == (600, 2)
    assert sent(fit) == 1000


async def test_an_answer_that_is_too_long_is_lowered_twice() -> None:
    """A high limit is lowered to the rest of the window with a warning, and then to the rest of the real prompt."""
    world = SelectionForWindow(8192, *(passage(number, 500) for number in range(1, 20)))
    with structlog.testing.capture_logs() as lines:
        fit, selection = await world.select(turn(500, 8000))
    [warning] = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert warning == (
        "max_tokens (8000) is greater than available context after prompt consideration. Setting to 7692."
    )
    assert len(selection.passages) == int((8192 - 500 - 150) * 0.5) // 500
    assert sent(fit) == 8192 - await world.prompt_tokens(fit, selection) < 7692 - 3500


async def test_without_passages_the_first_limit_applies() -> None:
    """Without passages, the limit is the rest of the window."""
    fit, selection = await SelectionForWindow(8192).select(turn(500, 8000))
    assert selection == Selection(())
    assert sent(fit) == 7692


async def test_a_pass_through_is_counted_by_its_own_messages() -> None:
    """A request that is passed through is counted by its own messages, and not by the joined question."""
    requested = replace(
        turn(500, 8000), original=replace(turn(500, 8000).original, messages=(Message("user", words(510)),))
    )
    fit, _ = await SelectionForWindow(8192).select(requested)
    assert sent(fit) == 8192 - 510
    fit, selection = await SelectionForWindow(8192, passage(1, 10)).select(requested)
    assert len(selection.passages) == 1
    assert sent(fit) > 8192 - 510 - 60


async def test_both_names_of_the_limit_are_lowered() -> None:
    """Both names of the limit are lowered."""
    requested = replace(turn(500, 9000), parameters_json=b'{"max_tokens":8000,"max_completion_tokens":9000}')
    fit, _ = await SelectionForWindow(8192).select(requested)
    assert fit.parameters_json == b'{"max_tokens":7692,"max_completion_tokens":7692}'


async def test_a_limit_that_fits_stays_unchanged() -> None:
    """A limit that fits stays unchanged, and no warning is logged."""
    requested = turn(500, 1000)
    with structlog.testing.capture_logs() as lines:
        fit, _ = await SelectionForWindow(8192, passage(1, 200)).select(requested)
    assert fit is requested
    assert [line for line in lines if line["log_level"] == "warning"] == []


async def test_the_history_takes_tokens_from_the_passages() -> None:
    """The history takes tokens from the passages."""
    world = SelectionForWindow(2000, passage(1, 900), passage(2, 100))
    _, alone = await world.select(turn(10))
    assert [passage.id for passage in alone.passages] == ["p1"]
    long = replace(turn(10), history=(Message("user", words(700)), Message("assistant", words(700))))
    _, after_history = await world.select(long)
    assert [passage.id for passage in after_history.passages] == ["p2"]


async def test_each_passage_is_logged_and_counted() -> None:
    """Each passage is logged as kept, under the threshold or too large, and counted."""
    world = SelectionForWindow(
        8192, passage(1, 100, 0.31), passage(2, 100, 0.29), passage(3, 9000, 0.9), passage(4, 5, None)
    )
    with structlog.testing.capture_logs() as lines:
        _, selection = await world.select(turn(10, similarity_threshold=0.3))
    logged = {line["node_id"]: (line["fate"], line["tokens"]) for line in lines if line["log_level"] == "debug"}
    assert logged == {
        "p1": ("kept", 100),
        "p2": ("under threshold", None),
        "p3": ("too large", 9000),
        "p4": ("kept", 5),
    }
    assert (len(selection.passages), selection.under_threshold, selection.too_large) == (2, 1, 1)


async def test_an_unknown_window_refuses_nothing() -> None:
    """A model with an unknown window gets every prompt and limit, and a bounded number of passages."""
    world = SelectionForWindow(0, *(passage(number, 1000) for number in range(1, 100)))
    fit, selection = await world.select(turn(50_000, 40_000))
    assert sent(fit) == 40_000
    assert 1 < len(selection.passages) < 8


@pytest.mark.parametrize(("window", "fetched"), [(0, 100), (8192, 100), (128_000, 255), (10_000_000, 1000)])
async def test_the_window_decides_how_many_are_fetched(window: int, fetched: int) -> None:
    """The window decides on the number of fetched passages if the request does not."""
    tops = []

    class Retriever(FakeRetriever):
        async def retrieve(self, *args: Any) -> SearchResults:
            tops.append(args[3])
            return SearchResults()

    stage = ContextSelection(Retriever({"docs": []}), FakeGenerator(window=window), NODE_TOKENS)
    await stage.search(turn(10), "query", Timeline(), Deadline.after(5))
    await stage.search(turn(10, top=7), "query", Timeline(), Deadline.after(5))
    assert tops == [fetched, 7]


async def test_a_question_that_is_too_long_is_not_searched_for() -> None:
    """A question that is too long is refused without a search, and an unknown index before that."""
    retriever = FakeRetriever({"docs": []})
    nowhere = replace(turn(10), retrieval=Retrieval(("nowhere",)))
    for requested, error, words in (
        (turn(10), InvalidRequest, "Prompt length exceeds context window"),
        (nowhere, NotFound, "nowhere"),
    ):
        stage = ContextSelection(retriever, FakeGenerator(window=9), NODE_TOKENS)
        with pytest.raises(error, match=words):
            await stage.search(requested, "query", Timeline(), Deadline.after(5))
    await stage.search(turn(9), "query", Timeline(), Deadline.after(5))
    assert len(retriever.queries) == 1


class CountingGenerator(FakeGenerator):
    """A generator that counts its calls."""

    counted = 0

    async def count_tokens(self, *args: Any) -> TokenCounts:
        self.counted += 1
        return await super().count_tokens(*args)


@pytest.mark.parametrize(("window", "calls"), [(8192, 1), (128_000, 2)])
async def test_a_known_window_saves_a_call(window: int, calls: int) -> None:
    """A known window saves one call of counting if it does not change the number of fetched passages."""
    generator = CountingGenerator(window=window)
    stage = ContextSelection(
        OrderedRetriever({"docs": [passage(at, 300) for at in range(1, 40)]}), generator, NODE_TOKENS
    )
    selected = []
    for _ in range(2):
        before = generator.counted
        found = await stage.search(turn(500), "query", *clock())
        assert found is not None
        selected.append(await stage.select(turn(500), found, *clock()))
    assert generator.counted - before == calls
    assert selected[0] == selected[1]


async def test_a_question_that_is_too_long_is_refused_after_a_search() -> None:
    """A question that is too long is refused after the search if the window was known before."""
    window = SelectionForWindow(9)
    await window.prompt_tokens(turn(1), Selection(()))
    found = await window.stage.search(turn(10), "query", *clock())
    assert found is not None
    with pytest.raises(InvalidRequest, match="Prompt length exceeds context window"):
        await window.stage.select(turn(10), found, *clock())


@given(st.integers(1, 1000), RATIOS)
async def test_a_short_answer_keeps_its_sources(max_tokens: int, ratio: float) -> None:
    """A short answer keeps one passage of the usual size."""
    _, selection = await SelectionForWindow(8192, passage(1, NODE_TOKENS)).select(turn(500, max_tokens, ratio))
    assert len(selection.passages) == 1


def test_a_document_without_an_id_has_a_short_label() -> None:
    """A document whose name is its digest gets a short unique label. Other names stay."""

    def found(name: str, page: str = "", sourcefile: str = "") -> Passage:
        return Passage(name, "docs", name, sourcefile or name, (sourcefile or name) + page, "text", 1.0)

    one, other, third = "ab" * 32, "ab" * 5 + "cd" * 27, "ef" * 32
    passages = [
        found(one),
        found(other, "#page=2"),
        found(other),
        found(third),
        found("efefefef"),
        found("guide"),
        found("12" * 32, sourcefile="a.md"),
    ]
    names = [passage.sourcepage for passage in labelled(passages)]
    assert names == [
        *("ab" * 5 + "a", "ab" * 5 + "c#page=2", "ab" * 5 + "c", "efefefefe"),
        *("efefefef", "guide", "a.md"),
    ]
    assert [passage.document_id for passage in labelled(passages)] == [passage.document_id for passage in passages]
    [alone] = labelled([found(third)])
    assert alone.sourcepage == "efefefef"
