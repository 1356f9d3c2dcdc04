"""The words of documents: in which language each document is, and what BM25 counts of its chunks."""

from collections.abc import Mapping, Sequence

from retriever.domain.document import Document
from retriever.domain.index import IndexSpec
from retriever.domain.language import AUTO, DEFAULT, LANGUAGES, LEGACY, of_script
from retriever.languages.detector import LanguageDetector
from retriever.ports.store import Terms
from retriever.ports.term_encoder import TermEncoder

SAMPLE_CHUNKS = 8
"""Chunks from a document's beginning that its language is told by."""


class DocumentWords:
    """Makes what text search compares of documents.

    Args:
        encoder: Makes the sparse vectors.
        detector: Tells languages.
    """

    def __init__(self, encoder: TermEncoder, detector: LanguageDetector) -> None:
        self._encoder = encoder
        self._detector = detector

    async def language(
        self, spec: IndexSpec, document: Document, texts: Sequence[str], others: Mapping[str, int]
    ) -> str:
        """Return the language of a document's text for text search; empty in an index that knows no languages.

        It is the one that the script tells, else the index's, else the detected one; where that is not sure, the
        one that the document itself names; and where it names none, that of most documents of the index.

        Args:
            spec: The index.
            document: The document.
            texts: The first chunks' texts.
            others: Number of the index's documents by language.
        """
        if spec.language == LEGACY:
            return ""
        sample = "\n".join(texts[:SAMPLE_CHUNKS])
        by_script = of_script(sample)
        if by_script is not None:
            return by_script
        if spec.language != AUTO:
            return spec.language
        detected = await self._detector.language(sample)
        if detected is not None:
            return detected
        named = document.language.partition("-")[0].lower()
        return named if named in LANGUAGES else max(others, key=lambda each: others[each], default=DEFAULT)

    async def terms(self, indexed_texts: Sequence[str], language: str) -> list[Terms]:
        """Return the words of chunks of a document in this language, as `language` returns it."""
        return await self._encoder.documents(indexed_texts, language or LEGACY)
