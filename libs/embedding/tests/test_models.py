"""The models of a service: opened from a file, found by name."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.servers import free_ports
from embedding.cache import E5, model_directory
from embedding.models import EmbeddingModel, EmbeddingModels
from servicekit.errors import InvalidRequest, Unavailable

REMOTE = """
- name: remote
  kind: openai
  url: {url}
  dimension: 256
  tries: 1
  query_prefix: "query: "
  passage_prefix: "passage: "
"""


def open_models(path: Path | None, cache: Path) -> EmbeddingModels:
    return EmbeddingModels.open(path, {}, cache_dir=cache, workers=1)


async def test_the_bundled_model_is_used_without_a_file(cache: Path) -> None:
    """Without a file, the bundled model is the only one."""
    models = open_models(None, cache)
    assert [model.name for model in models] == ["all-minilm-l6-v2"]
    assert models.default.name == "all-minilm-l6-v2"
    assert models.default.dimension == 384
    assert (await models.default.plain.embed(["a"])).shape == (1, 384)
    await models.aclose()


async def test_the_model_for_many_languages_is_available_if_it_is_built(cache: Path, tmp_path: Path) -> None:
    """The model is not the default, and its files are read at its first text. Damaged files stop no service."""
    shutil.copytree(cache, tmp_path, dirs_exist_ok=True)
    model_directory(tmp_path, "int8", E5).mkdir()
    models = open_models(None, tmp_path)
    assert [model.name for model in models] == ["all-minilm-l6-v2", "multilingual-e5-small"]
    many = models.get("multilingual-e5-small")
    assert many is not None
    assert many.dimension == 384
    assert many.plain.max_tokens - many.queries.max_tokens == many.plain.max_tokens - many.passages.max_tokens == 3
    with pytest.raises(Unavailable, match="Delete that directory"):
        await many.queries.embed(["text"])
    await models.aclose()


async def test_the_model_for_many_languages_may_be_the_only_one(tmp_path: Path) -> None:
    """If a file lists only this model, the model must be built, and the message has the command."""
    path = tmp_path / "embeddings.yaml"
    path.write_text("models: [{kind: e5}]")
    with pytest.raises(Unavailable, match=r"embedding\.build .*--multilingual$"):
        open_models(path, tmp_path)
    model_directory(tmp_path, "int8", E5).mkdir()
    models = open_models(path, tmp_path)
    assert [model.name for model in models] == ["multilingual-e5-small"]
    await models.aclose()


async def test_the_hint_says_how_to_install_the_optional_model(cache: Path) -> None:
    """The message says how to install the optional model. Other models have no such message."""
    models = open_models(None, cache)
    assert "make multilingual" in models.install_hint("multilingual-e5-small")
    assert models.install_hint("another") == ""
    await models.aclose()


@pytest.mark.parametrize(("cosine", "similarity"), [(1, 1), (0.875, 0.5), (0.75, 0), (0.5, -1), (-1, -1)])
def test_a_cosine_above_the_floor_is_a_similarity(cosine: float, similarity: float) -> None:
    """The floor counts as 0, and a cosine far below it as -1. Without a floor, the cosine is the similarity."""
    assert EmbeddingModel.of(HashingEmbedder(), cosine_floor=0.75).similarity(cosine) == similarity
    assert EmbeddingModel.of(HashingEmbedder()).similarity(cosine) == cosine


async def test_the_models_of_a_file(cache: Path, tmp_path: Path, embedding_server: Any) -> None:
    """The default comes first, and each model is found by its name. Prefixes apply to queries and passages only."""
    path = tmp_path / "embeddings.yaml"
    path.write_text("default: remote\nmodels:\n- kind: minilm" + REMOTE.format(url=embedding_server.url))
    models = open_models(path, cache)
    assert [model.name for model in models] == ["remote", "all-minilm-l6-v2"]
    remote = models.get("remote")
    assert remote is models.default
    assert models.get("another") is None
    assert (models.find("remote", 256), models.find("remote", 255), models.find("x", 256)) == (
        remote,
        None,
        None,
    )
    for view in (remote.plain, remote.queries, remote.passages):
        assert (await view.embed(["text"])).shape == (1, 256)
    assert [request["input"] for request in embedding_server.requests] == [
        ["text"],
        ["query: text"],
        ["passage: text"],
    ]
    assert {request["model"] for request in embedding_server.requests} == {"remote"}
    await models.aclose()
    with pytest.raises(Unavailable):
        await remote.queries.embed(["text"])


async def test_a_server_may_be_unavailable_at_the_start(tmp_path: Path) -> None:
    """Opening a file connects to no server. The bundled model need not exist if the file does not list it."""
    (port,) = free_ports(1)
    path = tmp_path / "embeddings.yaml"
    path.write_text("models:" + REMOTE.format(url=f"http://127.0.0.1:{port}/v1"))
    models = open_models(path, tmp_path / "no cache")
    with pytest.raises(Unavailable, match="'remote'"):
        await models.default.queries.embed(["text"])
    await models.aclose()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("models: [{kind: minilm, size: 3}]", r"line 1, models\[0\]\.size"),
        ("models:" + REMOTE.format(url="http://h/v1") + "  tokenizer: embeddings.yaml\n", r"line 2, .*tokenizer"),
        (
            "models:" + REMOTE.format(url="http://h/v1").replace("query: ", "q " * 500),
            r"line 2, models\[0\].*tokens",
        ),
        (None, "No such file"),
    ],
)
def test_an_unusable_file_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    """The error names the variable and the wrong place in the file."""
    path = tmp_path / "embeddings.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidRequest, match=message) as caught:
        open_models(path, tmp_path)
    assert caught.value.message.startswith("CAUSEWAY_EMBEDDINGS_FILE: ")
    assert caught.value.field == "embeddings_file"


def test_a_bundled_model_that_is_not_built_is_reported(tmp_path: Path) -> None:
    """The error names the command that builds the model, with and without a file."""
    path = tmp_path / "embeddings.yaml"
    path.write_text("models: [{kind: minilm}]")
    for file in (None, path):
        with pytest.raises(Unavailable, match=r"embedding\.build"):
            open_models(file, tmp_path / "no cache")


def test_a_model_without_prefixes_has_one_embedder() -> None:
    """For a model without prefixes, its three views are the embedder itself."""
    embedder = HashingEmbedder()
    model = EmbeddingModel.of(embedder)
    assert model.plain is model.queries is model.passages is embedder
