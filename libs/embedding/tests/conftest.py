from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from embedding.build import build
from embedding.minilm import MiniLmEmbedder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with both graphs, built from the installed weights."""
    directory = tmp_path_factory.mktemp("cache")
    build(directory, "int8")
    build(directory, "fp32")
    return directory


@pytest.fixture
async def minilm(cache: Path) -> AsyncIterator[MiniLmEmbedder]:
    """The bundled model as services load it."""
    embedder = MiniLmEmbedder.load(cache, workers=2)
    yield embedder
    await embedder.aclose()


@pytest.fixture(scope="session")
def passages() -> list[str]:
    """A hundred paragraphs of the sample corpus, from all of its Markdown documents."""
    corpus = Path(__file__).parents[3] / "examples" / "corpus"
    paragraphs = [
        paragraph.strip()
        for document in sorted(corpus.glob("*.md"))
        for paragraph in document.read_text(encoding="utf-8").split("\n\n")
        if len(paragraph.split()) >= 20
    ]
    assert len(paragraphs) >= 100, f"only {len(paragraphs)} paragraphs in {corpus}"
    return [paragraphs[number * len(paragraphs) // 100] for number in range(100)]
