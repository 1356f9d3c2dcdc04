"""The detector ``language``: texts in another language than those that are allowed.

Languages are told apart by py3langid (https://github.com/adbar/py3langid), by the frequencies of byte sequences; it
is unsure of few words, so that short texts are not judged.
"""

from functools import cache
from typing import TYPE_CHECKING, Annotated

import msgspec

from guardrails.detectors.factory import BuiltIn
from guardrails.detectors.params import BadParam, Params
from guardrails.detectors.port import WholeTextDetector
from guardrails.domain import Detection

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier  # type: ignore[import-untyped]  # shipped without types

_INLINE = 4096
_SAMPLE = 8192  # code points that are looked at; more change nothing
_THRESHOLD = 0.6


class LanguageParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    languages: Annotated[
        list[Annotated[str, msgspec.Meta(pattern="^[a-z]{2,3}$")]],
        msgspec.Meta(min_length=1, max_length=100, description="What is allowed, as ISO 639-1 codes: `en`."),
    ]
    shortest: Annotated[int, msgspec.Meta(ge=0, description="Letters that a text must have to be judged.")] = 20
    threshold: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Detections with a lower score are passed over.")
    ] = _THRESHOLD


def language(limit: int) -> BuiltIn[LanguageParams]:
    """The detector.

    Args:
        limit: Code points of a growing text that it may hold back.
    """

    def build(params: LanguageParams) -> WholeTextDetector:
        known = _identifier().labels
        for index, each in enumerate(params.languages):
            if each not in known:
                raise BadParam(
                    f"languages[{index}]", f"not a language that can be told: {', '.join(sorted(known))}"
                )

        def judge(text: str) -> list[Detection]:
            sample = text[:_SAMPLE]
            if sum(map(str.isalpha, sample)) < params.shortest:
                return []
            found, score = _identifier().classify(sample)
            if found in params.languages:
                return []
            return [Detection("language", str(found), score=float(score))]

        return WholeTextDetector(judge, limit, _INLINE)

    description = "Finds texts in another language than those that are allowed."
    return BuiltIn("language", description, LanguageParams, build, streaming=False, about_answer=True)


@cache
def _identifier() -> "LanguageIdentifier":
    # Imported when the first one asks: its model takes memory.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # see above

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
