import io
from pathlib import Path

import pytest
from ingest.parsing.formats import picture
from ingest.parsing.frames import Request
from ingest.parsing.refusals import Unreadable
from PIL import Image

_COMPRESSION = b"\x03\x01\x03\x00\x01\x00\x00\x00"  # tag 259, one number of two bytes


def test_a_damaged_second_picture_of_a_tiff_is_refused(tmp_path: Path) -> None:
    """A TIFF whose second picture has an unknown compression is unreadable, although Pillow raises a `KeyError`."""
    buffer = io.BytesIO()
    page = Image.new("L", (8, 8))
    page.save(buffer, "TIFF", save_all=True, append_images=[page])
    content = buffer.getvalue()
    second = content.rindex(_COMPRESSION) + len(_COMPRESSION)
    path = tmp_path / "scan.tif"
    path.write_bytes(content[:second] + b"\xe3" + content[second + 1 :])
    request = Request(str(path), ".tif", 10, 1000, 1024**3, 60, scans="read")
    with pytest.raises(Unreadable, match="damaged") as raised:
        list(picture.parse(request))
    assert isinstance(raised.value.__cause__, KeyError)
