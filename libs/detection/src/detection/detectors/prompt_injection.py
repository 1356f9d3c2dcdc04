"""The detector ``prompt_injection``: finds phrases that try to give a model new instructions.

The detector searches for known phrases. The search is quick and works on growing texts, but misses other wordings.
To find other wordings, configure a model as a remote detector (docs/guardrails.md).
"""

from typing import Annotated, Literal, get_args

import msgspec

from detection.detectors.factory import BuiltIn
from detection.detectors.params import Params
from detection.detectors.patterns.detector import PatternDetector
from detection.detectors.patterns.matching import Limits, Matcher, Pattern

Sort = Literal["override", "role_change", "prompt_leak", "role_marker", "exfiltration"]

# The characters between two words.
_GAP = r"[\s*_\"'\x{201c}\x{201d},:-]+"
# For phrases like "ignore all your previous instructions": the words for "previous", the words for "instructions",
# and the words between the verb and "instructions".
_EARLIER = (
    r"(?:previous|prior|preceding|earlier|above|former|original|initial|existing|current|system|other|safety|your)"
)
_RULES = (
    r"(?:instructions?|prompts?|rules?|directives?|guidelines?|commands?|context|messages?|restrictions?|policies)"
)
_FILL = rf"(?:{_GAP}(?:all|any|every|each|of|the|these|those|my|our|your|{_EARLIER}|and))*"


def _phrases(*phrases: str) -> str:
    """Return a pattern for any of the phrases, which are patterns themselves; a space matches `_GAP`."""
    return rf"(?i:\b(?:{'|'.join(phrase.replace(' ', _GAP) for phrase in phrases)})\b)"


_EXPRESSIONS: dict[Sort, tuple[str, ...]] = {
    "override": (
        rf"(?i:\b(?:ignore|disregard|forget|override|bypass|overlook|do{_GAP}not{_GAP}follow|don't{_GAP}follow|"
        rf"stop{_GAP}following){_FILL}{_GAP}{_RULES}\b)",
        _phrases("ignore everything (?:above|before|you were told)", "forget everything (?:above|you know|before)"),
        _phrases("(?:here are )?(?:your )?new instructions (?:are|follow|for you)"),
        # German, French, Spanish, Italian, Portuguese.
        _phrases(
            r"(?:ignoriere|missachte|vergiss) (?:bitte )?(?:alle )?(?:deine |die )?"
            r"(?:vorherigen|bisherigen|obigen|vorigen|früheren) (?:anweisungen|instruktionen|befehle|regeln)",
            r"(?:ignore[rz]?|oublie[rz]?) (?:toutes )?(?:les |tes |vos )?(?:instructions|consignes|règles) "
            r"(?:précédentes|antérieures|ci-dessus)",
            r"(?:ignora|olvida|ignore|olvide) (?:todas )?(?:las |tus |sus )?(?:instrucciones|reglas) "
            r"(?:anteriores|previas)",
            r"(?:ignora|dimentica) (?:tutte )?(?:le )?(?:istruzioni|regole) (?:precedenti|sopra)",
            r"(?:ignore|esqueça) (?:todas )?(?:as )?(?:instruções|regras) (?:anteriores|acima)",
        ),
    ),
    "role_change": (
        _phrases("you are (?:now )?(?:DAN|jailbroken|unrestricted|in developer mode|in god mode)"),
        _phrases("(?:enable|enter|activate|switch to) (?:developer|jailbreak|god|DAN|sudo|debug) mode"),
        _phrases("pretend (?:that )?(?:you are|to be|you're) (?:not an ai|an? unrestricted|an? unfiltered)"),
        _phrases(
            "(?:act|respond|answer|behave) as (?:if )?(?:you (?:have|had) no (?:rules|restrictions|limits|filters))"
        ),
        _phrases(
            "do anything now", "without (?:any )?(?:restrictions|filters|censorship) or (?:limits|rules|filters)"
        ),
    ),
    "prompt_leak": (
        rf"(?i:\b(?:reveal|show|print|repeat|display|output|tell|give|expose|leak|recite){_GAP}(?:me{_GAP})?"
        rf"(?:(?:all|the|your|verbatim|full|entire|exact|of){_GAP})*(?:system|initial|hidden|secret|original)"
        rf"{_GAP}(?:prompts?|instructions?|messages?|rules?)\b)",
        _phrases(
            "what (?:is|are|were) your (?:system|initial|hidden|secret|original) (?:prompt|instructions|rules)"
        ),
        _phrases("repeat (?:everything|the words|the text|all) above"),
    ),
    "role_marker": (
        r"<\|(?:im_start|im_end|system|user|assistant|endoftext|start_header_id|end_header_id|eot_id)\|>",
        r"\[/?INST\]|<</?SYS>>",
        r"(?i:(?m:^)[\t ]{0,8}#{2,4}[\t ]{0,4}(?:system|instruction)s?[\t ]{0,4}:)",
    ),
    "exfiltration": (
        r"!\[[^\]\n]{0,80}\]\(https?://[^)\s]{1,200}\?[^)\s=]{1,40}=",  # an image whose URL sends data to a server
        _phrases(
            "(?:send|post|forward|email|upload) (?:the |this |all )?(?:conversation|chat history|user data) to"
        ),
    ),
}


class PromptInjectionParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    sorts: Annotated[
        list[Sort], msgspec.Meta(min_length=1, description="The kinds of phrases to find; by default all kinds.")
    ] = msgspec.field(default_factory=lambda: list(get_args(Sort)))


def prompt_injection(limits: Limits) -> BuiltIn[PromptInjectionParams]:
    """Return the factory of the detector."""
    matchers = {
        sort: [Matcher(Pattern("prompt_injection", sort, expression)) for expression in expressions]
        for sort, expressions in _EXPRESSIONS.items()
    }

    def build(params: PromptInjectionParams) -> PatternDetector:
        return PatternDetector(
            [matcher for sort in dict.fromkeys(params.sorts) for matcher in matchers[sort]], limits
        )

    description = "Finds phrases that try to give a model new instructions."
    return BuiltIn("prompt_injection", description, PromptInjectionParams, build)
