import io
import zipfile
from pathlib import Path

import pytest
from ingest.parsing import containers
from ingest.parsing.readers import READERS
from ingest.parsing.refusals import Unreadable

MAIN = "application/vnd.openxmlformats-officedocument."


def archive(**parts: str) -> bytes:
    """Return a ZIP file; in names of parts, ``_T_`` replaces characters that Python names cannot have."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, text in parts.items():
            file.writestr(name.replace("_T_", "[Content_Types].xml"), text)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (f"{MAIN}wordprocessingml.document.main+xml", "word"),
        (f"{MAIN}presentationml.presentation.main+xml", "slides"),
        (f"{MAIN}spreadsheetml.sheet.main+xml", "workbook"),
        ("application/vnd.ms-excel.sheet.macroEnabled.main+xml", "workbook"),
        ("application/vnd.ms-word.document.macroEnabled.main+xml", None),
        ("", None),
    ],
)
def test_office_documents_by_their_main_part(tmp_path: Path, types: str, expected: str | None) -> None:
    """The type of the main part decides the format. Other contents of the package do not matter."""
    content = archive(
        _T_=f'<Types><Override ContentType="{types}"/></Types>', **{"word/document.xml": "<document/>"}
    )
    path = tmp_path / "original"
    path.write_bytes(content)
    office = ("word", "slides", "workbook")
    assert [name for name in office if READERS[name].recognises(path, content)] == [expected] * bool(expected)


def test_a_package_that_cannot_be_unpacked(tmp_path: Path) -> None:
    """A package that cannot be unpacked is refused as damaged, and is not read as an archive."""
    content = bytearray(archive(_T_="<Types>" + "x" * 99))
    content[60] ^= 255
    path = tmp_path / "original"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match="damaged"):
        containers.has_main_part(path, bytes(content), b"x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive(_T_="application/vnd.ms-excel.sheet.binary.macroEnabled.main"), "(.xlsb); save it as .xlsx"),
        (archive(mimetype="application/vnd.oasis.opendocument.spreadsheet"), "OpenDocument spreadsheet"),
        (archive(mimetype="application/epub+zip"), ".epub"),
        (bytes(64), "nothing but zero bytes"),
    ],
)
def test_messages_name_other_types(tmp_path: Path, content: bytes, message: str) -> None:
    """The description names the type of the file, and for an Office file also the type to save it as."""
    path = tmp_path / "original"
    path.write_bytes(content)
    kind = containers.kind(path, content)
    assert kind is not None
    assert message in kind
