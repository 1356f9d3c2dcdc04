"""detection.detectors.patterns.named: the findings of the named patterns, and how little text they hold back."""

from collections.abc import Iterable

import pytest
from detection.detectors.patterns.detector import PatternDetector
from detection.detectors.patterns.matching import Limits, Matcher
from detection.detectors.patterns.named import NAMED, passes_luhn_check
from hypothesis import given
from hypothesis import strategies as st

_DETECTORS = {name: PatternDetector(list(map(Matcher, patterns)), Limits()) for name, patterns in NAMED.items()}


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("credit-card", "4111111111111111", ["4111111111111111"]),
        ("credit-card", "pay 4111-1111-1111-1111.", ["4111-1111-1111-1111"]),
        ("credit-card", "3782 822463 10005", ["3782 822463 10005"]),
        ("credit-card", "card 4222222222222 and 6304000000000000000", ["4222222222222", "6304000000000000000"]),
        ("credit-card", "card: 30569309025904, 3056 930902 5904", ["30569309025904", "3056 930902 5904"]),
        (
            "credit-card",
            "4222222222222 (visa), 4006381333931 30569309025904",
            ["4222222222222"],
        ),  # others may be goods
        (
            "credit-card",
            "4111.1111.1111.1111, 4111 - 1111 - 1111 - 1111",
            ["4111.1111.1111.1111", "4111 - 1111 - 1111 - 1111"],
        ),
        ("credit-card", "9111111111111111 2000111111111111", []),  # no issuer has these
        ("credit-card", "4111 1111 1111 1111 123", ["4111 1111 1111 1111"]),  # with its security code
        ("credit-card", "4000 4111 1111 1111 1111", ["4111 1111 1111 1111"]),  # behind a number
        ("credit-card", "4111111111111112", []),  # the check digit is wrong
        ("credit-card", "1700000000000", []),  # milliseconds since 1970 are no card
        ("credit-card", "x4111111111111111", []),
        ("email", "Mail ann.o+x@mail.example.org.", ["ann.o+x@mail.example.org"]),
        ("email", "jürgen@müller.example", ["jürgen@müller.example"]),
        ("email", "联系a@b.co。", ["a@b.co"]),
        ("email", "a@b, @b.co, a@.c", []),
        ("ipv4", "10.0.0.255, 1.2.3.4.5 and 256.1.1.1", ["10.0.0.255", "1.2.3.4"]),
        ("ipv6", "fe80::1: and ::1", ["fe80::1", "::1"]),
        ("ipv6", "2001:db8:0:0:0:0:2:1 1::2:3", ["2001:db8:0:0:0:0:2:1", "1::2:3"]),
        ("ipv6", "::ffff:192.0.2.1 64:ff9b::1.2.3.4 1:2:3:4:5:6:1.2.3.4 2001:db8::", None),
        ("ipv6", "std::vector abc::foo 12:30:45 :: a:b face::book", []),
        ("us-phone-number", "(555) 123-4567 or +1 555-123-4567", ["(555) 123-4567", "+1 555-123-4567"]),
        ("us-phone-number", "1-555-123-4567, 555.123.4567", ["1-555-123-4567", "555.123.4567"]),
        ("us-phone-number", "5551234567 555-123-45678", []),
        ("us-phone-number", "302-5234567-1234567 555-1234567", []),  # an order, and nothing that says it is a phone
        ("us-phone-number", "call me at 5551234567. Tel.: 555-1234567", ["5551234567", "555-1234567"]),
        ("us-phone-number", "(555) 1234567, +1 5551234567", ["(555) 1234567", "+1 5551234567"]),
        ("phone-number", "5551234567 is my new phone, 5551234568 (mobile)", ["5551234567", "5551234568"]),
        ("us-social-security-number", "234.56.7891, 234 - 56 - 7891", ["234.56.7891", "234 - 56 - 7891"]),
        (
            "us-social-security-number",
            "her SSN is 234567891; 345678912 (her social security number)",
            ["234567891", "345678912"],
        ),
        ("us-social-security-number", "invoice 234567891 of 120.50 1250", []),
        ("us-social-security-number", "123-45-6789, 123 45 6789", ["123-45-6789", "123 45 6789"]),
        ("us-social-security-number", "1123-45-6789 123-45-67890 12-345-6789", []),
        (
            "iban",
            "DE89370400440532013000, GB82 WEST 1234 5698 7654 32",
            ["DE89370400440532013000", "GB82 WEST 1234 5698 7654 32"],
        ),
        ("iban", "DE89 3704 0044 0532 0130 00 AND MORE", ["DE89 3704 0044 0532 0130 00"]),
        ("iban", "NO9386011117947 FR1420041010050500013M02606", ["NO9386011117947", "FR1420041010050500013M02606"]),
        ("iban", "DE89-3704-0044-0532-0130-00", ["DE89-3704-0044-0532-0130-00"]),
        ("iban", "DE88370400440532013000 XX89370400440532013000", []),
        (
            "phone-number",
            "+49 30 1234567, +44 20 7946 0958 or (555) 123-4567",
            ["+49 30 1234567", "+44 20 7946 0958", "(555) 123-4567"],
        ),
        ("phone-number", "2024-01-02 10:30 12345678901 +0 1234567", []),
        ("uk-post-code", "SW1A 1AA M1 1AE GIR 0AA", ["SW1A 1AA", "M1 1AE", "GIR 0AA"]),
        ("uk-post-code", "post code: M11AE. We need a part: M12AE", ["M11AE"]),
        ("uk-post-code", "B33 8TH, X1 1AA, QA1 1AA", ["B33 8TH"]),  # there are no such areas
        ("uk-post-code", "SW1A 1CC sw1a 1aa", []),
    ],
)
def test_each_named_pattern_finds_what_its_name_says(name: str, text: str, found: list[str] | None) -> None:
    """Each named pattern finds what its name says, and nothing that looks similar. None means every word."""
    expected = text.split() if found is None else found
    assert [detection.text for detection in _DETECTORS[name].detect(text)] == expected


