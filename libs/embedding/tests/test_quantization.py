from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime  # type: ignore[import-untyped]  # has no types
import pytest
import safetensors.numpy
from embedding.cache import GRAPH, model_directory
from embedding.graph import INPUT, write_graph
from embedding.minilm import MiniLmEmbedder
from embedding.quantization import outlier_divisors
from embedding.weights import find_minilm_files

pytestmark = pytest.mark.slow


async def test_int8_agrees_with_fp32(built_cache: Path, passages: list[str]) -> None:
    """On a hundred passages, the mean cosine of int8 and fp32 is at least 0.99, and the least at least 0.98."""
    quantized, exact = MiniLmEmbedder.load(built_cache), MiniLmEmbedder.load(built_cache, precision="fp32")
    cosines = np.sum(await quantized.embed(passages) * await exact.embed(passages), axis=1)
    await quantized.aclose()
    await exact.aclose()
    assert cosines.mean() >= 0.99
    assert cosines.min() >= 0.98
    assert cosines.max() < 1 - 1e-6, "the int8 graph is not quantized"


def test_every_weight_matrix_is_quantized(built_cache: Path) -> None:
    """The 24 matrices are signed 8-bit integers with a scale for each output channel. Word vectors have 8 bits."""
    graph = onnx.load(model_directory(built_cache, "int8") / GRAPH).graph
    constants = {constant.name: constant for constant in graph.initializer}
    matrices = {name: c for name, c in constants.items() if len(c.dims) == 2 and name != "positions"}
    assert matrices.pop("words_quantized").data_type == onnx.TensorProto.UINT8
    assert len(matrices) == 24
    for name, matrix in matrices.items():
        assert matrix.data_type == onnx.TensorProto.INT8, name
        scale = constants[name.replace("_quantized", "_scale")]
        assert list(scale.dims) == [matrix.dims[1]], name


def test_damping_changes_no_vector() -> None:
    """The weights have outliers, and the damped fp32 graph computes the same as the original graph."""
    weights = safetensors.numpy.load(find_minilm_files().read_weights())
    outliers = outlier_divisors(write_graph(weights), (101, 102))
    assert outliers
    assert all(divisor.min() == 1 < divisor.max() for divisor in outliers.values())
    plain, damped = vector(write_graph(weights)), vector(write_graph(weights, outliers))
    np.testing.assert_allclose(plain, damped, atol=1e-5)


def vector(model: onnx.ModelProto) -> npt.NDArray[np.float32]:
    """Return the graph's vector of some tokens."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: npt.NDArray[np.float32] = session.run(None, {INPUT: np.array([[101, *range(2000, 2020), 102]])})[0]
    return found
