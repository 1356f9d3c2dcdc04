"""Captions: the sentences of a passage whose words match the query best."""

from collections.abc import Sequence
from dataclasses import replace

from text.sentences import sentences

from retriever.domain.query import Passage
from retriever.ports.store import Terms
from retriever.ports.term_encoder import TermEncoder
from retriever.search.expansion import idf

_MAX_SENTENCES = 2
_MIN_CHARACTERS = 12


def captioned(terms: Terms, passages: Sequence[Passage], encoder: TermEncoder) -> list[Passage]:
    """Return the passages with captions, up to two sentences each, in the order of the text.

    A passage that already has captions is unchanged. A passage without a word of the query gets no captions. Words
    that are rare in the sentences of all passages have a higher weight.

    Args:
        terms: The terms of the query.
        passages: The passages.
        encoder: Computes the terms of sentences.
    """
    split = [() if passage.captions else _sentences(passage.text) for passage in passages]
    words = [
        encoder.encode_passages(texts, passage.document.analysis_language) if texts else []
        for passage, texts in zip(passages, split, strict=True)
    ]
    all_sentences = [sentence_terms for group in words for sentence_terms in group]
    frequencies = {
        index: sum(index in sentence_terms.indices for sentence_terms in all_sentences) for index in terms.indices
    }
    weights = {index: idf(count, len(all_sentences)) for index, count in frequencies.items() if count}
    return [
        passage if passage.captions else replace(passage, captions=_best(group, rated, weights))
        for passage, group, rated in zip(passages, split, words, strict=True)
    ]


def _best(split: Sequence[str], words: Sequence[Terms], weights: dict[int, float]) -> tuple[str, ...]:
    scores = [sum(weights.get(index, 0.0) for index in set(sentence_terms.indices)) for sentence_terms in words]
    order = sorted(range(len(split)), key=lambda at: (-scores[at], at))
    best = [at for at in order[:_MAX_SENTENCES] if scores[at] > 0]
    # A second sentence that hardly matches the query only makes the caption longer.
    best = [at for at in best if scores[at] >= scores[best[0]] / 2]
    return tuple(split[at] for at in sorted(best))


def _sentences(text: str) -> tuple[str, ...]:
    return tuple(sentence for sentence in sentences(text) if len(sentence) >= _MIN_CHARACTERS)
