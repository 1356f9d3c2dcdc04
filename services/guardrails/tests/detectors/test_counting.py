"""guardrails.detectors.counting: texts that are too long."""

import pytest
from causeway_testing.guardrails.detectors import quick
from detection.detectors.factory import DetectorFactory
from detection.detectors.patterns.matching import Limits
from detection.detectors.port import DetectorFailed
from guardrails.detectors.counting import reading_time, token_limit

_LIMITS = Limits(held_back=100)


def test_a_text_above_the_token_limit_is_a_finding() -> None:
    """A text with more tokens than the limit is a finding, a text with exactly the limit is not. Special tokens are
    text.
    """
    detector = quick(token_limit(_LIMITS), limit=4)
    assert detector.detect("one two three four") == []
    (found,) = detector.detect("one two three four five")
    assert (found.type, found.name, found.start) == ("token_limit", "too_many_tokens", None)
    assert detector.detect("<|endoftext|>") != []


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("abc def " * 12_499 + "12345 internationalization and more", 25_005), ("\U00013000" * 60_000, 240_000)],
    ids=["a-word-at-the-cut", "four-tokens-for-each-character"],
)
def test_a_long_text_is_counted_exactly(text: str, tokens: int) -> None:
    """The detector counts a text exactly, even if the tokenizer refuses to read it in one piece."""
    assert quick(token_limit(_LIMITS), limit=tokens).detect(text) == []
    assert len(quick(token_limit(_LIMITS), limit=tokens - 1).detect(text)) == 1


def test_a_text_above_the_reading_time_is_a_finding() -> None:
    """A text that takes longer to read than the limit is a finding, a text that takes exactly this time is not. A
    minute is 200 words.
    """
    detector = quick(reading_time(_LIMITS), max_time=0.5)
    assert detector.detect("word " * 100) == []
    assert [found.name for found in detector.detect("word " * 101)] == ["too_long_to_read"]


def test_text_that_may_exceed_the_limit_is_held() -> None:
    """No text is held back until the text may be too long. Then the part that may exceed the limit is held back. A
    text that is too long is reported once.
    """
    stream = quick(token_limit(_LIMITS), limit=10).stream()
    assert stream.feed("one two three four five six", last=False) == (27, [])
    assert stream.feed(" seven", last=False) == (27, [])  # the word may continue with many tokens
    assert stream.feed(" eight", last=False) == (33, [])
    assert len(stream.feed(" nine ten eleven twelve", last=False)[1]) == 1
    assert stream.feed(" thirteen", last=True)[1] == []  # reported once


@pytest.mark.parametrize("sentence", ["今天天气很好\uff0c我们去公园。", "1, 2, 3\n", "Word.\n"])
def test_punctuation_ends_the_held_text(sentence: str) -> None:
    """At most one sentence is held back, also in scripts without spaces. The finding does not wait for the end."""
    stream = quick(token_limit(_LIMITS), limit=200).stream()
    length = 0
    for _ in range(200):
        decided, found = stream.feed(sentence, last=False)
        length += len(sentence)
        assert length - decided <= len(sentence)
        if found:
            break
    assert found
    assert length < 200 * len(sentence)


def test_a_text_without_spaces_is_one_word() -> None:
    """A text without spaces counts as one word for the reading time, so no part of it is held back."""
    stream = quick(reading_time(_LIMITS), max_time=0.05).stream()
    for at in range(1, 200):
        assert stream.feed("汉字", last=False) == (2 * at, [])


@pytest.mark.parametrize(
    ("factory", "params"),
    [(token_limit(_LIMITS), {"limit": 3}), (reading_time(_LIMITS), {"max_time": 0.005})],
    ids=["token-limit", "reading-time"],
)
def test_a_word_without_end_is_held_only_up_to_the_limit(
    factory: DetectorFactory, params: dict[str, float]
) -> None:
    """Above the limit of held-back text, the detector fails: a caller cannot buffer a word of any length."""
    stream = quick(factory, **params).stream()
    assert stream.feed("one two", last=False) == (3, [])
    assert stream.feed("o" * 100, last=False) == (3, [])
    with pytest.raises(DetectorFailed, match="more than 100 characters would have to be held back"):
        stream.feed("o", last=False)
