"""The languages of text search, and their detection by script.

A language is named by its ISO 639-1 code. Some scripts determine the language, because they have only one stemmer
or tokenizer. The languages of the Latin script are detected by their words (`languages.detector`).
"""

import re

from servicekit.errors import InvalidRequest

AUTO = "auto"
"""Index setting: each document is analysed in its own language."""
LEGACY = "legacy"
"""Language of indexes of earlier versions: all words are analysed as English until the index is rebuilt."""
DEFAULT = "en"
"""Language of a text if neither the text nor the index determines one."""

UNSPACED = frozenset({"ja", "th", "zh"})
"""Languages without spaces between words."""
LATIN = frozenset({"da", "de", "en", "es", "fi", "fr", "hu", "it", "nl", "no", "pt", "ro", "sv", "tr"})
LANGUAGES = LATIN | UNSPACED | {"ar", "el", "ko", "ru"}

_SCRIPTS = {
    "han": r"\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "ja": r"\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "ko": r"\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "th": r"\u0e00-\u0e7f",
    "ru": r"\u0400-\u052f",
    "ar": r"\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff",
    "el": r"\u0370-\u03ff\u1f00-\u1fff",
}
_RUNS = re.compile("|".join(f"(?P<{name}>[{letters}]+)" for name, letters in _SCRIPTS.items()) + r"|[^\W\d_]")
_WEIGHTS = {"han": 3, "ja": 3, "ko": 3}
"""A character of one of these scripts counts as much as three letters of another script."""
_MIN_KANA_RATIO = 0.05
"""A text with a higher ratio of kana to Han characters is Japanese. Chinese texts have no kana."""


def checked_language(language: str) -> str:
    """Return the language setting of an index after checking it.

    Raises:
        InvalidRequest: The language is unknown.
    """
    if language == AUTO or language in LANGUAGES:
        return language
    known = ", ".join(sorted(LANGUAGES))
    raise InvalidRequest(
        f"'{language[:100]}' is not a language of text search. Use {AUTO}, {known}.", field="settings.language"
    )


def script_language(text: str) -> str | None:
    """Return the language of a text's main script. Return None if the script is Latin or unknown.

    >>> script_language("東京は日本の首都です"), script_language("GPU 价格"), script_language("Häuser")
    ('ja', 'zh', None)
    """
    if text.isascii():
        return None
    counts = dict.fromkeys((*_SCRIPTS, None), 0)
    for run in _RUNS.finditer(text):
        counts[run.lastgroup] += run.end() - run.start()
    if counts["ja"] > _MIN_KANA_RATIO * counts["han"]:
        counts["ja"] += counts.pop("han")
    main_script = max(counts, key=lambda script: counts[script] * _WEIGHTS.get(script or "", 1))
    if main_script is None or not counts[main_script]:
        return None
    return "zh" if main_script == "han" else main_script


def analysis_language_of(text: str, language: str) -> str:
    """Return the language in which to analyse a text of a document in ``language``.

    If the script of the text determines another language, the text is analysed in that language, except in a
    document that is analysed as `LEGACY`.
    """
    script = None if language == LEGACY else script_language(text)
    # A heading in a Japanese document may have no kana.
    return language if script is None or (script, language) == ("zh", "ja") else script
