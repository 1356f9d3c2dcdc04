"""The graph, compared with BERT's forward pass, written in numpy from the paper."""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime  # type: ignore[import-untyped]  # has no types
import pytest
import safetensors.numpy
from embedding.cache import TOKENIZER, model_directory
from embedding.graph import BLOCKS, INPUT, SCALES, write_graph
from embedding.minilm import WordPieceTokenizer
from embedding.weights import find_minilm_files

Array = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def weights() -> dict[str, npt.NDArray[np.float32]]:
    """Return the original's tensors."""
    return safetensors.numpy.load(find_minilm_files().read_weights())


@pytest.fixture(scope="module")
def session(weights: dict[str, npt.NDArray[np.float32]]) -> onnxruntime.InferenceSession:
    """Open the graph without quantization."""
    graph = write_graph(weights).SerializeToString()
    return onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])


def forward(weights: dict[str, npt.NDArray[np.float32]], tokens: list[int]) -> Array:
    """Return the model's vector of a sequence of tokens, in double precision."""
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
def test_the_graph_is_the_model(
    cache: Path, weights: dict[str, npt.NDArray[np.float32]], session: onnxruntime.InferenceSession, text: str
) -> None:
    """The vectors of the graph without quantization equal the reference in single precision."""
    tokens = WordPieceTokenizer(model_directory(cache, "int8") / TOKENIZER).sequence(text, 256)
    (vector,) = session.run(None, {INPUT: tokens[None]})[0]
    np.testing.assert_allclose(vector, forward(weights, tokens.tolist()), atol=1e-5)


def test_a_missing_tensor_is_an_error(weights: dict[str, npt.NDArray[np.float32]]) -> None:
    """A file without one of the tensors raises an error."""
    lacking = {name: value for name, value in weights.items() if name != "encoder.layer.3.output.dense.bias"}
    with pytest.raises(KeyError, match=r"encoder\.layer\.3\.output\.dense\.bias"):
        write_graph(lacking)


def test_word_vectors_may_be_in_blocks() -> None:
    """Word vectors in blocks give the same result as a whole table, for any number of layers."""
    random = np.random.default_rng(3)
    blocks = random.integers(-8, 8, (9, 12, 32), dtype=np.int8)
    scales = random.uniform(0.01, 0.1, (9, 12)).astype(np.float16)
    shapes = {
        "embeddings.position_embeddings.weight": (4, 384),
        "embeddings.token_type_embeddings.weight": (2, 384),
        "embeddings.LayerNorm.weight": (384,),
        "embeddings.LayerNorm.bias": (384,),
    }
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        for name in (
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
            "attention.output.dense",
        ):
            shapes |= {f"{layer}.{name}.weight": (384, 384), f"{layer}.{name}.bias": (384,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{layer}.{name}.weight": (384,), f"{layer}.{name}.bias": (384,)}
        shapes |= {f"{layer}.intermediate.dense.weight": (8, 384), f"{layer}.intermediate.dense.bias": (8,)}
        shapes |= {f"{layer}.output.dense.weight": (384, 8), f"{layer}.output.dense.bias": (384,)}
    shared = {name: random.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    table = (blocks * scales.astype(np.float32)[..., None]).reshape(9, 384)
    graphs = [
        write_graph(shared | {BLOCKS: blocks, SCALES: scales}),
        write_graph(shared | {"embeddings.word_embeddings.weight": table}),
    ]
    vectors = [
        onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, {INPUT: np.array([[0, 8, 3, 2]])}
        )[0]
        for graph in graphs
    ]
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
