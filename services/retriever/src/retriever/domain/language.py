"""Languages of text search: which there are, and which one a text's script tells.

A language is named by its ISO 639-1 code. Of some the script tells enough: there is one stemmer, or one tokenizer,
for it. The others share the Latin script and are told apart by their words (`languages.detector`).
"""

import re

from servicekit.errors import InvalidRequest

AUTO = "auto"
"""Setting of an index: each document has the language that it is written in."""
LEGACY = "legacy"
"""What an index of an earlier version has: all words were cut and stemmed as English ones. A rebuild ends it."""
DEFAULT = "en"

UNSPACED = frozenset({"ja", "th", "zh"})
"""Written without spaces between words."""
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
"""A sign of these scripts says as much as three letters of others."""
_JAPANESE = 0.05
"""Share of kana among the signs from which on a text is Japanese; Chinese texts have none."""


def checked(said: str) -> str:
    """Return the language that an index is to have.

    Raises:
        InvalidRequest: There is no such language.
    """
    if said == AUTO or said in LANGUAGES:
        return said
    known = ", ".join(sorted(LANGUAGES))
    raise InvalidRequest(
        f"'{said[:100]}' is no language of text search. There are {AUTO}, {known}.", field="settings.language"
    )


def of_script(text: str) -> str | None:
    """Return the language that the script of most of a text tells; None where that is Latin, or tells nothing.

    >>> of_script("東京は日本の首都です"), of_script("GPU 价格"), of_script("Häuser")
    ('ja', 'zh', None)
    """
    if text.isascii():
        return None
    signs = dict.fromkeys((*_SCRIPTS, None), 0)
    for run in _RUNS.finditer(text):
        signs[run.lastgroup] += run.end() - run.start()
    if signs["ja"] > _JAPANESE * signs["han"]:
        signs["ja"] += signs.pop("han")
    most = max(signs, key=lambda script: signs[script] * _WEIGHTS.get(script or "", 1))
    if most is None or not signs[most]:
        return None
    return "zh" if most == "han" else most


def analysed_as(text: str, language: str) -> str:
    """Return the language whose words a text of a document has, the document being in ``language``.

    A part of a document in another script is analysed by that.
    """
    script = None if language == LEGACY else of_script(text)
    # A heading in a Japanese document may have no kana.
    return language if script is None or (script, language) == ("zh", "ja") else script
