"""OpenAI's tokenizers."""

from generator.domain import ChatMessage
from generator.tokenizers.openai import OpenAITokens, encoding_of


def test_known_tokens_are_counted_exactly() -> None:
    """The counts are those of OpenAI's tokenizer page. A special token in a text is counted as characters."""
    counter = OpenAITokens("cl100k_base")
    assert counter.count("tiktoken is great!") == 6
    assert counter.count("") == 0
    assert counter.count("<|endoftext|>") > 1


def test_the_models_name_selects_the_encoding() -> None:
    """A model of OpenAI has its encoding by its name, and any other model has none."""
    assert encoding_of("gpt-4o-mini-2024-07-18") == encoding_of("o3-mini") == encoding_of("gpt-4.1") == "o200k_base"
    assert encoding_of("gpt-3.5-turbo") == encoding_of("gpt-4") == "cl100k_base"
    assert encoding_of("meta-llama/Llama-3.1-8B") is None


def test_a_conversation_counts_its_texts_and_its_template() -> None:
    """A message adds four tokens and the answer three. Names and pictures count too."""
    counter = OpenAITokens("cl100k_base")
    assert counter.count_messages([ChatMessage("user", "tiktoken is great!")]) == 3 + 4 + 6
    parts = b'[{"type":"text","text":"tiktoken is great!"},{"type":"image_url","image_url":{}}]'
    assert counter.count_messages([ChatMessage("user", content_json=parts)]) == 3 + 4 + 6 + 765
    extra = b'{"name":"Ann"}'
    assert counter.count_messages([ChatMessage("user", "a", extra_json=extra)]) == 3 + 4 + 1 + counter.count(
        extra.decode()
    )
    assert counter.count_messages([]) == 3
