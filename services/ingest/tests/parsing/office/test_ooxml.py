import io
import zipfile
from pathlib import Path

import pytest
from ingest.parsing.office import ooxml
from ingest.parsing.refusals import Refusal, TooLarge, Unreadable, Unsupported
from lxml import etree  # type: ignore[import-untyped]  # ships no types

MEMORY = 1024**2


def package(tmp_path: Path, parts: dict[str, bytes]) -> Path:
    path = tmp_path / "original"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"a.xml": b" " * (MEMORY // 4 + 1)}, TooLarge, "text unpacks to 262145 bytes. The limit is 262144"),
        ({"a.png": b" " * (MEMORY // 2 + 1)}, TooLarge, "document unpacks to 524289 bytes. The limit is 524288"),
        ({"a.xml": b"<!DOCTYPE x>"}, Unreadable, "DTD"),
        ({"a.xml": "<!DOCTYPE x>".encode("utf-16")}, Unreadable, "DTD"),
        ({"_rels/.rels": b"http://purl.oclc.org/ooxml/officeDocument"}, Unsupported, "Strict"),
    ],
)
def test_unsafe_documents_are_refused(
    tmp_path: Path, parts: dict[str, bytes], error: type[Refusal], message: str
) -> None:
    """`check` refuses a document that is too large, has a DTD, or is Strict Open XML."""
    with pytest.raises(error, match=message):
        ooxml.check(package(tmp_path, parts), MEMORY)


def test_safe_documents_are_accepted(tmp_path: Path) -> None:
    """The limit for pictures is higher than for text. Only the beginning of each XML part is checked."""
    parts = {"a.png": b"<!DOCTYPE" + bytes(MEMORY // 4 + 9), "a.xml": b" " * 9999 + b"<!DOCTYPE"}
    ooxml.check(package(tmp_path, parts), MEMORY)


def test_library_errors_become_unreadable() -> None:
    """Any exception becomes `Unreadable`, except refusals, MemoryError and RecursionError."""
    for error, expected in (
        (KeyError("rId1"), Unreadable),
        (zipfile.BadZipFile(), Unreadable),
        (TooLarge("more"), TooLarge),
        (MemoryError(), MemoryError),
        (RecursionError(), RecursionError),
    ):
        with pytest.raises(expected), ooxml.damage_is_unreadable("It"):
            raise error
    for source, message in ((b"<a>", "broken"), (b"<a>" * 300 + b"</a>" * 300, "too deeply")):
        with pytest.raises(Unreadable, match=message), ooxml.damage_is_unreadable("It"):
            etree.parse(io.BytesIO(source))
