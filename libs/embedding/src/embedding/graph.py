"""The model as an ONNX graph, written from its weights by hand.

The architecture is BERT's encoder (Devlin et al. 2018, https://arxiv.org/abs/1810.04805) as MiniLM-L6-H384 sizes
it, then the mean over all tokens and L2 normalization, as sentence-transformers/all-MiniLM-L6-v2 puts them on top.

Texts are embedded one at a time, so there is no padding, and no attention mask: input ``input_ids`` (1, tokens)
int64, output ``embedding`` (1, 384) float32.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS = 6
HIDDEN = 384
HEADS = 12
EPSILON = 1e-12  # layer_norm_eps of the model's config.json

INPUT = "input_ids"
OUTPUT = "embedding"

OPSET = 23  # the first with Attention
IR_VERSION = 11

Weights = Mapping[str, npt.NDArray[np.float32]]
Damping = Mapping[str, npt.NDArray[np.float32]]
"""Tensor → divisor of each of its channels, for tensors that are inputs of matrix multiplications."""


class _Graph:
    """Nodes and constants of a graph under construction; each method adds one and returns its output's name."""

    def __init__(self, weights: Weights, damping: Damping) -> None:
        self.weights = weights
        self.damping = damping
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: npt.NDArray[np.float32] | npt.NDArray[np.int64]) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, operator: str, *inputs: str, name: str, **attributes: float) -> str:
        node = helper.make_node(operator, inputs, [name], name=name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        return name

    def linear(self, x: str, *layers: str, name: str) -> str:
        """x·Wᵀ + b; several layers of the same input are one multiplication, with their outputs side by side."""
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
    """The model in fp32.

    Args:
        weights: The tensors of the original's safetensors, by their names there.
        damping: Channels to divide before they are multiplied; the weights make up for it, so the vectors stay.

    Raises:
        KeyError: A tensor is missing.
    """
    graph = _Graph(weights, damping or {})
    x = _embeddings(graph)
    for number in range(LAYERS):
        x = _encoder_layer(graph, x, f"encoder.layer.{number}")
    mean = graph.node("ReduceMean", x, graph.constant("token_axis", np.array([1])), name="mean", keepdims=0)
    graph.node("LpNormalization", mean, name=OUTPUT, axis=-1, p=2)

    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info(INPUT, TensorProto.INT64, [1, "tokens"])],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [1, HIDDEN])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    # Fusing and folding, which the quantizer otherwise asks for in a warning, find nothing to do in this graph.
    helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    onnx.checker.check_model(model, full_check=True)
    return model


def _embeddings(graph: _Graph) -> str:
    """Word + position + token type; the type is always 0 here, so its row is part of the positions."""
    table = "embeddings.{}_embeddings.weight"
    weights = graph.weights
    words = graph.constant("words", weights[table.format("word")])
    kind = weights[table.format("token_type")][0]
    places = graph.constant("positions", weights[table.format("position")] + kind)
    length = graph.node("Shape", INPUT, name="length", start=1, end=2)
    start = graph.constant("start", np.array([0]))
    return graph.add_normalized(
        graph.node("Gather", words, INPUT, name="word"),
        graph.node("Slice", places, start, length, name="position"),
        "embeddings.LayerNorm",
    )


def _encoder_layer(graph: _Graph, x: str, layer: str) -> str:
    attention = f"{layer}.attention"
    projections = [f"{attention}.self.{which}" for which in ("query", "key", "value")]
    # One multiplication for all three quantizes x once.
    qkv = graph.linear(x, *projections, name=f"{attention}.qkv")
    split = f"{attention}.split"
    graph.nodes.append(helper.make_node("Split", [qkv], projections, name=split, axis=-1, num_outputs=3))
    # Scales by 1/√(384/12) itself.
    heads = f"{attention}.heads"
    mixed = graph.node("Attention", *projections, name=heads, q_num_heads=HEADS, kv_num_heads=HEADS)
    x = graph.add_normalized(
        graph.linear(mixed, f"{attention}.output.dense", name=f"{attention}.output"),
        x,
        f"{attention}.output.LayerNorm",
    )
    inner = graph.linear(x, f"{layer}.intermediate.dense", name=f"{layer}.intermediate")
    inner = graph.node("Gelu", inner, name=f"{layer}.gelu")  # exact, by the error function
    return graph.add_normalized(
        graph.linear(inner, f"{layer}.output.dense", name=f"{layer}.output"), x, f"{layer}.output.LayerNorm"
    )
