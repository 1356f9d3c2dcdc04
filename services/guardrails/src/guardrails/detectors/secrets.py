"""The detector ``secrets``: finds keys and tokens of many vendors, assigned passwords, and random strings.

The vendors' patterns come from detect-secrets (https://github.com/Yelp/detect-secrets), which scans lines of files
with Python's ``re``. Here the patterns run on RE2, which takes linear time and can also scan growing texts. RE2 has
no look-behind. The vendors' patterns with a look-behind find assignments; a pattern of this module replaces them.
"""

import importlib
import inspect
import math
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from detect_secrets import plugins
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.keyword import DENYLIST
from detection.detectors.factory import BuiltIn
from detection.detectors.params import Params
from detection.detectors.patterns.detector import PatternDetector
from detection.detectors.patterns.engine import Unsupported
from detection.detectors.patterns.matching import MANY_PATTERNS_MEMORY, Limits, Matcher, Pattern

_TYPE = "secret"
# An IP address is not a secret. The library matches only the first line of a private key, so this module has its
# own pattern for the whole key.
_EXCLUDED = ("ip_public", "private_key")
# The library's thresholds for random strings (detect_secrets.plugins.high_entropy_strings), in bits per character.
_BASE64_BITS, _HEX_BITS = 4.5, 3.0
_HEX = frozenset(b"0123456789abcdefABCDEF")


class SecretsParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector: only those that all detectors have."""


def secrets(limits: Limits) -> BuiltIn[SecretsParams]:
    """Return the factory of the detector."""
    detector = cache(
        lambda: PatternDetector([*map(Matcher, _own_patterns()), *_vendor_patterns()], limits, MANY_PATTERNS_MEMORY)
    )
    description = "Finds keys, tokens and passwords by the patterns of detect-secrets."
    return BuiltIn("secrets", description, SecretsParams, lambda _: detector())


def _own_patterns() -> Iterator[Pattern]:
    keywords = "|".join(DENYLIST)
    assigned = rf"""(?i:(?:{keywords})["']?\s{{0,4}}(?::=|=>|={{1,3}}|:)\s{{0,4}}@?["'][^"'\s]{{1,200}}["'])"""
    body = r"(?:[^-]|-[^-])*(?:-----END [A-Z0-9 ]{0,60}-----)?"
    yield Pattern(_TYPE, "private_key", rf"-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----{body}")
    yield Pattern(_TYPE, "assigned_secret", assigned)
    yield Pattern(_TYPE, "random_string", r"""["'][A-Za-z0-9+/=_-]{20,200}["']""", _is_random)
    yield Pattern(_TYPE, "openai_token", r"\bsk-[A-Za-z0-9_-]{32,200}")
    yield Pattern(_TYPE, "google_api_key", r"\bAIza[A-Za-z0-9_-]{35}")
    yield Pattern(_TYPE, "github_token", r"\bgithub_pat_[A-Za-z0-9_]{50,100}")
    yield Pattern(_TYPE, "hugging_face_token", r"\bhf_[A-Za-z0-9]{30,40}")


def _vendor_patterns() -> Iterator[Matcher]:
    for module in pkgutil.iter_modules(plugins.__path__):
        if module.name in _EXCLUDED:
            continue
        found = importlib.import_module(f"{plugins.__name__}.{module.name}")
        for _, vendor in inspect.getmembers(found, inspect.isclass):
            if not issubclass(vendor, RegexBasedDetector) or inspect.isabstract(vendor):
                continue
            for expression in vendor().denylist:
                try:
                    yield Matcher(Pattern(_TYPE, _name(str(vendor.secret_type)), _to_re2(expression)))
                except Unsupported:
                    continue  # a look-behind; see the module's docstring


def _to_re2(expression: re.Pattern[str]) -> str:
    # RE2 has no look-ahead. Without `(?!\w)`, a pattern also finds a token at the beginning of a longer word. RE2
    # allows counts up to 1000. A lazy quantifier at the end (`*?` in the pattern for JSON web tokens) would limit a
    # finding to the beginning of the token.
    pattern = expression.pattern.replace(r"(?!\w)", "").replace("{50,1024}", "{50,1000}").removesuffix("?")
    return f"(?i:{pattern})" if expression.flags & re.IGNORECASE else pattern


def _name(secret_type: str) -> str:
    return re.sub(r"\W+", "_", secret_type.lower()).strip("_")


def _is_random(text: bytes, start: int, end: int) -> bool:
    inside = text[start + 1 : end - 1]
    length = len(inside)
    bits = -sum(count / length * math.log2(count / length) for count in Counter(inside).values())
    return bits > (_HEX_BITS if _HEX.issuperset(inside) else _BASE64_BITS)
