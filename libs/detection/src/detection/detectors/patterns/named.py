r"""The named patterns, in RE2's syntax.

All patterns are bounded, so that a stream holds back at most a few hundred characters, even in very long words.
``\b`` and ``\d`` are ASCII in RE2. This is enough, because these kinds of numbers have ASCII digits.
"""

import re
from collections.abc import Mapping, Sequence

from detection.detectors.patterns.matching import Accept, Pattern

_PII = "pii"
_KEYWORD_BYTES = 64  # a keyword may be within this number of bytes before or after a number


def _near_keyword(name: str, number: str, before: str, after: str, check: Accept | None = None) -> Pattern:
    """Return a pattern of a number without separators that has a keyword before or after it.

    Args:
        name: The name of the detection.
        number: The expression of the number.
        before: The expression of the keyword and the text between keyword and number, in Python's syntax.
        after: The expression of the text between number and keyword, followed by the keyword; valid in RE2's and in
            Python's syntax.
        check: A further check of the number.
    """
    keyword_before = re.compile(rf"(?i)(?:{before})\Z".encode())
    keyword_after = re.compile(rf"(?i){after}".encode())

    def accept(text: bytes, start: int, end: int) -> bool:
        if check is not None and not check(text, start, end):
            return False
        around = text[max(start - _KEYWORD_BYTES, 0) : start], text[end : end + _KEYWORD_BYTES]
        return keyword_before.search(around[0]) is not None or keyword_after.match(around[1]) is not None

    # The expression includes the text after the number, so that a stream holds the number back until this text
    # arrives.
    return Pattern(_PII, name, rf"\b({number})\b(?i:{after})?", accept, grouped=True, behind=_KEYWORD_BYTES)


# A card number has no separators, or the usual groups. The first four digits identify the issuer of the card. With
# groups, each prefix has only one length, so that a group of digits after a card number cannot hide the number from
# the check.
_APART = "(?: - |[-. ])"
_MASTERCARD = r"(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)"
_TO_19_DIGITS = (
    r"(?:6011|64[4-9]\d|6[25]\d\d"  # Discover, UnionPay
    r"|35(?:2[89]|[3-8]\d)"  # JCB
    r"|5018|5020|5038|5893|6304|6759|676[1-3])"  # Maestro
)
_DINERS = r"3(?:0[0-5]|[689]\d)\d"
_CARD = (
    rf"\b(?:4(?:\d{{15}}|\d{{18}})|{_MASTERCARD}\d{{12}}|{_TO_19_DIGITS}\d{{12,15}}|3[47]\d{{13}}"
    rf"|(?:4\d{{3}}|{_MASTERCARD}|{_TO_19_DIGITS})(?:{_APART}\d{{4}}){{3}}"
    rf"|3[47]\d\d{_APART}\d{{6}}{_APART}\d{{5}}|{_DINERS}{_APART}\d{{6}}{_APART}\d{{4}})\b"
)
# These card numbers have as many digits as trade item numbers (EAN, GTIN), so they need a keyword.
_SHORT_CARD = rf"4\d{{12}}|{_DINERS}\d{{10}}"
_CARD_BEFORE = r"\b(?:cards?|visa|credit|debit)\b[^\d\n]{0,24}"
_CARD_AFTER = r"[^\d\n]{0,8}?(?:credit|debit|visa)"

# Local parts and domains of addresses may have Latin letters with diacritics, composed or decomposed.
_LATIN = r"A-Za-z\x{C0}-\x{24F}\x{300}-\x{36F}"
# RFC 5321, section 4.5.3.1, bounds the local part (64) and the domain (255).
_EMAIL = rf"[{_LATIN}0-9._%+-]{{1,64}}@[{_LATIN}0-9.-]{{1,251}}\.[A-Za-z]{{2,63}}"

_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_V4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H = "[0-9A-Fa-f]{1,4}"


def _ipv6() -> str:
    # RFC 4291, section 2.2. The longest form is first.
    forms = [rf"\b(?:{_H}:){{6}}{_V4}\b", rf"\b(?:{_H}:){{7}}{_H}\b"]
    forms += [rf"\b(?:{_H}:){{1,{left}}}(?::{_H}){{0,{5 - left}}}:{_V4}\b" for left in range(1, 6)]
    forms += [rf"\b(?:{_H}:){{1,{left}}}(?::{_H}){{1,{7 - left}}}\b" for left in range(1, 7)]
    # \B excludes letters before and after "::", because "::" also occurs in source code.
    forms += [rf"\B:(?::{_H}){{0,5}}:{_V4}\b", rf"\B:(?::{_H}){{1,7}}\b", rf"\b(?:{_H}:){{1,7}}:\B"]
    return "|".join(forms)


# Countries by the length of their IBANs (ISO 13616, the registry of SWIFT). Each prefix has only one
# length.
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
        last = f"[- ]?[A-Z0-9]{{{rest}}}" if rest else ""
        forms.append(rf"(?:{countries})\d{{2}}(?:[- ]?[A-Z0-9]{{4}}){{{groups}}}{last}")
    return rf"\b(?:{'|'.join(forms)})\b"


