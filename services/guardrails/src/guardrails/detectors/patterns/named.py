r"""The patterns that have names, in RE2's syntax.

All are bounded, so that no text, however long its words are, is held back for more than a few hundred characters.
``\b`` and ``\d`` are ASCII in RE2, which is what numbers of these kinds are written in.
"""

from collections.abc import Mapping

from guardrails.detectors.patterns.matching import Pattern

_PII = "pii"

# Digits alone or in the usual groups; the first digit is that of a payment card's issuer (2 to 6).
# Each place where a card can begin allows one length only, so that what follows a card hides it from no check.
_CARD = r"\b[2-6](?:\d{12,18}|\d{3}(?:[- ]\d{4}){3}|\d{3}[- ]\d{6}[- ]\d{4,5})\b"

# Latin letters with marks, composed or not, are in names and in their domains.
_LATIN = r"A-Za-z\x{C0}-\x{24F}\x{300}-\x{36F}"
# RFC 5321, section 4.5.3.1, bounds the local part (64) and the domain (255).
_EMAIL = rf"[{_LATIN}0-9._%+-]{{1,64}}@[{_LATIN}0-9.-]{{1,251}}\.[A-Za-z]{{2,63}}"

_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_V4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H = "[0-9A-Fa-f]{1,4}"


def _ipv6() -> str:
    # RFC 4291, section 2.2. Of the forms that fit at one place the longest stands first.
    forms = [rf"\b(?:{_H}:){{6}}{_V4}\b", rf"\b(?:{_H}:){{7}}{_H}\b"]
    forms += [rf"\b(?:{_H}:){{1,{left}}}(?::{_H}){{0,{5 - left}}}:{_V4}\b" for left in range(1, 6)]
    forms += [rf"\b(?:{_H}:){{1,{left}}}(?::{_H}){{1,{7 - left}}}\b" for left in range(1, 7)]
    # \B before "::" or after it: no letter stands there, as it does in the names of programs.
    forms += [rf"\B:(?::{_H}){{0,5}}:{_V4}\b", rf"\B:(?::{_H}){{1,7}}\b", rf"\b(?:{_H}:){{1,7}}:\B"]
    return "|".join(forms)


# Countries by the length of their account numbers (ISO 13616, the registry of SWIFT). As with cards, each place
# where one can begin allows one length only.
_IBAN_LENGTHS = {
    15: "NO",
    16: "BE",
    18: "DK|FO|FI|GL|NL|SD|FK",
    19: "MK|SI",
    20: "AT|BA|EE|KZ|LT|LU|XK|MN",
    21: "CH|HR|LI|LV",
    22: "BG|BH|CR|DE|GB|GE|IE|ME|RS|VA",
    23: "AE|GI|IL|IQ|TL|OM|SO",
    24: "AD|CZ|ES|MD|PK|RO|SA|SE|SK|TN|VG",
    25: "LY|PT|ST",
    26: "IS|TR",
    27: "BI|DJ|FR|GR|IT|MC|MR|SM",
    28: "AL|AZ|BY|CY|DO|GT|HU|LB|NI|PL|SV",
    29: "BR|EG|PS|QA|UA",
    30: "JO|KW|MU|YE",
    31: "MT|SC",
    32: "LC",
    33: "RU",
}


def _iban() -> str:
    forms = []
    for length, countries in _IBAN_LENGTHS.items():
        groups, rest = divmod(length - 4, 4)
        last = f"[ ]?[A-Z0-9]{{{rest}}}" if rest else ""
        forms.append(rf"(?:{countries})\d{{2}}(?:[ ]?[A-Z0-9]{{4}}){{{groups}}}{last}")
    return rf"\b(?:{'|'.join(forms)})\b"


def _account_number(text: bytes, start: int, end: int) -> bool:
    # ISO 7064, MOD 97-10: country and check digits behind the rest, letters as two digits.
    compact = text[start:end].replace(b" ", b"")
    return int("".join(str(int(chr(byte), 36)) for byte in compact[4:] + compact[:4])) % 97 == 1


_US_PHONE = r"(?:(?:\+|\b)1[-. ]?)?(?:\(\d{3}\) ?|\b\d{3}[-. ])\d{3}[-. ]?\d{4}\b"


def luhn(digits: bytes) -> bool:
    """Whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = digit - ord("0")
        total += value if place % 2 == 0 else sum(divmod(2 * value, 10))
    return total % 10 == 0


def _card_number(text: bytes, start: int, end: int) -> bool:
    return luhn(bytes(byte for byte in text[start:end] if byte not in b"- "))


NAMED: Mapping[str, Pattern] = {
    "credit-card": Pattern(_PII, "credit_card", _CARD, _card_number),
    "email": Pattern(_PII, "email_address", _EMAIL),
    "ipv4": Pattern(_PII, "ipv4", rf"\b{_V4}\b"),
    "ipv6": Pattern(_PII, "ipv6", _ipv6()),
    "iban": Pattern(_PII, "iban", _iban(), _account_number),
    # ITU-T E.164 with its plus sign, or as in North America.
    "phone-number": Pattern(_PII, "phone_number", rf"\+[1-9](?:[-. ()/]{{0,2}}\d){{7,14}}\b|{_US_PHONE}"),
    "us-phone-number": Pattern(_PII, "us_phone_number", _US_PHONE),
    "us-social-security-number": Pattern(_PII, "social_security_number", r"\b\d{3}[- ]\d{2}[- ]\d{4}\b"),
    # Royal Mail's layout; the inward code has no C, I, K, M, O, V.
    "uk-post-code": Pattern(_PII, "uk_post_code", r"\b(?:GIR ?0AA|[A-Z]{1,2}\d[0-9A-Z]? ?\d[ABD-HJLNP-UW-Z]{2})\b"),
}
"""By the name that the parameter ``regex`` gives them."""
