import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from ingest.parsing.child import parse
from ingest.parsing.content import Head, Member, Omission, Page, Part
from ingest.parsing.frames import Request
from ingest.parsing.refusals import TooLarge, Unreadable

Unpack = Callable[..., list[Part]]


@pytest.fixture
def unpack(tmp_path: Path) -> Unpack:
    """Return a function that unpacks an archive like the child, but in this process."""

    def unpack(content: bytes, suffix: str, count: int = 10, size: int = 10_000) -> list[Part]:
        path = tmp_path / "original"
        path.write_bytes(content)
        return list(
            parse(Request(str(path), suffix, 10, 100_000, 1024**3, 60, max_members=count, max_member_bytes=size))
        )

    return unpack


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: dict[str, bytes], mode: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{mode}") as archive:  # type: ignore[call-overload]  # of a test
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return buffer.getvalue()


FILES = {"a.txt": b"One.", "b/c.md": b"# Two", "b/.hidden": b"x", "__MACOSX/a.txt": b"x", "../up.txt": b"Three."}


@pytest.mark.parametrize(
    ("content", "suffix", "kind"),
    [
        (zipped(FILES), ".zip", "application/zip"),
        (zipped(FILES), "", "application/zip"),
        (tarred(FILES), ".tar", "application/x-tar"),
        (tarred(FILES, "gz"), ".tgz", "application/x-tar"),
        (tarred(FILES, "gz"), ".gz", "application/x-tar"),
        (tarred(FILES, "bz2"), "", "application/x-tar"),
        (tarred(FILES, "xz"), ".xz", "application/x-tar"),
    ],
)
def test_files_of_an_archive(unpack: Unpack, content: bytes, suffix: str, kind: str) -> None:
    """Each file is yielded with its name, without ``..``. Hidden files and links are skipped. A page lists the
    files.
    """
    head, *members, page = unpack(content, suffix)
    assert head == Head(kind)
    assert members == [Member("a.txt", b"One."), Member("b/c.md", b"# Two"), Member("up.txt", b"Three.")]
    assert isinstance(page, Page)
    assert page.sections[0].text == "Files of the archive:\n- a.txt\n- b/c.md\n- up.txt"


def test_files_over_the_limits_are_omissions(unpack: Unpack) -> None:
    """Files over the limits on number and size cause an omission. The other files are unpacked."""
    content = zipped({"large": b"x" * 200, "a": b"1", "b": b"2", "c": b"3"})
    parts = unpack(content, ".zip", 2, 100)
    assert [part.name for part in parts if isinstance(part, Member)] == ["a", "b"]
    assert [part for part in parts if isinstance(part, Omission)] == [
        Omission("TooLarge", "Files of the archive exceed the limits and were left out: 2.")
    ]


@pytest.mark.parametrize("pack", [zipped, lambda files: tarred(files, "gz")])
def test_a_bomb_is_refused(unpack: Unpack, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    """An archive that unpacks to more than a hundred times its size is refused."""
    with pytest.raises(TooLarge, match="100 times"):
        unpack(pack({"zeros": bytes(40_000_000)}), "")


def test_a_file_longer_than_declared_is_damaged(unpack: Unpack) -> None:
    """A file with more bytes than the archive declares counts as damaged."""
    content = bytearray(zipped({"a.txt": b"x" * 5000, "b.txt": b"Two."}))
    entry_offset = content.rindex(b"PK\x01\x02", 0, content.rindex(b"PK\x01\x02"))
    content[entry_offset + 24 : entry_offset + 28] = (10).to_bytes(4, "little")
    parts = unpack(bytes(content), ".zip")
    assert [part.name for part in parts if isinstance(part, Member)] == ["b.txt"]
    assert [(part.kind, part.part) for part in parts if isinstance(part, Omission)] == [("Unreadable", "a.txt")]


def test_a_damaged_or_encrypted_file_is_an_omission(unpack: Unpack) -> None:
    """A damaged or encrypted file causes an omission. The other files are unpacked."""
    content = bytearray(zipped({"a.txt": b"One one one.", "c.txt": b"Three.", "b.txt": b"Two."}))
    content[36] ^= 255
    content[content.rindex(b"PK\x01\x02") + 8] |= 1  # the flag of encryption
    parts = unpack(bytes(content), ".zip")
    assert [(part.kind, part.part) for part in parts if isinstance(part, Omission)] == [
        ("Unreadable", "a.txt"),
        ("Unreadable", "b.txt"),
    ]
    assert [part for part in parts if isinstance(part, Member)] == [Member("c.txt", b"Three.")]


def test_an_archive_without_files(unpack: Unpack) -> None:
    """The refusal says that the archive has no files."""
    with pytest.raises(Unreadable, match="no files"):
        unpack(zipped({".hidden": b"x"}), ".zip")
