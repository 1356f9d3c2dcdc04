"""Selects the token counter of a model."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import SecretStr

from generator.ports import TokenCounter
from generator.tokenizers.estimate import EstimatedTokens
from generator.tokenizers.huggingface import HuggingFaceTokens
from generator.tokenizers.openai import ENCODINGS, OpenAITokens, encoding_of
from generator.tokenizers.server import ServerKind, ServerTokens
from generator.tokenizers.templates import load_template, tokenizer_template
from generator.tokenizers.word_tokens import PieceCounter

_SERVERS = ("vllm", "llamacpp")
_FILE = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """The tokenizer of a model.

    Attributes:
        tokenizer: One of

            - empty: OpenAI's encoding for the model's name; an estimate for a model that is not OpenAI's;
            - ``estimate``: an estimate from the kinds of characters;
            - ``words``: each word is a token, as in the extractive model;
            - ``cl100k_base``, ``o200k_base``: OpenAI's encodings;
            - a path: a ``tokenizer.json`` of Hugging Face, or a directory with this file;
            - ``vllm+http://host:8000``, ``llamacpp+http://host:8080`` (or https): the model server counts.
        model: The name of the model on the server.
        chat_template: The chat template, in the format of `generator.tokenizers.templates.load_template`; only for
            a path. Empty: the template beside the ``tokenizer.json``, else the tokens of OpenAI's template.
        api_key: The key for a model server that counts.
    """

    tokenizer: str = ""
    model: str = ""
    chat_template: str = ""
    api_key: SecretStr | None = None


def counter(spec: TokenizerSpec) -> TokenCounter:
    """Return the token counter of a model.

    Raises:
        ValueError: The specification is invalid, or a file cannot be read.
        OSError: A path is too long, or its directory cannot be accessed.
    """
    tokenizer_name = spec.tokenizer
    kind, plus, url = tokenizer_name.partition("+")
    if plus and kind in _SERVERS and url.startswith(("http://", "https://")):
        return ServerTokens(url, cast("ServerKind", kind), spec.model, api_key=spec.api_key)
    if tokenizer_name == "":
        encoding = encoding_of(spec.model)
        return EstimatedTokens() if encoding is None else OpenAITokens(encoding)
    if tokenizer_name == "estimate":
        return EstimatedTokens()
    if tokenizer_name == "words":
        return PieceCounter()
    if tokenizer_name in ENCODINGS:
        return OpenAITokens(tokenizer_name)
    return _file_counter(tokenizer_name, spec.chat_template)


def _file_counter(tokenizer_name: str, chat_template: str) -> TokenCounter:
    path = Path(tokenizer_name)
    path = path / _FILE if path.is_dir() else path
    if not path.is_file():
        known = ", ".join(["estimate", "words", *ENCODINGS, *(f"{name}+http://…" for name in _SERVERS)])
        raise ValueError(f"The tokenizer '{tokenizer_name}' is neither a file nor one of: {known}.")
    return HuggingFaceTokens(path, load_template(chat_template) if chat_template else tokenizer_template(path))
