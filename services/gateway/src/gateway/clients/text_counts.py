"""Numbers of tokens that a model has counted before: passages and earlier messages come again and again."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

MOST_COUNTS = 65_536
"""About 10 MB."""


class TextCounts:
    """Counts of texts, by the way of counting; those that were used last are kept.

    Args:
        most: How many are kept.
    """

    def __init__(self, most: int = MOST_COUNTS) -> None:
        self._most = most
        self._counts: OrderedDict[tuple[str, bytes], int] = OrderedDict()

    def known(self, counting: str, texts: Sequence[str]) -> list[int | None]:
        """Return the count of each text; None where it is not kept."""
        found = []
        for text in texts:
            key = (counting, _digest(text))
            count = self._counts.get(key)
            if count is not None:
                self._counts.move_to_end(key)
            found.append(count)
        return found

    def keep(self, counting: str, texts: Sequence[str], counts: Sequence[int]) -> None:
        """Keep the counts of texts."""
        for text, count in zip(texts, counts, strict=True):
            self._counts[counting, _digest(text)] = count
        while len(self._counts) > self._most:
            self._counts.popitem(last=False)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
