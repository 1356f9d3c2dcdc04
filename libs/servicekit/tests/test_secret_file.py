"""Secrets from files: the content of a renewed file is used, and a broken file changes nothing."""

from pathlib import Path

import pytest
from causeway_testing.clock import ManualClock
from servicekit.secret_file import CHECK_SECONDS, SecretFile
from structlog.testing import capture_logs


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0.0)


def check(text: str) -> None:
    if "!" in text:
        raise ValueError("no exclamation marks")


def volume(path: Path, content: bytes, version: str) -> None:
    """Write a file as the kubelet writes that of a Secret: both steps of an update rename links."""
    directory = path.parent / f"..{version}"
    directory.mkdir()
    (directory / path.name).write_bytes(content)
    link = path.parent / "..data_tmp"
    link.symlink_to(directory.name)
    link.replace(path.parent / "..data")
    if not path.is_symlink():
        path.symlink_to(Path("..data") / path.name)


def test_a_renewed_file_is_read_again(tmp_path: Path, clock: ManualClock) -> None:
    """The value follows the file within a second, as the kubelet renews it. The file is checked at most once a
    second.
    """
    path = tmp_path / "key"
    volume(path, b"old\n", "1")
    secret = SecretFile(path, check, clock=clock)
    volume(path, b"new\n", "2")
    clock.now += CHECK_SECONDS / 2
    assert secret.get_secret_value() == "old"
    clock.now += CHECK_SECONDS
    assert secret.get_secret_value() == "new"


@pytest.mark.parametrize("content", [b"", b"\n", b"s3cret!", b"s3cret\xff", None])
def test_a_file_that_cannot_be_used_leaves_the_old_value(
    content: bytes | None, tmp_path: Path, clock: ManualClock
) -> None:
    """An empty, wrong or missing file is logged once, without its content. When it is valid again, it is used."""
    path = tmp_path / "key"
    path.write_text("old")
    secret = SecretFile(path, check, clock=clock)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with capture_logs() as logged:
        for _ in range(3):
            clock.now += CHECK_SECONDS
            assert secret.get_secret_value() == "old"
    assert len(logged) == 1
    assert "s3cret" not in str(logged)
    path.write_text("mended")
    clock.now += CHECK_SECONDS
    assert secret.get_secret_value() == "mended"


def test_secrets_of_one_file_are_equal(tmp_path: Path, clock: ManualClock) -> None:
    """Two secrets of one file stay equal after a change, and neither shows its value."""
    path = tmp_path / "key"
    path.write_text("s3cret")
    first = SecretFile(path, check, clock=clock)
    path.write_text("s3cret-2")
    second = SecretFile(path, check, clock=clock)
    assert first == second
    assert hash(first) == hash(second)
    assert "s3cret" not in f"{first!r} {first}"
