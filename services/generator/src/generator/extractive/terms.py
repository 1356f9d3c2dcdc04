"""Normalises words for comparison: lower case, without endings, number words as digits.

The endings, the number words and the stop words are English. Words with a letter outside ASCII keep their
endings. Chinese, Japanese and Korean texts are split into pairs of characters.
"""

import functools
import re

_WORD = re.compile(
    r"\d+(?:[.,:]\d+)*"  # 18.40, 1,050, 06:15
    r"|[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+"  # Chinese, Japanese and Korean
    r"|[^\W\d_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+(?:['\u2019][^\W\d_]+)?"
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_FIRST_UNSPACED = "\u3040"

_FUNCTION_WORDS = """
a about above after again all also am an and any are as at be because been before being below between both but
by can could did do does doing done down during each either else ever every few for from further get gets had
has have having he her here hers him his how i if in into is it its itself just let like may me might more
most much must my no nor not now of off on once only or other our ours out over own per please same shall she
should so some still such tell than that the their theirs them then there these they this those through to too
under until up upon us very was we were what when where whether which while who whom whose why will with
within without would you your yours s t don doesn didn isn aren wasn weren won ll re ve d m o
"""
_NUMBER_WORDS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty
"""
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())
_TENS = {
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "sixty": "60",
    "seventy": "70",
    "eighty": "80",
    "ninety": "90",
}
_NUMBERS = {word: str(value) for value, word in enumerate(_NUMBER_WORDS.split())} | _TENS
_VOWEL = re.compile(r"[aeiouy]")
# A word such as "long" after "how" says which kind of answer is expected; it is not part of the subject.
_HOW = re.compile(
    r"\bhow (?:long|far|high|heavy|old|large|big|fast|wide|deep|tall|close|often|early|late|quickly|soon|strong)\b",
    re.IGNORECASE,
)


def words(text: str) -> list[str]:
    """Return all normalised words of a text in order, including stop words."""
    found: list[str] = []
    for match in _WORD.finditer(text):
        word = match[0]
        if word[0].isdigit():
            found.append(_THOUSANDS.sub("", word))
        elif word[0] >= _FIRST_UNSPACED and not word[0].isascii() and len(word) > 1 and _is_unspaced(word):
            found += [word[start : start + 2] for start in range(len(word) - 1)]
        else:
            found.append(stem(word.casefold().replace("\u2019", "'")))
    return found


def terms(text: str) -> list[str]:
    """Return the normalised words of a text without stop words."""
    return [word for word in words(text) if word not in _STOP_STEMS]


def subject(question: str) -> list[str]:
    """Return the words of a question's subject, without duplicates."""
    return list(dict.fromkeys(terms(_HOW.sub("how", question))))


def _is_unspaced(word: str) -> bool:
    return "\u3040" <= word[0] <= "\u30ff" or "\u3400" <= word[0] <= "\u9fff" or "\uac00" <= word[0] <= "\ud7af"


@functools.lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a word without its English endings; return a number word as digits.

    Remove only plural and tense endings, so that different words rarely become equal (D. Harman, How effective
    is suffixing?, JASIS 42, 1991).
    """
    word = word.removesuffix("'s")
    if word in _NUMBERS:
        return _NUMBERS[word]
    if not word.isascii() or len(word) < 4 or word in STOP_WORDS:
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and len(root) >= 3 and _VOWEL.search(root):
            if root[-1] == root[-2] and root[-1] not in "lsz":
                return root[:-1]
            return root.removesuffix("e")
    return word.removesuffix("e") if len(word) > 4 else word


_STOP_STEMS = STOP_WORDS | {stem(word) for word in STOP_WORDS}
