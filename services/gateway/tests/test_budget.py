from gateway.budget import ADDITION_PROMPT_TOKENS, NODE_TOKENS, candidates, context_tokens, select
from gateway.domain import Passage
from hypothesis import given
from hypothesis import strategies as st

WINDOWS = st.integers(1, 1_000_000)
PROMPTS = st.integers(0, 1_000_000)
LIMITS = st.none() | st.integers(1, 1_000_000)
RATIOS = st.floats(0.2, 0.8)


def passage(number: int) -> Passage:
    return Passage(str(number), "docs", "d", "a.md", "a.md", "text", 1.0)


def test_the_worked_example() -> None:
    """8192 tokens of window, 500 of conversation, 1000 asked for, ratio 0.6: 600 for passages."""
    assert context_tokens(8192, 500, 1000, 0.6) == 600


def test_without_a_limit_the_window_decides() -> None:
    """Half of what the window has left."""
    assert context_tokens(8192, 500, None, 0.5) == (8192 - 500 - 150) // 2


def test_a_short_answer_keeps_its_sources() -> None:
    """Ten tokens of answer still get a passage's worth of sources, where the window has it."""
    assert context_tokens(8192, 500, 10, 0.5) == NODE_TOKENS
    assert context_tokens(1000, 500, 10, 0.5) == 1000 - 500 - 150 - 10


@given(WINDOWS, PROMPTS, LIMITS, RATIOS)
def test_passages_and_prompt_fit_the_window(window: int, prompt: int, limit: int | None, ratio: float) -> None:
    """Whatever is asked for: never negative, and never more than the window has left."""
    budget = context_tokens(window, prompt, limit, ratio)
    assert 0 <= budget <= max(0, window - prompt - ADDITION_PROMPT_TOKENS)


@given(WINDOWS, PROMPTS, LIMITS, RATIOS)
def test_the_share_is_the_ratios_of_what_is_available(
    window: int, prompt: int, limit: int | None, ratio: float
) -> None:
    """Only a short answer gets more than the ratio's share, and then one passage's worth at most."""
    available = window - prompt - ADDITION_PROMPT_TOKENS
    share = int(min(limit or window, available) * ratio)
    budget = context_tokens(window, prompt, limit, ratio)
    assert budget == max(0, share) or share < budget <= NODE_TOKENS


@given(WINDOWS, PROMPTS)
def test_as_many_are_fetched_as_could_fit(window: int, prompt: int) -> None:
    """A hundred at least, a thousand at most."""
    assert 100 <= candidates(window, prompt) <= 1000
    assert candidates(window, prompt) >= min(1000, (window - prompt) // NODE_TOKENS)


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(0, 3000))
def test_selection_is_greedy(sizes: list[int], budget: int) -> None:
    """In order, each that still fits; what is left out would not have fitted when its turn came."""
    passages = [passage(at) for at in range(len(sizes))]
    kept = select(passages, sizes, budget)
    left = budget
    for each, size in zip(passages, sizes, strict=True):
        assert (each in kept) == (size <= left)
        left -= size if each in kept else 0
    assert left >= 0
    assert list(kept) == sorted(kept, key=lambda each: int(each.id))
