"""A tokenizer in Hugging Face's format."""

import json
from pathlib import Path

import pytest
import tokenizers

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|begin|>", "<|end|>", "<|user|>", "<|system|>", "<|assistant|>"]


@pytest.fixture(scope="session")
def tokenizer_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a byte-level BPE tokenizer with its configuration and a chat template."""
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the ferry leaves at eight and the train leaves at nine"] * 20, trainer)
    tokenizer.enable_truncation(8)  # as in some published files
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"chat_template": CHAT_TEMPLATE, "bos_token": {"content": "<|begin|>"}, "eos_token": "<|end|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory
