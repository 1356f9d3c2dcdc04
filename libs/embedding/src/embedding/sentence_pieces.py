"""Tokenizers of sentencepiece's unigram type; see `embedding.port.Tokenizer`.

The library `sentencepiece` needs 60 MB for 250,000 pieces. The library `tokenizers` needs 300 MB and five times the
time for the same tokens. Both ignore white space at the end of a text.
"""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece
from servicekit.errors import Unavailable

from embedding.lazy import Lazy
from embedding.local import unreadable_message
from embedding.port import is_unicode

_BOS, _EOS = 0, 2
"""The ids of ``<s>`` and ``</s>``, the beginning and the end of a sequence."""

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
"""The first pieces, in this order."""


class SentencePieceTokenizer:
    """A model's tokenizer. The first text loads it, which takes a second.

    Args:
        path: The output of `write_model`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._processor = Lazy(self._load)

    def count(self, text: str) -> int:
        """Return the number of tokens of the text."""
        return len(self.spans(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span of each token in code points, without leading spaces; omit tokens that are only space."""
        _check(text)
        found: dict[str, Any] = self._processor().encode(text, return_type="offset_mapping")
        bare = ((end - len(text[start:end].lstrip()), end) for start, end in found["offsets"])
        return [(start, end) for start, end in bare if start < end]

    def sequence(self, text: str, length: int) -> npt.NDArray[np.int64]:
        """Return the model's input: ``<s>``, the text's tokens, ``</s>``; at most ``length`` tokens."""
        _check(text)
        return np.array([_BOS, *self._processor().encode(text)[: length - 2], _EOS], np.int64)

    def _load(self) -> sentencepiece.SentencePieceProcessor:
        try:
            return sentencepiece.SentencePieceProcessor(model_file=str(self._path))
        except Exception as error:  # the library has no more specific exception
            raise Unavailable(unreadable_message(self._path.parent)) from error


def _check(text: str) -> None:
    if not is_unicode(text):
        raise ValueError("The text contains lone surrogates.")


def write_model(tokenizer: bytes, path: Path) -> None:
    """Convert a unigram tokenizer.json to sentencepiece's format, a protobuf message.

    The library's generated code for this format needs a newer protobuf than the platform. Therefore this function
    encodes the fields: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto

    Args:
        tokenizer: The content of the tokenizer.json, whose first pieces are `SPECIAL`.
        path: The file.
    """
    described = json.loads(tokenizer)
    vocabulary: list[tuple[str, float]] = described["model"]["vocab"]
    assert tuple(piece for piece, _ in vocabulary[: len(SPECIAL)]) == SPECIAL, "the file's hash was checked"
    charsmap = base64.b64decode(described["normalizer"]["normalizers"][0]["precompiled_charsmap"])
    control = {token["content"] for token in described["added_tokens"]}
    with path.open("wb") as file:
        for piece, score in vocabulary:
            kind = _CONTROL if piece in control else _NORMAL
            kind = _UNKNOWN if piece == "<unk>" else kind
            entry = _bytes(1, piece.encode()) + _key(2, 5) + struct.pack("<f", score) + _number(3, kind)
            file.write(_bytes(1, entry))
        ids = zip((_BOS_FIELD, _PAD_FIELD, _EOS_FIELD, _UNK_FIELD), range(len(SPECIAL)), strict=True)
        trainer = _number(_MODEL_TYPE_FIELD, _UNIGRAM) + _number(_VOCABULARY_SIZE_FIELD, len(vocabulary))
        file.write(_bytes(2, trainer + b"".join(_number(field, number) for field, number in ids)))
        file.write(_bytes(3, _bytes(_CHARSMAP_FIELD, charsmap)))


_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # the types of pieces
_UNIGRAM = 1  # a model type
# Field numbers of the messages TrainerSpec and NormalizerSpec.
_MODEL_TYPE_FIELD, _VOCABULARY_SIZE_FIELD = 3, 4
_UNK_FIELD, _BOS_FIELD, _EOS_FIELD, _PAD_FIELD = 40, 41, 42, 43
_CHARSMAP_FIELD = 2


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, 2) + _varint(len(content)) + content


def _number(field: int, number: int) -> bytes:
    return _key(field, 0) + _varint(number)


def _varint(number: int) -> bytes:
    """Return a varint: seven bits per byte, the lowest first; the eighth bit is set in all bytes but the last."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
