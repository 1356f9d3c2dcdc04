"""Detects languages of the Latin script with py3langid (https://github.com/adbar/py3langid).

The model of py3langid needs 90 MB of memory and half a second to load. So the first text loads it.
"""

import asyncio
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING

from retriever.domain.language import LATIN

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier  # type: ignore[import-untyped]  # shipped without types

_SAMPLE = 8192  # code points; more do not improve the result
_SURE = 0.5  # probability
_POSSIBLE = 0.1  # minimum share in the sum of the probabilities of the languages to choose from


class LanguageDetector:
    """Detects the languages that have a stemmer. A text in another language gets the most similar language."""

    def __init__(self) -> None:
        self._loading = asyncio.Lock()

    async def language(self, text: str) -> str | None:
        """Return the language of a text, or None if it is not certain."""
        (best, probability), *_ = await self._ranked(text)
        return best if probability >= _SURE else None

    async def likely(self, text: str, among: Collection[str]) -> tuple[str, ...]:
        """Return the languages that a text may be in, the most probable one first.

        A short text is ambiguous. So the result has each language whose probability is high enough.

        Args:
            text: A query.
            among: At least one language of the Latin script.
        """
        if len(among) == 1:
            return tuple(among)
        found = [(language, probability) for language, probability in await self._ranked(text) if language in among]
        threshold = _POSSIBLE * sum(probability for _, probability in found)
        return tuple(language for language, probability in found if probability >= threshold)

    async def _ranked(self, text: str) -> list[tuple[str, float]]:
        async with self._loading:
            if not _identifier.cache_info().currsize:
                await asyncio.to_thread(_identifier)
        return [(str(language), float(share)) for language, share in _identifier().rank(text[:_SAMPLE])]


@cache
def _identifier() -> "LanguageIdentifier":
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # see the docstring of the module

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(sorted(LATIN))
    return identifier
