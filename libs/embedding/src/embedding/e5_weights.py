"""Reads the weights of multilingual-e5-small (MIT) from a file of 4-bit blocks.

A block has 32 numbers of a row: a factor in fp16, then 16 bytes. Each half of a byte is a number from 0 to 15. The
value is (number - 8) times the factor (Q4_0 of llama.cpp). The file begins with the model's dimensions and a
tokenizer, which this module skips. A directory of the tensors follows.
"""

import struct
from typing import Final

import numpy as np
import numpy.typing as npt

from embedding.graph import BLOCKS, HIDDEN, SCALES, Weights

_MAGIC: Final = b"E5S1"
_BLOCK: Final = 32
_FP32: Final = 0
_TENSORS: Final = {
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
_LAYER: Final = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_PARTS: Final = {"w": "weight", "b": "bias"}

Blocks = tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]


def read_e5(content: bytes) -> Weights:
    """Return the tensors by their names in the original safetensors file; word vectors remain in blocks.

    Args:
        content: The content of the file, with a checked hash.
    """
    assert content.startswith(_MAGIC), "the file's hash was checked"
    words = _pieces(content)
    tensors: dict[str, npt.NDArray[np.int8] | npt.NDArray[np.float16] | npt.NDArray[np.float32]] = {}
    for name, kind, count, offset in _directory(content):
        if name == "emb.word":
            numbers, factors = _blocks(content, offset, count, HIDDEN)
            tensors[BLOCKS], tensors[SCALES] = numbers[:words], factors[:words]
        elif kind == _FP32:
            tensors[_long_name(name)] = _fp32(content, offset, count, name)
        else:
            long_name = _long_name(name)
            width = (
                4 * HIDDEN
                if long_name.endswith(".output.dense.weight") and "attention" not in long_name
                else HIDDEN
            )
            numbers, factors = _blocks(content, offset, count, width)
            rows = numbers.astype(np.float32) * factors.astype(np.float32)[..., None]
            tensors[long_name] = rows.reshape(-1, width)
    return tensors


def _pieces(content: bytes) -> int:
    """Return the number of pieces of the tokenizer. The table of word vectors has further, unused rows."""
    (count,) = struct.unpack_from("<i", content, _TOKENIZER)
    return int(count)


# The offset of the tokenizer, after magic and version, seven dimensions, epsilon, and the size of a block.
_TOKENIZER: Final = 8 + 7 * 4 + 2 * 4


def _directory(content: bytes) -> list[tuple[str, int, int, int]]:
    """Return name, kind, count and offset of each tensor."""
    pieces = _pieces(content)
    at = _TOKENIZER + 5 * 4  # count, four special tokens
    (characters,) = struct.unpack_from("<Q", content, at)
    at += 8 + 4 * (pieces + 1) + 4 * pieces + characters  # offsets, scores, pieces
    (normalizations,) = struct.unpack_from("<4xI", content, at)
    at += 8 + normalizations
    (entries,) = struct.unpack_from("<i", content, at)
    at += 4
    found = []
    for _ in range(entries):
        (length,) = struct.unpack_from("<H", content, at)
        name = content[at + 2 : at + 2 + length].decode()
        kind, count, offset = struct.unpack_from("<BIQ8x", content, at + 2 + length)
        found.append((name, kind, count, offset))
        at += 2 + length + 21
    return found


def _fp32(content: bytes, offset: int, count: int, name: str) -> npt.NDArray[np.float32]:
    array = np.frombuffer(content, "<f4", count, offset)
    return array.reshape(-1, HIDDEN) if name in ("emb.pos", "emb.type") else array


def _blocks(content: bytes, offset: int, count: int, width: int) -> Blocks:
    """Return numbers (rows, blocks, 32) and factors (rows, blocks)."""
    layout = np.dtype([("factor", "<f2"), ("halves", "u1", _BLOCK // 2)])
    blocks = np.frombuffer(content, layout, count // _BLOCK, offset).reshape(-1, width // _BLOCK)
    halves = blocks["halves"]
    numbers = np.concatenate([halves & 15, halves >> 4], axis=-1).astype(np.int8) - np.int8(8)
    return numbers, np.ascontiguousarray(blocks["factor"])


def _long_name(name: str) -> str:
    """Return the original name: ``l3.fi.w`` becomes ``encoder.layer.3.intermediate.dense.weight``."""
    if name in _TENSORS:
        return _TENSORS[name]
    layer, component, part = name.split(".")
    return f"encoder.layer.{layer[1:]}.{_LAYER[component]}.{_PARTS[part]}"
