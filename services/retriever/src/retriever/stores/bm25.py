"""BM25 vectors for all stores, computed by Qdrant Edge's model with k=1.2 and b=0.75.

Each language has its stemmer and stop words. The engine's multilingual tokenizer splits Chinese, Japanese and Thai,
which have no spaces between words. Korean words have endings, but the engine has no stemmer for them. So each
Korean word becomes its character bigrams, which match other forms of the word. Latin words in these languages are
analysed as English.
"""

import re
from collections.abc import Sequence

from qdrant_edge import Bm25, Bm25Config, SparseVector, TokenizerType

from retriever.byte_cache import ByteCache
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.language import LEGACY, UNSPACED, analysis_language_of, script_language
from retriever.ports.store import Terms

_SLICE = 16  # texts; with 200 words each, they take about 2 ms
_MAX_CACHE_BYTES = 32 * 1024 * 1024
_WORD_BYTES = 72
"""Size of a word in `Terms`: an integer, a float, and their slots in two lists."""
_KANA = re.compile("[\u3040-\u30ff]")
_KANA_HINT = "の"
_HANGUL = re.compile("[\uac00-\ud7af]{3,}")


class Bm25Encoder:
    """Implements `ports.term_encoder.TermEncoder`. The store multiplies the weights by the IDF."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._models: dict[str, Bm25] = {}
        # Terms depend only on the text and the language, so cache entries never become stale.
        self._passages: ByteCache[tuple[str, str], Terms] = ByteCache(_MAX_CACHE_BYTES)

    def encode_query(self, text: str, language: str) -> Terms:
        """Return the terms of a query."""
        return self._terms(language, text, is_query=True)

    def encode_passages(self, texts: Sequence[str], language: str) -> list[Terms]:
        """Return the terms of a few texts from a cache, because searches often find the same passages."""
        return [self._passage(text, language) for text in texts]

    def can_tokenize(self, text: str, language: str) -> bool:
        """Return whether the text can be split into words. The rules of `LEGACY` need spaces between words."""
        return language != LEGACY or script_language(text) not in UNSPACED

    def _passage(self, text: str, language: str) -> Terms:
        known = self._passages.get((language, text))
        if known is None:
            known = self._document(text, language)
            self._passages.put((language, text), known, 4 * len(text) + _WORD_BYTES * len(known.indices))
        return known

    async def encode_documents(self, texts: Sequence[str], language: str) -> list[Terms]:
        """Return the terms of texts, computed in slices."""
        terms: list[Terms] = []
        for start in range(0, len(texts), _SLICE):
            async with self._scheduler.slice():
                terms += [self._document(text, language) for text in texts[start : start + _SLICE]]
        return terms

    def _document(self, text: str, language: str) -> Terms:
        return self._terms(analysis_language_of(text, language), text)

    def _terms(self, language: str, text: str, *, is_query: bool = False) -> Terms:
        if language == "ko":
            text = _HANGUL.sub(_bigrams, text)
        has_hint = language == "ja" and not _KANA.search(text)
        if has_hint:  # without kana the engine would split it as Chinese
            text = f"{text} {_KANA_HINT}"
        model = self._model(language)
        vector = model.embed_query(text) if is_query else model.embed_document(text)
        if not has_hint:
            return Terms(vector.indices, vector.values)
        return _without(vector, model.embed_query(_KANA_HINT).indices[0])

    def _model(self, language: str) -> Bm25:
        model = self._models.get(language)
        if model is None:
            model = self._models[language] = Bm25(_config(language))
        return model


def _config(language: str) -> Bm25Config:
    if language in UNSPACED:
        return Bm25Config(tokenizer=TokenizerType.Multilingual, language="en")
    return Bm25Config(language="en" if language in (LEGACY, "ko") else language)


def _bigrams(word: re.Match[str]) -> str:
    characters = word.group()
    return " ".join(characters[at : at + 2] for at in range(len(characters) - 1))


def _without(vector: SparseVector, index: int) -> Terms:
    kept = [pair for pair in zip(vector.indices, vector.values, strict=True) if pair[0] != index]
    return Terms([word for word, _ in kept], [weight for _, weight in kept])
