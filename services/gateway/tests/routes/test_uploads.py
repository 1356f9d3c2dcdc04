"""The slots of uploads, and the checks of uploaded files."""

import asyncio
import io

import pytest
from fastapi import UploadFile
from gateway.routes.uploads import UploadSlots, check_lengths, file_names
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, PayloadTooLarge, RateLimited


async def test_a_cancelled_upload_releases_its_slot() -> None:
    """An upload that is cancelled when it gets a slot does not begin, and the slot is free again."""
    slots, begun = UploadSlots(1), False

    async def upload() -> None:
        nonlocal begun
        async with slots.slot(Deadline.after(120)):
            begun = True

    async with slots.slot(Deadline.after(120)):
        waiting = asyncio.create_task(upload())
        await asyncio.sleep(0.01)
    # The waiting upload has the slot now, but has not run since.
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (waiting.cancelled(), begun) == (True, False)
    async with slots.slot(Deadline.after(1)):
        pass


async def test_an_upload_without_a_slot_in_time_is_refused() -> None:
    """An upload that gets no slot in time is refused with Retry-After."""
    slots = UploadSlots(1)
    async with slots.slot(Deadline.after(120)):
        with pytest.raises(RateLimited) as refused:
            async with slots.slot(Deadline.after(0.02)):
                pass
    assert refused.value.retry_after == 5


def test_a_name_with_a_lone_surrogate_is_refused() -> None:
    """A file name with a lone surrogate is refused."""
    with pytest.raises(InvalidRequest):
        file_names([UploadFile(io.BytesIO(b"x"), size=1, filename="a\ud800.md")])


def test_escapes_in_a_name_are_decoded() -> None:
    """A quotation mark in a name, which clients of forms escape, is stored as such. Other escapes stay."""
    assert file_names([UploadFile(io.BytesIO(b"x"), size=1, filename="a %22b%22 100%25.md")]) == ['a "b" 100%25.md']
    with pytest.raises(InvalidRequest, match=r"on one line, not 'a\\nb\.md'"):
        file_names([UploadFile(io.BytesIO(b"x"), size=1, filename="a%0Ab.md")])


@pytest.mark.parametrize(
    ("name", "content", "fits"),
    [
        ("a.txt", "\u00fcber".encode(), True),
        ("a.txt", "\u00fcbers".encode(), False),
        ("a.MD", b"12345", False),
        ("a.txt", "\u20ac\u20ac\u20ac\u20ac".encode(), True),
        ("a.txt", "abcd".encode("utf-16"), True),
        ("a.txt", b"\xff\xfe" + b"a\0" * 20, False),
        ("a.txt", "\u044f\u044f\u044f\u044f\u044f".encode("cp1251"), False),
        ("a.html", b"<p>12345", True),
        ("a.pdf", b"%PDF-1.7", True),
    ],
)
async def test_long_text_is_refused_at_once(name: str, content: bytes, fits: bool) -> None:
    """A text file with too many characters is refused. Other files can still be read from their start."""
    file = UploadFile(io.BytesIO(content), size=len(content), filename=name)
    if fits:
        await check_lengths([None, file], 4)
        assert await file.read() == content
    else:
        with pytest.raises(PayloadTooLarge, match="more than 4 characters"):
            await check_lengths([None, file], 4)
