"""The detector ``language``: finds texts in languages that are not allowed.

py3langid (https://github.com/adbar/py3langid) identifies the language by the frequencies of byte sequences. The
detector ignores short texts, because the result is not reliable for them.
"""

from functools import cache
from typing import TYPE_CHECKING, Annotated

import msgspec
from detection.detectors.factory import BuiltIn
from detection.detectors.params import BadParam, Params
from detection.detectors.port import WholeTextDetector
from detection.domain import Detection

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier  # type: ignore[import-untyped]  # shipped without types

_INLINE_LIMIT = 4096
_SAMPLE = 8192  # the number of code points, from the start of a text, that the detector judges
_THRESHOLD = 0.6


class LanguageParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    languages: Annotated[
        list[Annotated[str, msgspec.Meta(pattern="^[a-z]{2,3}$")]],
        msgspec.Meta(min_length=1, max_length=100, description="The allowed languages, as ISO 639-1 codes: `en`."),
    ]
    shortest: Annotated[
        int, msgspec.Meta(ge=0, description="Minimum number of letters; the detector ignores shorter texts.")
    ] = 20
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1, description="Minimum score of a detection.")] = _THRESHOLD


def language() -> BuiltIn[LanguageParams]:
    """Return the factory of the detector."""

    def build(params: LanguageParams) -> WholeTextDetector:
        known = _identifier().labels
        for index, code in enumerate(params.languages):
            if code not in known:
                known_languages = ", ".join(sorted(known))
                raise BadParam(f"languages[{index}]", f"unknown language; use one of: {known_languages}")

        def judge(text: str) -> list[Detection]:
            sample = text[:_SAMPLE]
            if sum(map(str.isalpha, sample)) < params.shortest:
                return []
            code, score = _identifier().classify(sample)
            if code in params.languages:
                return []
            return [Detection("language", str(code), score=float(score))]

        return WholeTextDetector(judge, _INLINE_LIMIT)

    description = "Finds texts in languages that are not allowed."
    return BuiltIn("language", description, LanguageParams, build, streaming=False, about_answer=True)


@cache
def _identifier() -> "LanguageIdentifier":
    # Imported on first use, because the model takes memory.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
