"""Ranks the passages that answer a question.

A passage's score is the share of the question's words that it contains. Rare words count more (Robertson's and
Spärck Jones' inverse document frequency, over the given passages), and passages that look like the requested kind
of answer get a bonus. The weights come from the questions of the sample corpus. The result depends little on the
weights: doubling or halving one weight changes the share of answered questions by at most three percentage points.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from generator.domain import Source
from generator.extractive.passages import Passage, passages
from generator.extractive.support import supports
from generator.extractive.terms import subject, words

# Factors for a word of the question, by its place outside the passage:
_IN_CONTEXT = 0.5  # in a heading above the passage
_BEFORE = 0.35  # in the previous sentence
_BEFORE_PRONOUN = 0.8  # in the previous sentence, if the passage begins with a pronoun
_KIND = 0.25  # the bonus for each requested kind of answer in the passage
_RANK = 0.25  # the bonus of the most relevant source; the n-th source gets 1/n of it
_LENGTH = 0.15  # the weight of the passage's length, which lowers the score
_LABEL = 0.6  # the factor of a line that may be a heading
_SIMILAR_ONLY = 0.02  # the score of a passage that has no word of the question, in a source with a high cosine

# Section numbers do not count as digits of an answer.
_NUMBERING = re.compile(r"^\d+(?:\.\d+)*\.?\s")
_PRONOUN = re.compile(r"(?:It|They|He|She|This|That|These|Those|Its|Their|His|Her|There|Such)\b")
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_UNITS = "year|month|week|day|hour|minute|second|noon|midnight|quarter"
_SIZES = "number|amount|limit|share|rate|percentage|discount|price|toll|fee|speed|height"
# Kinds of answers (numbers, times, money, people): a pattern for the question, and a pattern for the passage.
_KINDS = (
    (
        re.compile(
            rf"\bhow (?!do|does|did|can|should|is|are)\w+\b|\b(?:what|which)\b.*\b(?:{_SIZES})\b", re.IGNORECASE
        ),
        re.compile(
            r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half|quarter|third)\b",
            re.IGNORECASE,
        ),
    ),
    (
        re.compile(
            r"\bwhen\b|\b(?:what|which) (?:time|year|date|day|month)\b"
            r"|\bhow (?:long|often|soon|early|late|quickly)\b",
            re.IGNORECASE,
        ),
        re.compile(rf"\b(?:{_MONTHS}|{_DAYS}|{_UNITS})s?\b|\d:\d\d|\b(?:1[5-9]|20)\d\d\b", re.IGNORECASE),
    ),
    (
        re.compile(
            r"\b(?:costs?|prices?|fees?|tolls?|fares?|charge[ds]?|pay|paid|refund(?:ed)?|spen[dt]|owe|how much)\b",
            re.IGNORECASE,
        ),
        re.compile(r"[£$€¥₹%]|\b(?:pounds?|pence|euros?|dollars?|cents?|free)\b", re.IGNORECASE),
    ),
    (re.compile(r"\bwho(?:m|se)?\b", re.IGNORECASE), re.compile(r"(?<=[\w,;] )[A-Z]\w+ [A-Z]\w+")),
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A passage with its score.

    Attributes:
        source: The name of the source.
        score: Higher is better. Scores are comparable within one question.
        coverage: The weighted share of the question's words that the passage, its headings and its previous
            sentence contain, 0 to 1.
    """

    source: str
    passage: Passage
    score: float
    coverage: float


def refers_back(sentence: str) -> bool:
    """Return whether the sentence begins with a pronoun that refers to the previous sentence."""
    return _PRONOUN.match(sentence) is not None


def rank(question: str, sources: Sequence[Source]) -> list[Ranked]:
    """Return the passages that fit the question, the best first.

    Passages of sources that do not answer the question (`supports`) are omitted. If a passage has a word of the
    question in its text, its headings or its previous sentence, all passages without such a word are omitted.
    """
    terms = subject(question)
    candidates = []
    for rank_of_source, source in enumerate(sorted(sources, key=lambda source: -source.score)):
        parts = passages(source.text)
        if supports(question, source, parts):
            candidates += [(rank_of_source, source.name, passage, words(passage.text)) for passage in parts]
    if not candidates:
        return []
    weights = _weights(terms, [passage_words for *_, passage_words in candidates])
    total = sum(weights.values())
    average = sum(len(passage_words) for *_, passage_words in candidates) / len(candidates) or 1.0
    kinds = [answers_with for asks_for, answers_with in _KINDS if asks_for.search(question)]
    ranked = []
    for rank_of_source, name, passage, passage_words in candidates:
        coverage = _coverage(weights, passage, set(passage_words)) / total
        score = coverage or _SIMILAR_ONLY
        score *= 1 + _KIND * sum(_contains(kind, passage.text, question) for kind in kinds)
        score *= 1 + _RANK / (rank_of_source + 1)
        score /= 1 - _LENGTH + _LENGTH * len(passage_words) / average
        if passage.is_label and not any(character.isdigit() for character in _NUMBERING.sub("", passage.text)):
            score *= _LABEL
        ranked.append(Ranked(name, passage, score, coverage))
    relevant = [passage for passage in ranked if passage.coverage]
    return sorted(relevant or ranked, key=lambda passage: -passage.score)


def _contains(kind: re.Pattern[str], text: str, question: str) -> bool:
    """Return whether the text matches the kind with words that the question does not contain."""
    return any(match[0] not in question for match in kind.finditer(text))


def _weights(terms: Sequence[str], passages_words: Sequence[list[str]]) -> dict[str, float]:
    frequency = Counter(word for passage_words in passages_words for word in set(passage_words))
    count = len(passages_words)
    return {word: math.log1p((count - frequency[word] + 0.5) / (frequency[word] + 0.5)) for word in terms}


def _coverage(weights: dict[str, float], passage: Passage, own: set[str]) -> float:
    above = set(words(passage.context))
    before = set(words(passage.previous))
    refers = refers_back(passage.text)
    coverage = 0.0
    for word, weight in weights.items():
        if word in own:
            part = 1.0
        elif refers and word in before:
            part = _BEFORE_PRONOUN
        elif word in above:
            part = _IN_CONTEXT
        elif word in before:
            part = _BEFORE
        else:
            continue
        coverage += part * weight
    return coverage
