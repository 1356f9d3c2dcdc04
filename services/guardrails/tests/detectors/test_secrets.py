"""guardrails.detectors.secrets: keys and tokens, and texts that look similar."""

import pytest
from causeway_testing.guardrails.detectors import quick
from detection.detectors.patterns.matching import Limits
from guardrails.detectors.secrets import secrets

_DETECTOR = quick(secrets(Limits()))
_KEY = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("AKIAIOSFODNN7EXAMPLE", "aws_access_key"),
        ("ghp_" + "a1B2" * 9, "github_token"),
        ("sk_live_" + "a1B2c3" * 4, "stripe_access_key"),
        ("xoxb-123456789012-abcdefghij", "slack_token"),
        ("glpat-" + "a1B2c" * 4, "gitlab_token"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "json_web_token"),
        ("://user:pa55w0rd@", "basic_auth_credentials"),
        ("sk-proj-" + "a1B2c3D4" * 5, "openai_token"),
        ("password = 'hunter22'", "assigned_secret"),
        ("'q8Zx3Vw9Lk2Pt7Rn5Yc1Hd6'", "random_string"),
        (_KEY, "private_key"),
    ],
)
def test_secrets_are_found(text: str, name: str) -> None:
    """Each secret in the middle of a text is found completely."""
    found = _DETECTOR.detect(f"See {text} there.")
    assert (name, text) in [(detection.name, detection.text) for detection in found]
    assert {detection.type for detection in found} == {"secret"}


@pytest.mark.parametrize(
    "text",
    [
        "The password is on the back of the card.",
        "See https://example.org/a/b?c=d and mail ann@example.org.",
        "Call the 'international_organization_list' function.",
        "The commit 3f2a9c1 has the secret of success: work.",
    ],
)
def test_harmless_text_is_not_a_secret(text: str) -> None:
    """Plain words, addresses and names are not secrets."""
    assert _DETECTOR.detect(text) == []


def test_a_long_text_takes_linear_time() -> None:
    """A long text takes linear time. With quadratic time, this text would take a day."""
    _DETECTOR.detect("a1" * 500_000)
