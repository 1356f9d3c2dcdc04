import json

import pytest
from gateway.answering.budget import (
    ADDITION_PROMPT_TOKENS,
    ANSWER_TOKENS,
    NODE_TOKENS,
    candidates,
    context_tokens,
    fits,
    lower_limits,
    reaches_threshold,
    shares,
)
from gateway.domain import Passage
from hypothesis import given
from hypothesis import strategies as st

WINDOWS = st.integers(1, 1_000_000)
PROMPTS = st.integers(0, 1_000_000)
LIMITS = st.none() | st.integers(1, 1_000_000)
RATIOS = st.floats(0.2, 0.8)


def passage(similarity: float | None) -> Passage:
    return Passage("p", "docs", "d", "a.md", "a.md", "text", 1.0, dense_score=similarity)


def test_the_documented_example() -> None:
    """A window of 8192, a prompt of 500, a limit of 1000 and a ratio of 0.6 leave 600 tokens for passages."""
    assert context_tokens(8192, 500, 1000, 0.6) == 600


def test_without_a_limit_the_window_decides() -> None:
    """Without a limit, the passages get their ratio of the rest of the window."""
    assert context_tokens(8192, 500, None, 0.5) == (8192 - 500 - 150) // 2


def test_a_short_answer_keeps_its_sources() -> None:
    """A short answer leaves the passages one node, if the window has space for it."""
    assert context_tokens(8192, 500, 10, 0.5) == NODE_TOKENS
    assert context_tokens(1000, 500, 10, 0.5) == 1000 - 500 - 150 - 10


@given(WINDOWS, PROMPTS, LIMITS, RATIOS)
def test_passages_and_prompt_fit_the_window(window: int, prompt: int, limit: int | None, ratio: float) -> None:
    """The prompt and the passages together fit the window."""
    budget = context_tokens(window, prompt, limit, ratio)
    assert 0 <= budget <= max(0, window - prompt - ADDITION_PROMPT_TOKENS)


@given(WINDOWS, PROMPTS, LIMITS, RATIOS)
def test_the_passages_get_the_ratio_of_the_tokens(
    window: int, prompt: int, limit: int | None, ratio: float
) -> None:
    """The passages get the ratio of the available tokens, or at most one node more."""
    available = window - prompt - ADDITION_PROMPT_TOKENS
    share = int(min(limit or window, available) * ratio)
    budget = context_tokens(window, prompt, limit, ratio)
    assert budget == max(0, share) or share < budget <= NODE_TOKENS


@given(WINDOWS, PROMPTS)
def test_as_many_are_fetched_as_could_fit(window: int, prompt: int) -> None:
    """The number of fetched candidates is the number that could fit, between 100 and 1000."""
    assert 100 <= candidates(window, prompt) <= 1000
    assert candidates(window, prompt) >= min(1000, (window - prompt) // NODE_TOKENS)


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(0, 3000))
def test_selection_is_greedy(sizes: list[int], budget: int) -> None:
    """A passage is selected exactly if it fits the tokens that the earlier ones left."""
    left = budget
    for selected, size in zip(fits(sizes, budget), sizes, strict=True):
        assert selected == (size <= left)
        left -= size if selected else 0
    assert left >= 0


@pytest.mark.parametrize(
    ("similarity", "threshold", "near"),
    [(0.29, 0.3, False), (0.3, 0.3, True), (None, 0.3, True), (-1.0, -1.0, True), (-1.0, None, True)],
)
def test_a_passage_at_the_threshold_is_accepted(
    similarity: float | None, threshold: float | None, near: bool
) -> None:
    """A similarity at the threshold is accepted, and so is a passage without a similarity or a threshold."""
    assert reaches_threshold(passage(similarity), threshold) == near


@given(WINDOWS, st.integers(1, 5000))
def test_larger_nodes_are_fewer_and_get_more(window: int, node_tokens: int) -> None:
    """Larger nodes mean fewer candidates and a larger minimum budget."""
    assert candidates(window, 0, node_tokens) == min(1000, max(100, window // node_tokens))
    assert context_tokens(100_000, 0, 1, 0.5, node_tokens) == node_tokens


@pytest.mark.parametrize(
    ("members", "lowered"),
    [
        (b'{"max_tokens":9,"x":1.50}', b'{"max_tokens":5,"x":1.50}'),
        (b'{"max_completion_tokens":9}', b'{"max_completion_tokens":5}'),
        (b'{"max_tokens":9,"max_completion_tokens":6}', b'{"max_tokens":5,"max_completion_tokens":5}'),
        (b'{"max_tokens":3,"max_completion_tokens":6}', b'{"max_tokens":3,"max_completion_tokens":5}'),
        (b'{"y":[ 1, 2 ],"max_tokens":12}', b'{"y":[ 1, 2 ],"max_tokens":5}'),
    ],
)
def test_a_limit_is_lowered_under_the_callers_name(members: bytes, lowered: bytes) -> None:
    """Each limit above the maximum is lowered under the caller's name, and other members stay."""
    assert lower_limits(members, 5) == lowered


@pytest.mark.parametrize(
    "members", [b"{}", b' { "max_tokens" : 5 } ', b'{"max_tokens":null}', b'{"max_completion_tokens":1,"x": 2}']
)
def test_parameters_without_a_higher_limit_stay_unchanged(members: bytes) -> None:
    """Parameters without a higher limit stay unchanged, byte for byte."""
    assert lower_limits(members, 5) == members


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_limit_only_ever_shrinks(maximum: int, requested: int) -> None:
    """The result is the smaller one of the two limits."""
    assert json.loads(lower_limits(json.dumps({"max_tokens": requested}).encode(), maximum)) == {
        "max_tokens": min(maximum, requested)
    }


@given(WINDOWS, PROMPTS, LIMITS, RATIOS)
def test_answer_passages_and_history_share_the_rest(
    window: int, fixed: int, limit: int | None, ratio: float
) -> None:
    """The answer and the rest share the tokens that the question leaves, and passages fit the rest."""
    shared = shares(window, fixed, limit, ratio)
    left = max(0, window - fixed - ADDITION_PROMPT_TOKENS)
    assert shared.answer + shared.free == left
    assert shared.answer == min(limit or ANSWER_TOKENS, left // 2)
    assert 0 <= shared.passages <= shared.free


def test_passages_get_their_ratio_and_at_least_one_node() -> None:
    """The passages get their ratio, and at least one node if it fits."""
    assert shares(8192, 500, 1000, 0.6).passages == int((8192 - 500 - 150 - 1000) * 0.6)
    assert shares(1500, 500, 1000, 0.2).passages == 425
    assert shares(2500, 500, 1000, 0.2).passages == NODE_TOKENS