def test_the_names_of_detections_are_part_of_the_interface() -> None:
    """The names of the detections are part of the interface. All are personal data."""
    assert {name: {pattern.name for pattern in patterns} for name, patterns in NAMED.items()} == {
        "credit-card": {"credit_card"},
        "email": {"email_address"},
        "ipv4": {"ipv4"},
        "ipv6": {"ipv6"},
        "iban": {"iban"},
        "phone-number": {"phone_number"},
        "us-phone-number": {"us_phone_number"},
        "us-social-security-number": {"social_security_number"},
        "uk-post-code": {"uk_post_code"},
    }
    assert {pattern.type for patterns in NAMED.values() for pattern in patterns} == {"pii"}


@given(st.integers(min_value=1, max_value=10**18))
def test_the_check_accepts_exactly_one_last_digit(number: int) -> None:
    """Exactly one of the ten possible last digits passes the check, and a number with one changed digit never
    passes.
    """
    passing = [digit for digit in range(10) if passes_luhn_check(f"{number}{digit}".encode())]
    assert len(passing) == 1
    digits = f"{number}{passing[0]}"
    assert not passes_luhn_check((str((int(digits[0]) + 1) % 10) + digits[1:]).encode())


# Every text that can become a detection becomes one if the end of one of these samples follows it.
_SAMPLES = {
    "credit-card": [
        "4111111111111111",
        "4111 1111 1111 1111",
        "4111-1111 1111-1111",
        "4111 - 1111.1111 1111",
        "3782 822463 10005",
        *[
            issuer + "1" * 12
            for issuer in ("2221", "2231", "2311", "2711", "2720", "5111", "6011", "6441", "6511", "6211")
        ],
        *[issuer + "1" * 12 for issuer in ("3528", "3531", "5018", "5020", "5038", "5893", "6304", "6759", "6761")],
        "3411 111111 11111",
        *[f"{number}{digit} VISA" for number in ("3000111111111", "3611111111111") for digit in range(10)],
        "3001 111111 1111",
        "3611 111111 1111",
    ],
    "email": ["a@bb.co"],
    "ipv4": ["1.1.1.1"],
    "ipv6": [
        "1:1:1:1:1:1:1:1",
        "1:1:1:1:1:1:1.1.1.1",
        "::1",
        "::1.1.1.1",
        *[":".join("1" * left) + "::" + ":".join("1" * (7 - left)) for left in range(1, 7)],
        "1:1:1:1:1:1:1::",
    ],
    "us-phone-number": [
        "+1(555) 123-4567",
        "+1 555-123-4567",
        "1-555-1234567 (FAX",
        "5551234567 IS FAX",
        "5551234567 is a fax",
    ],
    "us-social-security-number": ["123-45-6789", "123 - 45 - 6789", "123.45.6789", "123456789 SSN"],
    "uk-post-code": ["SW1A 1AA", "M11AA postcode", "SW11AA", "GIR 0AA", "AB1 1AA", "IM1 1AA", "RG1 1AA", "WA1 1AA"],
}


