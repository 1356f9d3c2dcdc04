"""Splits text into sentences.

The rules simplify the sentence boundaries of Unicode (UAX #29, section 5):

* ``.``, ``!``, ``?`` and ``…`` end a sentence if white space or a script without spaces follows. Closing quotes and
  brackets belong to the sentence that they close.
* A full stop does not end a sentence after an abbreviation, an initial or the number of a list item.
* ``.`` and ``…`` do not end a sentence before a lower-case letter. Nor do ``!`` and ``?`` with a closing quote or
  bracket after them: ``"Really?" he asked.``
* The full stops, question marks and exclamation marks of scripts without spaces, and of Devanagari, Arabic,
  Burmese, Khmer, Ethiopic and Armenian, always end a sentence.
* A line break does not end a sentence if the next line begins with a lower-case letter. All other line breaks and
  all blank lines end a sentence.

White space between two sentences belongs to the second sentence. Most rules depend on the text after a mark, so a
splitter reports a sentence only when it has read the beginning of the next word.
"""

import re
from itertools import pairwise

from text.abbreviations import BEFORE_NUMBERS, INSIDE

_CLOSING = "\"'\u201d\u2019\u00bb)\\]\u300d\u300f\uff09\u3011\u300b*_"
_OPENING = "\"'\u201c\u2018\u00ab([*_"
_BOUNDARY = re.compile(
    rf"""
      (?P<stop> [.!?\u2026]+ [{_CLOSING}]* )
    | (?P<mark> (?: [\u3002\uff01\uff1f\uff61]+             # Chinese, Japanese
                  | [\u0964\u0965\u061f\u06d4]+             # Devanagari, Arabic, Urdu
                  | [\u104b\u17d4\u1362\u0589]+             # Burmese, Khmer, Ethiopic, Armenian
                ) [{_CLOSING}]* )
    | (?P<line> \n \s* )
    """,
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"\S+\Z")
_NUMBER = re.compile(r"[+\u2212-]?[\d$\u00a3\u20ac\u00a5]")
_LOOK_BEHIND = 24  # code points before a full stop: the longest abbreviation, with brackets before it
_LOOK_AHEAD = 8  # code points after a mark's white space: quotes and brackets, then the first letter
# East Asian scripts, most of which have no spaces: U+2E80 to U+9FFF, Hangul, full-width forms.
_UNSPACED = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]")


class SentenceSplitter:
    """Finds the ends of sentences in a text that arrives in pieces.

    Any division of a text into pieces yields the same sentences. The splitter stores only the unfinished sentence.

    >>> splitter = SentenceSplitter()
    >>> splitter.feed("Hello there.")  # a letter may follow, as in "example.org"
    []
    >>> splitter.feed(" How are you?")
    [12]
    >>> splitter.feed("", last=True)
    [25]
    """

    def __init__(self) -> None:
        self._text = ""  # the unfinished sentence
        self._offset = 0  # code points before it
        self._search_start = 0  # where the search continues

    def feed(self, text: str, last: bool = False) -> list[int]:
        """Return the ends of the sentences that this piece completes, in code points from the text's beginning.

        Args:
            text: The next piece.
            last: Whether the text ends with this piece. The end of a non-empty text is then the last element.
        """
        self._text += text
        ends, start = [], 0
        while match := _BOUNDARY.search(self._text, self._search_start):
            ending = self._is_end(match, start, last)
            if ending is None:
                # The match itself may grow with the next piece.
                self._search_start = match.start()
                break
            self._search_start = match.end()
            if ending and (end := _trimmed_end(self._text, start, match.end())) > start:
                ends.append(self._offset + end)
                start = end
        else:
            self._search_start = len(self._text)
        if last and len(self._text) > start:
            start = len(self._text)
            ends.append(self._offset + start)
        self._text = self._text[start:]
        self._offset += start
        self._search_start = max(0, self._search_start - start)
        return ends

    def _is_end(self, match: re.Match[str], start: int, last: bool) -> bool | None:
        """Return whether a sentence ends with the match; None if this depends on the next piece."""
        text, end = self._text, match.end()
        if end == len(text):
            return False if last else None
        if match["line"]:
            return match[0].count("\n") > 1 or not text[end].islower()
        if match["mark"]:
            return True
        if not text[end].isspace():
            return _UNSPACED.match(text, end) is not None
        space = _SPACE.match(text, end)
        word = space.end() if space else end
        if word == len(text):
            return False if last else None
        if text.find("\n", end, word) >= 0:
            return False  # the rule for line breaks applies
        following = text[word : word + _LOOK_AHEAD]
        bare = following.lstrip(_OPENING)
        if not bare and len(following) < _LOOK_AHEAD and not last:
            return None
        if match[0][0] in "!?":
            return match[0][-1] in "!?" or not bare[:1].islower()  # "Really?" he asked.
        if bare[:1].islower():
            return False
        if bare[:1] in ("+", "-", "\u2212") and len(bare) == 1 and len(following) < _LOOK_AHEAD and not last:
            return None  # the sign of a number, or a dash
        return match[0][0] != "." or not self._is_abbreviated(start, match.start(), bare)

    def _is_abbreviated(self, start: int, stop: int, following: str) -> bool:
        """Return whether the full stop at ``stop`` belongs to the word before it."""
        before = _WORD.search(self._text[max(start, stop - _LOOK_BEHIND) : stop])
        if before is None:
            return False
        word = before[0].lstrip(_OPENING + "-").lower()
        if word in INSIDE or (len(word) == 1 and word.isalpha() and word != "i"):
            return True
        if word in BEFORE_NUMBERS:
            return _NUMBER.match(following) is not None
        # The number of a list item is the first word of its sentence; Markdown may mark it.
        return word.isdigit() and not self._text[start : stop - len(word)].strip(" \n\t#*-")


def _trimmed_end(text: str, start: int, end: int) -> int:
    """Return the end of the text before ``end`` without its trailing white space."""
    while end > start and text[end - 1].isspace():
        end -= 1
    return end


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and the end of each sentence in code points, without surrounding white space.

    >>> sentence_spans("The fee is approx. 3.50 EUR.  Children pay half.")
    [(0, 28), (30, 48)]
    """
    spans = []
    for start, end in pairwise([0, *SentenceSplitter().feed(text, last=True)]):
        stripped = text[start:end].strip()
        if stripped:
            first = end - len(text[start:end].lstrip())
            spans.append((first, first + len(stripped)))
    return spans


def sentences(text: str) -> list[str]:
    """Return the sentences of a text without surrounding white space.

    >>> sentences('Dr. Smith paid at No. 7. "Really?" he asked. No. That is all!')
    ['Dr. Smith paid at No. 7.', '"Really?" he asked.', 'No.', 'That is all!']
    """
    return [text[start:end] for start, end in sentence_spans(text)]
