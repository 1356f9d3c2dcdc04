"""The named patterns on lines without personal data: invoices and lists of parts, which have many numbers."""

import random
from collections.abc import Callable

from detection.detectors.patterns.detector import PatternDetector
from detection.detectors.patterns.matching import Limits, Matcher
from detection.detectors.patterns.named import NAMED

_LINES = 10_000
_PARTS = (
    "Hex bolt M8x40 DIN 912", "Deep groove ball bearing 6205-2RS", "Toner cartridge", "Oil filter", "Brake pad set",
    "Desk lamp LED 9 W", "Ethernet cable Cat 6, 3 m", "Li-ion cell 18650", "Mobile stand", "Gift card box, 50 pcs",
    "Phone case", "Social media training", "Relay 24 V", "Gasket set", "Dial gauge", "Copper pipe 22 mm",
)  # fmt: skip
_UNITS = ("pcs", "m", "kg", "h", "sets", "boxes")


def _digits(rng: random.Random, count: int, first: str = "0123456789") -> str:
    return rng.choice(first) + "".join(rng.choice("0123456789") for _ in range(count - 1))


def _letters(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(count))


def _trade_item(rng: random.Random) -> str:
    """Return an EAN-13 with its check digit and with a prefix of Europe or North America."""
    body = rng.choice(("400", "401", "404", "426", "300", "500", "590", "690", "871", "072", "20")) + _digits(
        rng, 12
    )
    body = body[:12]
    total = sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(body))
    return body + str(-total % 10)


_NUMBERS: tuple[Callable[[random.Random], str], ...] = (
    lambda c: f"P/N {_digits(c, 9)}",
    lambda c: f"Art. {_digits(c, 10)}",
    lambda c: f"part no. {_digits(c, 5)}-{_letters(c, 3)}{_digits(c, 2)}",
    lambda c: f"ref {_digits(c, 1)}-{_digits(c, 7)}-{_digits(c, 1)}",  # connectors
    lambda c: f"{_digits(c, 1)} {_digits(c, 3)} {_digits(c, 3)} {_digits(c, 3)}",  # spare parts of cars
    lambda c: f"{_letters(c, 1)} {_digits(c, 3)} {_digits(c, 3)} {_digits(c, 2)} {_digits(c, 2)}",
    lambda c: f"{_digits(c, 2)} {_digits(c, 2)} {_digits(c, 1)} {_digits(c, 3)} {_digits(c, 3)}",
    lambda c: f"{_digits(c, 2)}{_letters(c, 1)} {_digits(c, 3)} {_digits(c, 3)} {_letters(c, 1)}",
    lambda c: f"{_letters(c, 2)}{_digits(c, 2)}{_letters(c, 2)} rev {_letters(c, 1)}",
    lambda c: f"{_letters(c, 1)}{_digits(c, 2)}{_letters(c, 2)}",  # as a post code without its space
    lambda c: f"EAN {_trade_item(c)}",
    lambda c: _trade_item(c),
    lambda c: f"GTIN {_digits(c, 14)}",
    lambda c: f"S/N {_letters(c, 2)}{_digits(c, 9)}",
    lambda c: f"IMEI 35{_digits(c, 13)}",
    lambda c: f"SSCC {_digits(c, 18, '0123')}",
    lambda c: f"HS {_digits(c, 4)}.{_digits(c, 2)}.{_digits(c, 2)}",
    lambda c: f"NSN {_digits(c, 4)}-{_digits(c, 2)}-{_digits(c, 3)}-{_digits(c, 4)}",
    lambda c: f"order {_digits(c, 3, '1234')}-{_digits(c, 7)}-{_digits(c, 7)}",
    lambda c: f"lot {_digits(c, 8)}/{_digits(c, 2)}",
    lambda c: f"batch {_digits(c, 6)}-{_digits(c, 3)}",
    lambda c: f"PO {_digits(c, 10, '45')}",
    lambda c: f"delivery note {_digits(c, 8)}, tracking 1Z{_letters(c, 3)}{_digits(c, 13)}",
    lambda c: f"customer {_digits(c, 9)}, VAT ID DE{_digits(c, 9)}",
)


def _amount(rng: random.Random) -> str:
    return f"{rng.uniform(0.5, 99_999):,.2f}"


def _line(rng: random.Random) -> str:
    number = rng.choice(_NUMBERS)(rng)
    part = rng.choice(_PARTS)
    many = f"{rng.randint(1, 500)}"
    unit = rng.choice(_UNITS)
    year = rng.randint(2018, 2029)
    day = f"{rng.randint(1, 28):02}.{rng.randint(1, 12):02}.{year}"
    return rng.choice(
        (
            f"{many[0]}  {part}  {number}  {many} {unit}  {_amount(rng)}  {_amount(rng)}",
            f"{number}\t{part}\t{many}\t{_amount(rng)} EUR",
            f"Invoice INV-{year}-{_digits(rng, 6)} of {day}: {number}, {_amount(rng)} EUR",
            f"{part} ({number}), {many} x {_amount(rng)} = {_amount(rng)}",
            f"{number}, {day}, net {_amount(rng)}, VAT 19 %, total {_amount(rng)}",
        )
    )


def test_invoices_and_lists_of_parts_cause_few_false_alarms() -> None:
    """At most one line in 10,000 is a false alarm, although many lines have numbers as long as a card's or a
    phone's.
    """
    rng = random.Random(20)
    detector = PatternDetector([Matcher(pattern) for patterns in NAMED.values() for pattern in patterns], Limits())
    alarms = []
    for _ in range(_LINES):
        line = _line(rng)
        alarms += [(found.name, found.text, line) for found in detector.detect(line)]
    assert len(alarms) <= 1, alarms[:20]
