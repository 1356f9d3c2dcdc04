"""The limits of the pictures of Office documents."""

import io

import docx
import pytest
from ingest.parsing import scans
from ingest.parsing.content import Omission, Scan
from ingest.parsing.office import pictures
from ingest.parsing.scans import ScanMode
from PIL import Image


@pytest.mark.parametrize(
    ("limit", "value", "omitted"),
    [("pictures._MAX_COUNT", 1, 2), ("pictures._MAX_BYTES", 1000, 1), ("scans._MAX_PIXELS", 50_000, 1)],
)
def test_pictures_after_a_limit(monkeypatch: pytest.MonkeyPatch, limit: str, value: int, omitted: int) -> None:
    """Pictures that exceed the limit on their number, bytes or pixels cause one omission. A symbol causes none."""
    module, name = limit.split(".")
    monkeypatch.setattr({"pictures": pictures, "scans": scans}[module], name, value)
    document = docx.Document()
    for size, shade in (((400, 100), 0), ((400, 100), 100), ((1200, 300), 200), ((16, 16), 200)):
        buffer = io.BytesIO()
        Image.new("RGB", size, (shade, 0, 0)).save(buffer, "PNG")
        document.add_picture(io.BytesIO(buffer.getvalue()))
    for mode, count in ((ScanMode.READ, 3 - omitted), (ScanMode.OFF, 0)):
        found = list(pictures.DocumentPictures(mode).scans(document.part, 0))
        assert sum(isinstance(part, Scan) for part in found) == count
        messages = [(part.kind, part.message) for part in found if isinstance(part, Omission)]
        if mode is ScanMode.OFF:
            assert not messages
        else:
            [(kind, message)] = messages
            assert kind == "TooLarge"
            assert message.startswith("A picture was" if omitted == 1 else f"{omitted} pictures were")


def test_symbols_and_damaged_pictures_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit of one picture, a picture is read although a symbol and damaged pictures are before it."""
    monkeypatch.setattr(pictures, "_MAX_COUNT", 1)
    document = docx.Document()
    for size in ((16, 16), (300, 100), (301, 100), (400, 100)):
        buffer = io.BytesIO()
        Image.new("RGB", size).save(buffer, "PNG")
        document.add_picture(io.BytesIO(buffer.getvalue()))
    _, unknown, truncated, _ = [
        relation.target_part for relation in document.part.rels.values() if relation.reltype.endswith("/image")
    ]
    unknown._blob, truncated._blob = b"not a picture", truncated.blob[:-30]
    [scan] = pictures.DocumentPictures(ScanMode.READ).scans(document.part, 0)
    assert isinstance(scan, Scan)
    assert scan.part == "word/media/image4.png"
