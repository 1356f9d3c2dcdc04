"""The analysis of documents for text search: their language, and the BM25 terms of their chunks."""

from collections.abc import Mapping, Sequence

from retriever.domain.document import Document
from retriever.domain.index import IndexSpec
from retriever.domain.language import AUTO, DEFAULT, LANGUAGES, LEGACY, script_language
from retriever.languages.detector import LanguageDetector
from retriever.ports.store import Terms
from retriever.ports.term_encoder import TermEncoder

SAMPLE_CHUNKS = 8
"""Number of chunks at the beginning of a document from which its language is detected."""


class DocumentAnalyzer:
    """Chooses the language of documents and computes their terms.

    Args:
        encoder: Computes the sparse vectors.
        detector: Detects languages.
    """

    def __init__(self, encoder: TermEncoder, detector: LanguageDetector) -> None:
        self._encoder = encoder
        self._detector = detector

    async def language(
        self, spec: IndexSpec, document: Document, texts: Sequence[str], counts: Mapping[str, int]
    ) -> str:
        """Return the language of a document for text search, or an empty string in an index without languages.

        The first known language of this list applies: the language of the script, the language of the index, the
        detected language, the language that the document declares, the language of most documents of the index.

        Args:
            spec: The index.
            document: The document.
            texts: The first chunks' texts.
            counts: Number of the index's documents by language.
        """
        if spec.language == LEGACY:
            return ""
        sample = "\n".join(texts[:SAMPLE_CHUNKS])
        by_script = script_language(sample)
        if by_script is not None:
            return by_script
        if spec.language != AUTO:
            return spec.language
        detected = await self._detector.language(sample)
        if detected is not None:
            return detected
        declared = document.language.partition("-")[0].lower()
        return (
            declared
            if declared in LANGUAGES
            else max(counts, key=lambda language: counts[language], default=DEFAULT)
        )

    async def terms(self, indexed_texts: Sequence[str], language: str) -> list[Terms]:
        """Return the terms of chunks of a document in the language that `language` returned."""
        return await self._encoder.encode_documents(indexed_texts, language or LEGACY)
