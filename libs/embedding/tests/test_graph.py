"""The graph against BERT's forward pass, written once more in numpy from the paper."""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy
from embedding.graph import write_graph
from embedding.minilm import MiniLmEmbedder
from embedding.weights import find_model_files

Array = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def weights() -> dict[str, npt.NDArray[np.float32]]:
    """The original's tensors."""
    return safetensors.numpy.load(find_model_files().read_weights())


def forward(weights: dict[str, npt.NDArray[np.float32]], tokens: list[int]) -> Array:
    """The model's vector of a sequence of tokens, in double precision."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    erf = np.vectorize(math.erf)

    def linear(x: Array, layer: str) -> Array:
        product: Array = x @ w[f"{layer}.weight"].T
        return product + w[f"{layer}.bias"]

    def normalize(x: Array, layer: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        stretched: Array = scaled * w[f"{layer}.weight"]
        return stretched + w[f"{layer}.bias"]

    def attend(x: Array, layer: str) -> Array:
        heads = []
        for head in np.split(np.arange(384), 12):
            q, k, v = (linear(x, f"{layer}.{which}")[:, head] for which in ("query", "key", "value"))
            scores = np.exp(q @ k.T / math.sqrt(32))
            heads.append(scores / scores.sum(-1, keepdims=True) @ v)
        return np.concatenate(heads, axis=-1)

    x = w["embeddings.word_embeddings.weight"][tokens]
    x = x + w["embeddings.position_embeddings.weight"][: len(tokens)]
    x = x + w["embeddings.token_type_embeddings.weight"][0]
    x = normalize(x, "embeddings.LayerNorm")
    for number in range(6):
        layer = f"encoder.layer.{number}"
        attended = linear(attend(x, f"{layer}.attention.self"), f"{layer}.attention.output.dense")
        x = normalize(attended + x, f"{layer}.attention.output.LayerNorm")
        inner = linear(x, f"{layer}.intermediate.dense")
        inner = inner * (1 + erf(inner / math.sqrt(2))) / 2
        x = normalize(linear(inner, f"{layer}.output.dense") + x, f"{layer}.output.LayerNorm")
    vector: Array = x.mean(0) / np.linalg.norm(x.mean(0))
    return vector


@pytest.mark.parametrize("text", ["A short query?", "Boats leave the harbour at eight. " * 4])
async def test_the_graph_is_the_model(cache: Path, weights: dict[str, npt.NDArray[np.float32]], text: str) -> None:
    """The fp32 graph's vectors are those of the reference, to single precision."""
    embedder = MiniLmEmbedder.load(cache, precision="fp32")
    reference = forward(weights, embedder.tokenizer.sequence(text, 256).tolist())
    np.testing.assert_allclose((await embedder.embed([text]))[0], reference, atol=1e-5)
    await embedder.aclose()


def test_a_missing_tensor_is_an_error(weights: dict[str, npt.NDArray[np.float32]]) -> None:
    """A file without one of the tensors gives no graph."""
    lacking = {name: value for name, value in weights.items() if name != "encoder.layer.3.output.dense.bias"}
    with pytest.raises(KeyError, match=r"encoder\.layer\.3\.output\.dense\.bias"):
        write_graph(lacking)
