"""Cache token counts, because most passages and earlier messages occur in many requests."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

MAX_COUNTS = 65_536
"""The maximum number of cached counts, which use about 10 MB."""


class TextCounts:
    """Cached token counts of texts by tokenizer. The cache removes the least recently used counts.

    Args:
        limit: The maximum number of cached counts.
    """

    def __init__(self, limit: int = MAX_COUNTS) -> None:
        self._limit = limit
        self._counts: OrderedDict[tuple[str, bytes], int] = OrderedDict()

    def known(self, counting: str, texts: Sequence[str]) -> list[int | None]:
        """Return the count of each text, or None for a text that is not cached.

        Args:
            counting: The name of the method that counts tokens. It differs between tokenizers.
            texts: The texts.
        """
        found = []
        for text in texts:
            key = (counting, _digest(text))
            count = self._counts.get(key)
            if count is not None:
                self._counts.move_to_end(key)
            found.append(count)
        return found

    def put(self, counting: str, texts: Sequence[str], counts: Sequence[int]) -> None:
        """Cache the counts of texts."""
        for text, count in zip(texts, counts, strict=True):
            self._counts[counting, _digest(text)] = count
        while len(self._counts) > self._limit:
            self._counts.popitem(last=False)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
