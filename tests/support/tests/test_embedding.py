import pytest
from causeway_testing.embedding import HashingEmbedder


async def test_shared_words_make_texts_near() -> None:
    """The cosine grows with the share of common words. Case and punctuation do not matter."""
    embedder = HashingEmbedder(dimension=4096)
    base, same, half, none = await embedder.embed(
        ["red boats sail north", "Red boats, sail NORTH!", "red boats cook dinner", "we cook dinner today"]
    )
    assert base @ same == pytest.approx(1)
    assert base @ half == pytest.approx(0.5)
    assert base @ none == pytest.approx(0)


async def test_the_model_name_tells_dimensions_apart() -> None:
    """Embedders of different dimensions have different names, so that an index does not mix them."""
    assert HashingEmbedder(64).model != HashingEmbedder(128).model
