"""Captions: the sentences of a passage that answer the query best, told by their words."""

import re
from collections.abc import Sequence
from dataclasses import replace

from retriever.expansion import rarity
from retriever.queries import Passage
from retriever.store.port import TermEncoder, Terms

_SENTENCES = 2
_LEAST_CHARACTERS = 12
_END = re.compile(r"(?<=[.!?\u2026])\s+|(?<=[\u3002\uff01\uff1f])|\n+")


def captioned(terms: Terms, passages: Sequence[Passage], encoder: TermEncoder) -> list[Passage]:
    """The passages with captions, up to two sentences each, in the order of the text.

    One that has captions already keeps them; one that has no word of the query gets none. A word weighs the more,
    the fewer of all the sentences have it.
    """
    sentences = [() if passage.captions else _sentences(passage.text) for passage in passages]
    words = [encoder.passages(each) if each else [] for each in sentences]
    everything = [each for group in words for each in group]
    having = {index: sum(index in each.indices for each in everything) for index in terms.indices}
    weights = {index: rarity(count, len(everything)) for index, count in having.items() if count}
    return [
        passage if passage.captions else replace(passage, captions=_best(group, rated, weights))
        for passage, group, rated in zip(passages, sentences, words, strict=True)
    ]


def _best(sentences: Sequence[str], words: Sequence[Terms], weights: dict[int, float]) -> tuple[str, ...]:
    scores = [sum(weights.get(index, 0.0) for index in set(each.indices)) for each in words]
    order = sorted(range(len(sentences)), key=lambda at: (-scores[at], at))
    best = [at for at in order[:_SENTENCES] if scores[at] > 0]
    # A second sentence that has hardly anything of the query only makes the caption longer.
    best = [at for at in best if scores[at] >= scores[best[0]] / 2]
    return tuple(sentences[at] for at in sorted(best))


def _sentences(text: str) -> tuple[str, ...]:
    return tuple(each for piece in _END.split(text) if len(each := piece.strip()) >= _LEAST_CHARACTERS)
