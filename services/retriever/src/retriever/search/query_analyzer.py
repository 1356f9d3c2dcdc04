"""The analysis of a query for text search: its terms in the languages of the index that is searched."""

from collections.abc import Iterable, Mapping

from retriever.domain.language import AUTO, DEFAULT, LATIN, LEGACY, UNSPACED, script_language
from retriever.indexes.open_index import Index
from retriever.languages.detector import LanguageDetector
from retriever.ports.store import Terms
from retriever.ports.term_encoder import TermEncoder


class QueryAnalyzer:
    """Computes the terms of queries.

    A query in a script other than Latin is analysed in the language of its script. A query in the Latin script is
    analysed in the index's language, because it is too short to detect its language reliably. If an index has
    several languages of the Latin script, the language is detected among these. If several languages are likely,
    the terms of all likely languages are used. For an index with the language `LEGACY`, all queries are analysed as
    English.

    Args:
        encoder: Computes the sparse vectors.
        detector: Detects languages.
    """

    def __init__(self, encoder: TermEncoder, detector: LanguageDetector) -> None:
        self._encoder = encoder
        self._detector = detector

    async def terms(self, text: str, indexes: Iterable[Index]) -> Mapping[Index, Terms]:
        """Return the terms of a query for each index."""
        by_languages: dict[tuple[str, ...], Terms] = {}
        terms: dict[Index, Terms] = {}
        for index in indexes:
            languages = await self._languages(text, index)
            if languages not in by_languages:
                by_languages[languages] = merged(
                    self._encoder.encode_query(text, language) for language in languages
                )
            terms[index] = by_languages[languages]
        return terms

    async def _languages(self, text: str, index: Index) -> tuple[str, ...]:
        language = index.spec.language
        if language == LEGACY:
            return (LEGACY,)
        known = await index.languages() if language == AUTO else {language: 1}
        by_script = script_language(text)
        if by_script == "zh" and "ja" in known:  # Japanese words may have no kana
            return ("ja", "zh") if "zh" in known else ("ja",)
        if by_script is not None:
            return (by_script,)
        latin = sorted(known.keys() & LATIN)
        # All these languages have the same tokenizer, so one is enough. It also splits Latin words in their texts.
        unspaced = sorted(known.keys() & UNSPACED)[:1]
        if latin:
            return (*await self._detector.likely(text, latin), *unspaced)
        return tuple(unspaced or sorted(known) or (DEFAULT,))


def merged(analyses: Iterable[Terms]) -> Terms:
    """Return the union of the terms of several analyses of one query."""
    weights: dict[int, float] = {}
    for terms in analyses:
        weights.update(zip(terms.indices, terms.weights, strict=True))
    indices = sorted(weights)
    return Terms(indices, [weights[index] for index in indices])
