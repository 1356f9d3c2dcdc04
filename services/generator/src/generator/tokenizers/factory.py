"""Selects the counter of a model."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import SecretStr

from generator.ports import TokenCounter
from generator.tokenizers.estimate import EstimatedTokens
from generator.tokenizers.huggingface import HuggingFaceTokens
from generator.tokenizers.openai import ENCODINGS, OpenAITokens, encoding_of
from generator.tokenizers.server import Dialect, ServerTokens
from generator.tokenizers.templates import load_template, template_beside
from generator.tokenizers.word_tokens import PieceCounter

_SERVERS = ("vllm", "llamacpp")
_FILE = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """The tokenizer of a model.

    Attributes:
        tokenizer: One of

            - empty: by the model's name, an estimate where it is not one of OpenAI's;
            - ``estimate``: from the kinds of characters;
            - ``words``: a token is a word, as the extractive model counts;
            - ``cl100k_base``, ``o200k_base``: OpenAI's encodings;
            - a path: of a Hugging Face ``tokenizer.json``, or of the directory that holds one;
            - ``vllm+http://host:8000``, ``llamacpp+http://host:8080`` (or https): the model server counts.
        model: The name that the model's server knows.
        chat_template: What is put around the messages, as `generator.tokenizers.templates.load_template` reads it;
            read with a path only; empty: what lies beside the ``tokenizer.json``, else OpenAI's numbers.
        api_key: For a server that counts.
    """

    tokenizer: str = ""
    model: str = ""
    chat_template: str = ""
    api_key: SecretStr | None = None


def counter(spec: TokenizerSpec) -> TokenCounter:
    """Return the counter; any thread may use it.

    Raises:
        ValueError: The specification is invalid, or a file that it names cannot be read.
    """
    asked = spec.tokenizer
    dialect, plus, url = asked.partition("+")
    if plus and dialect in _SERVERS and url.startswith(("http://", "https://")):
        return ServerTokens(url, cast("Dialect", dialect), spec.model, api_key=spec.api_key)
    if asked == "":
        encoding = encoding_of(spec.model)
        return EstimatedTokens() if encoding is None else OpenAITokens(encoding)
    if asked == "estimate":
        return EstimatedTokens()
    if asked == "words":
        return PieceCounter()
    if asked in ENCODINGS:
        return OpenAITokens(asked)
    return _of_file(asked, spec.chat_template)


def _of_file(asked: str, chat_template: str) -> TokenCounter:
    path = Path(asked)
    path = path / _FILE if path.is_dir() else path
    if not path.is_file():
        known = ", ".join(["estimate", "words", *ENCODINGS, *(f"{name}+http://…" for name in _SERVERS)])
        raise ValueError(f"The tokenizer '{asked}' is neither a file nor one of: {known}.")
    return HuggingFaceTokens(path, load_template(chat_template) if chat_template else template_beside(path))
