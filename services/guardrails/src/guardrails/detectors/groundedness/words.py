"""The English word lists for the comparison of sentences."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

SMALL_NUMBERS: Mapping[str, int] = {
    word: value
    for value, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
        ]
    )
} | {
    word: 10 * value
    for value, word in enumerate(
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], start=2
    )
}
SCALES: Mapping[str, int] = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1000,
    "million": 10**6,
    "billion": 10**9,
}

MONTHS = {
    name: name[:3]
    for name in [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ]
} | {name: name for name in ["jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]}
WEEKDAYS = {
    name: name[:3] for name in ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
}
SEASONS = frozenset(["summer", "autumn", "winter"])  # not "spring", because this word is also a machine part
COLOURS = frozenset(
    ["red", "blue", "green", "yellow", "black", "white", "grey", "gray", "brown", "orange", "purple", "pink"]
)

UNITS: Mapping[str, str] = {
    form: unit
    for unit, forms in {
        "second": "second seconds", "minute": "minute minutes min", "hour": "hour hours h", "day": "day days",
        "week": "week weeks", "month": "month months", "year": "year years", "euro": "euro euros eur €",
        "dollar": "dollar dollars usd $", "pound": "pound pounds gbp £", "percent": "percent %",
        "gram": "gram grams g", "kilogram": "kilogram kilograms kg", "tonne": "tonne tonnes ton tons t",
        "millimetre": "millimetre millimetres mm", "centimetre": "centimetre centimetres cm",
        "metre": "metre metres meter meters m", "kilometre": "kilometre kilometres kilometer kilometers km",
        "litre": "litre litres liter liters l", "volt": "volt volts v", "ampere": "ampere amperes amp amps a",
        "watt": "watt watts w", "kilowatt": "kilowatt kilowatts kw", "bar": "bar bars",
    }.items()
    for form in forms.split()
}  # fmt: skip
"""Units of measure by their spellings."""

NEGATIONS = frozenset(
    [
        "not",
        "no",
        "never",
        "none",
        "nobody",
        "nothing",
        "nowhere",
        "neither",
        "nor",
        "without",
        "cannot",
        "hardly",
        "forbidden",
        "forbid",
        "forbids",
        "prohibited",
        "prohibit",
        "prohibits",
        "banned",
    ]
)

_PAIRS = (
    ("open opened opens", "closed close closes shut"),
    ("on", "off"),
    ("before", "after"),
    ("inside", "outside"),
    ("first", "last"),
    ("minimum", "maximum"),
    ("least", "most"),
    ("more", "less fewer"),
    ("higher", "lower"),
    ("highest", "lowest"),
    ("older", "younger newer"),
    ("oldest", "youngest newest"),
    ("old", "new"),
    ("larger bigger", "smaller"),
    ("largest biggest", "smallest"),
    ("large big", "small"),
    ("longer", "shorter"),
    ("longest", "shortest"),
    ("earlier", "later"),
    ("early", "late"),
    ("faster", "slower"),
    ("stronger", "weaker"),
    ("increase increases increased increasing", "decrease decreases decreased decreasing reduce reduces reduced"),
    ("rise rises rose risen", "fall falls fell fallen"),
    ("above", "below"),
    ("include includes included including", "exclude excludes excluded excluding"),
    ("mandatory compulsory required", "optional voluntary"),
    ("public", "private"),
    ("hot warm", "cold"),
    ("left", "right"),
    ("north northern", "south southern"),
    ("east eastern", "west western"),
    ("upper", "lower"),
    ("internal", "external"),
    ("day", "night"),
    ("full", "empty"),
    ("cheaper", "dearer"),
    ("win wins won", "lose loses lost"),
    ("accept accepts accepted approve approves approved", "reject rejects rejected deny denies denied refused"),
    ("import imports imported", "export exports exported"),
    ("male", "female"),
    ("legal", "illegal"),
    ("true", "false"),
    ("success succeeded", "failure failed"),
)
_SHORT = 3  # if at most this number of letters follows, a prefix such as "un" may not be a negation: "under"
_PREFIXES = ("un", "in", "im", "ir", "non", "dis")


def _opposites() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for left, right in _PAIRS:
        for word in left.split():
            found.setdefault(word, set()).update(right.split())
        for word in right.split():
            found.setdefault(word, set()).update(left.split())
    return {word: frozenset(others) for word, others in found.items()}


_OPPOSITES = _opposites()


def has_opposite(word: str, others: AbstractSet[str]) -> bool:
    """Return whether ``others`` contains an opposite of the word; all words are in lower case."""
    if not others.isdisjoint(_OPPOSITES.get(word, ())):
        return True
    if len(word) > _SHORT and any(prefix + word in others for prefix in _PREFIXES):
        return True
    bare = (word.removeprefix(prefix) for prefix in _PREFIXES if word.startswith(prefix))
    return any(len(stem) > _SHORT and stem in others for stem in bare)


STOP_WORDS = frozenset(
    [
        "a",
        "an",
        "the",
        "this",
        "that",
        "these",
        "those",
        "it",
        "its",
        "he",
        "she",
        "they",
        "them",
        "their",
        "his",
        "her",
        "we",
        "you",
        "your",
        "i",
        "me",
        "my",
        "our",
        "us",
        "of",
        "in",
        "on",
        "at",
        "by",
        "to",
        "for",
        "from",
        "with",
        "as",
        "is",
        "are",
        "was",
        "were",
        "be",
        "been",
        "being",
        "am",
        "has",
        "have",
        "had",
        "do",
        "does",
        "did",
        "will",
        "would",
        "shall",
        "should",
        "can",
        "could",
        "may",
        "might",
        "must",
        "and",
        "or",
        "but",
        "if",
        "then",
        "than",
        "so",
        "such",
        "there",
        "here",
        "who",
        "which",
        "what",
        "when",
        "where",
        "while",
        "whereas",
        "because",
        "also",
        "too",
        "only",
        "just",
        "very",
        "about",
        "into",
        "onto",
        "over",
        "under",
        "per",
        "all",
        "any",
        "each",
        "every",
        "some",
        "both",
        "either",
        "out",
        "up",
        "down",
        "yes",
    ]
)
"""Words that do not count for the similarity of clauses."""
BREAKS = frozenset(["and", "or", "but", "while", "whereas", "because"])
"""Words that separate two clauses."""
CONTINUATIONS = frozenset(
    ["it", "its", "he", "his", "she", "her", "they", "their", "this", "these", "such", "there", "then"]
)
"""A sentence that begins with one of these words continues the subject of the previous sentence."""
