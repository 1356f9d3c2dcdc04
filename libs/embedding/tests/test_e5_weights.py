"""The weights in 4-bit blocks, in a small file."""

import struct

import numpy as np
from embedding.e5_weights import read_e5
from embedding.graph import BLOCKS, SCALES

PIECES = [b"<s>", b"<pad>", b"</s>", b"<unk>", b"a"]
TENSOR = struct.Struct("<BIQQ")


def packed(numbers: np.ndarray[tuple[int, int], np.dtype[np.int8]], factors: list[float]) -> bytes:
    """Return blocks of 32 numbers from -8 to 7, each with its factor."""
    blocks = b""
    for block, factor in zip(numbers.reshape(-1, 32), factors, strict=True):
        halves = (block + 8).astype(np.uint8)
        blocks += np.float16(factor).tobytes() + (halves[:16] | halves[16:] << 4).tobytes()
    return blocks


def file(tensors: dict[str, tuple[int, int, bytes]]) -> bytes:
    """Return a whole file: sizes, tokenizer, directory and tensors."""
    offsets = np.cumsum([0, *map(len, PIECES)]).astype("<u4").tobytes()
    content = b"E5S1" + struct.pack("<I7ifi", 1, 384, 12, 12, 1536, 7, 512, 2, 1e-12, 32)
    content += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, sum(map(len, PIECES)))
    content += offsets + bytes(4 * len(PIECES)) + b"".join(PIECES)
    content += struct.pack("<iI", 1, 9) + bytes(9)
    content += struct.pack("<i", len(tensors))
    at = len(content) + sum(2 + len(name) + TENSOR.size for name in tensors)
    directory, data = b"", b""
    for name, (kind, count, values) in tensors.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += TENSOR.pack(kind, count, at + len(data), len(values))
        data += values
    return content + directory + data


def test_tensors_are_read_by_their_long_names() -> None:
    """Tensors have the names of the original file. Word vectors stay in blocks, without the rows that no token
    uses. All other tensors are fp32 numbers.
    """
    numbers = np.random.default_rng(1).integers(-8, 8, (7, 384), dtype=np.int8)
    factors = [2.0**-power for power in range(12)] * 7
    inner = np.random.default_rng(2).integers(-8, 8, (2, 1536), dtype=np.int8)
    weights = read_e5(
        file(
            {
                "emb.word": (1, numbers.size, packed(numbers, factors)),
                "emb.pos": (0, 768, np.arange(768, dtype="<f4").tobytes()),
                "emb.ln.w": (0, 384, np.ones(384, "<f4").tobytes()),
                "l3.fi.w": (1, 384, packed(numbers[:1], factors[:12])),
                "l3.fo.w": (1, inner.size, packed(inner, [0.5] * 96)),
                "l3.aln.b": (0, 384, np.zeros(384, "<f4").tobytes()),
            }
        )
    )
    assert weights.keys() == {
        BLOCKS,
        SCALES,
        "embeddings.position_embeddings.weight",
        "embeddings.LayerNorm.weight",
        "encoder.layer.3.intermediate.dense.weight",
        "encoder.layer.3.output.dense.weight",
        "encoder.layer.3.attention.output.LayerNorm.bias",
    }
    assert weights[BLOCKS].shape == (len(PIECES), 12, 32)
    assert (weights[BLOCKS].reshape(len(PIECES), 384) == numbers[: len(PIECES)]).all()
    assert weights[SCALES][0].tolist() == factors[:12]
    plain = [array for name, array in weights.items() if name not in (BLOCKS, SCALES)]
    assert {array.dtype for array in plain} == {np.dtype(np.float32)}
    assert (weights["embeddings.position_embeddings.weight"] == np.arange(768).reshape(2, 384)).all()
    assert (weights["encoder.layer.3.intermediate.dense.weight"] == numbers[:1] * np.repeat(factors[:12], 32)).all()
    assert (weights["encoder.layer.3.output.dense.weight"] == inner * 0.5).all()