@pytest.mark.parametrize("name", _SAMPLES)
@given(data=st.data())
def test_only_text_of_a_possible_detection_is_held(name: str, data: st.DataObject) -> None:
    """Held text can still become part of a detection that begins with the first held character. A complete card
    number is an exception: its check digit is checked only when the next character arrives.
    """
    alphabet = "".join(sorted(set("".join(_SAMPLES[name])))) + " x,"
    fragments = [sample[:end] for sample in _SAMPLES[name] for end in range(1, len(sample) + 1)]
    texts = st.lists(st.one_of(st.text(alphabet, max_size=6), st.sampled_from(fragments)), max_size=4)
    _check_held("".join(data.draw(texts)), name)


def test_a_number_after_a_keyword_waits_for_the_text_after_it() -> None:
    """A keyword before a number identifies the number. The stream still holds it until the text after it is known,
    because a keyword may follow, too.
    """
    _check_held("1-555-1234567 (FAX-5551234567 ", "us-phone-number")


def _check_held(text: str, name: str) -> None:
    detector = _DETECTORS[name]
    stream, decided = detector.stream(), 0
    for character in text:
        decided, _ = stream.feed(character, False)
    if decided == len(text):
        return
    ends = {sample[start:] for sample in _SAMPLES[name] for start in range(len(sample) + 1)}
    if name == "credit-card":
        held = text[decided:].translate({ord(separator): None for separator in " -."})
        if len(held) >= 13:
            return
        ends = {end[:-1] + digit for end in ends if end for digit in "0123456789"} | ends
    befores = [text[:decided]]
    if any(detection.start == decided for detection in detector.detect(text + "\n")):
        befores.append("\n")  # without the keyword before the number
    assert any(_may_become_detection(detector, before, text[decided:], ends) for before in befores)


def _may_become_detection(detector: PatternDetector, before: str, held: str, ends: Iterable[str]) -> bool:
    """Return whether the held text becomes a detection, or a longer one, if one of the ends follows it."""
    text = before + held
    ended = detector.detect(text + "\n")  # the text after a number may identify it
    return any(
        detection.start == len(before)
        and detection.end is not None
        and (detection.end >= len(text) or detection not in ended)
        for end in ends
        for after in ("", " ")
        for detection in detector.detect(text + end + after)
    )


@pytest.mark.parametrize("name", NAMED)
def test_the_held_text_is_limited(name: str) -> None:
    """For words of any length, no named pattern holds more than a few hundred characters."""
    for text in ("a" * 3000, "1" * 3000, "a@" + "a" * 3000, "a@" + "a." * 1500, "1:" * 1500, "1." * 1500):
        stream, decided = _DETECTORS[name].stream(), 0
        for start in range(0, len(text), 50):
            decided, _ = stream.feed(text[start : start + 50], False)
        assert len(text) - decided < 400
