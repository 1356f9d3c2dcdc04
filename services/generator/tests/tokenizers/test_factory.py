"""The tokenizer of a model."""

from pathlib import Path

import pytest
from causeway_testing.generator import FakeTokenCounter
from generator.domain import ChatMessage
from generator.ports import TokenCounter
from generator.tokenizers import TokenizerSpec, counter
from generator.tokenizers.estimate import EstimatedTokens
from generator.tokenizers.huggingface import HuggingFaceTokens
from generator.tokenizers.openai import OpenAITokens
from generator.tokenizers.server import ServerTokens
from generator.tokenizers.word_tokens import PieceCounter

MESSAGES = [ChatMessage("user", "the ferry")]


@pytest.mark.parametrize(
    ("spec", "kind", "exact"),
    [
        (TokenizerSpec(model="gpt-4o"), OpenAITokens, True),
        (TokenizerSpec(model="meta-llama/Llama-3.1-8B"), EstimatedTokens, False),
        (TokenizerSpec("estimate", "gpt-4o"), EstimatedTokens, False),
        (TokenizerSpec("words"), PieceCounter, True),
        (TokenizerSpec("cl100k_base", "mine"), OpenAITokens, True),
        (TokenizerSpec("vllm+http://127.0.0.1:1", "llm"), ServerTokens, True),
        (TokenizerSpec("llamacpp+https://example.com/x", "llm"), ServerTokens, True),
    ],
)
def test_the_specification_selects_the_tokenizer(spec: TokenizerSpec, kind: type, exact: bool) -> None:
    """The specification or the model's name selects the tokenizer. Only a model's own tokenizer is exact."""
    token_counter = counter(spec)
    assert type(token_counter) is kind
    assert token_counter.exact is exact


def test_a_tokenizer_file_uses_the_template_beside_it(tokenizer_directory: Path) -> None:
    """A tokenizer file or its directory uses the chat template beside it, or the configured chat template."""
    beside = [
        counter(TokenizerSpec(str(path))) for path in (tokenizer_directory, tokenizer_directory / "tokenizer.json")
    ]
    other = counter(TokenizerSpec(str(tokenizer_directory), chat_template="{{ messages[0].content }}"))
    assert all(type(tokens) is HuggingFaceTokens for tokens in (*beside, other))
    ferry = other.count("the ferry")
    assert [tokens.count_messages(MESSAGES) for tokens in (*beside, other)] == [ferry + 4, ferry + 4, ferry]


def test_equal_tokenizers_have_the_same_name(tokenizer_directory: Path, tmp_path: Path) -> None:
    """Equal tokenizers have the same name, independent of the file's name. Different ones have different names."""
    file = (tokenizer_directory / "tokenizer.json").read_text()
    copy, other = tmp_path / "copy.json", tmp_path / "other.json"
    copy.write_text(file)
    other.write_text(file.replace("\n", ""))
    specs = [str(copy), str(other), "words", "estimate", "cl100k_base", "o200k_base", "vllm+http://127.0.0.1:1"]
    names = [counter(TokenizerSpec(tokenizer)).counting for tokenizer in specs]
    assert len(set(names)) == len(specs)
    assert counter(TokenizerSpec(str(tokenizer_directory))).counting == names[0]
    assert counter(TokenizerSpec(model="gpt-4o")).counting == "o200k_base"


def test_an_unknown_specification_is_refused() -> None:
    """The error of an unknown specification lists the known specifications."""
    with pytest.raises(ValueError, match=r"'o201k' is neither a file nor one of: estimate, words, cl100k_base"):
        counter(TokenizerSpec("o201k"))
    with pytest.raises(ValueError, match="neither a file"):
        counter(TokenizerSpec("vllm+ftp://x"))


@pytest.mark.parametrize("name", ["words", "estimate", "o200k_base", "file", "fake"])
def test_every_counter_keeps_the_contract(name: str, tokenizer_directory: Path) -> None:
    """An empty text has no tokens. A longer text has at least as many tokens as a shorter one, and a conversation
    at least those of its texts. Several texts are counted one by one. Texts may contain any characters.
    """
    token_counter: TokenCounter = FakeTokenCounter()
    if name != "fake":
        token_counter = counter(TokenizerSpec(str(tokenizer_directory) if name == "file" else name))
    assert token_counter.count("") == 0
    assert 0 < token_counter.count("one two") <= token_counter.count("one two three four")
    assert token_counter.count_messages(MESSAGES) >= token_counter.count("the ferry")
    texts = ["", "the ferry", "one two"]
    assert token_counter.count_all(texts) == [token_counter.count(text) for text in texts]
    assert token_counter.count_all([]) == []
    assert token_counter.count("half a \ud83d pair") > 0
    if name == "fake":
        return  # it counts only texts
    parts = b'[{"type":"text","text":"the ferry"},{"type":"image_url","image_url":{"url":"data:,"}}]'
    assert token_counter.count_messages([ChatMessage("user", content_json=parts)]) >= token_counter.count(
        "the ferry"
    )
