"""Builds the ONNX graph of a model from its weights.

The architecture is BERT's encoder (Devlin et al. 2018, https://arxiv.org/abs/1810.04805), then the mean over all
tokens and L2 normalization, as in sentence-transformers/all-MiniLM-L6-v2 and intfloat/multilingual-e5-small.

A call embeds one text, so the graph needs no padding and no attention mask. The input is ``input_ids`` (1, tokens)
int64, the output is ``embedding`` (1, 384) float32.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

HIDDEN = 384
HEADS = 12
EPSILON = 1e-12  # layer_norm_eps of both models' config.json

INPUT = "input_ids"
OUTPUT = "embedding"

BLOCKS = "embeddings.word_embeddings.blocks"
"""The word vectors in blocks of small integers (words, blocks, numbers of a block), instead of the fp32 table."""

SCALES = "embeddings.word_embeddings.scales"
"""The factor of each block (words, blocks)."""

WORDS = "words"
"""The table of word vectors, or of their blocks."""

OPSET = 23  # the first version with Attention
IR_VERSION = 11

Weights = Mapping[str, npt.NDArray[Any]]
Damping = Mapping[str, npt.NDArray[np.float32]]
"""For each damped input of a matrix multiplication, by its name: a divisor for each channel. See `quantization`."""


class _Graph:
    """The nodes and constants of a new graph. Each method adds one of them, and returns the name of its output."""

    def __init__(self, weights: Weights, damping: Damping) -> None:
        self.weights = weights
        self.damping = damping
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, operator: str, *inputs: str, name: str, **attributes: float) -> str:
        node = helper.make_node(operator, inputs, [name], name=name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        return name

    def linear(self, x: str, *layers: str, name: str) -> str:
        """Add x·Wᵀ + b; several layers with the same input become one multiplication with concatenated outputs."""
        weight = np.concatenate([self.weights[f"{layer}.weight"] for layer in layers]).T
        bias = np.concatenate([self.weights[f"{layer}.bias"] for layer in layers])
        if x in self.damping:
            divisor = self.damping[x]
            weight = weight * divisor[:, None]
            factor = self.constant(f"{name}.damping", np.reciprocal(divisor))
            x = self.node("Mul", x, factor, name=f"{name}.damped")
        product = self.node("MatMul", x, self.constant(f"{name}.weight", weight), name=f"{name}.product")
        return self.node("Add", product, self.constant(f"{name}.bias", bias), name=name)

    def normalize(self, x: str, layer: str) -> str:
        scale = self.constant(f"{layer}.scale", self.weights[f"{layer}.weight"])
        bias = self.constant(f"{layer}.bias", self.weights[f"{layer}.bias"])
        return self.node("LayerNormalization", x, scale, bias, name=layer, axis=-1, epsilon=EPSILON)

    def add_normalized(self, x: str, residual: str, layer: str) -> str:
        return self.normalize(self.node("Add", x, residual, name=f"{layer}.sum"), layer)


def write_graph(weights: Weights, damping: Damping | None = None) -> onnx.ModelProto:
    """Return the model in fp32; word vectors in blocks remain in blocks.

    Args:
        weights: The tensors by their names in the original safetensors file, or word vectors as `BLOCKS` and
            `SCALES`.
        damping: The inputs to divide before a multiplication. The weights compensate for the division, so that the
            embedding does not change.

    Raises:
        KeyError: A tensor is missing.
    """
    graph = _Graph(weights, damping or {})
    x = _embeddings(graph)
    layers = sum(name.endswith(".intermediate.dense.weight") for name in weights)
    for number in range(layers):
        x = _encoder_layer(graph, x, f"encoder.layer.{number}")
    mean = graph.node("ReduceMean", x, graph.constant("token_axis", np.array([1])), name="mean", keepdims=0)
    graph.node("LpNormalization", mean, name=OUTPUT, axis=-1, p=2)

    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "bert",
            [helper.make_tensor_value_info(INPUT, TensorProto.INT64, [1, "tokens"])],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [1, HIDDEN])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    # Without this property, the quantizer warns. Its pre-processing (fusing, folding) would not change this graph.
    helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    onnx.checker.check_model(model, full_check=True)
    return model


def _embeddings(graph: _Graph) -> str:
    """Add the vectors of word, position and token type. The position vectors include that of the only
    token type, 0.
    """
    token_type = graph.weights["embeddings.token_type_embeddings.weight"][0]
    positions = graph.constant("positions", graph.weights["embeddings.position_embeddings.weight"] + token_type)
    length = graph.node("Shape", INPUT, name="length", start=1, end=2)
    start = graph.constant("start", np.array([0]))
    return graph.add_normalized(
        _words(graph),
        graph.node("Slice", positions, start, length, name="position"),
        "embeddings.LayerNorm",
    )


def _words(graph: _Graph) -> str:
    if BLOCKS not in graph.weights:
        return graph.node(
            "Gather", graph.constant(WORDS, graph.weights["embeddings.word_embeddings.weight"]), INPUT, name="word"
        )
    numbers = graph.node("Gather", graph.constant(WORDS, graph.weights[BLOCKS]), INPUT, name="word.blocks")
    scales = graph.node("Gather", graph.constant("scales", graph.weights[SCALES]), INPUT, name="word.scales")
    last = graph.constant("last_axis", np.array([-1]))
    product = graph.node(
        "Mul",
        graph.node("Cast", numbers, name="word.numbers", to=TensorProto.FLOAT),
        graph.node(
            "Unsqueeze",
            graph.node("Cast", scales, name="word.factors", to=TensorProto.FLOAT),
            last,
            name="word.column",
        ),
        name="word.product",
    )
    # A 0 keeps the length of an axis.
    return graph.node("Reshape", product, graph.constant("flat", np.array([0, 0, HIDDEN])), name="word")


def _encoder_layer(graph: _Graph, x: str, layer: str) -> str:
    attention = f"{layer}.attention"
    projections = [f"{attention}.self.{which}" for which in ("query", "key", "value")]
    # One multiplication for all three projections quantizes x only once.
    qkv = graph.linear(x, *projections, name=f"{attention}.qkv")
    split = f"{attention}.split"
    graph.nodes.append(helper.make_node("Split", [qkv], projections, name=split, axis=-1, num_outputs=3))
    # This operator scales by 1/√(384/12).
    heads = f"{attention}.heads"
    mixed = graph.node("Attention", *projections, name=heads, q_num_heads=HEADS, kv_num_heads=HEADS)
    x = graph.add_normalized(
        graph.linear(mixed, f"{attention}.output.dense", name=f"{attention}.output"),
        x,
        f"{attention}.output.LayerNorm",
    )
    inner = graph.linear(x, f"{layer}.intermediate.dense", name=f"{layer}.intermediate")
    inner = graph.node("Gelu", inner, name=f"{layer}.gelu")  # the exact form, with the error function
    return graph.add_normalized(
        graph.linear(inner, f"{layer}.output.dense", name=f"{layer}.output"), x, f"{layer}.output.LayerNorm"
    )