def _is_account_number(text: bytes, start: int, end: int) -> bool:
    # ISO 7064, MOD 97-10: move country and check digits to the end, and replace each letter by two digits.
    compact = text[start:end].translate(None, b"- ")
    return int("".join(str(int(chr(byte), 36)) for byte in compact[4:] + compact[:4])) % 97 == 1


_US_PHONE = (
    r"(?:(?:\+|\b)1[-. ]?)?(?:\(\d{3}\) ?\d{3}[-. ]?\d{4}|\b\d{3}[-. ]\d{3}[-. ]\d{4})\b"
    r"|\+1[-. ]?\d{3}[-. ]?\d{7}\b"
)
_BARE_PHONE = r"(?:1[-. ]?)?[2-9]\d{2}[-. ]?\d{7}"
_PHONE = "(?:phone|telephone|tel|mobile|cell|fax)"
_PHONE_BEFORE = (
    rf"\b(?:{_PHONE}|call|dial|whatsapp)\b"
    r"(?:[^\w\n]{1,3}(?:me|us|him|her|them|phone|number|no|nr|is|at|on|under)\b){0,3}[^\w\n]{0,4}"
)
_PHONE_AFTER = (
    rf"(?: ?\({_PHONE}"
    rf"| (?:is|was) (?:(?:my|the|her|his|our|their|your|a) )?(?:(?:home|work|new|private) )?{_PHONE})"
)
_SSN = r"\b(?:\d{3}(?: - |[- ])\d{2}(?: - |[- ])\d{4}|\d{3}\.\d{2}\.\d{4})\b"
_SSN_WORD = "(?:ssn|social[ -]security)"

# Royal Mail's format with the postcode areas (https://www.royalmail.com). The inward code has no C, I, K, M, O, V.
_AREA = (
    "(?:A[BL]|B[ABDHLNRST]?|C[ABFHMORTVW]|D[ADEGHLNTY]|E[CHNX]?|F[KY]|G[LUY]?|H[ADGPRSUX]|I[GMPV]|JE|K[ATWY]"
    "|L[ADELNSU]?|M[EKL]?|N[EGNPRW]?|O[LX]|P[AEHLOR]|R[GHM]|S[AEGKLMNOPRSTWY]?|T[ADFNQRSW]|UB|W[ACDFNRSV]?|YO|ZE)"
)
_OUTWARD, _INWARD = rf"{_AREA}\d[0-9A-Z]?", r"\d[ABD-HJLNP-UW-Z]{2}"
_POST_CODE = "(?:post ?code|postal code)"


def passes_luhn_check(digits: bytes) -> bool:
    """Return whether the last digit is the check digit of the other digits (ISO/IEC 7812-1, annex B)."""
    total = 0
    for position, digit in enumerate(reversed(digits)):
        value = digit - ord("0")
        total += value if position % 2 == 0 else sum(divmod(2 * value, 10))
    return total % 10 == 0


def _is_card_number(text: bytes, start: int, end: int) -> bool:
    return passes_luhn_check(text[start:end].translate(None, b"-. "))


NAMED: Mapping[str, Sequence[Pattern]] = {
    "credit-card": (
        Pattern(_PII, "credit_card", _CARD, _is_card_number),
        _near_keyword("credit_card", _SHORT_CARD, _CARD_BEFORE, _CARD_AFTER, _is_card_number),
    ),
    "email": (Pattern(_PII, "email_address", _EMAIL),),
    "ipv4": (Pattern(_PII, "ipv4", rf"\b{_V4}\b"),),
    "ipv6": (Pattern(_PII, "ipv6", _ipv6()),),
    "iban": (Pattern(_PII, "iban", _iban(), _is_account_number),),
    # ITU-T E.164 with its plus sign, or the North American form.
    "phone-number": (
        Pattern(_PII, "phone_number", rf"\+[1-9](?:[-. ()/]{{0,2}}\d){{7,14}}\b|{_US_PHONE}"),
        _near_keyword("phone_number", _BARE_PHONE, _PHONE_BEFORE, _PHONE_AFTER),
    ),
    "us-phone-number": (
        Pattern(_PII, "us_phone_number", _US_PHONE),
        _near_keyword("us_phone_number", _BARE_PHONE, _PHONE_BEFORE, _PHONE_AFTER),
    ),
    "us-social-security-number": (
        Pattern(_PII, "social_security_number", _SSN),
        _near_keyword(
            "social_security_number", r"\d{9}", rf"{_SSN_WORD}[^\n]{{0,48}}", rf"[^\d\n]{{0,24}}?{_SSN_WORD}"
        ),
    ),
    "uk-post-code": (
        Pattern(_PII, "uk_post_code", rf"\b(?:GIR ?0AA|{_OUTWARD} {_INWARD})\b"),
        _near_keyword(
            "uk_post_code",
            f"{_OUTWARD}{_INWARD}",
            rf"\b{_POST_CODE}s?[^\n]{{0,16}}",
            rf"[^\d\n]{{0,16}}?{_POST_CODE}",
        ),
    ),
}
"""The patterns by their names in the parameter ``regex``."""
