import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingest.parsing.refusals import Unreadable
from ingest.parsing.text.decode import decode, is_text

# ruff: noqa: RUF001  # these characters are intended
TEXTS = {
    "utf-8": "Grüße 漢字 🚢",
    "utf-8-sig": "Grüße 漢字 🚢",
    "utf-16": "Grüße 漢字 🚢",
    "utf-16-le": "Plain letters, no mark at all.",
    "utf-16-be": "Plain letters, no mark at all.",
    "utf-32": "Grüße 漢字",
    "latin-1": "Grüße aus München, schöne Überfahrt!",
    "cp1252": "The fare is “£18” – it’s valid.",
    "cp1250": "Prom odpływa codziennie o ósmej rano. Dzieci podróżują bezpłatnie, większy bagaż należy zgłosić.",
    "cp1251": "Паром отправляется каждый день в восемь часов утра. Дети едут бесплатно.",
    "koi8-r": "Паром отправляется каждый день в восемь часов утра. Дети едут бесплатно.",
    "shift_jis": "フェリーは毎日午前八時に出発します。子供は無料です。予約は電話で受け付けています。",
    "gb18030": "渡轮每天早上八点出发。儿童免费。",
    "euc-kr": "페리는 매일 아침 여덟 시에 출발합니다. 어린이는 무료입니다.",
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_encodings_are_recognised(encoding: str) -> None:
    """Text in common encodings is decoded correctly."""
    data = TEXTS[encoding].encode(encoding)
    assert is_text(data)
    assert decode(data) == TEXTS[encoding]


def test_an_invalid_byte_is_replaced() -> None:
    """An invalid byte in UTF-8 text is replaced, and the rest is still decoded as UTF-8."""
    data = "Grüße, schöne Fähre. ".encode() * 20 + b"\xff" + "Ende über alles".encode()
    assert decode(data).count("\ufffd") == 1
    assert decode(data).endswith("Ende über alles")


@pytest.mark.parametrize("data", [b"a\0b", bytes(range(256)), b"\x00\x00\x00", b"\x01\x02\x03 abc" * 9])
def test_binary_data_is_not_text(data: bytes) -> None:
    """Data with zero bytes or many control characters is binary."""
    assert not is_text(data)


@given(st.text())
def test_utf8_is_unchanged(text: str) -> None:
    """UTF-8 without a byte order mark is decoded unchanged."""
    if not text.startswith("\ufeff") and "\0" not in text:
        assert decode(text.encode()) == text


@given(st.binary())
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    """For any bytes, `decode` returns text or raises a refusal."""
    with contextlib.suppress(Unreadable):
        decode(data)
